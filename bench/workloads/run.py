#!/usr/bin/env python3
"""The tensor programs and attentions against PyTorch, interleaved in one process a row.

    python bench/workloads/run.py TOOL [--budget 60s] [--strong] [row ...]

TOOL is the equiforge binary; libequiforge.so lies beside it. A row is name:batch (patterns are
allowed; programs.py lists the names); by default the 21 tensor programs and 9 attentions. All f32.

Each row is exported and optimized twice: with no time to search, which gives the package of one
kernel an operator (`unfused`) and the time until it was there (`first`), and with the budget. Then
the variants are checked against the module in f64, and timed: in each of the rounds, in random
order, calls that are not counted for 5 ms (workers of the one before stop spinning), then calls for
about 3 ms. The check is repeated on fresh inputs afterwards. A variant is WRONG above a relative L2
error of 1e-5, and `rounds more` above both 1e-6 and twice eager's own. Attentions are exported in
the form of explicit products (--form sdpa: the other); of eager and compiled the faster form
counts.

Times are the least of the rounds in ms, ratios those of the least times; the medians of the ratios
within the rounds enter the last line of means. `bound` is what the rates that the tool measured
allow to the best known algorithm. --strong adds max-autotune and ahead-of-time compilation, both with frozen weights.
--json FILE keeps everything, one line a row. PyTorch's threads spin about 0.1 ms for one another
(GOMP_SPINCOUNT): longer, and they lose whole time slices on a machine with other work.
"""
import argparse
import collections
import fnmatch
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
import warnings

import programs

DISCARDED_S, SAMPLE_S = 5e-3, 3e-3
ENVIRONMENT = {"THP_MEM_ALLOC_ENABLE": "1", "MALLOC_MMAP_MAX_": "0",
               "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20),
               "GOMP_SPINCOUNT": "2000"}


# ---- one row, in a process of its own ---------------------------------------------------------


def optimize(options, archive, package, budget):
    """The tool's report, or {"error": why}; with the wall time of the whole command."""
    start = time.monotonic()
    done = subprocess.run(
        [options.tool, "optimize", archive, "-o", package, "--parameters", "constant", "--budget",
         budget, "--threads", str(options.threads), "--json", "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    report = json.loads(lines[-1]) if lines else {}
    if done.returncode:
        report = {"error": done.stderr.strip() or f"exit {done.returncode}"}
    return report | {"wall_s": time.monotonic() - start}


def compiled(module, label, **how):
    """torch.compile of a function with a code object of its own: variants that share one would
    share the compiled result."""
    import torch

    def call(*inputs):
        return module(*inputs)

    code = call.__code__.replace(co_name="compiled_" + "".join(filter(str.isalnum, label)))
    own = types.FunctionType(code, globals(), code.co_name, None, call.__closure__)
    return torch.compile(own, dynamic=False, **how)


def torch_variants(forms, archives, inputs, strong, folder):
    """{label: call}; a label is system or system/form."""
    import torch
    calls = {}
    frozen = {"freezing": True}
    for form, module in forms.items():
        tail = f"/{form}" if form else ""
        arguments = list(inputs.values())
        made = {"eager": module, "compile": compiled(module, "default" + tail)}
        if strong:
            tuned = torch._inductor.list_mode_options("max-autotune") | frozen
            made["maxtune+fr"] = compiled(module, "tuned" + tail, options=tuned)
            made["aoti+fr"] = torch._inductor.aoti_load_package(
                torch._inductor.aoti_compile_and_package(
                    archives[form], package_path=f"{folder}/{form or 'all'}.aoti.pt2",
                    inductor_configs=frozen))
        for system, function in made.items():
            calls[system + tail] = lambda function=function: function(*arguments)
    return calls


def sample(call):
    """Seconds of one call; sample length and warming as the protocol says."""
    clock = time.perf_counter
    start, n = clock(), 0
    while True:
        call()
        n += 1
        spent = clock() - start
        if spent >= DISCARDED_S:
            break
    count = max(1, round(SAMPLE_S / (spent / n)))
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def errors(reference, inputs, calls, outputs):
    """Relative L2 error of every variant against the module in f64."""
    want = reference(*(x.double() for x in inputs.values()))
    for out in outputs:
        out.fill_(math.nan)
    return {label: ((call().double() - want).norm() / want.norm()).item()
            for label, call in calls.items()}


def wrong(error):
    """The labels whose error is too large."""
    return {label for label, e in error.items() if not e <= 1e-5}


def rounds_more(error):
    """The labels with more rounding than twice eager's, beyond a floor."""
    allowed = max(1e-6, 2 * min(e for label, e in error.items() if label.startswith("eager")))
    return {label for label, e in error.items() if not e <= allowed}


def work(options, row):
    """Everything about one row; returns what goes to the table."""
    import torch
    import library
    warnings.simplefilter("ignore", FutureWarning)  # torch.export's about itself
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    forms = programs.build(row)
    main = forms.get(options.form) or next(iter(forms.values()))
    inputs = main.draw(2)
    result = {"row": row, "flops": main.flops, "bytes": main.bytes}
    with tempfile.TemporaryDirectory(prefix="workload") as folder:
        if options.keep:
            folder = pathlib.Path(options.keep) / row.replace(":", "_")
            folder.mkdir(parents=True, exist_ok=True)
        exported = {form: torch.export.export(module, tuple(inputs.values()))
                    for form, module in forms.items() if module is main or options.strong}
        archive = f"{folder}/program.pt2"
        torch.export.save(next(e for f, e in exported.items()
                               if forms[f] is main).run_decompositions({}), archive)
        result["first"] = optimize(options, archive, f"{folder}/first.pkg", "0.001s")
        result["best"] = optimize(options, archive, f"{folder}/best.pkg", options.budget)
        failed = [r["error"] for r in (result["first"], result["best"]) if "error" in r]
        if failed:
            return result | {"error": failed[0]}
        if not options.keep:
            os.unlink(archive)

        calls = torch_variants(forms, exported, inputs, options.strong, folder)
        lib = library.Library(pathlib.Path(options.tool).resolve().parent / "libequiforge.so")
        ours = {label: lib.load(f"{folder}/{file}.pkg", options.threads)
                for label, file in (("unfused", "first"), ("ours", "best"))}
        for label, package in ours.items():
            calls[label] = package.bind(inputs)
        outputs = [package.output for package in ours.values()]
        reference = next(iter(programs.build(row).values())).double()
        result["errors"] = errors(reference, inputs, calls, outputs)

        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        samples = collections.defaultdict(list)
        order = list(calls)
        choose = random.Random(0)
        for _ in range(options.rounds):
            choose.shuffle(order)
            for label in order:
                samples[label].append(sample(calls[label]))
        if torch._dynamo.utils.counters["stats"]["unique_graphs"] != graphs:
            raise RuntimeError("something was compiled again while it was timed")

        for name, fresh in main.draw(3).items():
            inputs[name].copy_(fresh)
        result["errors_after"] = errors(reference, inputs, calls, outputs)
        for name, judge in (("wrong", wrong), ("rounds_more", rounds_more)):
            result[name] = sorted(judge(result["errors"]) | judge(result["errors_after"]))
        result["samples"] = samples
        peaks = [json.loads(pathlib.Path(f"{folder}/{file}.pkg/report.json").read_text())["peaks"]
                 for file in ("first", "best")]
        for rate in ("gflops", "gbps"):
            result[rate] = max(p[rate] for p in peaks)
    return result


# ---- the table --------------------------------------------------------------------------------


def faster_form(samples, system):
    """The label of a system's fastest form."""
    forms = [label for label in samples if label.split("/")[0] == system]
    return min(forms, key=lambda label: min(samples[label]))


def digest(result, systems):
    """By system the time in ms, its ratio to ours, the median of the rounds' ratios; the bound."""
    samples = result["samples"]
    chosen = {s: faster_form(samples, s) for s in systems}
    times = {s: min(samples[label]) * 1e3 for s, label in chosen.items()}
    ratios = {s: times[s] / times["ours"] for s in systems if s != "ours"}
    medians = {s: statistics.median(a / b for a, b in zip(samples[chosen[s]], samples["ours"]))
               for s in ratios}
    bound = max(result["flops"] / result["gflops"], result["bytes"] / result["gbps"]) / 1e6
    return times, ratios, medians, bound


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def summary(done, peers):
    """Geometric means by group and the counts of rows that win, lose, or took long."""
    for title, names in (("tensor programs", programs.TENSOR), ("attention", programs.ATTENTION),
                         ("extra", programs.EXTRA)):
        rows = [d for d in done if d["row"].split(":")[0] in names]
        if not rows:
            continue
        for which, what in (("ratios", "geometric mean"), ("medians", "the same of the medians")):
            means = [f"{s} {mean([d[which][s] for d in rows]):.2f}" for s in [*peers, "unfused"]]
            least = mean([min(d[which][s] for s in peers) for d in rows])
            print(f"{what}, {title} ({len(rows)}): {', '.join(means)}; best of peers {least:.2f}")
        over = mean([d["times"]["ours"] / d["bound"] for d in rows])
        print(f"time over the bound, {title}: {over:.2f}")

    def note(what, rows):
        print(f"{what}: {len(rows)}" + (": " + " ".join(rows) if rows else ""))

    note("faster than all", [d["row"] for d in done if d["least"] > 1])
    note("slower than 1.5 times the best", [d["row"] for d in done if d["least"] < 1 / 1.5])
    note("first package after more than 10 s", [d["row"] for d in done if d["first"] > 10])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--strong", action="store_true")
    parser.add_argument("--form", choices=("math", "sdpa"), default="math")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="a folder for archives and packages that are to stay")
    parser.add_argument("--work", help=argparse.SUPPRESS)  # the process of one row
    options = parser.parse_intermixed_args()
    if options.work:
        print(json.dumps(work(options, options.work)))
        return
    known = [f"{name}:{batch}" for name in programs.TENSOR | programs.ATTENTION
             for batch in (1, 8, 16)]
    rows = []
    for wanted in options.rows or known:
        found = fnmatch.filter(known, wanted)
        name, _, batch = wanted.partition(":")
        if not found and not (name in programs.TENSOR | programs.ATTENTION | programs.EXTRA
                              and batch.isdigit() and int(batch)):
            sys.exit(f"{wanted}: no such row")
        rows += found or [wanted]
    peers = ["eager", "compile"] + ["maxtune+fr", "aoti+fr"] * options.strong
    systems = [*peers, "unfused", "ours"]
    print(f"budget {options.budget}, parameters constant, {options.threads} threads, f32, "
          f"{options.rounds} rounds; times in ms, ratios to ours")
    print(f"{'row':24}" + "".join(f"{s:>11}" for s in systems) + f"{'bound':>9} |" +
          "".join(f"{'/'.join([s, 'ours']):>16}" for s in [*peers, "unfused"]) +
          f" | {'kernels':>7} {'parts':>5} {'measured':>9} {'first s':>7} {'all s':>6}", flush=True)
    done = []
    for row in rows:
        child = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--work", row],
                               stdout=subprocess.PIPE, text=True, env=ENVIRONMENT | os.environ)
        lines = child.stdout.splitlines()
        result = json.loads(lines[-1]) if child.returncode == 0 and lines else {
            "row": row, "error": f"exit {child.returncode}"}
        if options.json:
            with open(options.json, "a") as out:
                out.write(json.dumps(result) + "\n")
        if "error" in result:
            print(f"{row:24} {result['error']}", flush=True)
            continue
        times, ratios, medians, bound = digest(result, systems)
        best = result["best"]
        print(f"{row:24}" + "".join(f"{times[s]:11.4f}" for s in systems) + f"{bound:9.4f} |" +
              "".join(f"{ratios[s]:16.2f}" for s in [*peers, "unfused"]) +
              f" | {best['kernels']:7} {best['subgraphs']:5} "
              f"{best['measured']:4}/{best['candidates']:<4} {result['first']['wall_s']:7.1f} "
              f"{best['wall_s']:6.1f}" +
              "".join(f"  {what}: {' '.join(result[key])}" for key, what in
                      (("wrong", "WRONG"), ("rounds_more", "rounds more")) if result[key]),
              flush=True)
        if not result["wrong"]:
            done.append({"row": row, "times": times, "ratios": ratios, "medians": medians,
                         "bound": bound, "least": min(ratios[s] for s in peers),
                         "first": result["first"]["wall_s"]})
    summary(done, peers)


if __name__ == "__main__":
    main()

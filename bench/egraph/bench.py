#!/usr/bin/env python3
"""Our e-graph engine beside egglog (its Python wheel), case by case, in one run.

    python bench/egraph/bench.py TOOL [--cases ac-9,micro-10] [--repeat 5] [--json FILE]

TOOL is the equiforge binary. Prints the yardstick (a linear-probing table of 2^22 slots: 2^21
inserts, 2^20 dependent reads, best of 7, compiled with the system's cc), then per case the best
time of search, apply and rebuild of both, the ratio egglog/ours, bytes per e-node of ours and the
peak resident memory of a process that runs the case once. Both are single-threaded; runs of the
two alternate, so that a change of the machine's load meets both.
Needs `pip install egglog` in the interpreter that runs this file.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SUITE = pathlib.Path(__file__).resolve().parents[2] / "tests/conformance/egg-suite.eqf"

# ---- the suite's rules and terms in egglog's syntax -------------------------------------------


def parse(text: str) -> list:
    """S-expressions as nested lists of strings."""
    tokens = re.findall(r'"[^"]*"|[()]|[^\s()]+', re.sub(r";[^\n]*", "", text))
    stack: list[list] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0]


NAMES = {"+": "Add", "*": "Mul", "-": "Sub", "/": "Div", "pow": "Pow", "ln": "Ln", "sqrt": "Sqrt",
         "sin": "Sin", "cos": "Cos", "d": "Diff", "i": "Integral"}


def term(x) -> str:
    """A term or pattern: ?v is a variable, numbers and symbols are leaves."""
    if isinstance(x, str):
        if x.startswith("?"):
            return x[1:]
        if re.fullmatch(r"-?\d+", x):
            return f"(Num {x})"
        return f'(Var "{x}")'
    return "(" + " ".join([NAMES[x[0]]] + [term(k) for k in x[1:]]) + ")"


def right(op: str, a: int, b: int):
    return str(a) if a == b else [op, str(a), right(op, a + 1, b)]


def egglog_case(name: str, forms: list) -> tuple[str, str]:
    """Set-up program and run program of `ac-N` or `micro-K`."""
    family, n = name.split("-")
    rules = next(f for f in forms if f[:2] == ["ruleset", family])
    case = next(f for f in forms if f[:2] == ["family", family])
    out = ["(datatype Math (Num i64) (Var String)"]
    out += [f"  ({NAMES[op]} {'Math ' * int(arity)})" for op, arity in
            next(f for f in rules if f[0] == "ops")[1:]]
    out.append(")")
    out += [f"(rewrite {term(f[2])} {term(f[4])})" for f in rules if f[0] == "rule"]
    if family == "ac":
        out.append(f"(let $root {term(right('+', 1, int(n)))})")
        return "\n".join(out), "(run-schedule (saturate (run)))"
    roots = [f[1] for f in case if f[0] == "term"]
    out += [f"(let $root{i} {term(t)})" for i, t in enumerate(roots)]
    return "\n".join(out), f"(run {n})"


def run_egglog(name: str, forms: list) -> tuple[float, int]:
    """Seconds of the run and the final number of e-nodes."""
    from egglog.bindings import EGraph

    setup, body = egglog_case(name, forms)
    graph = EGraph()
    graph.run_program(*graph.parse_program(setup))
    commands = graph.parse_program(body)
    start = time.perf_counter()
    graph.run_program(*commands)
    seconds = time.perf_counter() - start
    sizes = graph.run_program(*graph.parse_program("(print-size)"))
    counts = re.findall(r"\('[^']*', (\d+)\)", str(sizes))
    return seconds, sum(int(c) for c in counts)


# ---- ours ------------------------------------------------------------------------------------


def run_ours(tool: str, name: str, match: str) -> dict:
    out = subprocess.run([tool, "egraph", "run", str(SUITE), "--case", name, "--match", match,
                          "--json"], capture_output=True, text=True, check=True).stdout
    result = json.loads(out.splitlines()[0])
    if result["status"] != "pass":
        sys.exit(f"{name}: {result['reason']}")
    ms = result["ms"]
    result["seconds"] = (ms["search"] + ms["apply"] + ms["rebuild"]) / 1e3
    return result


def peak_rss(command: list[str]) -> int:
    """Bytes resident at the peak of a child process."""
    code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], "
            "stdout=subprocess.DEVNULL, check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    out = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True,
                         check=True).stdout
    return int(out) * 1024


YARDSTICK = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
static uint64_t table[1u << 22];
int main(void) {
    double best = 1e9;
    for (int r = 0; r < 7; r++) {
        struct timespec a, b;
        memset(table, 0, sizeof table);
        clock_gettime(CLOCK_MONOTONIC, &a);
        uint64_t x = 88172645463325252u, sum = 0;
        for (uint32_t k = 0; k < 1u << 21; k++) {
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            uint32_t i = (uint32_t)(x >> 20) & ((1u << 22) - 1);
            while (table[i]) i = (i + 1) & ((1u << 22) - 1);
            table[i] = x;
        }
        uint32_t i = 1;
        for (uint32_t k = 0; k < 1u << 20; k++) {
            i = (uint32_t)((table[i] * 0x9E3779B97F4A7C15u + k) >> 40) & ((1u << 22) - 1);
            sum += i;
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        if (s < best) best = s;
        if (sum == 42) puts("");
    }
    printf("%.4f\n", best);
    return 0;
}
"""


def yardstick() -> float:
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "yardstick.c"
        source.write_text(YARDSTICK)
        binary = pathlib.Path(folder) / "yardstick"
        subprocess.run(["cc", "-O2", "-o", str(binary), str(source)], check=True)
        return float(subprocess.run([str(binary)], capture_output=True, text=True,
                                    check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--cases", default="ac-8,ac-9,ac-10,micro-9,micro-10,micro-11")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--match", default="auto")
    parser.add_argument("--json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    forms = parse(SUITE.read_text())
    if args.child:
        print(*run_egglog(args.child, forms))
        return
    print(f"yardstick {yardstick():.3f} s (0.30 to 0.35 s on the reference machine)", flush=True)
    print(f"{'case':9} {'e-nodes':>9} {'egglog ms':>10} {'ours ms':>9} {'ratio':>6} "
          f"{'B/e-node':>9} {'egglog MB':>10} {'ours MB':>8}", flush=True)
    rows = []
    for name in args.cases.split(","):
        theirs, ours, result, nodes = [], [], {}, 0
        for _ in range(args.repeat):
            result = run_ours(args.tool, name, args.match)
            ours.append(result["seconds"])
            out = subprocess.run([sys.executable, __file__, args.tool, "--child", name],
                                 capture_output=True, text=True, check=True).stdout.split()
            theirs.append(float(out[0]))
            nodes = int(out[1])
        mine = peak_rss([args.tool, "egraph", "run", str(SUITE), "--case", name])
        other = peak_rss([sys.executable, __file__, args.tool, "--child", name])
        row = {"case": name, "nodes": result["nodes"], "egglog_nodes": nodes,
               "egglog_ms": 1e3 * min(theirs), "ours_ms": 1e3 * min(ours),
               "ratio": min(theirs) / min(ours), "bytes_per_node": result["bytes"] / result["nodes"],
               "egglog_rss": other, "ours_rss": mine}
        rows.append(row)
        print(f"{name:9} {row['nodes']:9} {row['egglog_ms']:10.1f} {row['ours_ms']:9.2f} "
              f"{row['ratio']:6.1f} {row['bytes_per_node']:9.1f} {other / 1e6:10.1f} "
              f"{mine / 1e6:8.1f}" + ("" if nodes == row["nodes"] else f"  egglog: {nodes} e-nodes"),
              flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

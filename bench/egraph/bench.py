#!/usr/bin/env python3
"""Everything the e-graph engine is asked to be, measured: a row each, with its limit.

    python bench/egraph/bench.py TOOL SMALL [--rows REGEX] [--repeat 5] [--json FILE]

TOOL is the equiforge binary, SMALL the binary of bench_egraph (bench/egraph/small.c). Three kinds
of rows: how much longer egglog (its Python wheel, single-threaded) takes for search, apply and
rebuild of the same case, runs of the two alternating, best of each; our own times; memory.

Times are limited on a reference machine, where the yardstick (a linear-probing table of 2^22 slots:
2^21 inserts, 2^20 dependent random reads, best of 7) takes 0.325 s. Here the limit of a time is
scaled by the yardstick, taken before each group of rows; the best counts. What egglog itself takes
here, against its times on that machine, is printed too: the yardstick tells the speed of memory,
that one of the whole. Limits of a few microseconds are not scaled.
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


def run_ours(tool: str, suite: str, name: str, match: str) -> dict:
    out = subprocess.run([tool, "egraph", "run", suite, "--case", name, "--match", match, "--json"],
                         capture_output=True, text=True, check=True).stdout
    result = json.loads(out.splitlines()[0])
    if result["status"] != "pass":
        sys.exit(f"{name}: {result['reason']}")
    ms = result["ms"]
    result["best"] = ms["search"] + ms["apply"] + ms["rebuild"]
    return result


def show(x) -> str:
    return x if isinstance(x, str) else "(" + " ".join(show(k) for k in x) + ")"


def with_backoff(text: str, forms: list) -> str:
    """The suite and two cases more: the terms of math-bench under the backoff scheduler."""
    bench = next(f for f in forms if f[:2] == ["family", "math-bench"])
    terms = " ".join(show(f) for f in bench if f[0] == "term")
    for name, nodes in (("math-100k", 100000), ("math-1m", 1000000)):
        text += (f"\n(case {name} (rules math) (analysis math-fold) (scheduler backoff) {terms} "
                 f"(limits :iterations none :nodes {nodes} :seconds none) (stop nodes))")
    return text


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
        for (uint32_t k = 1; k <= 1u << 20; k++) { /* half of the slots are empty: k leads on */
            i = (uint32_t)(((table[i] ^ k) * 0x9E3779B97F4A7C15u) >> 42);
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


# ---- the rows --------------------------------------------------------------------------------

REFERENCE_S = 0.325
# egglog's milliseconds on the reference machine
THEIRS = {"ac-8": 34, "ac-10": 741, "ac-11": 4483, "micro-10": 186, "micro-11": 2065}
# case: least ratio egglog/ours (None: egglog is not run), most milliseconds, most MB resident
CASES = {
    "ac-8": (5, 6, None),
    "ac-9": (7, None, None),
    "ac-10": (7, 100, 25),
    "ac-11": (10, 450, 80),
    "micro-9": (5, None, None),
    "micro-10": (5, 37, None),
    "micro-11": (6, 345, 100),
    "micro-12": (None, 8000, 1500),
    "lambda-fib": (None, 40, None),
    "lambda-repeat": (None, 80, None),
    "math-100k delta": (None, 60, None),
    "math-1m delta": (None, 1500, None),
    "math-100k full": (None, 404 / 3, None),
    "math-1m full": (None, 21318 / 3, None),
}
BYTES_PER_NODE, BYTES_PER_NODE_AIM = 80, 68
SHORT_MS, LONG_MS = 60, 4000  # shorter ones are run four times as often, longer ones twice
# what SMALL prints: most of it, scaled by the yardstick?
SMALL = {
    "empty search, 120 rules us": (5, False),
    "simple2 us": (5, False),
    "math-simplify-add us": (50, False),
    "micro-11 tree extraction ms": (60, True),
    "ac-8 explained ms": (12, True),
    "ac-8 explained / not": (2, False),
    "ac-9 explained / not": (2, False),
    "ac-10 explained / not": (2, False),
    "micro-10 explained / not": (2, False),
    "micro-10 undo / iteration": (1, False),
}


class Table:
    def __init__(self, pattern: str):
        self.pattern = re.compile(pattern)
        self.rows: list[dict] = []
        self.yardstick = yardstick()
        self.short = 0
        print(f"{'row':42} {'measured':>10} {'limit':>9} {'here':>9}", flush=True)

    def wants(self, name: str) -> bool:
        return bool(self.pattern.search(name))

    def row(self, name: str, value: float, limit, scaled: bool = False, least: bool = False):
        here = limit
        if limit is not None and scaled:
            self.yardstick = min(self.yardstick, yardstick())
            here = limit * self.yardstick / REFERENCE_S
        verdict = ""
        if here is not None:
            ok = value >= here if least else value <= here
            verdict = "ok" if ok else "short"
            self.short += not ok
        print(f"{name:42} {value:10.2f} {'' if limit is None else format(limit, '9.1f'):>9} "
              f"{'' if here is None else format(here, '9.1f'):>9} {verdict}", flush=True)
        self.rows.append({"row": name, "measured": value, "limit": limit, "here": here,
                          "verdict": verdict})


def child(tool: str, name: str) -> list[str]:
    return [sys.executable, __file__, tool, "-", "--child", name]


def runs(repeat: int, times: list[float]) -> int:
    if times and min(times) < SHORT_MS:
        return 4 * repeat
    return min(repeat, 2) if times and min(times) > LONG_MS else repeat


def measure_case(table: Table, tool: str, suite: str, name: str, repeat: int, speed: dict) -> None:
    ratio, most_ms, most_mb = CASES[name]
    case, _, match = name.partition(" ")
    ours, theirs, result = [], [], {}
    while len(ours) < runs(repeat, ours):
        result = run_ours(tool, suite, case, match or "auto")
        ours.append(result["best"])
        if ratio:
            out = subprocess.run(child(tool, case), capture_output=True, text=True,
                                 check=True).stdout.split()
            theirs.append(1e3 * float(out[0]))
            if int(out[1]) != result["nodes"]:
                sys.exit(f"{name}: {result['nodes']} e-nodes, egglog {out[1]}")
    if ratio:
        table.row(f"{name} egglog/ours", min(theirs) / min(ours), ratio, least=True)
        table.row(f"{name} egglog ms", min(theirs), None)
        if name in THEIRS:
            speed[name] = min(theirs) / THEIRS[name]
    table.row(f"{name} ms", min(ours), most_ms, scaled=True)
    table.row(f"{name} e-nodes", result["nodes"], None)
    if ratio or most_mb:
        used = result["bytes"] / result["nodes"]
        table.row(f"{name} bytes/e-node", used, BYTES_PER_NODE)
        if name == "micro-11":
            table.row(f"{name} bytes/e-node, aim", used, BYTES_PER_NODE_AIM)
    if most_mb:
        command = [tool, "egraph", "run", suite, "--case", case]
        table.row(f"{name} MB resident", min(peak_rss(command) for _ in range(2)) / 1e6, most_mb)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("small")
    parser.add_argument("--rows", default="")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    text = SUITE.read_text()
    forms = parse(text)
    if args.child:
        print(*run_egglog(args.child, forms))
        return
    table, speed = Table(args.rows), {}
    with tempfile.NamedTemporaryFile("w", suffix=".eqf") as suite:
        suite.write(with_backoff(text, forms))
        suite.flush()
        for name in CASES:
            if table.wants(name):
                measure_case(table, args.tool, suite.name, name, args.repeat, speed)
    if any(table.wants(name) for name in SMALL):
        out = subprocess.run([args.small, str(SUITE), str(args.repeat)], capture_output=True,
                             text=True, check=True).stdout
        for line in out.splitlines():
            name, value = line.rsplit(" ", 1)
            limit, scaled = SMALL.get(name, (None, False))
            if table.wants(name):
                table.row(name, float(value), limit, scaled)
    print(f"yardstick {table.yardstick:.3f} s: limits of times are for {REFERENCE_S} s")
    if speed:
        print("egglog here / on the reference machine: "
              + ", ".join(f"{k} {v:.2f}" for k, v in speed.items()))
    print(f"{table.short} rows short")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(table.rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

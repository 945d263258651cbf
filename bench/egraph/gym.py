#!/usr/bin/env python3
"""Our extraction beside the gym's greedy one, over a folder of extraction-gym JSON files.

    python bench/egraph/gym.py TOOL FOLDER [--seconds 1] [--exact] [--list N]

TOOL is the equiforge binary; FOLDER is the `data` folder of github.com/egraphs-good/extraction-gym.
Per family (first folder) and in all: DAG cost of our tree, dag and, with --exact, exact extraction
(of at most --seconds a file), of the gym's faster-greedy-dag, made again here as it stands there
(files that take it too long are left out), and what the first three take in seconds. --list: the N
files where ours is worst beside the greedy one. Files that are refused (negative costs, roots that
are no class of the file) are counted by reason. Exit 1 when an extraction costs more than a cheaper method found.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import pathlib
import re
import subprocess
import sys

MOST_WORK = 30_000_000  # entries of sets


def greedy(data: dict) -> float:
    """DAG cost of the roots by faster-greedy-dag: per class the set of classes its choice needs.
    NaN when that takes too long."""
    work = 0
    nodes = data["nodes"]
    home = {n: v["eclass"] for n, v in nodes.items()}
    kids = {n: sorted({home[k] for k in v["children"]}) for n, v in nodes.items()}
    users = collections.defaultdict(list)
    for n in nodes:
        for k in nodes[n]["children"]:
            users[home[k]].append(n)
    best: dict[str, tuple[dict, float, str]] = {}
    queue = collections.deque(n for n, v in nodes.items() if not v["children"])
    waiting = set(queue)
    while queue:
        n = queue.popleft()
        waiting.discard(n)
        c, cost, of = home[n], nodes[n]["cost"], kids[n]
        if not all(k in best for k in of) or c in of:
            continue
        before = best[c][1] if c in best else math.inf
        if len(of) == 1 and cost + best[of[0]][1] > before:
            continue
        needs: dict[str, float] = {}
        if of:
            largest = max(of, key=lambda k: len(best[k][0]))
            needs = dict(best[largest][0])
            work += sum(len(best[k][0]) for k in of)
            if work > MOST_WORK:
                return math.nan
            for k in of:
                if k != largest:
                    needs.update(best[k][0])
        if c in needs:
            continue
        needs[c] = cost
        total = sum(needs.values())
        if total < before:
            best[c] = (needs, total, n)
            for user in users[c]:
                if user not in waiting:
                    waiting.add(user)
                    queue.append(user)
    total, seen, todo = 0.0, set(), list(data["root_eclasses"])
    while todo:
        c = todo.pop()
        if c not in seen:
            seen.add(c)
            total += nodes[best[c][2]]["cost"]
            todo += kids[best[c][2]]
    return total


refused: collections.Counter = collections.Counter()


def ours(tool: str, path: pathlib.Path, method: str, seconds: float) -> dict:
    done = subprocess.run([tool, "egraph", "extract", str(path), "--method", method, "--seconds",
                           f"{seconds}s", "--json"], capture_output=True, text=True)
    if done.returncode:
        if method == "tree":
            refused[re.sub(r".*\d+:\d+: |(?<=class )\S+", "", done.stderr.strip())] += 1
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--list", type=int, default=0)
    args = parser.parse_args()
    methods = ["tree", "dag"] + (["exact"] if args.exact else [])
    sums: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    worst, bad = [], 0
    for path in sorted(args.folder.rglob("*.json")):
        family = path.relative_to(args.folder).parts[0]
        got = {m: ours(args.tool, path, m, args.seconds) for m in methods}
        if not all(got.values()):
            continue
        costs = [got[m]["dag"] for m in methods]
        if any(b > a * (1 + 1e-9) for a, b in zip(costs, costs[1:])):
            print(f"{path}: dearer than before: {costs}")
            bad += 1
        peer = greedy(json.loads(path.read_text()))
        if not math.isnan(peer):
            worst.append((got["dag"]["dag"] / peer if peer else 1.0, path, got["dag"]["dag"], peer))
        for name in (family, "all"):
            s = sums[name]
            s["files"] += 1
            for m in methods:
                s[m + " s"] += got[m]["ms"] / 1e3
                s[m + " all"] += got[m]["dag"]
                if not math.isnan(peer):
                    s[m] += got[m]["dag"]
            if args.exact:
                s["optimal"] += got["exact"]["optimal"]
            if not math.isnan(peer):
                s["compared"] += 1
                s["greedy"] += peer
    print(f"{'family':15} {'files':>5} {'compared':>8} {'greedy':>12} "
          + " ".join(f"{m:>12}" for m in methods) + " "
          + " ".join(f"{m + ' all':>12} {m + ' s':>8}" for m in methods)
          + (f" {'optimal':>7}" if args.exact else ""))
    for name in sorted(sums, key=lambda k: (k == "all", k)):
        s = sums[name]
        print(f"{name:15} {s['files']:5} {s['compared']:8} {s['greedy']:12.1f} "
              + " ".join(f"{s[m]:12.1f}" for m in methods) + " "
              + " ".join(f"{s[m + ' all']:12.1f} {s[m + ' s']:8.2f}" for m in methods)
              + (f" {s['optimal']:7}" if args.exact else ""))
    for ratio, path, mine, theirs in sorted(worst, reverse=True)[:args.list]:
        print(f"{ratio:8.4f} {path.relative_to(args.folder)} {mine} {theirs}")
    for reason, count in refused.most_common():
        print(f"{count} files refused: {reason}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/fixtures: torch.export archives of many small programs with inputs and outputs.

Needs torch (CPU) and numpy; without them it says so in one line and exits 0, so that a build
machine without torch keeps the files that are checked in. tests/fixtures/README.md describes the
layout.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_OUT = HERE.parent / "tests" / "fixtures"


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        help="write only this fixture (may be given again; a trailing * matches a prefix)",
    )
    p.add_argument(
        "--out", type=pathlib.Path, default=DEFAULT_OUT, help="folder (default: tests/fixtures)"
    )
    p.add_argument("--list", action="store_true", help="print the names and stop")
    p.add_argument(
        "--coverage",
        action="store_true",
        help="print which overloads the archives of --out hold, by form, and stop",
    )
    p.add_argument(
        "--table",
        type=pathlib.Path,
        metavar="TSV",
        help="with --coverage: also name the tier 0 and 1 overloads of this table that none holds",
    )
    return p.parse_args()


def selected(name, only):
    return not only or any(name == o or (o.endswith("*") and name.startswith(o[:-1])) for o in only)


def coverage(out, table):
    """One line per overload: the forms and the number of fixtures that hold it."""
    from fixtures import archive

    seen = {}
    for path in sorted(out.glob("*/*.pt2")):
        name, form = path.name.split(".")[:2]
        for target in set(archive.targets(path.read_bytes())):
            seen.setdefault(target.removeprefix("torch.ops."), {}).setdefault(form, set()).add(name)
    for target in sorted(seen):
        forms = seen[target]
        where = " ".join(f"{f}:{len(forms[f])}" for f in "TFC" if f in forms)
        print(f"{target:60} {where}")
    if table:
        rows = [
            line.split("\t") for line in table.read_text().splitlines() if line and line[0] != "#"
        ]
        wanted = [r[0] for r in rows if r[1] in "01"]
        absent = [t for t in wanted if t not in seen]
        print(
            f"{len(wanted) - len(absent)} of {len(wanted)} overloads of tiers 0 and 1 are held; absent: "
            + (", ".join(absent) or "none")
        )


def prune(out, names):
    """Deletes the files of fixtures that no longer exist."""
    for path in out.glob("*/*"):
        if path.suffix in (".pt2", ".safetensors") and path.name.split(".")[0] not in names:
            path.unlink()


def main():
    options = parse()
    sys.path.insert(0, str(HERE))
    if options.coverage:
        coverage(options.out, options.table)
        return 0
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import numpy  # noqa: F401
        import torch
    except ImportError as e:
        print(f"export_fixtures: skipped, {e.name} is not installed")
        return 0
    torch.set_num_threads(1)
    from fixtures import FAMILIES, odd, record, registry

    for family in FAMILIES:
        importlib.import_module(f"fixtures.{family}")

    manifest_path = options.out / "manifest.json"
    manifest = {"torch": None, "fixtures": {}}
    if manifest_path.exists():
        manifest = json.loads(manifest_path.read_text())
    manifest["torch"] = torch.__version__.split("+")[0]
    failed = 0
    for name, fixture in registry.FIXTURES.items():
        if not selected(name, options.only):
            continue
        if options.list:
            print(name)
            continue
        try:
            manifest["fixtures"][name] = record.record(fixture, options.out / fixture.folder)
            print(f"{name}: {' '.join(manifest['fixtures'][name]['forms'])}")
        except Exception as e:
            failed += 1
            print(f"{name}: FAILED: {type(e).__name__}: {e}", file=sys.stderr)
    for name, (notes, build) in odd.ODD.items():
        if not selected(name, options.only):
            continue
        if options.list:
            print(name)
            continue
        (options.out / "odd").mkdir(parents=True, exist_ok=True)
        (options.out / "odd" / f"{name}.pt2").write_bytes(registry.seeded(name, build))
        manifest.setdefault("odd", {})[name] = notes
        print(f"{name}: odd")
    if options.list:
        return 0
    if not options.only:
        prune(options.out, {*registry.FIXTURES, *odd.ODD})
    known = {
        n: manifest["fixtures"][n] for n in sorted(manifest["fixtures"]) if n in registry.FIXTURES
    }
    manifest["fixtures"] = known
    manifest_path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

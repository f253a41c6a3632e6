#!/usr/bin/env python3
"""The pipeline's work in Spark and in DuckDB, in one run: scripts/pipeline/benchmark.py WORK [--help].

Each WORK is a file of `bench/`. Runs alternate, the medians are shown with the greatest memory of each (Spark: the JVM
and its Python; DuckDB: its process), and the ratio of the times: the price of Spark on one machine.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]


def main() -> int:
    works = sorted(path.stem for path in (Path(__file__).parent / "bench").glob("[!_]*.py"))
    works = [work for work in works if hasattr(importlib.import_module(f"bench.{work}"), "run")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="work", required=True, metavar="WORK")
    for work in works:
        module = importlib.import_module(f"bench.{work}")
        summary = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(work, help=summary, description=summary)
        command.add_argument("--runs", type=int, default=3, help="How often each contender runs.")
        module.options(command)
    given = parser.parse_args()
    importlib.import_module(f"bench.{given.work}").run(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())

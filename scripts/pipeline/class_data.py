#!/usr/bin/env python3
"""Leaves the archive of Spark's classes that sessions start with in half the time, if it is not there yet.

    scripts/pipeline/class_data.py

A first session would leave one as it ends; of tests that begin several at once, each would. So `scripts/prepare --dev`
runs this. Without Java or pyspark it does nothing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]

from synthetic import make_archive  # noqa: E402

from zonemta_py.pipeline.lake import bronze  # noqa: E402
from zonemta_py.pipeline.spark import java  # noqa: E402
from zonemta_py.pipeline.spark.session import installed, session  # noqa: E402


def main() -> int:
    try:
        installed()
        _, there = java.class_data(java.home())
    except java.Unavailable:
        return 0
    if not there:
        with tempfile.TemporaryDirectory(prefix="zonemta-classes-") as name:
            make_archive(Path(name) / "archive", messages=20, days=1, seed=1)
            bronze.ingest(session("local[2]"), Path(name) / "archive", Path(name) / "lake")
    return 0


if __name__ == "__main__":
    sys.exit(main())

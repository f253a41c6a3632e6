"""A command's first answer: `zonemta lake show outcomes` from its start to its end, beside DuckDB's same rows.

Both begin with no process running. Spark reads through its own session, as the command line does; DuckDB's query is of
the same Parquet files in a Python of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROWS = 20


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", type=Path, help="One that `zonemta lake update` has filled.")


def run(given: argparse.Namespace) -> None:
    from bench.contest import contest
    from zonemta_py.pipeline.lake import table

    lake = given.lake.resolve()
    where, files = "state = 'bounced'", [str(file) for file in table.files(lake, "outcomes")]
    spark = [sys.executable, "-m", "zonemta_py", "lake", "show", "outcomes", "--lake", str(lake)]
    spark += ["--where", where, "--limit", str(ROWS)]
    query = f'import duckdb; print(duckdb.sql("select * from read_parquet({files}) where {where} limit {ROWS}"))'
    contest({"Spark": spark, "DuckDB": [sys.executable, "-c", query]}, given.runs)

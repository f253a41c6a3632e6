"""`zonemta lake update`, `show` and `tables`: the tables made of the journal, and what is in them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.lake.spark import Master, Memory, spark, told
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, readable, tabled
from zonemta_py.cli.terminal.output import bar, inert, print_json, print_table

Lake = Annotated[Path, typer.Option(metavar="DIR", help="The lake: a folder for its tables.")]

_SHOWN = {
    "deliveries": "at id recipient zone source provider campaign attempt verdict code enhanced class reply",
    "outcomes": "id recipient state attempts received_at ended_at to_delivery_s code class reply zone campaign",
    "deliverability": "grain since zone source provider campaign tenant attempts delivered deferred bounced retries "
    "tls_share p50_ms p95_ms p99_ms",
    "feedback": "at kind recipient id campaign provider class code reply genuine via",
    "reports": "at kind org domain source ours passed failed dkim spf failure mx provider name reputation genuine",
}
"""Columns that a terminal has room for; --columns takes others."""

_NO_DAY = "1970-01-01"
_LONG_BYTES = 150_000_000
"""Of new bronze, two million attempts: above this the JVM's better compiler gains more than it costs."""


def update(
    lake: Lake,
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Tables to update; default: all.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Rebuild them from all segments.")] = False,
    day: Annotated[list[str] | None, typer.Option(metavar="YYYY-MM-DD", help="Rebuild this day; repeatable.")] = None,
    as_json: AsJson = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Update the lake's tables with newly ingested segments. Can be interrupted at any time and run again."""
    days = [_day(text) for text in day or ()]
    _check(lake)
    from zonemta_py.pipeline.lake.table import unread

    long = unread(lake, None if full else "deliveries") > _LONG_BYTES
    with spark(master, memory, long) as session, told(), bar("tables") as moved:
        from zonemta_py.pipeline.findings.tables import EVERY
        from zonemta_py.pipeline.lake import update as updating

        begun: list[str] = []

        def began(name: str) -> None:
            moved(len(begun), len(tables or EVERY))
            begun.append(name)

        try:
            done = updating.update(session, lake, tables or (), days or None, full, EVERY, began)
        except updating.NoBronze as error:
            raise CommandError(Exit.NO_INPUT, str(error)) from None
        except ValueError as error:
            raise CommandError(Exit.USAGE, str(error)) from None
    if as_json:
        return print_json([{"table": one.name, "days": one.days} for one in done])
    for one in done:
        print(f"{one.name}: {_what(one.days)}")
    return None


def _what(days: Sequence[date] | None) -> str:
    if days is None:
        return "rebuilt from all segments"
    if not days:
        return "nothing new"
    return f"{len(days)} days rebuilt, {days[0]} to {days[-1]}" if len(days) > 1 else f"{days[0]} rebuilt"


@readable
def show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="See `zonemta lake tables`.")],
    lake: Lake,
    where: Annotated[str, typer.Option(metavar="SQL", help="""Only rows that match: "zone = 'bulk'".""")] = "",
    columns: Annotated[str, typer.Option(metavar="A,B…", help="Columns; default with --json and --csv: all.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Number of rows at most.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated, with a header.")] = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Print rows of a table."""
    _check(lake)
    _exists(lake, table)
    names = columns.replace(",", " ") or ("" if as_json or as_csv else _SHOWN.get(table, ""))
    with spark(master, memory) as session, told():
        from zonemta_py.pipeline.lake import query

        try:
            wanted, found = query.ask(session, lake, table, where, names.split(), limit)
        except query.QueryRefused as error:
            raise CommandError(Exit.USAGE, f"--where or --columns: {error}") from None
    if as_json:
        for row in found:
            print(json.dumps(row, default=_text, ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(wanted)
        writer.writerows([_cell(row[name]) for name in wanted] for row in found)
    else:
        print_table(f"{table} in {lake}", wanted, [[_for_people(row[name]) for name in wanted] for row in found])


@tabled
def list_tables(lake: Lake, as_json: AsJson = False) -> None:
    """List the lake's tables with their days, rows and bytes."""
    _check(lake)
    try:
        import pyarrow.parquet as parquet

        from zonemta_py.pipeline.lake import table as tables
    except ImportError as error:
        sentence = f"{error.name}: not installed; `pip install 'zonemta-py[pipeline]'` installs it"
        raise CommandError(Exit.UNAVAILABLE, sentence) from None
    rows = []
    for name in tables.names(lake):
        parts = sorted(tables.manifest(lake, name).days)
        days = [day for day in parts if day != _NO_DAY]  # a table as a whole, or messages whose id says no day
        files = tables.files(lake, name)
        count = sum(parquet.read_metadata(file).num_rows for file in files)
        size = sum(file.stat().st_size for file in files)
        first, last = (days[0], days[-1]) if days else ("", "")
        rows.append({"table": name, "days": len(days), "first": first, "last": last, "rows": count, "bytes": size})
    if as_json:
        print_json(rows)
        return
    print_table(
        f"Tables in {lake}",
        ["table", "days ", "first", "last", "rows ", "bytes "],
        [list(row.values()) for row in rows],
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(Exit.USAGE, f"--day: {text!r} is not a date; write it like 2026-03-31") from None


def _check(lake: Path) -> None:
    if not lake.is_dir():
        raise CommandError(Exit.NO_INPUT, f"{lake}: there is no such lake; create it with `zonemta lake ingest`")


def _exists(lake: Path, name: str) -> None:
    """Before Spark is started, which takes seconds."""
    there = sorted(path.parent.name for path in lake.glob("*/manifest.json"))
    if name not in there:
        known = f"there are {', '.join(there)}" if there else "there are none yet; run `zonemta lake update`"
        raise CommandError(Exit.NO_INPUT, f"{lake}: no table {name}; {known}")


def _for_people(value: Any) -> Any:
    return value if isinstance(value, datetime) else _cell(value)


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{key or 'unclassified'} {count}" for key, count in sorted(value.items()))
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, str):
        return inert(value)
    return _text(value) if isinstance(value, datetime | date) else value


def _text(value: Any) -> str:
    """Times as UTC, which is what Spark gives."""
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if isinstance(value, datetime) else str(value)

"""`zonemta journal …`: reads the journal's files. Needs no running MTA, and never disturbs one."""

from __future__ import annotations

import json as jsonlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.events.follow import Journals, all_stable, in_time, journals, last, records
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force
from zonemta_py.cli.terminal.output import moment, print_json, printable
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import folders, segments
from zonemta_py.journal.facts import RECORDS
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import DeliveryRecord, InDoubtRecord
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.queue import questions

app = typer.Typer(help="Show the journal: every acceptance, attempt and result.", no_args_is_help=True)

_FIELDS: dict[int, tuple[str, ...]] = {
    **{kind: one._fields for kind, one in RECORDS.items() if kind != Type.LOST},
    Type.DELIVERY: DeliveryRecord._fields,
    Type.IN_DOUBT: InDoubtRecord._fields,
    Type.TASK: TaskRecord._fields,
    Type.MOVED: ("id", "zone", "recipients", "state", "flow", "about"),
    Type.STANDING: ("change", "about", "value", "cause"),
}
"""The last two as they have been printed ever since; other types are printed as they are written."""


@app.command()
def dump(
    id: Annotated[str | None, typer.Option(metavar="ID", help="Only records about this message.")] = None,
    recipient: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only records about this recipient.")] = None,
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only this type: envelope, start, delivery …")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Only records from this time on: 2h (ago), 14:30, yesterday 9:00, 2026-12-01."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only records before this time; same formats.")
    ] = None,
    archive: Annotated[bool, typer.Option("--archive", help="Read the archive too.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Print records, one per line, oldest first. Damage is reported on stderr, with exit status 1."""
    now_ms = time.time_ns() // 1_000_000
    kind, start = _kind(type), when.past(since, "--since", now_ms) if since else 0
    end = when.past(until, "--until", now_ms) if until else 0
    words = [word.lower() for word in (id, recipient) if word]
    faults: list[segments.Fault] = []
    places = journals(in_force(config, folder).folder)
    for number, record in in_time({number: _records(place, archive, faults) for number, place in places.items()}):
        if (kind is not None and record.type != kind) or record.ms < start or (until and record.ms >= end):
            continue
        body = unpack(record.body)
        if all(_mentions(body, word) for word in words):
            print(_line(record, body, json, _named(number, places)))
    for fault in faults:
        print(f"zonemta: {fault}; run `zonemta fsck`", file=sys.stderr)
    if faults:
        raise CommandError(Exit.PROBLEMS)


@app.command()
def follow(
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only this type: envelope, start, delivery …")
    ] = None,
    mentions: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="Only records that contain this value: an id, an address, a zone."),
    ] = None,
    before: Annotated[int, typer.Option(min=0, help="Start with this many earlier records.")] = 10,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Print records as they are written. The MTA need not be running; Ctrl-C stops it."""
    places, kind = journals(in_force(config, folder).folder), _kind(type)
    untils = all_stable(places, written=True)
    for number, record in records(places, last(places, untils, before), untils, True):
        body = unpack(record.body)
        if (kind is None or record.type == kind) and (mentions is None or _mentions(body, mentions.lower())):
            print(_line(record, body, json, _named(number, places)), flush=True)


@app.command()
def positions(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List the position records, where restarts begin, oldest first."""
    places = journals(in_force(config, folder).folder)
    for number, record in in_time(
        {number: iter(segments.positions(place / "journal")) for number, place in places.items()}
    ):
        print(_line(record, unpack(record.body), json, _named(number, places)))


@app.command()
def rotate(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Close the current segment, so that the archive is complete up to now."""
    closed = answer(in_force(config, folder), questions.rotate)["closed"]
    if json:
        print_json({"closed": closed})
    else:
        print(f"{closed} is in the archive" if closed else "nothing new to close: the archive is complete")


def _records(folder: Path, archive: bool, faults: list[segments.Fault]) -> Iterator[Record]:
    if archive:
        return segments.read_files(segments.every_file(folder / "journal", folder / "archive"), 0, faults)
    return segments.read(folder / "journal", 0, faults)


def _named(number: int, places: Journals) -> int | None:
    """Whose record it is, where there are several queues."""
    return folders.queue_of(number) if len(places) > 1 else None


def _kind(name: str | None) -> Type | None:
    if name is None:
        return None
    try:
        return Type[name.upper().replace("-", "_")]
    except KeyError:
        kinds = ", ".join(kind.name.lower().replace("_", "-") for kind in Type)
        raise CommandError(Exit.USAGE, f"--type: {name!r} is not a type of record; use one of {kinds}") from None


def _mentions(value: Any, word: str) -> bool:
    """Whether the word stands anywhere in a body as a value of its own."""
    if isinstance(value, str):
        return value.lower() == word
    if isinstance(value, dict):
        return any(_mentions(item, word) for item in value.values())
    return isinstance(value, list) and any(_mentions(item, word) for item in value)


def _line(record: Record, body: Any, json: bool, queue: int | None) -> str:
    names = _FIELDS.get(record.type)
    named = dict(zip(names, body, strict=False)) if names and isinstance(body, list) else body
    kind = Type(record.type).name.lower().replace("_", "-") if record.type in list(Type) else str(record.type)
    if json:
        row = {"seq": record.seq, "ms": record.ms, "type": kind, "body": named}
        return jsonlib.dumps(row if queue is None else {"queue": queue} | row, ensure_ascii=False, default=str)
    text = jsonlib.dumps(named, ensure_ascii=False, default=str)
    seq = str(record.seq) if queue is None else f"{queue}:{record.seq}"
    return printable(f"{seq:>10} {moment(record.ms)} {kind:<9} {text}")

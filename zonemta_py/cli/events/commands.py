"""The group `zonemta events`: what event sinks do, what they refused, sending them events again, and the schema."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.events.follow import RECORDS_AT_ONCE, stable
from zonemta_py.cli.events.tail import (
    Campaigns,
    Domains,
    Messages,
    Recipients,
    Tenants,
    Types,
    Zones,
    tail,
)
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import Move, Telling, bar, moment, print_json, print_table, sentence
from zonemta_py.config import Config, EventSink
from zonemta_py.disk import identity
from zonemta_py.disk.frame import Record
from zonemta_py.events.cursor import FOLDER
from zonemta_py.events.dead_letters import DeadLetters
from zonemta_py.events.feed import chosen
from zonemta_py.events.filter import EventFilter
from zonemta_py.events.sink import REMEDY, read_state
from zonemta_py.events.sinks.base import Ready

_SET_BACK_MS = 3_600_000
"""How far a clock may have been set back within the span that is replayed."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the sink in the configuration.")]


@tabled
def sinks(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show all event sinks: state, backlog, and events sent, dropped and refused."""
    settings = in_force(config, folder)
    rows = [state_of(settings, sink) for sink in settings.event_sinks]
    rows += [_orphan(settings.folder / FOLDER / name) for name in orphans(settings)]
    if json:
        print_json(rows)
        return
    columns = (
        "name",
        "kind",
        "state",
        "behind ",
        "waits ",
        "ring ",
        "sent ",
        "dropped ",
        "missed ",
        "dead ",
        "last sent",
        "reason",
    )
    shown = [
        (row["name"], row["kind"], row["state"], row.get("lag_records"), _in_words(row.get("lag_s")), _ring(row),
         row.get("sent"), row.get("dropped"), row.get("missed"), row["dead_kept"],
         moment(row.get("last_success_ms")), sentence(row.get("reason") or row.get("trouble") or ""))
        for row in rows
    ]  # fmt: skip
    print_table("Event sinks", columns, shown, "" if rows else "none: see [[event_sinks]] in docs/EVENTS.md", _ORDER)


_ORDER = ("name", "state", "reason", "waits", "dropped", "dead", "behind")


def state_of(config: Config, sink: EventSink) -> dict[str, Any]:
    folder = config.folder / FOLDER / sink.name
    row = {"name": sink.name, "kind": sink.kind, "state": "not started yet"} | read_state(folder)
    if "pid" in row and not _runs(row["pid"]):
        row["state"] = "not running"
    if not row.get("trouble") and (trouble := _closed(folder, config.folder)):
        row["trouble"] = trouble
    return row | {"dead_kept": _dead(folder)}


def _dead(folder: Path) -> int:
    try:
        return len(DeadLetters(folder).read())
    except OSError:
        return 0


def _closed(folder: Path, queue: Path) -> str:
    """Why the MTA, to whom the queue's folder belongs, can write nothing there; "": nothing is known against it."""
    try:
        found, whose = folder.stat(), queue.stat().st_uid
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{folder}: {error.strerror}; {REMEDY}"
    mine = found.st_uid == whose and found.st_mode & 0o300 == 0o300
    if stat.S_ISDIR(found.st_mode) and (mine or whose == 0 or found.st_mode & 0o022):
        return ""
    return f"{folder} cannot be written by the MTA; {REMEDY}"


def orphans(config: Config) -> list[str]:
    """Folders of sinks that the configuration does not have."""
    known = {sink.name for sink in config.event_sinks}
    try:
        found = [path.name for path in (config.folder / FOLDER).iterdir() if path.is_dir()]
    except OSError:
        return []
    return sorted(set(found) - known)


def _orphan(folder: Path) -> dict[str, Any]:
    row = {"name": folder.name, "kind": ""} | read_state(folder)
    remedy = f"not in this configuration; if it is to go: zonemta events forget-sink {folder.name}"
    if _runs(row.get("pid", "")):
        return row | {"dead_kept": _dead(folder), "trouble": remedy}
    return row | {"state": "not configured", "dead_kept": _dead(folder), "reason": "", "trouble": remedy}


def forget_sink(name: Name, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Delete the cursor, state, ring and dead letters of a sink that is no longer configured."""
    settings = in_force(config, folder)
    place = settings.folder / FOLDER / name
    if config is None and not settings.event_sinks:
        raise CommandError(Exit.USAGE, "which sinks are configured is unknown; name the configuration with --config")
    if name in {sink.name for sink in settings.event_sinks}:
        raise CommandError(Exit.USAGE, f"event sink {name!r} is configured; take it out of the configuration first")
    if name not in (there := orphans(settings)):
        known = f"there is something of {', '.join(there)}" if there else "nor of any other"
        raise CommandError(Exit.NO_INPUT, f"nothing is left of an event sink {name!r}; {known}")
    if _runs(pid := read_state(place).get("pid", "")):
        raise CommandError(Exit.TEMPORARY, f"process {pid} still serves event sink {name!r}; restart the MTA first")
    dead = _dead(place)
    try:
        shutil.rmtree(place)
    except OSError as error:
        raise CommandError(Exit.PROBLEMS, f"{error.filename}: {error.strerror}; run this as the MTA's user") from None
    with Telling(json) as tell:
        tell(f"{place} is removed, with {dead:,} dead letters", folder=place, dead_letters=dead)


def _runs(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _in_words(seconds: float | None) -> str:
    return when.length(seconds) if seconds else ""


def _ring(row: dict[str, Any]) -> str:
    return f"{row['ring_pages']:,} of {row['ring_pages_max']:,}" if "ring_pages" in row else ""


@tabled
def dead(
    name: Name,
    replay: Annotated[bool, typer.Option("--replay", help="Resend them; those accepted now are removed.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show a sink's dead letters, the events its receiver has refused permanently, oldest first, or resend them."""
    settings = in_force(config, folder)
    sink = _named(settings, name)
    kept = DeadLetters(settings.folder / FOLDER / name)
    letters = kept.read()
    if replay:
        sent = set[str]()
        try:
            _send(settings, sink, (letter.ready for letter in letters), sent, json)
        finally:
            kept.remove(sent)
        return
    if json:
        print_json([_row(letter.ready) | {"ms": letter.ms, "reason": letter.reason} for letter in letters])
        return
    rows = [(moment(one.ms), one.ready.type, one.ready.subject, one.ready.id, one.reason) for one in letters]
    print_table(f"Dead letters of {name}", ("refused", "type", "message", "id", "reason"), rows)


def _row(ready: Ready) -> dict[str, Any]:
    import json

    return {"event": json.loads(ready.body)}


def replay(
    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="Name of the sink in the configuration.")],
    since: Annotated[str, typer.Option(metavar="WHEN", help="Start at this time: 10m (ago), 14:30, 2026-12-01.")],
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="End at this time; default: now.")] = None,
    type: Types = None,
    zone: Zones = None,
    domain: Domains = None,
    campaign: Campaigns = None,
    tenant: Tenants = None,
    message: Messages = None,
    recipient: Recipients = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Resend events of a period to a sink, from journal and archive, with the same ids.

    Only events that match both the sink's filter and the options are sent, over a separate connection. The MTA need not
    be running; Ctrl-C stops it.
    """
    settings = in_force(config, folder)
    target, now_ms = _named(settings, sink), time.time_ns() // 1_000_000
    since_ms = when.past(since, "--since", now_ms)
    until_ms = when.past(until, "--until", now_ms) if until else now_ms
    try:
        also = EventFilter.of(
            type or (), zone or (), domain or (), campaign or (), tenant or (), message or (), recipient or ()
        )
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    if until_ms < since_ms:
        raise CommandError(Exit.USAGE, "--until is before --since; exchange them")
    if not (settings.folder / "journal").is_dir():
        remedy = "name the MTA's folder with --folder or --config"
        raise CommandError(Exit.NO_INPUT, f"{settings.folder}: contains no journal; {remedy}")
    with bar(f"sending to {sink}") as move:
        wants = chosen(target, _source(settings), also)
        _send(settings, target, _span(settings, wants, since_ms, until_ms, move), None, json)


def _span(
    config: Config, wants: Callable[[Record], list[Ready]], since_ms: int, until_ms: int, move: Move
) -> Iterator[Ready]:
    from zonemta_py.journal.tail import JournalTail, seq_at

    begin, end = seq_at(config.folder, since_ms), stable(config.folder, 0, 0)
    journal = JournalTail(config.folder, begin)
    while records := journal.read(end, RECORDS_AT_ONCE):
        move(records[-1].seq - begin, end - begin + 1)
        for record in records:
            if since_ms <= record.ms <= until_ms:
                yield from wants(record)
        if records[-1].ms > until_ms + _SET_BACK_MS:
            break
    if journal.missed:
        print(f"zonemta: the archive no longer has {journal.missed:,} records of that time", file=sys.stderr)


def _send(config: Config, sink: EventSink, events: Iterable[Ready], sent: set[str] | None, json: bool) -> None:
    """sent: gets, if wanted, the ids of what has arrived. Says how many that were, however it ends."""
    from zonemta_py.events.resend import resend

    count = refused = 0
    said = ""

    def told(batch: list[Ready], wrong: tuple[int, ...], why: str) -> None:
        nonlocal count, refused, said
        count, refused, said = count + len(batch) - len(wrong), refused + len(wrong), ""
        if sent is not None:
            sent.update(one.id for number, one in enumerate(batch) if number not in wrong)
        if wrong:
            print(f"zonemta: {sink.name} refuses {len(wrong):,} events for good: {why}", file=sys.stderr)

    def down(why: str) -> None:
        nonlocal said
        if why != said:
            print(f"zonemta: {sink.name} is down: {why}; trying again, Ctrl-C ends it", file=sys.stderr)
        said = why

    try:
        asyncio.run(resend(sink, _source(config), events, told, down))
    finally:
        with Telling(json) as tell:
            words = f"{count:,} events sent" + (f", {refused:,} refused" if refused else "")
            tell(words, sink=sink.name, sent=count, refused=refused)
    if refused:
        raise CommandError(Exit.PROBLEMS)


def _source(config: Config) -> str:
    try:
        return identity.name_of(config.folder)
    except ValueError as error:
        raise CommandError(Exit.NO_INPUT, str(error)) from None


def _named(config: Config, name: str) -> EventSink:
    for sink in config.event_sinks:
        if sink.name == name:
            return sink
    there = ", ".join(sink.name for sink in config.event_sinks) or "none; name the configuration with --config"
    raise CommandError(Exit.USAGE, f"there is no event sink {name!r}; there are {there}")


app = typer.Typer(help="Show, replay and manage events: see docs/EVENTS.md.", no_args_is_help=True)
app.command("tail")(tail)
app.command("sinks")(sinks)
app.command("dead")(dead)
app.command("replay")(replay)
app.command("forget-sink")(forget_sink)


@app.command()
def schema() -> None:
    """Print the JSON Schema of all events."""
    from zonemta_py.events.schema import json_schema

    print_json(json_schema())

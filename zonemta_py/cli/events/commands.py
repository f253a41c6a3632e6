"""The group `zonemta events`: what event sinks do, what they refused, sending them events again, and the schema."""

from __future__ import annotations

import asyncio
import heapq
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.events.follow import RECORDS_AT_ONCE, journals, stable
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
from zonemta_py.journal import folders
from zonemta_py.logs.causes import cause
from zonemta_py.plugin.host import Host
from zonemta_py.queues import layout

_SET_BACK_MS = 3_600_000
"""How far a clock may have been set back within the span that is replayed."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the sink in the configuration.")]


@tabled
def sinks(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show all event sinks: state, backlog, and events sent, dropped and refused."""
    settings = in_force(config, folder)
    rows = [state_of(settings, sink) for sink in settings.event_sinks]
    rows += [_orphan(settings, name) for name in orphans(settings)]
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
    """Of the sink in each queue, as one."""
    try:
        places = [one.folder for one in layout.each(config)]
    except (ValueError, OSError) as error:
        raise CommandError(Exit.DATA, cause(error)) from None
    return _joined([_state_in(place, config.folder, sink) for place in places])


def _state_in(queue: Path, mta: Path, sink: EventSink) -> dict[str, Any]:
    folder = queue / FOLDER / sink.name
    row = {"name": sink.name, "kind": sink.kind, "state": "not started yet"} | read_state(folder)
    if "pid" in row and not _runs(row["pid"]):
        row["state"] = "not running"
    if not row.get("trouble") and (trouble := _closed(folder, mta)):
        row["trouble"] = trouble
    return row | {"dead_kept": _dead(folder)}


_WORST = ("down", "not running", "not started yet", "catching up")
_LARGEST = ("lag_s", "last_success_ms", "since_ms", "pid")
_FIRST = ("reason", "trouble")


def _joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What several queues say of a sink: the worst state, the longest wait, sums of counts."""
    whole = dict(rows[0])
    for row in rows[1:]:
        for name, value in row.items():
            known = whole.get(name)
            if name in _FIRST or known is None:
                whole[name] = known or value
            elif name in _LARGEST:
                whole[name] = max(known, value or 0)
            elif name == "state":
                whole[name] = min(known, value, key=lambda one: [*_WORST, one].index(one))
            elif isinstance(value, bool):
                whole[name] = known or value
            elif isinstance(value, int | float):
                whole[name] = known + value
    return whole


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
    found = set[str]()
    for place in folders.every(config.folder).values():
        with suppress(OSError):
            found |= {path.name for path in (place / FOLDER).iterdir() if path.is_dir()}
    return sorted(found - known)


def _places(config: Config, name: str) -> list[Path]:
    """The folders of a sink, one in each queue that has had it."""
    places = [place / FOLDER / name for place in folders.every(config.folder).values()]
    return [place for place in places if place.is_dir()]


def _orphan(config: Config, name: str) -> dict[str, Any]:
    row = _joined([{"name": name, "kind": ""} | read_state(place) for place in _places(config, name)])
    row |= {"dead_kept": sum(map(_dead, _places(config, name)))}
    remedy = f"not in this configuration; if it is to go: zonemta events forget-sink {name}"
    if _runs(row.get("pid", "")):
        return row | {"trouble": remedy}
    return row | {"state": "not configured", "reason": "", "trouble": remedy}


def forget_sink(name: Name, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Delete the cursor, state, ring and dead letters of a sink that is no longer configured."""
    settings = in_force(config, folder)
    if config is None and not settings.event_sinks:
        raise CommandError(Exit.USAGE, "which sinks are configured is unknown; name the configuration with --config")
    if name in {sink.name for sink in settings.event_sinks}:
        raise CommandError(Exit.USAGE, f"event sink {name!r} is configured; take it out of the configuration first")
    if name not in (there := orphans(settings)):
        known = f"there is something of {', '.join(there)}" if there else "nor of any other"
        raise CommandError(Exit.NO_INPUT, f"nothing is left of an event sink {name!r}; {known}")
    places = _places(settings, name)
    for place in places:
        if _runs(pid := read_state(place).get("pid", "")):
            raise CommandError(Exit.TEMPORARY, f"process {pid} still serves event sink {name!r}; restart the MTA first")
    dead = sum(map(_dead, places))
    try:
        for place in places:
            shutil.rmtree(place)
    except OSError as error:
        raise CommandError(Exit.PROBLEMS, f"{error.filename}: {error.strerror}; run this as the MTA's user") from None
    with Telling(json) as tell:
        what = f"{', '.join(map(str, places))} {'is' if len(places) == 1 else 'are'} removed"
        tell(f"{what}, with {dead:,} dead letters", folder=places[0], dead_letters=dead)


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
    kept = [DeadLetters(place) for place in _places(settings, name)]
    letters = [letter for one in kept for letter in one.read()]
    if len(kept) > 1:
        letters.sort(key=lambda letter: letter.ms)
    if replay:
        sent = set[str]()
        try:
            _send(settings, sink, (letter.ready for letter in letters), sent, json)
        finally:
            for one in kept:
                one.remove(sent)
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
    places = journals(settings.folder)
    with bar(f"sending to {sink}") as move:
        bars = _Bars(move)
        spans = [
            _span(place, chosen(target, _source(place), also), since_ms, until_ms, bars.of(number))
            for number, place in places.items()
        ]
        events = spans[0] if len(spans) == 1 else heapq.merge(*spans, key=lambda ready: ready.ms)
        _send(settings, target, events, None, json)


class _Bars:
    """One bar for what is done in several journals."""

    def __init__(self, move: Move) -> None:
        self._move, self._rows = move, dict[int, tuple[int, int]]()

    def of(self, number: int) -> Move:
        def move(done: int, of: int, said: str = "", /) -> None:
            self._rows[number] = done, of
            self._move(sum(row[0] for row in self._rows.values()), sum(row[1] for row in self._rows.values()))

        return move


def _span(
    folder: Path, wants: Callable[[Record], list[Ready]], since_ms: int, until_ms: int, move: Move
) -> Iterator[Ready]:
    from zonemta_py.journal.tail import JournalTail, seq_at

    begin, end = seq_at(folder, since_ms), stable(folder, 0, 0)
    journal = JournalTail(folder, begin)
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
        asyncio.run(_resend(config, partial(resend, sink, _source(config.folder), events, told, down)))
    finally:
        with Telling(json) as tell:
            words = f"{count:,} events sent" + (f", {refused:,} refused" if refused else "")
            tell(words, sink=sink.name, sent=count, refused=refused)
    if refused:
        raise CommandError(Exit.PROBLEMS)


async def _resend(config: Config, work: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    """Raises ConfigError."""
    from zonemta_py.events.sinks.plugin import wanted
    from zonemta_py.plugin.arguments import Process
    from zonemta_py.plugin.life import REPLAY

    if not (names := wanted(config)):
        return await work(Host.empty())
    from zonemta_py.processes.plugin_services import QueueServices
    from zonemta_py.processes.queue_process import plugins
    from zonemta_py.processes.roles import queue_client

    host = plugins(config).only(names)
    await host.begin(Process(REPLAY), config.folder, QueueServices(config, queue_client))
    try:
        return await work(host)
    finally:
        await host.end()


def _source(folder: Path) -> str:
    try:
        return identity.name_of(folder)
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

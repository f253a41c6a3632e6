"""`zonemta events tail`: reads the journal's files, and follows them, whether the MTA runs or not."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.events.follow import RECORDS_AT_ONCE, all_stable, journals, records
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force
from zonemta_py.cli.terminal.output import moment, printable
from zonemta_py.disk import identity
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event, encoded
from zonemta_py.events.filter import EventFilter
from zonemta_py.journal.tail import JournalTail, seq_at

BEFORE = 10
"""Events that are shown of what was before."""
RECORDS_BEFORE_MAX = 200_000
"""Records that are looked through for them."""

Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type: delivered, bounced …; repeatable.")
]
Zones = Annotated[list[str] | None, typer.Option("--zone", metavar="NAME", help="Only this zone; repeatable.")]
Domains = Annotated[
    list[str] | None, typer.Option("--domain", metavar="DOMAIN", help="Only recipients at this domain; repeatable.")
]
Campaigns = Annotated[list[str] | None, typer.Option("--campaign", metavar="NAME", help="Only this campaign.")]
Tenants = Annotated[list[str] | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.")]
Messages = Annotated[list[str] | None, typer.Option("--message", metavar="ID", help="Only this message.")]
Recipients = Annotated[list[str] | None, typer.Option("--recipient", metavar="ADDRESS", help="Only this recipient.")]


def tail(
    follow: Annotated[bool, typer.Option(help="Keep printing new entries as they appear.")] = True,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Start at this time: 10m (ago), 14:30, 2026-12-01; default: the last 10 events."
        ),
    ] = None,
    type: Types = None,
    zone: Zones = None,
    domain: Domains = None,
    campaign: Campaigns = None,
    tenant: Tenants = None,
    message: Messages = None,
    recipient: Recipients = None,
    limit: Annotated[int, typer.Option(min=0, help="Stop after this many events; 0: never.")] = 0,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show events as they happen, one line each. Ctrl-C stops it."""
    places = journals(in_force(config, folder).folder)
    try:
        wanted = EventFilter.of(
            type or (), zone or (), domain or (), campaign or (), tenant or (), message or (), recipient or ()
        )
        sources = {number: identity.name_of(place) for number, place in places.items()}
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    since_ms = when.past(since, "--since", time.time_ns() // 1_000_000) if since else 0
    untils = all_stable(places)
    if since:
        starts = {number: (seq_at(place, since_ms), 0) for number, place in places.items()}
    else:
        before = limit if limit and not follow else BEFORE
        found = {number: _before(place, untils[number], wanted, before) for number, place in places.items()}
        starts = _newest(found, untils, before)
    shown = 0
    for number, record in records(places, {number: start[0] for number, start in starts.items()}, untils, follow):
        for event in events_of(record):
            if event.place >= starts[number] and event.ms >= since_ms and wanted.wants(event):
                print(encoded(event, sources[number]).decode() if json else line(event), flush=follow)
                shown += 1
                if shown == limit:
                    return


def _before(folder: Path, until: int, wanted: EventFilter, count: int) -> list[Event]:
    """The last `count` wanted events, and maybe some before."""
    end, step = until, 20 * count
    rows: list[Event] = []
    while end > 0 and until - end < RECORDS_BEFORE_MAX and len(rows) < count:
        begin = max(1, end - step + 1)
        journal, found = JournalTail(folder, begin), list[Event]()
        while records := journal.read(end, RECORDS_AT_ONCE):
            found += [event for record in records for event in events_of(record) if wanted.wants(event)]
        rows = found + rows
        end, step = begin - 1, 4 * step
    return rows[-count:]


def _newest(found: Mapping[int, list[Event]], untils: Mapping[int, int], count: int) -> dict[int, tuple[int, int]]:
    """Of each queue the place of the first of the last `count` events of all."""
    rows = sorted(((event.ms, number, event.place) for number, its in found.items() for event in its), reverse=True)
    starts = {number: (until + 1, 0) for number, until in untils.items()}
    for _, number, place in rows[:count]:
        starts[number] = min(starts[number], place)
    return starts


_TYPE_WIDTH = 10
_YEAR_9999_MS = 253_370_764_800_000
_INDENT = " " * 9
_SHOWN = frozenset(("message", "recipient", "domain", "code", "enhanced", "reply", "remote", "kind", "name", "cause"))
_DETAILS = frozenset(("lease", "started_ms", "local", "tls", "stage", "rule", "zones", "priority", "hold_until_ms"))
"""For programs: not in the text."""


def line(event: Event) -> str:
    at_terminal = sys.stdout.isatty()
    data = event.data
    when = _clock(event.ms) if at_terminal else moment(event.ms)
    who = [str(data[name]) for name in ("message", "recipient") if data.get(name)] or [_what(data)]
    text = printable(" ".join([when, event.type.ljust(_TYPE_WIDTH), *who, *_rest(data)])).replace("\n", " ").rstrip()
    if not at_terminal:
        return text
    width = max(40, shutil.get_terminal_size().columns)
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
    )


def _clock(ms: int) -> str:
    """The time of day alone, of what happened today."""
    then = datetime.fromtimestamp(ms / 1000)
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().date() else moment(ms)


def _what(data: dict[str, Any]) -> str:
    return " ".join(str(data[name]) for name in ("kind", "name") if data.get(name))


def _rest(data: dict[str, Any]) -> list[str]:
    """The answer, or the cause; then whatever else there is."""
    said = " ".join(str(data[name]) for name in ("code", "enhanced", "reply", "cause") if data.get(name))
    others = [
        f"{name.removesuffix('_ms')}={_shown(name, value)}"
        for name, value in data.items()
        if name not in _SHOWN and name not in _DETAILS
    ]
    about = [_what(data)] if data.get("recipient") and data.get("kind") else []
    return [*about, *([said] if said else []), *others, *([f"by {data['remote']}"] if data.get("remote") else [])]


def _shown(name: str, value: Any) -> str:
    if name.endswith("_ms") and name != "took_ms" and isinstance(value, int) and 0 < value < _YEAR_9999_MS:
        return moment(value).replace(" ", "T")
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    return repr(text) if " " in text else text

"""`zonemta log`: the lines about mail that the server writes to standard error, made from its journal."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal

import typer

from zonemta_py.cli.events.follow import all_stable, journals, last, records
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, moment, print_json, print_table
from zonemta_py.journal.tail import seq_at
from zonemta_py.logs import setup
from zonemta_py.logs.mail import LOGGER
from zonemta_py.logs.privacy import Persons
from zonemta_py.logs.recorded import KEPT_MAX as KEPT_LINES
from zonemta_py.logs.recorded import RecordedLines
from zonemta_py.logs.shape import SHAPES
from zonemta_py.mail.rules.classes import CLASSES

COUNTED_BY = Literal[
    "user", "tenant", "sender", "source", "provider", "site", "domain", "zone", "campaign", "class", "verdict"
]
KEPT_MAX = 1_000_000
"""Messages of which it is remembered whose they are, where answers are counted."""
BEFORE = 100
"""Records whose lines are shown of what was before."""
PEOPLE = ("sender", "recipient", "to")
Verdict = Literal["delivered", "deferred", "bounced", "held", "postponed"]


@tabled
def log(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new entries as they appear.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Start at this time: 10m (ago), 14:30, 2026-12-01; default: the last 100 records."
        ),
    ] = None,
    message: Annotated[str | None, typer.Option(metavar="ID", help="Only this message.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="PART", help="Only senders or recipients that contain this.")
    ] = None,
    zone: Annotated[str | None, typer.Option(metavar="NAME", help="Only this zone.")] = None,
    verdict: Annotated[
        Verdict | None,
        typer.Option(help="Only results with this verdict."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="NAME", help="Only replies of this class; undefined: replies that matched no rule."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="LOGIN", help="Only mail submitted by this user or key.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only mail of this tenant.")] = None,
    campaign: Annotated[str | None, typer.Option(metavar="NAME", help="Only mail of this campaign.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Only deliveries from this source address.")
    ] = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only deliveries to this provider.")] = None,
    count_by: Annotated[
        COUNTED_BY | None,
        typer.Option(
            "--count-by", help="Count accepted, delivered, deferred and bounced, grouped by this, instead of listing."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="With --count-by: rows to show.")] = 50,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show the mail log: one line per accepted message and per delivery result, as in the server's log.

    Reads the journal and the archive; the MTA need not be running. `zonemta log --since 1d --count-by user` shows
    within seconds how much each user sent. User, tenant and campaign of a result are known if its message was accepted
    within the given time.
    """
    if count_by and follow:
        raise CommandError(Exit.USAGE, "--count-by counts existing records, and --follow never ends; leave one")
    if as_records() and not count_by:
        raise CommandError(Exit.USAGE, "--csv, --plain and --columns are for a table; add --count-by, or use --json")
    if kind and kind not in CLASSES:
        raise CommandError(Exit.USAGE, f"there is no class {kind!r}; use one of {', '.join(CLASSES)}")
    settings = in_force(config, folder)
    places = journals(settings.folder)
    since_ms = when.past(since, "--since", time.time_ns() // 1_000_000) if since else 0
    untils = all_stable(places, written=True)
    firsts = (
        {number: seq_at(place, since_ms) for number, place in places.items()} if since else last(places, untils, BEFORE)
    )
    lines, people = RecordedLines(KEPT_MAX if count_by else KEPT_LINES), setup.people(settings)
    counts = dict[str, dict[str, int]]()
    shape = SHAPES["json" if json else settings.log.format]
    wanted = {"id": message, "zone": zone, "verdict": verdict, "class": kind, "user": user, "tenant": tenant}
    wanted |= {"campaign": campaign, "source": source, "provider": provider}
    exact = {name: value for name, value in wanted.items() if value}
    shown = False
    for number, record in records(places, firsts, untils, follow):
        for what, fields in lines.of(record, number):
            if record.ms < since_ms or not exact.items() <= lines.facts(fields).items() or not _names(fields, address):
                continue
            if count_by:
                _count(counts, count_by, what, lines.facts(fields), people)
                continue
            if people is not None:
                people.fields(fields)
            shown = True
            sys.stdout.write(shape(record.ms, "info", LOGGER, what, fields).decode())
        if follow:
            sys.stdout.flush()
    if count_by:
        return _show(counts, count_by, limit, since_ms if since else 0, json)
    if not shown and exact | ({"address": address} if address else {}):
        back = f"since {moment(since_ms)}" if since else f"in the last {BEFORE} records; --since 1d looks further back"
        print(f"zonemta: nothing of that {back}", file=sys.stderr)
    return None


def _count(
    counts: dict[str, dict[str, int]], by: str, what: str, facts: dict[str, Any], people: Persons | None
) -> None:
    """Recipients that were accepted, and answers about recipients."""
    if what not in ("accepted", "answered"):
        return
    if by == "domain":
        facts["domain"] = facts.get("recipient", "").rpartition("@")[2].lower()
    if what == "accepted" and by in _OF_ANSWERS:
        return
    if people is not None:
        people.fields(facts)
    row = counts.setdefault(str(facts.get(by, "")), dict.fromkeys(_COUNTS, 0))
    if what == "accepted":
        row["messages"] += 1
        row["accepted"] += facts["recipients"]
    else:
        row[facts["verdict"]] += 1


_OF_ANSWERS = ("source", "provider", "site", "domain", "class", "verdict")
_COUNTS = ("messages", "accepted", "delivered", "deferred", "bounced", "held", "postponed")


def _show(counts: dict[str, dict[str, int]], by: str, limit: int, since_ms: int, json: bool) -> None:
    names = sorted(counts, key=lambda name: (-sum(counts[name].values()), name))
    if json:
        return print_json([{by: name} | counts[name] for name in names[:limit]])
    shown = [name for name in _COUNTS if by not in _OF_ANSWERS or name not in ("messages", "accepted")]
    rows = [(name or "(none, or not known)", *(counts[name][one] for one in shown)) for name in names[:limit]]
    begins = f"since {moment(since_ms)}" if since_ms else f"of the last {BEFORE} records; --since 1d looks further back"
    footer = f"{begins}; deferred: answers, the others: recipients"
    footer += f"; {len(names) - limit:,} more rows: --limit" if len(names) > limit else ""
    return print_table(f"Mail by {by}", (by, *(f"{name} " for name in shown)), rows, footer)


def _names(fields: dict[str, Any], part: str | None) -> bool:
    return part is None or any(part.lower() in fields.get(name, "").lower() for name in PEOPLE)

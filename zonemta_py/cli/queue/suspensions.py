"""`zonemta suspend`, `resume` and `standing`: what is suspended or rests, what was learned, and how to undo each."""

from __future__ import annotations

import shlex
import time
from typing import Annotated, Literal, cast

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, counted, print_json, print_table, printable, sentence
from zonemta_py.config import Config
from zonemta_py.mail.reroute import parts_of
from zonemta_py.queue import questions
from zonemta_py.schedule.flow import split_key
from zonemta_py.schedule.policy.standing import GROUPS, RESTING

_COUNTED = ("domain", "tenant", "campaign", "zone")
_WHAT = {
    "rest": "source rests", "resting": "cannot be reached", "rate": "slowed down",
    "concurrency": "fewer connections", "no-tls": "TLS is switched off", "recipients": "fewer recipients per message",
    "pipelining": "one command at a time", "lost": "may be lost",
    "guard": "no suppressions", "reroute": "rerouted",
}  # fmt: skip


def suspend(
    kind: Annotated[
        Literal["destination", "provider", "domain", "tenant", "campaign", "zone", "source"],
        typer.Argument(metavar="KIND", help="destination (or provider), domain, tenant, campaign, zone or source."),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Its name; for a destination: a site or provider as shown by `lanes`, or a recipient domain.",
        ),
    ],
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="SPAN", help="For how long: 90s, 15min, 2h, 1d12h; default: until resumed."),
    ] = None,
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="Reason, shown wherever mail is waiting because of it.")
    ] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Suspend sending. Mail waits without using up attempts; the suspension survives restarts."""
    seconds = when.span(for_, "--for") if for_ is not None else None
    chosen, kind = in_force(config, folder), "destination" if kind == "provider" else kind
    held = answer(chosen, questions.stop, kind=kind, name=name, seconds=seconds, cause=because)
    now_ms = int(time.time() * 1000)
    if kind in ("destination", "domain"):
        name = name.lower().rstrip(".")
    name = split_key(name)[0] if kind == "destination" else name  # of what is apart there, all that goes there
    kinds = (kind, "domain") if kind == "destination" else (kind,)
    over: questions.Standing = {
        "kind": kind, "name": name, "cause": because, "since_ms": now_ms, "until_ms": now_ms, "group": "suspended",
    }  # fmt: skip
    try:
        rows = [row for row in answer(chosen, questions.standing) if row["kind"] in kinds and row["name"] == name]
        row = rows[0] if rows else over  # one second may be over
        waiting = "" if json else _waiting(chosen, row["kind"], name, held)
    except CommandError as error:  # of several queues, one is stuck: the order holds for it all the same
        row = over
        row["until_ms"] = 0 if seconds is None else now_ms + int(seconds * 1000)
        waiting = f"how much waits is not known: {error}"
    if json:
        return print_json({**row, "held": held, "undo": _undo(row)})
    end = when.until(row["until_ms"], now_ms, "it is resumed")
    return print(printable(f"{row['kind']} {name} is suspended until {end} ({waiting}); undo: {_undo(row)}"))


def _waiting(chosen: Config, kind: str, name: str, held: int) -> str:
    """What it stops; where recipients are not counted by it, what of it the scheduler has in memory."""
    if kind not in _COUNTED:
        return f"flow queues it holds: {held}" if held else "nothing of it is in memory now"
    counts = answer(chosen, questions.size_of, **{kind: name})
    waiting = sum(cast(int, count) for state, count in counts.items() if state not in ("deleted", "bounced"))
    return f"{counted(waiting, 'recipient')} waiting" if waiting else "nothing is waiting now"


def resume(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="As `zonemta standing` shows it.")],
    name: Annotated[list[str], typer.Argument(metavar="NAME", help="As `zonemta standing` shows it.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """End a suspension or rest, discard what was learned about a site, or acknowledge possible losses."""
    full, kind = " ".join(name), "destination" if kind == "provider" else kind
    if not _resumed(in_force(config, folder), kind, full):
        raise CommandError(Exit.DATA, f"there is no {kind} {full!a} to resume; `zonemta standing` lists them all")
    print_json({"kind": kind, "name": full}) if json else print(printable(f"{kind} {full} is resumed"))


def _resumed(config: Config, kind: str, name: str) -> bool:
    """False: there was nothing to resume. The thresholds of a campaign count from here on, as by `campaign resume`."""
    if (
        kind == "campaign"
        and any((row["kind"], row["name"]) == (kind, name) for row in answer(config, questions.standing))
        and any(row["name"] == name for row in answer(config, questions.campaigns))
    ):
        return bool(answer(config, questions.campaign_resume, name=name))
    return bool(answer(config, questions.lift, kind=kind, name=name))


@tabled
def standing(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List suspensions, rests, learned values and possible losses: cause, start, end, and how to clear each.

    Operators' orders come first, then rests, then values learned about sites."""
    rows = answer(in_force(config, folder), questions.standing)
    rows.sort(key=lambda row: GROUPS.index(row["group"]))
    if json:
        return print_json([row | {"undo": _undo(row)} for row in rows])
    now_ms = int(time.time() * 1000)
    cells = [
        (_what(row), row["name"], _now(row), sentence(row["cause"]),
         when.since(row["since_ms"], now_ms), when.until(row["until_ms"], now_ms, _end(row)),
         *([_undo(row)] if as_records() else ()))
        for row in rows
    ]  # fmt: skip
    columns = ("what", "name", "now", "why", "since", "until", *(["undo"] if as_records() else ()))
    footer = "" if rows else "Nothing is suspended, resting or slowed down"
    counts = [(group, sum(row["group"] == group for row in rows)) for group in GROUPS]
    title = ", ".join(f"{n} {group}" for group, n in counts if n) or "0"
    print_table(f"Standing: {title}", columns, cells, footer, ("what", "name", "why", "until"), ("what", "name"))
    for row in rows if not as_records() else ():  # not in a table for people, which may have to break them
        print(printable(f"undo: {_undo(row)}"))
    return None


def _what(row: questions.Standing) -> str:
    if row["kind"] == "source" and row["group"] == RESTING:
        return "source cannot be used"
    return _WHAT.get(row["kind"], f"{row['kind']} suspended")


def _now(row: questions.Standing) -> str:
    if row["kind"] == "rate":
        rate = row["rate"]
        return f"{rate:.3g}/s" if rate >= 1 else f"{rate * 60:.3g}/min"
    if row["kind"] == "concurrency":
        return "dead" if row["dead"] else f"{row['window']} at once"
    if row["kind"] == "recipients":
        return f"{row['most']} a message"
    if row["kind"] == "pipelining":
        return "no pipelining"
    if row["kind"] == "lost":
        return "it was in damaged files"
    if row["kind"] == "guard":
        return "refusals are held back"
    if row["kind"] == "reroute":
        return f"goes to {row['to']}"
    if row["kind"] == "no-tls":
        return "mail is sent without TLS"
    return "nothing is sent" if row["kind"] != "resting" or row["until_ms"] else "one delivery tries"


def _end(row: questions.Standing) -> str:
    """When it ends, if not at a time."""
    if row["kind"] in ("rate", "concurrency"):
        return "deliveries go well"
    if row["kind"] == "guard":
        return "it is calm, or released"
    if row["kind"] == "source" and row["group"] == RESTING:
        return "it can be used again"
    if row["kind"] == "reroute":
        return "removed"
    return "that one has an answer" if row["kind"] == "resting" else "resumed"


def _undo(row: questions.Standing) -> str:
    if row["kind"] == "guard":
        return f"zonemta suppression release {shlex.quote(row['name'])}"
    if row["kind"] == "reroute":
        zone, destination = parts_of(row["name"])
        return shlex.join(
            ["zonemta", "reroute", "remove", *filter(None, [destination]), *(["--zone", zone] if zone else [])]
        )
    return f"zonemta resume {row['kind']} {shlex.join(row['name'].split(' '))}"

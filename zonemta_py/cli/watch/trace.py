"""`zonemta trace`: what became of a message, or of mail to somebody."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from json import dumps as to_json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from zonemta_py.cli.events.follow import all_stable, journals
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.ask_queue import NotRunning
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import bar, moment, print_aside, print_json, print_table, printable
from zonemta_py.config import Config
from zonemta_py.journal import folders
from zonemta_py.queue import questions
from zonemta_py.queue.admin.browse import reading
from zonemta_py.schedule.flow import split_key

_KNOWN = ("seq", "ms", "id", "what", "zone", "recipients", "count", "lease", "undone")
_DETAILS = ("stage", "local", "started_ms", "took_ms", "site", "size", "protocol", "origin", "helo", "tls")
"""For programs: not in the words."""
_FIRST = ("sender", "subject", "code", "enhanced", "reply", "text", "cause", "remote", "host")
"""Of what else a row says, in this order."""
_TOLD = ("metadata", "headers")
_NAMED, _IDS = 3, 4
_JUST_NOW_S = 1.5
_LOOK_S = 1.0
_YEAR_2001_MS = 10**12


@tabled
def trace(
    what: Annotated[str, typer.Argument(metavar="ADDRESS|ID", help="Recipient address or message id.")],
    all: Annotated[bool, typer.Option("--all", help="Search the whole archive, however long it takes.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Trace a message, or all mail to an address, from acceptance to the final reply.

    Reads the journal and the archive, newest first, and shows how far back it searched; --all searches everything.
    The MTA need not be running.
    """
    chosen = in_force(config, folder)
    found = _found(chosen, what, all)
    if json:
        return print_json(found)
    if not found["rows"]:
        raise CommandError(Exit.DATA, printable(f"nothing is known of {found['about']}{_far(found)}"))
    rows = [(moment(row["ms"]), _what(row), _who(row), row["id"], _said(row)) for row in found["rows"]]
    order = ("when", "what", "said", "to" if found["kind"] == "message" else "id")
    print_table(f"{found['kind']} {found['about']}", ("when", "what", "to", "id", "said"), rows, order=order)
    if found["kind"] == "recipient":
        more = f" and {len(found['ids']) - _IDS:,} more" if len(found["ids"]) > _IDS else ""
        print_aside(f"messages: {', '.join(found['ids'][-_IDS:])}{more}")
    if found["next"]:
        print_aside(f"looked{_far(found)}")
    return None


def _found(config: Config, what: str, all: bool) -> questions.Story:
    """Without a queue, what its files say. Raises CommandError."""
    try:
        found = _look(partial(answer, config, questions.trace, what=what), all)
        if not found["rows"]:  # what has just been accepted is in the journal's file a moment later
            _settle(config)
            found = _look(partial(answer, config, questions.trace, what=what), all)
        return found
    except NotRunning:
        if not (config.folder / "journal").is_dir():
            raise
    places = journals(config.folder)
    print("zonemta: the MTA is not running; this comes from its journal and archive", file=sys.stderr)
    try:
        told = [_look(partial(_read, place, *reading.subject(what)), all) for place in places.values()]
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    return told[0] if len(told) == 1 else _joined(told)


def _settle(config: Config) -> None:
    """Waits a moment for what has just been written."""
    if len(places := folders.every(config.folder)) > 1:
        all_stable(places, written=True)
    else:
        answer(config, questions.stable, after=answer(config, questions.stable), wait_s=_JUST_NOW_S)


def _joined(told: list[questions.Story]) -> questions.Story:
    """What the files of several queues say, by time."""
    rows = sorted((row for one in told for row in one["rows"]), key=lambda row: row["ms"])
    whole = {
        **told[0], "rows": rows, "files": sum(one["files"] for one in told),
        "ids": list(dict.fromkeys(row["id"] for row in rows if row["id"])),
        "next": next((one["next"] for one in told if one["next"]), None),
        "back_to_ms": max(one["back_to_ms"] for one in told),
    }  # fmt: skip
    return cast(questions.Story, whole)


def _read(folder: Path, what: str, kind: str, before: str = "") -> questions.Story:
    """As the queue answers."""
    return cast(questions.Story, {"about": what, "kind": kind} | reading.look(str(folder), what, kind, before, _LOOK_S))


def _look(ask: Callable[..., questions.Story], all: bool) -> questions.Story:
    """Until something is found, or to the end of it all."""
    with bar("looking") as move:
        found = ask()
        while found["next"] and (all or not found["rows"]):
            move(found["files"], 0)
            more = ask(before=found["next"])
            found = {
                **more,
                "rows": more["rows"] + found["rows"],
                "files": more["files"] + found["files"],
                "ids": [*dict.fromkeys(more["ids"] + found["ids"])],
                "back_to_ms": more["back_to_ms"] or found["back_to_ms"],
            }
    return found


def _far(found: questions.Story) -> str:
    more = "; --all looks further" if found["next"] else ""
    return f" back to {moment(found['back_to_ms'])}{more}" if found["back_to_ms"] else ""


def _what(row: dict[str, Any]) -> str:
    return f"{row['what']} undone" if row.get("undone") else str(row["what"])


def _who(row: dict[str, Any]) -> str:
    named = ", ".join(row["recipients"][:_NAMED])
    return named + (f" and {row['count'] - _NAMED:,} more" if row["count"] > _NAMED else "")


def _said(row: dict[str, Any]) -> str:
    """What else it says: the reply, or who sent it; then the rest by name."""
    first = [str(row[name]) for name in _FIRST if row.get(name)]
    if "sender" in row:
        first = [f"from {row['sender'] or '<>'}", *first[bool(row["sender"]) :]]
    rest = [
        f"{name.removesuffix('_ms').replace('_', ' ')} {_value(name, value)}"
        for name, value in row.items()
        if name not in (*_KNOWN, *_FIRST, *_DETAILS) and isinstance(value, int | str | float) and value
    ]
    if row["what"] == "accepted" or row["what"].startswith("came back"):  # the rows between have the same
        rest += [f"{name} {to_json(row[name], ensure_ascii=False)}" for name in _TOLD if row.get(name)]
    return ", ".join([" ".join(first), *rest]).strip(", ")


def _value(name: str, value: int | str | float) -> str:
    if name == "destination":  # of an egress path: its site, without source address and flow
        return split_key(str(value))[0]
    at = isinstance(value, int) and name.endswith("_ms") and value > _YEAR_2001_MS
    return moment(int(value)) if at else str(value)

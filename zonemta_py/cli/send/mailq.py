"""`zonemta mailq`: the queue as `mailq` of sendmail and Postfix shows it, message by message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.send.compatibility import configuration_of
from zonemta_py.cli.terminal.options import ConfigFile, Folder, in_force
from zonemta_py.cli.terminal.output import print_line, printable
from zonemta_py.config import Config
from zonemta_py.queue import questions

_PAGE = 1_000
_MARKS = {"leased": "*", "held": "!"}


def mailq(
    config: ConfigFile = None,
    folder: Folder = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per message, like postqueue -j.")
    ] = False,
) -> None:
    """List the queue in the format of sendmail's mailq; * marks active messages, ! held ones."""
    chosen = in_force(config, folder) if folder else configuration_of(config)
    if json:
        print_objects(chosen)
    else:
        print_queue(chosen)


def print_objects(config: Config) -> None:
    """Raises CommandError."""
    for id, rows in _messages(config):
        print_line(_object(id, rows))


def _object(id: str, rows: list[questions.WaitingDocument]) -> dict[str, Any]:
    """A message: what all its recipients share beside what each has."""
    about = ("sender", "received_ms", "size", "subject", "user")
    own = ("recipient", "zone", "state", "attempts", "due_ms", "last", "cause")
    recipients = [{name: value for name, value in row.items() if name in own} for row in rows]
    return {"id": id} | {name: value for name, value in rows[0].items() if name in about} | {"recipients": recipients}


def print_queue(config: Config) -> None:
    """Raises CommandError."""
    total = answer(config, questions.size)["total"]
    if not total["messages"]:
        print("Mail queue is empty")
        return
    print(f"{'-Queue ID-':<17} {'--Size--':>8} {'---Arrival Time----':<19} -Sender/Recipient-------")
    for id, rows in _messages(config):
        first = rows[0]
        mark = _MARKS.get(first["state"], "")
        arrived = time.strftime("%a %b %d %H:%M:%S", time.localtime(first["received_ms"] / 1000))
        sender = printable(first.get("sender") or "MAILER-DAEMON")
        print(f"{id + mark:<17} {first.get('size', 0):>8} {arrived} {sender}")
        for row in rows:
            _print_recipient(row)
        print()
    noun = "Request" if total["messages"] == 1 else "Requests"
    print(f"-- {-(-total['bytes'] // 1024)} Kbytes in {total['messages']} {noun}.")


def _print_recipient(row: questions.WaitingDocument) -> None:
    if row.get("last"):
        print(f"    ({printable(row['last'])})")
    print(f"{'':<47}{printable(row['recipient'])}")


def _messages(config: Config) -> Iterator[tuple[str, list[questions.WaitingDocument]]]:
    for id, rows in groupby(_rows(config), key=lambda row: str(row["id"])):
        yield id, list(rows)


def _rows(config: Config) -> Iterator[questions.WaitingDocument]:
    after = ""
    while True:
        page = answer(config, questions.list_, limit=_PAGE, after=after)
        yield from page["rows"]
        after = page.get("next") or ""
        if not after:
            return

"""`zonemta mailq`: the queue as `mailq` of sendmail and Postfix shows it, message by message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.options import ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import printable
from zonemta_py.config import Config

_PAGE = 1_000
_MARKS = {"leased": "*", "held": "!"}


def mailq(config: ConfigFile = None, folder: Folder = None) -> None:
    """List messages and their recipients as sendmail's mailq does: * while one is delivered, ! where it is held."""
    print_queue(configuration(config, folder))


def print_queue(config: Config) -> None:
    """Raises CommandError."""
    total = answer(config, "size")["total"]
    if not total["messages"]:
        print("Mail queue is empty")
        return
    print(f"{'-Queue ID-':<17} {'--Size--':>8} {'---Arrival Time----':<19} -Sender/Recipient-------")
    for _, found in groupby(_rows(config), key=lambda row: row["id"]):
        rows = list(found)
        first = rows[0]
        mark = _MARKS.get(first["state"], "")
        arrived = time.strftime("%a %b %d %H:%M:%S", time.localtime(first["received_ms"] / 1000))
        sender = printable(first.get("sender") or "MAILER-DAEMON")
        print(f"{first['id'] + mark:<17} {first.get('size', 0):>8} {arrived} {sender}")
        for row in rows:
            _print_recipient(row)
        print()
    noun = "Request" if total["messages"] == 1 else "Requests"
    print(f"-- {-(-total['bytes'] // 1024)} Kbytes in {total['messages']} {noun}.")


def _print_recipient(row: dict[str, Any]) -> None:
    if row.get("last"):
        print(f"    ({printable(row['last'])})")
    print(f"{'':<47}{printable(row['recipient'])}")


def _rows(config: Config) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = answer(config, "list", limit=_PAGE, after=after)
        yield from page["rows"]
        after = page.get("next") or ""
        if not after:
            return

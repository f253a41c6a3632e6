"""Tables for people (rich, loaded only when one is shown) and JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

_UNWRAPPED = 10_000


def print_json(value: Any) -> None:
    """One JSON document; bytes are shown as text with backslash escapes."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], footer: str = "") -> None:
    """Columns whose name ends in a blank are numbers and stand to the right. Nothing in a row is markup.

    Rows are fitted to a terminal's width; where the output is not a terminal they are not wrapped.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", caption=footer or None, caption_justify="left")
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(width=_UNWRAPPED if wide else None).print(table)


def printable(cell: object) -> str:
    """Text that cannot steer a terminal: mail is written by strangers."""
    text = "" if cell is None else str(cell)
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def moment(ms: int | None) -> str:
    """UNIX ms as UTC to the second, "" for none."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if ms else ""


def _plain(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

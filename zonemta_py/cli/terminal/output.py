"""Output of commands: tables at a terminal, aligned text or CSV on request, JSON for programs.

At a terminal a table is fitted to its width. Elsewhere (a pipe, a file), and with `--plain`, a record is one line of
aligned text, whole however long it is; with `--csv` there are the names of the columns and the records alone, and
everything else goes to stderr. Moments are local time with its offset from UTC, everywhere; JSON has UNIX ms.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from typing import Any


class Form(Enum):
    """How tables are printed. FITTED is for terminals alone: elsewhere it is PLAIN."""

    FITTED = "fitted"
    PLAIN = "plain"
    CSV = "csv"


_FORM = ContextVar("form", default=Form.FITTED)


@contextmanager
def printed_as(form: Form) -> Iterator[None]:
    before = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(before)


def as_csv() -> bool:
    return _FORM.get() is Form.CSV


def print_json(value: Any) -> None:
    """One JSON document; bytes are shown as text with backslash escapes."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], footer: str = "") -> None:
    """Columns whose name ends in a blank are numbers and stand to the right. Nothing in a row is markup."""
    from zonemta_py.cli.terminal import layout

    if as_csv():
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([name.strip() for name in columns])
        writer.writerows([printable(cell) for cell in row] for row in rows)
        if footer:
            print(footer, file=sys.stderr)
        return
    cells = [[_shown(cell) for cell in row] for row in rows]
    if _FORM.get() is Form.FITTED and sys.stdout.isatty():
        lines = layout.fitted(columns, cells, shutil.get_terminal_size().columns, _encodable("\u2500", "-"))
    else:
        lines = layout.aligned(columns, cells)
    print("\n".join(line for line in (title, *lines, footer) if line))


def print_aside(text: str) -> None:
    """A note to a table: below it, or to stderr where stdout is for records."""
    print(printable(text), file=sys.stderr if as_csv() else sys.stdout)


def printable(cell: object) -> str:
    """Text without terminal control sequences: mail is written by strangers. A datetime without a zone is UTC."""
    if isinstance(cell, datetime):
        cell = _said(cell if cell.tzinfo else cell.replace(tzinfo=UTC))
    text = "" if cell is None else str(cell)
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def moment(ms: int | None) -> str:
    """UNIX ms as local time with its offset, to the second; "" for none. `datetime.fromisoformat` reads it back."""
    return _said(datetime.fromtimestamp(ms // 1000, UTC)) if ms else ""


def _said(then: datetime) -> str:
    return f"{then.replace(microsecond=0).astimezone()}"


def _shown(cell: object) -> str:
    """One line; whole numbers with commas."""
    return f"{cell:,}" if type(cell) in (int, float) else " ".join(printable(cell).splitlines())


def _encodable(wanted: str, else_: str) -> str:
    return wanted if (sys.stdout.encoding or "").lower().startswith("utf") else else_


def _plain(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

"""Output of commands: tables, lines for other programs or CSV on request, JSON for programs.

At a terminal a table keeps the columns that fit beside each other, those that tell its rows apart before all, and cells
in a brief form where they have one (`Brief`); it says on stderr what it has left out and shortened, and `--columns`
chooses. In a pipe or a file it has all columns, and one line for each record, however long. With `--plain` a record is
one line of fields between tabs, with `--csv` there are the names of the columns, too; everything else goes to stderr.
Moments are local time with its offset from UTC, everywhere; JSON has UNIX ms.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_HARMLESS = re.compile(r"[+-][\d,.:%]*|[+-][\w.+-]*@[\w.-]+")
"""Numbers, and addresses that begin so: they are themselves, also for a program that reads them back."""


class Brief(str):
    """A cell with a shorter form for terminals that have no room for all of it."""

    __slots__ = ("brief",)
    brief: str

    @classmethod
    def of(cls, whole: str, brief: str) -> Brief:
        made = cls(whole)
        made.brief = brief
        return made


def sentence(text: str) -> Brief:
    """One that may be long: where there is no room its beginning is shown."""
    brief = textwrap.shorten(text, SENTENCE, placeholder=" …") if len(text) > SENTENCE else text
    return Brief.of(text, text if brief == "…" else brief)


SENTENCE = 60
"""Letters of a sentence where there is no room for all of it."""


class Form(Enum):
    """How tables are printed."""

    FITTED = "fitted"
    PLAIN = "plain"
    CSV = "csv"


class Style:
    """columns: only these, as the user names them; none: all. tables: how many were printed."""

    def __init__(self, form: Form = Form.FITTED, columns: Sequence[str] = ()) -> None:
        self.form, self.columns, self.tables = form, columns, 0


_STYLE: ContextVar[Style] = ContextVar("style")


@contextmanager
def printed_as(form: Form, columns: Sequence[str] = ()) -> Iterator[None]:
    before = _STYLE.set(Style(form, columns))
    try:
        yield
    finally:
        _STYLE.reset(before)


def as_records() -> bool:
    """Whether stdout is for records alone."""
    return _STYLE.get(Style()).form is not Form.FITTED


def columns_chosen() -> bool:
    """Whether the user has named columns."""
    return bool(_STYLE.get(Style()).columns)


def print_json(value: Any) -> None:
    """One JSON document; bytes are shown as text with backslash escapes."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_line(value: Any) -> None:
    """The same in one line: of many, for programs that take one after another."""
    print(json.dumps(value, ensure_ascii=False, default=_plain))


class Telling:
    """What a command does, told bit by bit: in sentences as it happens, or with --json in one document at its end,
    whatever that end is.

    with Telling(json) as tell: tell("3 are removed", removed=3)
    """

    def __init__(self, json: bool) -> None:
        self._json, self._values = json, dict[str, Any]()

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, *error: object) -> None:
        if self._json and self._values:
            print_json(self._values)

    def __call__(self, sentence: str = "", **values: Any) -> None:
        self._values |= values
        if sentence and not self._json:
            print(printable(sentence), flush=True)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    footer: str = "",
    order: Sequence[str] = (),
    keys: Sequence[str] = (),
) -> None:
    """Columns whose name ends in a blank are numbers and stand to the right. Nothing in a row is markup.

    order: the most important columns first, for narrow terminals; the others follow as they stand. keys: the columns
    that say what a row is about, all if none are named; as many of them as tell the rows apart are always shown.
    Without rows a person is told so in a line. Raises CommandError for columns that there are not.
    """
    names, style, all_rows = [name.strip() for name in columns], _STYLE.get(Style()), [list(row) for row in rows]
    chosen = _chosen(names, style.columns, style.tables == 0)
    style.tables += 1
    if style.form is Form.FITTED and not all_rows:
        nothing = title if title.endswith(": 0") else f"{title}: none" if title else "none"
        print("\n".join(line for line in (nothing, footer) if line))
        return
    which = range(len(names)) if chosen is None else chosen
    if style.form is Form.FITTED:
        shown, remark = _for_people(columns, all_rows, chosen, order, keys)
        print("\n".join(line for line in (title, *shown, footer) if line))
        if remark:
            print(f"zonemta: {remark}; --columns NAME,... chooses, --plain and --csv have all", file=sys.stderr)
        return
    records = [[_field(row[number]) for number in which] for row in all_rows]
    if style.form is Form.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([[names[number] for number in which], *([inert(cell) for cell in row] for row in records)])
    else:
        sys.stdout.writelines("\t".join(" ".join(field.split()) for field in record) + "\n" for record in records)
    if footer:
        print(footer, file=sys.stderr)


def _for_people(
    columns: Sequence[str], rows: list[list[object]], chosen: list[int] | None, order: Sequence[str],
    keys: Sequence[str],
) -> tuple[list[str], str]:  # fmt: skip
    """The lines, and what was left out or shortened for want of room."""
    from zonemta_py.cli.terminal import layout

    cells, names = [[_shown(cell) for cell in row] for row in rows], [name.strip() for name in columns]
    if not sys.stdout.isatty():
        which = chosen or range(len(names))
        return layout.aligned([columns[number] for number in which], [[row[n] for n in which] for row in cells]), ""
    width, left_out, shortened = shutil.get_terminal_size().columns, list[str](), list[str]()
    if chosen is None:
        ranked = [names.index(name) for name in order]
        ranked += [number for number in range(len(names)) if number not in ranked]
        must = layout.telling(cells, ranked, [names.index(name) for name in keys] or ranked)
        if len(names) > 2 and layout.too_wide(columns, cells, width):
            cells, shortened = _briefly(rows, cells, names)
        chosen = layout.room(columns, cells, width, [*must, *(one for one in ranked if one not in must)], len(must))
        left_out = [name for number, name in enumerate(names) if number not in chosen]
    notes = [f"left out: {', '.join(left_out)}"] if left_out else []
    shortened = [name for name in shortened if name not in left_out]
    notes += [f"shortened: {', '.join(shortened)}"] if shortened else []
    kept, rows_kept = [columns[number] for number in chosen], [[row[number] for number in chosen] for row in cells]
    return layout.fitted(kept, rows_kept, width, _encodable("\u2500", "-")), "; ".join(notes)


def _briefly(rows: list[list[object]], cells: list[list[str]], names: list[str]) -> tuple[list[list[str]], list[str]]:
    """The cells in their brief forms; names of columns of which something is missing then."""
    brief = [[_shown(getattr(cell, "brief", cell)) for cell in row] for row in rows]
    changed = [
        name for number, name in enumerate(names)
        if any(row[number] != short[number] for row, short in zip(cells, brief, strict=True))
    ]  # fmt: skip
    return brief, changed


def _chosen(names: Sequence[str], wanted: Sequence[str], first: bool) -> list[int] | None:
    """Numbers of the columns that the user wants, in that order; None: all that fit. Raises CommandError.

    first: of the tables of a command, the one whose columns they are; others show those that they have.
    """
    if not wanted:
        return None
    known = {_spelled(name): number for number, name in enumerate(names)}
    if first and (unknown := next((name for name in wanted if _spelled(name) not in known), "")):
        there = ",".join(_spelled(name) for name in names)
        raise CommandError(Exit.USAGE, f"--columns: there is no column {unknown!r}; use some of {there}")
    return [known[_spelled(name)] for name in wanted if _spelled(name) in known] or None


def _spelled(name: str) -> str:
    """As it is written in --columns."""
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def inert(cell: str) -> str:
    """No formula, whatever a stranger has written: a spreadsheet runs what begins with one of these."""
    return f"'{cell}" if cell.startswith(FORMULA) and not _HARMLESS.fullmatch(cell) else cell


def _field(cell: object) -> str:
    return printable(cell.replace("\t", " ") if isinstance(cell, str) else cell)


def counted(number: int, noun: str) -> str:
    """ "1 recipient", "2,000 recipients"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def print_aside(text: str) -> None:
    """A note to a table: below it, or to stderr where stdout is for records."""
    print(printable(text), file=sys.stderr if as_records() else sys.stdout)


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


class Move(Protocol):
    def __call__(self, done: int, total: int, label: str = "", /) -> None:
        """label: another one from now on."""


@contextmanager
def bar(label: str) -> Iterator[Move]:
    """Shows `label` and a bar that the given function moves: only on a terminal, on stderr."""
    if not sys.stderr.isatty():
        yield lambda done, total, label="": None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)

        def move(done: int, total: int, said: str = "", /) -> None:
            shown.update(task, completed=done, total=total, description=escape(said or label))

        yield move


def confirm(sentence: str, question: str, instead: str = "") -> None:
    """Asks before what cannot be undone, or is much. Raises CommandError if the answer is no, or if nobody is there.

    sentence: what will be. instead: what else one may do where nobody can answer.
    """
    if not sys.stdin.isatty():
        raise CommandError(Exit.USAGE, f"{sentence}; add --yes to do it without a question{instead}")
    if not typer.confirm(f"{sentence}. {question}", err=True):
        raise CommandError(Exit.OK, "nothing was changed")

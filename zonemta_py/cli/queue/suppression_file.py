"""A file of what to suppress, as `zonemta suppression import` reads it: CSV as any spreadsheet writes it, or a list
without a header, one address, domain, pattern or hash a line.

Each row is checked as the queue will; a bad one goes to the rejects, and the reading continues.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.rejects import Rejects
from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source.dialect import DOMAINS, Dialect, dialect_of, listed_column
from zonemta_py.pipeline.prepare.source.dialect import opened as text_of

COLUMNS = ("address", "kind", "scope", "since", "reason", "evidence", "by", "campaign")
STDIN = Path("-")


class Source:
    """columns: of the header, or of what stands for it. said: how it is read, in a sentence. count: rows so far. bytes:
    of the file."""

    def __init__(self, name: str, file: Path, stream: IO[str], dialect: Dialect) -> None:
        """Raises CommandError for what has no header with an address."""
        self._name, self._stream, self._lines_before = name, stream, int(dialect.announced)
        self._reader = csv.reader(stream, delimiter=dialect.separator)
        try:
            self.columns: list[str] = next(self._reader, [])
            "".join(self.columns).encode()
        except UnicodeError:
            raise CommandError(Exit.DATA, f"{name}:1: it is not UTF-8; save the file as CSV in UTF-8") from None
        except csv.Error as error:
            raise CommandError(Exit.DATA, f"{name}:1: this is not CSV ({error}); save it as CSV in UTF-8") from None
        self.count, self.bytes = 0, file.stat().st_size
        self._first: list[str] | None = None
        """The first line, if it is a row already."""
        self._domains = False
        """Whether they are named without an @."""
        if len(self.columns) == 1 and _is_entry(self.columns[0]):
            self._first, self.columns, self._places = self.columns, ["address"], {"address": 0}
            self.said = f"{name}: read as a list without a header, one entry a line"
            return
        names = [column.strip().lower() for column in self.columns]
        address = listed_column(names)
        if not address:
            raise CommandError(Exit.DATA, f"{name}: its first line names no column address or email; add one")
        self._places = {column: names.index(column) for column in COLUMNS if column in names}
        self._places["address"] = names.index(address)
        self._domains = address in DOMAINS
        what = "domains" if self._domains else "addresses"
        self.said = f"{name}: read as CSV in {dialect}; {what} in {self.columns[self._places['address']]}"

    @property
    def bytes_read(self) -> int:
        return self._stream.buffer.tell()  # type: ignore[attr-defined,no-any-return]

    def rows(self, kind: str, scope: str, by: str, bad: Rejects) -> Iterator[list[Any]]:
        """Good rows as the question `suppress` takes them. kind, scope, by: for rows that do not say."""
        from zonemta_py.queue.suppression.entry import checked

        now_ms = int(time.time() * 1000)
        for values, problem in self._values():
            if not problem and not any(map(str.strip, values)):
                continue
            self.count += 1
            try:
                if problem:
                    raise ValueError(problem)
                row = self._row(values, kind, scope, by)
                checked(row, now_ms)
            except ValueError as error:
                bad.add(self._name, self._reader.line_num + self._lines_before, str(error), values)
            else:
                yield row

    def _values(self) -> Iterator[tuple[list[str], str]]:
        if self._first is not None:
            yield self._first, ""
        while True:
            try:
                values = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield [], f"{error}; correct its quotes"
                continue
            wrong = any("\udc80" <= character <= "\udcff" for value in values for character in value)
            yield values, "it is not UTF-8; save the file as UTF-8" if wrong else ""

    def _row(self, values: Sequence[str], kind: str, scope: str, by: str) -> list[Any]:
        """Raises ValueError."""
        said = {name: values[place].strip() if place < len(values) else "" for name, place in self._places.items()}
        if not said["address"]:
            raise ValueError("there is no address; give one such as ann@example.com")
        if self._domains and said["address"][0] != "@":
            said["address"] = f"@{said['address']}"
        return [
            said["address"], said.get("kind") or kind, said.get("reason", ""), said.get("evidence", ""),
            said.get("by") or by, said.get("campaign", ""), _ms(said.get("since", "")), said.get("scope") or scope,
        ]  # fmt: skip


def _is_entry(text: str) -> bool:
    from zonemta_py.mail.addresses.entries import checked

    try:
        return bool(checked(text))
    except ValueError:
        return False


@contextmanager
def opened(file: Path) -> Iterator[Source]:
    """file: STDIN is read whole before anything is taken. Raises CommandError, OSError."""
    with tempfile.TemporaryDirectory() as folder:
        path = file
        if file == STDIN:
            path = Path(folder) / "stdin.csv"
            with path.open("wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            dialect = dialect_of(path)
        except PlanRefused as refused:
            raise CommandError(Exit.DATA, str(refused)) from None
        # Invalid UTF-8 is found by its surrogates, row by row.
        with text_of(path, dialect, "surrogateescape") as stream:
            yield Source("standard input" if file == STDIN else str(file), path, stream, dialect)


def _ms(since: str) -> int:
    """UNIX ms of a date as it is exported, 0 for none. Raises ValueError."""
    if not since:
        return 0
    try:
        date = datetime.fromisoformat(since)
    except ValueError:
        raise ValueError(f"since is {since!a}; write a date such as 2026-03-01 or 2026-03-01 12:00:00Z") from None
    return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)

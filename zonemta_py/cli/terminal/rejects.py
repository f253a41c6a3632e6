"""Rejected rows: the first problems are shown, each once; all go into one CSV file that can be corrected.

The file (mode 0600, for it names people) has the columns file, line, problem, and those of the list itself; it is made
at the first row. Failures: OSError, if it cannot be written.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from zonemta_py.cli.terminal.errors import CommandError, Exit

SHOWN = 20
LINES_NAMED = 3
SUFFIX = ".rejects.csv"
COLUMNS = ("file", "line", "problem")


class Rejects:
    """count: rows so far."""

    def __init__(self, file: Path, columns: Sequence[str]) -> None:
        self.file, self.count = file, 0
        self._alike: dict[tuple[str, str], list[int]] = {}
        """File, problem → how many rows, and the numbers of the first of them."""
        self._columns = columns
        self._stream: IO[str] | None = None
        self._writer: Any = None

    def add(self, list_: str, line: int, problem: str, values: Sequence[str]) -> None:
        """line: from 1; 0 if unknown."""
        self.count += 1
        if (list_, problem) in self._alike or len(self._alike) < SHOWN:
            alike = self._alike.setdefault((list_, problem), [0])
            alike[0] += 1
            if line and len(alike) <= LINES_NAMED:
                alike.append(line)
        if self._stream is None:
            self._stream = private(self.file)
            self._writer = csv.writer(self._stream, lineterminator="\n")
            self._writer.writerow([*COLUMNS, *self._columns])
        self._writer.writerow([list_, line or "", problem, *map(_writable, values)])

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def sentence(self, of: int) -> str:
        """All of it for stderr."""
        others = self.count - sum(count for count, *_ in self._alike.values())
        more = f"and {others:,} more; " if others else ""
        shown = [_told(list_, problem, *alike) for (list_, problem), alike in self._alike.items()]
        rows = "row is" if self.count == 1 else "rows are"
        return "\n".join(
            [*shown, f"{more}{self.count:,} of {of:,} {rows} bad; all of them, with reasons, are in {self.file}"]
        )


def _told(list_: str, problem: str, count: int, *lines: int) -> str:
    """A problem of so many rows, the first of which have these numbers."""
    if count == 1:
        return f"{list_}:{lines[0]}: {problem}" if lines else f"{list_}: {problem}"
    named = f" (lines {', '.join(map(str, lines))}{', …' if count > len(lines) else ''})" if lines else ""
    return f"{list_}: {count:,} rows{named}: {problem}"


def apart(file: Path, list_: Path) -> Path:
    """The file for rejects, which is never the list itself. Raises CommandError."""
    if file.exists() and list_.exists() and file.samefile(list_):
        raise CommandError(Exit.USAGE, f"--rejects {file}: that is the list, which would be lost; name another file")
    return file


def beside(list_: Path) -> Path:
    """Where the rejects of a list go by default: the current folder. What was corrected and is given again is not
    overwritten."""
    if list_.name.endswith(SUFFIX):
        return Path(f"{list_.resolve().name.removesuffix(SUFFIX)}-again{SUFFIX}")
    return Path(f"{list_.resolve().name.partition('.')[0] or 'list'}{SUFFIX}")


def private(file: Path) -> IO[str]:
    """A new text file that only its owner reads, in place of one that is there. Raises OSError."""
    file.unlink(missing_ok=True)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="")


def _writable(value: str) -> str:
    """Bytes that were not UTF-8 are shown as such."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

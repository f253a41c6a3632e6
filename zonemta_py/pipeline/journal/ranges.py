"""Sets of sequence numbers as ranges: which segments have been read, however late one of them reaches the archive.

Neighbouring segments join into one range, so what has been read takes as many ranges as there are gaps: one for each
run of segments that still speak of living mail.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""First and last number, both inside."""


class Ranges:
    """An immutable set of whole numbers. `text` and `parse` are each other's inverse; equal sets have equal texts."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[Range] = ()) -> None:
        joined: list[Range] = []
        for first, last in sorted(rows):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        self._rows = tuple(joined)

    def __contains__(self, number: int) -> bool:
        place = bisect.bisect_right(self._rows, number, key=lambda row: row[0]) - 1
        return place >= 0 and number <= self._rows[place][1]

    def around(self, number: int) -> Range | None:
        """The range that it is in."""
        place = bisect.bisect_right(self._rows, number, key=lambda row: row[0]) - 1
        return self._rows[place] if number in self else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        return f"Ranges({self.text()!r})"

    def plus(self, rows: Iterable[Range]) -> Ranges:
        return Ranges((*self._rows, *rows))

    def text(self) -> str:
        """As "1-500,700-900"; "" for none."""
        return ",".join(f"{first}-{last}" for first, last in self._rows)

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """Raises ValueError for anything but what `text` gives."""
        pairs = (part.partition("-") for part in text.split(",") if part)
        return cls((int(first), int(last)) for first, _, last in pairs)

"""The tables behind the plots: as CSV files for a spreadsheet, and as cells for the page. Pure.

Promise: no cell is a formula. Reply texts and names come from strangers, and a spreadsheet runs what begins with "=".
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

Value = str | int | float | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
LONG = 24
SHOWN_MAX = 100
"""Rows of a table that the page shows; its file has all of them."""


@dataclass(frozen=True)
class Table:
    """name: of its file, without ".csv". Columns keep the order of `columns`; text and None may stand in any."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    bar: str = ""
    """A column of percentages under which the page draws a bar."""

    @property
    def csv(self) -> bytes:
        """RFC 4180, UTF-8, one header row. Floats have at most four digits behind the point."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue().encode("utf-8", "replace")

    @property
    def link(self) -> str:
        """The file as a data: URL (RFC 2397)."""
        return "data:text/csv;charset=utf-8;base64," + base64.b64encode(self.csv).decode()

    @property
    def numeric(self) -> list[bool]:
        """Which columns stand to the right."""
        return [
            any(isinstance(row[at], int | float) for row in self.rows)
            and not any(isinstance(row[at], str) for row in self.rows)
            for at in range(len(self.columns))
        ]

    @property
    def long(self) -> list[bool]:
        """Which columns have texts that are to be broken into lines."""
        return [any(len(str(row[at])) > LONG for row in self.rows) for at in range(len(self.columns))]

    @property
    def shown(self) -> list[list[str]]:
        return [[_shown(value) for value in row] for row in self.rows[:SHOWN_MAX]]

    def width(self, row: int, column: int) -> float | None:
        """Of the bar in a cell, in per cent; None: it has none."""
        value = self.rows[row][column] if self.columns[column] == self.bar else None
        return round(float(value), 1) if isinstance(value, int | float) else None

    @property
    def hidden(self) -> int:
        return max(0, len(self.rows) - SHOWN_MAX)


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, str):
        clean = value.replace("\x00", "")
        return f"'{clean}" if clean.startswith(_FORMULA) else clean
    return str(value)


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else value

"""How rows of cells become lines of text: pure, no terminal and no markup.

Promise: no cell is ever cut off, and what is one word (an id, an address, a moment) stays on one line unless it alone
is wider than the screen.

`aligned` gives one line for each row, as wide as it must be. `fitted` gives the same where that is narrow enough; else
it breaks sentences inside their columns; else a row keeps the columns that fit on its first line, and the others follow
with their names, indented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells

GAP = "  "
INDENT = "    "
TEXT_LEAST = 16
"""Narrower than this no column of sentences is readable."""
_WORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*|\S+")
"""A moment is one word."""

Row = Sequence[str]


def aligned(columns: Row, rows: Sequence[Row]) -> list[str]:
    """The names, then a line for each row. A column whose name ends in a blank holds numbers, to the right."""
    return _lines(columns, rows, _natural(columns, rows))


def fitted(columns: Row, rows: Sequence[Row], width: int, rule: str = "-") -> list[str]:
    """The names over a rule, then the rows, in `width` columns of a terminal."""
    natural = _natural(columns, rows)
    if _total(natural) <= width:
        return _ruled(_lines(columns, rows, natural), natural, rule)
    narrow = _narrowed(columns, rows, natural, width)
    if narrow:
        return _ruled(_lines(columns, rows, narrow), narrow, rule)
    return _stacked(columns, rows, natural, width, rule)


def _natural(columns: Row, rows: Sequence[Row]) -> list[int]:
    return [
        max([cell_len(name.strip()), *(cell_len(row[number]) for row in rows)]) for number, name in enumerate(columns)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _ruled(lines: list[str], widths: Sequence[int], rule: str) -> list[str]:
    return [lines[0], GAP.join(rule * width for width in widths), *lines[1:]]


def _lines(columns: Row, rows: Sequence[Row], widths: Sequence[int]) -> list[str]:
    right = [name.endswith(" ") for name in columns]
    lines = [_joined([name.strip() for name in columns], widths, right)]
    for row in rows:
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells), default=0)):
            part = [cell[number] if number < len(cell) else "" for cell in cells]
            lines.append(_joined(part, widths, right))
    return lines


def _joined(cells: Row, widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_the_right in zip(cells, widths, right, strict=True):
        blanks = " " * (width - cell_len(cell))
        padded.append(blanks + cell if to_the_right else cell + blanks)
    return GAP.join(padded).rstrip()


def _narrowed(columns: Row, rows: Sequence[Row], natural: list[int], width: int) -> list[int]:
    """Widths at which only sentences are broken, between their words; [] if there is no such."""
    widths = []
    for number, full in enumerate(natural):
        word = max([cell_len(columns[number].strip()), *(_longest_word(row[number]) for row in rows)])
        widths.append(min(full, max(word, TEXT_LEAST)))
    spare = width - _total(widths)
    if spare < 0:
        return []
    wanting = sorted((full - now, number) for number, (full, now) in enumerate(zip(natural, widths, strict=True)))
    for place, (lacks, number) in enumerate(wanting):
        more = min(lacks, spare // (len(wanting) - place))
        widths[number] += more
        spare -= more
    return widths


def _longest_word(cell: str) -> int:
    return max(map(cell_len, _WORD.findall(cell)), default=0)


def _stacked(columns: Row, rows: Sequence[Row], natural: list[int], width: int, rule: str) -> list[str]:
    first = 1
    while first < len(columns) and _total(natural[: first + 1]) <= width:
        first += 1
    widths = [min(natural[0], width), *natural[1:first]]
    lines = _ruled(_lines(columns[:first], [], widths), widths, rule)
    for row in rows:
        lines += _lines(columns[:first], [row[:first]], widths)[1:]
        lines += _rest(columns[first:], row[first:], width)
    return lines


def _rest(columns: Row, row: Row, width: int) -> Iterator[str]:
    """ "name: value" pairs, as many on a line as fit; one that is longer is broken between its words."""
    line = ""
    for name, cell in zip(columns, row, strict=True):
        pair = f"{name.strip()}: {cell}".removeprefix(": ")
        if not cell:
            continue
        if line and cell_len(INDENT + line + GAP + pair) > width:
            yield INDENT + line
            line = ""
        line = f"{line}{GAP}{pair}" if line else pair
        if cell_len(INDENT + line) > width:
            *whole, line = _wrapped(line, width - len(INDENT))
            yield from (INDENT + part for part in whole)
    if line:
        yield INDENT + line


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; only a word that is wider than that is broken."""
    if cell_len(text) <= width:
        return [text]
    lines, line = list[str](), ""
    for word in _WORD.findall(text):
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width:
            lines.append(line)
            longer = word
        *whole, line = chop_cells(longer, width) if cell_len(longer) > width else [longer]
        lines += whole
    return [*lines, line]

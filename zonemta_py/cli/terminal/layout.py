"""How rows of cells become lines of text: pure, no terminal and no markup.

Promise: no cell that is shown is ever cut off, and what is one word (an id, an address, a moment) stays on one line,
even where it alone is wider than the screen. What does not fit is left out by whole columns, the least important first,
but for those that tell the rows apart.

`room` says which columns have room, `telling` which must be there. `aligned` gives one line for each row, as wide as it
must be; `fitted` breaks sentences inside their columns where that is too wide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

GAP = "  "
TEXT_LEAST = 20
"""Narrower than this no column of sentences is readable."""
_WORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*|\S+")
"""A moment is one word."""

Row = Sequence[str]


def aligned(columns: Row, rows: Sequence[Row]) -> list[str]:
    """The names, then a line for each row. A column whose name ends in a blank holds numbers, to the right."""
    return _lines(columns, rows, _natural(columns, rows))


def fitted(columns: Row, rows: Sequence[Row], width: int, rule: str = "-") -> list[str]:
    """The names over a rule, then the rows, in `width` columns of a terminal if no word is wider than its room."""
    natural = _natural(columns, rows)
    widths = natural if _total(natural) <= width else _narrowed(columns, rows, natural, width) or _least(columns, rows)
    return _ruled(_lines(columns, rows, widths), widths, rule)


def room(columns: Row, rows: Sequence[Row], width: int, order: Sequence[int], always: int = 1) -> list[int]:
    """Which columns fit beside each other, in their own order. order: the most important first, of which so many
    `always` stay; of two, a name and its value, both do."""
    if len(columns) <= 2:
        return sorted(order)
    least, kept, total = _least(columns, rows), list[int](), -len(GAP)
    for place, number in enumerate(order):
        if place < always or total + len(GAP) + least[number] <= width:
            kept.append(number)
            total += len(GAP) + least[number]
    return sorted(kept)


def too_wide(columns: Row, rows: Sequence[Row], width: int) -> bool:
    """Whether they do not fit beside each other without a break."""
    return _total(_natural(columns, rows)) > width


def telling(rows: Sequence[Row], order: Sequence[int], keys: Sequence[int]) -> list[int]:
    """The first column of the order, and as few of `keys` as tell apart whatever rows all of those do; the most
    important ones."""
    found, apart = [order[0]], len({tuple(row[number] for number in keys) for row in rows})
    while (now := _apart(rows, found)) < apart:
        more = next((key for key in order if key in keys and _apart(rows, [*found, key]) > now), None)
        if more is None:
            break
        found.append(more)
    return found


def _apart(rows: Sequence[Row], numbers: Sequence[int]) -> int:
    return len({tuple(row[number] for number in numbers) for row in rows})


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
    widths = _least(columns, rows)
    spare = width - _total(widths)
    if spare < 0:
        return []
    wanting = sorted((full - now, number) for number, (full, now) in enumerate(zip(natural, widths, strict=True)))
    for place, (lacks, number) in enumerate(wanting):
        more = min(lacks, spare // (len(wanting) - place))
        widths[number] += more
        spare -= more
    return widths


def _least(columns: Row, rows: Sequence[Row]) -> list[int]:
    """The smallest widths: no word is broken."""
    widths = []
    for number, full in enumerate(_natural(columns, rows)):
        word = max([cell_len(columns[number].strip()), *(_longest_word(row[number]) for row in rows)])
        widths.append(min(full, max(word, TEXT_LEAST)))
    return widths


def _longest_word(cell: str) -> int:
    return max(map(cell_len, _WORD.findall(cell)), default=0)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, unless a word is wider than that."""
    if cell_len(text) <= width:
        return [text]
    lines, line = list[str](), ""
    for word in _WORD.findall(text):
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]

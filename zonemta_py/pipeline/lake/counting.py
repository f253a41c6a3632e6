"""Attempts counted per window and kind of mail with numpy: rows of table `deliverability`, of all its grains.

Attempts are grouped once, by five minutes; hours are added up of these, and days of hours. Only the sketches of latency
are drawn from the attempts. All rows of a kind of mail can be counted without those of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.pipeline.lake.kll import sketches

_MANY = 1 << 31
_BITS = 40
NEVER = int(np.iinfo(np.int64).min)
LATEST = "latency_max_ms"

Numbers = dict[str, np.ndarray]


class Groups(NamedTuple):
    """Groups in the order of `code`. row: one of the attempts in each. numbers: sums, but of `latest` the greatest."""

    code: np.ndarray
    row: np.ndarray
    numbers: Numbers

    def where(self, codes: np.ndarray) -> np.ndarray:
        """Which groups have these codes."""
        return np.searchsorted(self.code, codes)


def grouped(code: np.ndarray, row: np.ndarray, numbers: Numbers) -> Groups:
    """Rows of the same code as one group. Groups, whose `row` is of an attempt, can be grouped again."""
    order = np.argsort(code)
    ordered = code[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    if not len(starts):
        return Groups(code, row, numbers)
    sums = {
        name: (np.maximum if name == LATEST else np.add).reduceat(column[order], starts, dtype=np.int64)
        for name, column in numbers.items()
    }
    return Groups(ordered[starts], row[order[starts]], sums)


def kinds(rows: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, int]:
    """A number for the values of these columns, the same for the same, and how many numbers there may be."""
    code, size = np.zeros(len(rows), dtype=np.int64), 1
    for name in names:
        column = _dictionary(rows[name])
        width = len(column.dictionary) + 1
        code, size = code * width + column.indices.fill_null(width - 1).to_numpy(), size * width
        if size > _MANY:
            there, code = np.unique(code, return_inverse=True)
            size = len(there)
    return code, size


def maps(groups: Groups, code: np.ndarray, names: pa.ChunkedArray) -> pa.Array:
    """For each group its names with how often they occur, in their order; each name has its group's code."""
    texts = pc.unique(names).sort()
    width = max(1, len(texts))
    entries, counts = np.unique(code * width + pc.index_in(names, texts).to_numpy(), return_counts=True)
    sizes = np.bincount(groups.where(entries // width), minlength=len(groups.code))
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    return pa.MapArray.from_arrays(offsets, texts.take(pa.array(entries % width)), pa.array(counts, pa.int64()))


def drawn(groups: Groups, code: np.ndarray, values: np.ndarray) -> pa.Array:
    """The sketch of each group's values, null where it has none; a value has its group's code."""
    if not len(values):
        return pa.nulls(len(groups.code), pa.binary())
    least = values.min()
    # One sort of numbers does for both: groups are fewer than 2^23, and milliseconds of 34 years have 40 bits.
    both = np.sort(groups.where(code) << _BITS | (values - least))
    place = both >> _BITS
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    found = np.full(len(groups.code), -1)
    found[place[starts]] = np.arange(len(starts))
    made = sketches((both & (1 << _BITS) - 1) + least, starts)
    return made.take(pa.array(found, mask=found < 0))


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = column.combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()

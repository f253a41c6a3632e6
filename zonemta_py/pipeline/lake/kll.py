"""KLL sketches (Karnin, Lang, Liberty 2016) of whole numbers, of many groups at once, as Apache DataSketches has them.

Spark's `kll_merge_agg_bigint` and `kll_sketch_get_quantile_bigint` read them. Up to K values a sketch holds all of
them; of more it holds every second one of a level, twice as heavy in the next, until they fit. Which half of a level
stays depends on the values alone, so the same values give the same bytes.

Layout (little-endian): octets (longs of the preamble, version, family 15, flags), K and M as shorts, the count as long,
least K as short, the number of levels, the start of each level's values, least and greatest value, then the values from
the lowest level up. One value alone is a preamble of 8 octets and itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

K = 200
_M = 8
_FULL = (5, 1, 15, 0)
_SINGLE = (2, 2, 15, 4)
_WORDS = 10
"""Of a sketch with one level, besides its values: 4 octets each."""


def sketches(values: np.ndarray, starts: np.ndarray) -> pa.Array:
    """Of each group, as binary. values: int64, those of a group together and in order. starts: where groups begin."""
    sizes = np.diff(starts, append=len(values))
    large = {int(one): _large(values[starts[one] : starts[one] + sizes[one]]) for one in np.flatnonzero(sizes > K)}
    words = np.where(sizes == 1, 4, _WORDS + 2 * sizes)
    for one, sketch in large.items():
        words[one] = len(sketch)
    ends = np.cumsum(words)
    room = np.zeros(int(words.sum()), dtype="<u4")
    begin = ends - words
    _write_small(room, begin, values, starts, sizes)
    for one, sketch in large.items():
        room[begin[one] : ends[one]] = sketch
    offsets = np.concatenate(([0], ends * 4)).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(room)])


def _write_small(
    room: np.ndarray, begin: np.ndarray, values: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> None:
    """Those of at most K values, all at once."""
    several = (sizes > 1) & (sizes <= K)
    at, size, first = begin[several], sizes[several], starts[several]
    least_and_greatest = *_long(values[first]), *_long(values[first + size - 1])
    for word, content in enumerate((*_head(_FULL, size), K - size, *least_and_greatest)):
        room[at + word] = content
    inside = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    for half, content in enumerate(_long(values[np.repeat(first, size) + inside])):
        room[np.repeat(at + _WORDS, size) + 2 * inside + half] = content
    single = sizes == 1
    for word, content in enumerate((*_head(_SINGLE, sizes[single])[:2], *_long(values[starts[single]]))):
        room[begin[single] + word] = content


def _large(values: np.ndarray) -> np.ndarray:
    """One of more than K values, as its words."""
    levels = compacted(values)
    sizes = [len(level) for level in levels]
    positions = room(len(levels)) - sum(sizes) + np.cumsum([0, *sizes[:-1]])
    head = [*_head(_FULL, np.array(len(values)))[:4], K | len(levels) << 16, *positions]
    numbers = np.concatenate((values[:1], values[-1:], *levels)).astype("<i8")
    return np.concatenate((np.array(head, dtype="<u4"), numbers.view("<u4")))


def compacted(values: np.ndarray) -> list[np.ndarray]:
    """The values of each level, from the lowest: one that is over its capacity gives half of its own to the next."""
    levels = [values]
    die = np.random.default_rng(len(values))
    height = 0
    while height < len(levels):
        level = levels[height]
        if sum(map(len, levels)) > room(len(levels)) and len(level) >= _capacity(len(levels), height):
            odd = len(level) % 2
            promoted = level[odd + int(die.integers(2)) :: 2]
            levels[height] = level[:odd]
            if height + 1 == len(levels):
                levels.append(promoted)
            else:
                levels[height + 1] = np.sort(np.concatenate((levels[height + 1], promoted)))
        height += 1
    return levels


def room(levels: int) -> int:
    return sum(_capacity(levels, height) for height in range(levels))


def _capacity(levels: int, height: int) -> int:
    """Values that a level may hold: K of the highest, two thirds of it of the next below …, but at least _M."""
    depth = levels - height - 1
    return max(_M, ((2 * K << depth) // int(3**depth) + 1) >> 1)


def _head(kind: tuple[int, ...], count: np.ndarray) -> tuple[np.ndarray | int, ...]:
    """Words of the preamble."""
    return int.from_bytes(bytes(kind), "little"), K | _M << 16, *_long(count), K | 1 << 16


def _long(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As words, the low one first."""
    return numbers & 0xFFFFFFFF, (numbers >> 32) & 0xFFFFFFFF

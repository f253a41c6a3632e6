"""Finds the records of the journal that contain a text, without reading the others: a file's bytes are searched for it,
and only the records around what is found are put together.

A text can be cut by the header of a fragment at the end of a block, and is found there too. Failures: OSError; damaged
records are passed over.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from zonemta_py.disk.frame import BLOCK_BYTES, Damage, Record, parse, placed

WINDOW_BYTES = 1024 * 1024
"""What is searched at once."""
_HEADER_BYTES = 7


def records_with(path: Path, text: bytes) -> list[Record]:
    """In their order. Raises OSError."""
    found: dict[int, Record] = {}
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at, size = 0, len(data)
            while at < size:
                stop = min(at + WINDOW_BYTES, size)
                hit = _first(data, text, at, stop)
                if hit is None:
                    at = stop
                    continue
                records, following = _around(data, hit, text)
                found.update((record.seq, record) for record in records)
                at = max(following, hit + 1)
    return [found[seq] for seq in sorted(found)]


def first_of(path: Path) -> Record | None:
    """The first record of a file. Raises OSError."""
    with path.open("rb") as file:
        return next(parse(file.read(BLOCK_BYTES), []), None)


def _first(data: mmap.mmap, text: bytes, at: int, stop: int) -> int | None:
    """Where the text is first, or where a block ends in the midst of it."""
    whole = data[at : min(stop + len(text) - 1, len(data))].find(text)  # far quicker than to search the mapping
    whole += at if whole >= 0 else 0
    cuts = range(at - at % BLOCK_BYTES + BLOCK_BYTES, stop + 1, BLOCK_BYTES)
    for cut in cuts:
        if 0 <= whole < cut:
            break
        head = data[cut + _HEADER_BYTES : cut + _HEADER_BYTES + len(text) - 1]
        if text in data[cut - len(text) + 1 : cut] + head:
            return cut - 1
    return whole if whole >= 0 else None


def _around(data: mmap.mmap, hit: int, text: bytes) -> tuple[list[Record], int]:
    """The record that has it, with all of the same blocks that have the text, too: each block is taken apart once, also
    where every record has it. And from where on it is to be looked for again."""
    block, blocks, size = hit - hit % BLOCK_BYTES, 1, len(data)
    while True:
        start, end = max(0, block - (blocks - 1) * BLOCK_BYTES), min(size, block + 2 * blocks * BLOCK_BYTES)
        mine: tuple[int, Record] | None = None
        found, looked = list[Record](), hit
        for begin, record in _placed(data, start, end):
            if begin <= hit:
                mine = begin, record
                continue
            if begin >= block + BLOCK_BYTES or (not found and (mine is None or text not in mine[1].body)):
                break
            if text in record.body:
                found.append(record)
            looked = begin + len(record.body)
        if mine is not None and text in mine[1].body:
            return [mine[1], *found], max(looked, hit + len(text))
        if start == 0 and end == size:
            return [], hit + len(text)
        blocks *= 4


def _placed(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, Record]]:
    damages: list[Damage] = []
    return ((start + offset, record) for offset, record in placed(data[start:end], damages))

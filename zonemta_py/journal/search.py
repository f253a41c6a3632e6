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
                record, following = _around(data, hit, text)
                if record is not None:
                    found[record.seq] = record
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


def _around(data: mmap.mmap, hit: int, text: bytes) -> tuple[Record | None, int]:
    """The record that has it, and where the next begins, or at least where it can be."""
    block, blocks, size = hit - hit % BLOCK_BYTES, 1, len(data)
    while True:
        start, end = max(0, block - (blocks - 1) * BLOCK_BYTES), min(size, block + 2 * blocks * BLOCK_BYTES)
        before: Record | None = None
        for begin, record in _placed(data, start, end):
            if begin > hit:
                if before is not None and text in before.body:
                    return before, begin
                break
            before = record
        if before is not None and text in before.body:
            return before, hit + len(text)
        if start == 0 and end == size:
            return None, hit + len(text)
        blocks *= 4


def _placed(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, Record]]:
    damages: list[Damage] = []
    return ((start + offset, record) for offset, record in placed(data[start:end], damages))

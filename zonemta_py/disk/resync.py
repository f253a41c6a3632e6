"""Where reading resumes after damage, in files of blocks whose records have a header of length and checksum.

Both the journal (`frame`) and LevelDB's log (`leveldb.log`) are such files. The length field of a damaged record is
trusted if a whole record stands where it points; else the rest of the block is searched for a chain of whole records
that leads exactly to its end. One record alone proves nothing there: it might be in the body of a message, put
there by its author.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

HEADER = struct.Struct("<IHB")
"""Checksum, length, kind."""

_PAGE_BYTES = 4_096
_HOLE_BYTES = 512

Whole = Callable[[bytes, int], int | None]
"""(bytes, where) → where the whole record that stands there ends; None: there is none."""


def next_record(data: bytes, at: int, stop: int, whole: Whole) -> int | None:
    """Where the next record begins, before `stop` (the end of the block, or of the bytes); None: nowhere."""
    if at + HEADER.size <= stop:
        told = at + HEADER.size + int(HEADER.unpack_from(data, at)[1])
        if told < stop and whole(data, told) is not None:
            return told
    for candidate in range(at + 1, stop - HEADER.size + 1):
        if data[candidate + HEADER.size - 1] and _leads_to(data, candidate, stop, whole):
            return candidate
    return None


def _leads_to(data: bytes, at: int, stop: int, whole: Whole) -> bool:
    while (end := whole(data, at)) is not None:
        at = end
        if stop - at < HEADER.size:
            return True
    return False


def holed(data: bytes, at: int) -> bool:
    """Whether a page after `at`, or its first part, is all zero, as after a power cut."""
    pages = range(-(-at // _PAGE_BYTES) * _PAGE_BYTES, len(data), _PAGE_BYTES)
    holes = (data[page : page + _PAGE_BYTES] for page in pages)
    return any(len(hole) >= _HOLE_BYTES and not any(hole) for hole in holes)

"""LevelDB's write-ahead log, read and written as its own `doc/log_format.md` describes it: only to mend damage.

LevelDB's repair reads logs without their checksums (its comment says otherwise), so a flipped bit would come back as
mail. `mend` goes before it and leaves nothing in the log but batches whose checksums are right.

    block := record* trailer        32,768 bytes; the trailer is fewer than 7 zero bytes
    record := checksum length type data     4, 2 and 1 bytes, little-endian; type: 1 full, 2 first, 3 middle, 4 last

The checksum is the masked CRC32C of type and data. Nothing here touches a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c

BLOCK_BYTES = 32_768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def mend(data: bytes) -> bytes | None:
    """The log without what is damaged, or None if nothing is."""
    kept: list[bytes] = []
    parts: list[bytes] = []
    damaged = False
    for kind, part in _fragments(data):
        starts = kind in (_FULL, _FIRST)
        if kind == 0 or starts == bool(parts):  # unreadable, or the beginning or the end of a batch was lost
            damaged, parts = True, []
        if starts or parts:
            parts.append(part)
        if parts and kind in (_FULL, _LAST):
            kept.append(b"".join(parts))
            parts = []
    return build(kept) if damaged or parts else None


def _fragments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and data of each fragment; type 0 where damage makes the rest of a block unreadable."""
    at = 0
    while at < len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < _HEADER.size or not any(data[at : at + _HEADER.size]):
            at += left
            continue
        crc, length, kind, part = 0, 0, 0, b""
        if at + _HEADER.size <= len(data):
            crc, length, kind = _HEADER.unpack_from(data, at)
            part = data[at + _HEADER.size : at + _HEADER.size + length]
        whole = length + _HEADER.size <= left and len(part) == length
        if whole and kind in (_FULL, _FIRST, _MIDDLE, _LAST) and _checksum(kind, part) == crc:
            yield kind, part
            at += _HEADER.size + length
        else:
            yield 0, b""
            at += left


def build(batches: list[bytes]) -> bytes:
    """A log of these batches."""
    out: list[bytes] = []
    room = BLOCK_BYTES
    for batch in batches:
        at, first = 0, True
        while first or at < len(batch):
            if room < _HEADER.size:
                out.append(bytes(room))
                room = BLOCK_BYTES
            part = batch[at : at + room - _HEADER.size]
            at += len(part)
            last = at == len(batch)
            kind = (_FULL if last else _FIRST) if first else (_LAST if last else _MIDDLE)
            out += (_HEADER.pack(_checksum(kind, part), len(part), kind), part)
            room -= _HEADER.size + len(part)
            first = False
    return b"".join(out)


def _checksum(kind: int, part: bytes) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(bytes((kind,))), part)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

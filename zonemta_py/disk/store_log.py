"""LevelDB's write-ahead log, read and written as its own `doc/log_format.md` describes it: only to mend damage.

LevelDB's repair reads logs without their checksums (its comment says otherwise), so a flipped bit would come back as
mail. `mend` goes before it and leaves nothing in the log but batches whose checksums are right.

LevelDB begins a new log without syncing the one before, so a power cut can take the end of the older and leave the
newer: later batches without the earlier ones. `hole` finds that by the sequence numbers in the batches.

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
_BATCH = struct.Struct("<QI")
"""How a batch begins: the sequence number of its first operation, and how many it has."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def mend(data: bytes) -> bytes | None:
    """The log without what is damaged, or None if nothing is."""
    kept: list[bytes] = []
    parts: list[bytes] = []
    damaged = False
    for _, kind, part in _walk(data):
        starts = kind in (_FULL, _FIRST)
        if kind == 0 or starts == bool(parts):  # unreadable, or the beginning or the end of a batch was lost
            damaged, parts = True, []
        if starts or parts:
            parts.append(part)
        if parts and kind in (_FULL, _LAST):
            kept.append(b"".join(parts))
            parts = []
    return build(kept) if damaged or parts else None


def _walk(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Byte, type and data of each fragment; type 0 where damage makes the rest of a block unreadable."""
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
            yield at, kind, part
            at += _HEADER.size + length
        else:
            yield at, 0, b""
            at += left


def hole(logs: list[bytes]) -> tuple[int, int] | None:
    """Where the first batch stands that does not follow the one before it: (number of the log, byte); None: nowhere.

    logs: in their order, those that are still needed, each whole or torn at its end.
    """
    expected = -1
    for number, data in enumerate(logs):
        for offset, batch in _batches(data):
            sequence, count = _BATCH.unpack_from(batch)
            if expected not in (-1, sequence):
                return number, offset
            expected = sequence + count
    return None


def _batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Byte and contents of each whole batch up to the first damage."""
    parts: list[bytes] = []
    start = 0
    for at, kind, part in _walk(data):
        if kind == 0:
            return
        if kind in (_FULL, _FIRST):
            start, parts = at, []
        parts.append(part)
        if kind in (_FULL, _LAST):
            yield start, b"".join(parts)


def oldest_needed(manifest: bytes) -> int:
    """The number of the oldest log that a manifest still needs; the tables have what older ones held.

    A manifest is a log of version edits: fields, each a tag and its values (LevelDB's `version_edit.cc`).
    """
    needed = 0
    for _, edit in _batches(manifest):
        at = 0
        while at < len(edit):
            tag, at = _varint(edit, at)
            for kind in _EDIT.get(tag, ""):
                value, at = _varint(edit, at)
                if kind == "s":
                    at += value
                elif tag == _LOG_NUMBER:
                    needed = value
            if tag not in _EDIT:  # a later LevelDB's: what follows cannot be read
                break
    return needed


_LOG_NUMBER = 2
_EDIT = {1: "s", 2: "n", 3: "n", 4: "n", 5: "ns", 6: "nn", 7: "nnnss", 9: "n"}
"""Fields of a version edit: n is a number, s a string behind its length; 7 is a new file, 6 a deleted one."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at


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

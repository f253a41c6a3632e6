"""LevelDB's write-ahead log, read and written as its own `doc/log_format.md` describes it: to tell tears from damage.

    block := record* trailer        32,768 bytes; the trailer is fewer than 7 zero bytes
    record := checksum length type data     4, 2 and 1 bytes, little-endian; type: 1 full, 2 first, 3 middle, 4 last

The checksum is the masked CRC32C of type and data. LevelDB gives up a block at its first damage, takes a length that
points past the end of the file for a crash's torn write, and repairs logs without verifying checksums. So they are read
here before LevelDB sees them. A *tear* is what a crash leaves: a batch that is incomplete at the end of the file, or
zero bytes there. All else is *damage*: the walk continues after it by the length field, or where a chain of whole
records leads to the end of the block, and what is whole there is kept.

LevelDB begins a new log without syncing the one before, so a power cut can take the end of the older and leave the
newer: later batches without the earlier ones. `gap` finds that by the sequence numbers in the batches. Nothing here
touches a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from zonemta_py.disk.resync import HEADER as _HEADER
from zonemta_py.disk.resync import holed, next_record

BLOCK_BYTES = 32_768
_BATCH = struct.Struct("<QI")
"""How a batch begins: the sequence number of its first operation, and how many it has."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BAD, _TORN = 0, -1
"""Types of what is not a record: damaged; cut off by the end of the file, or zero to there."""


class Log(NamedTuple):
    """batches: byte and contents of each whole one. lost: bytes of damaged ones. end: where the tail begins.

    damaged: something was lost, or LevelDB would not find what was read here.
    tail: what a crash tore: LevelDB skips an incomplete batch, but not zeros within one (`holes`).
    """

    batches: list[tuple[int, bytes]]
    lost: list[bytes]
    end: int
    tail: bytes
    holes: bool = False
    damaged: bool = False


class _Piece(NamedTuple):
    """A stretch of the log: a record (its type and data), or what is not one (all its bytes). repaired: its header
    was."""

    at: int
    end: int
    kind: int
    data: bytes
    repaired: bool = False


def read(data: bytes) -> Log:
    """All that a log holds."""
    batches: list[tuple[int, bytes]] = []
    lost: list[_Piece] = []
    unfinished: list[_Piece] = []
    end, repaired = 0, False
    for piece in _pieces(data):
        repaired |= piece.repaired
        starts = piece.kind in (_FULL, _FIRST)
        if piece.kind == _TORN:
            unfinished.append(piece)
            break
        if piece.kind == _BAD or starts == bool(unfinished):  # damaged, or the beginning or the end of a batch was lost
            lost += unfinished if starts else [*unfinished, piece]
            unfinished = []
        if starts or unfinished:
            unfinished.append(piece)
        if unfinished and piece.kind in (_FULL, _LAST):
            batches.append((unfinished[0].at, b"".join(p.data for p in unfinished)))
            unfinished, end = [], piece.end
    if lost and lost[0].at >= end and holed(data, end):  # a page that never reached the disk
        return Log(batches, [], end, data[end:], True, repaired)
    start = unfinished[0].at if unfinished else len(data)
    holes = len(unfinished) > 1 and not any(unfinished[-1].data)
    return Log(batches, _joined(lost), start, data[start:], holes, bool(lost) or repaired)


def _joined(lost: list[_Piece]) -> list[bytes]:
    """The bytes of each stretch: what is damaged, and the rest of its batch."""
    rows: list[list[bytes]] = []
    end = -1
    for piece in lost:
        if piece.at - end >= _HEADER.size or end < 0:
            rows.append([])
        rows[-1].append(piece.data)
        end = piece.end
    return [b"".join(row) for row in rows]


def repair(data: bytes) -> bytes | None:
    """The log with its whole batches only, or None if that is what it has."""
    log = read(data)
    return build([batch for _, batch in log.batches]) if log.damaged or log.tail.strip(b"\0") else None


def _pieces(data: bytes) -> Iterator[_Piece]:
    at = 0
    while at < len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < _HEADER.size:
            at += left
            continue
        piece = _record(data, at) or _other(data, at, min(at + left, len(data)))
        yield piece
        at = piece.end


def _record(data: bytes, at: int) -> _Piece | None:
    """The record there, if it is whole."""
    if at + _HEADER.size > len(data):
        return None
    crc, length, kind = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + length
    if not _FULL <= kind <= _LAST or end > min(len(data), (at // BLOCK_BYTES + 1) * BLOCK_BYTES):
        return None
    part = data[at + _HEADER.size : end]
    return _Piece(at, end, kind, part) if _checksum(kind, part) == crc else None


def _whole(data: bytes, at: int) -> int | None:
    piece = _record(data, at)
    return None if piece is None else piece.end


def _other(data: bytes, at: int, stop: int) -> _Piece:
    """What stands there instead. stop: the end of the block, or of the file."""
    if data.count(0, at) == len(data) - at:
        return _Piece(at, len(data), _TORN, data[at:])
    found = next_record(data, at, stop, _whole)
    end = stop if found is None else found
    known = _with_length_repaired(data, at, end)
    if known is not None:
        return known
    if found is None and end == len(data) and _is_tear(data, at):
        return _Piece(at, end, _TORN, data[at:end])
    return _Piece(at, end, _BAD, data[at:end])


def _is_tear(data: bytes, at: int) -> bool:
    """A record that ends past the end of the file (`at`: in its last block)."""
    if at + _HEADER.size > len(data):
        return True
    _, length, kind = _HEADER.unpack_from(data, at)
    whole = at + _HEADER.size + length
    return bool(_FULL <= kind <= _LAST and len(data) < whole <= (at // BLOCK_BYTES + 1) * BLOCK_BYTES)


def _with_length_repaired(data: bytes, at: int, end: int) -> _Piece | None:
    """A record of which only length or type were damaged: the checksum fits what stands up to the next one."""
    if at + _HEADER.size > end:
        return None
    crc, part = _HEADER.unpack_from(data, at)[0], data[at + _HEADER.size : end]
    kinds = [kind for kind in (_FULL, _FIRST, _MIDDLE, _LAST) if _checksum(kind, part) == crc]
    return _Piece(at, end, kinds[0], part, repaired=True) if kinds else None


def gap(logs: list[Log]) -> tuple[int, int] | None:
    """Where the first batch stands that does not follow the one before it: (number of the log, byte); None: nowhere.

    logs: in their order, those that are still needed.
    """
    expected = -1
    for number, log in enumerate(logs):
        for offset, batch in log.batches:
            sequence, count = _BATCH.unpack_from(batch)
            if expected not in (-1, sequence):
                return number, offset
            expected = sequence + count
    return None


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


# -- the manifest, which is also such a log: its batches are version edits


def oldest_needed(manifest: bytes) -> int:
    """The number of the oldest log that a manifest still needs; the tables have what older ones held. 0: none yet."""
    needed = [numbers[0] for tag, numbers in _fields(manifest) if tag == _LOG_NUMBER]
    return needed[-1] if needed else 0


def tables(manifest: bytes) -> set[int] | None:
    """The numbers of all tables that it has ever named; any other is none of the store's. None: it is damaged."""
    log = read(manifest)
    if log.damaged or log.holes:
        return None
    fields = list(_fields(manifest))
    if any(tag not in _EDIT for tag, _ in fields):
        return None
    return {numbers[1] for tag, numbers in fields if tag == _NEW_TABLE}


def _fields(manifest: bytes) -> Iterator[tuple[int, list[int]]]:
    """An edit is a row of fields, each a tag and its values (LevelDB's `version_edit.cc`): of these the numbers."""
    for _, edit in read(manifest).batches:
        at = 0
        while at < len(edit):
            tag, at = varint(edit, at)
            numbers = []
            for kind in _EDIT.get(tag, ""):
                value, at = varint(edit, at)
                if kind == "s":
                    at += value
                else:
                    numbers.append(value)
            yield tag, numbers
            if tag not in _EDIT:  # a later LevelDB's: what follows cannot be read
                break


_LOG_NUMBER, _NEW_TABLE = 2, 7
_EDIT = {1: "s", 2: "n", 3: "n", 4: "n", 5: "ns", 6: "nn", 7: "nnnss", 9: "n"}
"""Fields of a version edit: n is a number, s a string after its length; 7 is a new file, 6 a deleted one."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at

"""Framing of journal records: blocks of 32 KB, fragments with length, CRC32C and kind. Grammar: FORMAT.md.

A reader can start at any block boundary; after damage it continues at the next whole record (`disk.resync`). Nothing
here touches a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import google_crc32c

from zonemta_py.disk.resync import HEADER as _HEADER
from zonemta_py.disk.resync import next_record

BLOCK_BYTES = 32_768
_RECORD = struct.Struct("<QQB")
VERSION = 1
FULL, FIRST, MIDDLE, LAST = (VERSION << 4 | kind for kind in (1, 2, 3, 4))
_CRC_OF_KIND = {kind: google_crc32c.value(bytes((kind,))) for kind in (FULL, FIRST, MIDDLE, LAST)}
_extend = google_crc32c.extend


class Record(NamedTuple):
    """seq: grows by one. ms: UNIX time. type: `journal.records.Type`. body: msgpack."""

    seq: int
    ms: int
    type: int
    body: bytes


record: Callable[[tuple[int, int, int, bytes]], Record] = partial(tuple.__new__, Record)
"""(fields) → Record, in one call of C: there are several for each message."""


class Damage(NamedTuple):
    """offset: where in the bytes given (a fragment's start). what: one phrase."""

    offset: int
    what: str


def frame(records: list[Record], offset: int) -> bytes:
    """The bytes to append to a segment that is `offset` bytes long."""
    out: list[bytes] = []
    room = BLOCK_BYTES - offset % BLOCK_BYTES
    for record in records:
        payload = _RECORD.pack(record.seq, record.ms, record.type) + record.body
        if len(payload) + 7 <= room:
            crc = _extend(_CRC_OF_KIND[FULL], payload)
            out += (_HEADER.pack(crc, len(payload), FULL), payload)
            room -= len(payload) + 7
        else:
            room = _fragments(payload, room, out)
        if room < 7:
            out.append(bytes(room))
            room = BLOCK_BYTES
    return b"".join(out)


def _fragments(payload: bytes, room: int, out: list[bytes]) -> int:
    at, first = 0, True
    while True:
        if room < 7:
            out.append(bytes(room))
            room = BLOCK_BYTES
        part = payload[at : at + room - 7]
        at += len(part)
        last = at == len(payload)
        kind = (FULL if last else FIRST) if first else (LAST if last else MIDDLE)
        out += (_HEADER.pack(_extend(_CRC_OF_KIND[kind], part), len(part), kind), part)
        room -= len(part) + 7
        if last:
            return room
        first = False


def parse(data: bytes, damages: list[Damage]) -> Iterator[Record]:
    """Records in bytes that start at a block boundary. Appends to `damages` what could not be read.

    A record cut off at the very end is damage too ("cut off"): the caller knows whether that is a crash's torn tail.
    """
    return (record for _, record in placed(data, damages))


def placed(data: bytes, damages: list[Damage]) -> Iterator[tuple[int, Record]]:
    """The same, each record with the offset where it begins."""
    parts: list[bytes] = []
    begin = 0
    for offset, kind, part in fragments(data, damages):
        if kind in (FULL, FIRST) and parts:
            damages.append(Damage(offset, "record without its end"))
            parts = []
        if kind in (MIDDLE, LAST) and not parts:
            continue
        if kind in (FULL, LAST):
            record = _record(b"".join(parts) + part if parts else part)
            begin = begin if parts else offset
            parts = []
            if record is None:
                damages.append(Damage(offset, "record too short"))
            else:
                yield begin, record
        elif kind == BROKEN:
            parts = []
        else:
            begin = begin if parts else offset
            parts.append(part)
    if parts and not (damages and damages[-1].what == "cut off"):  # one cut is one damage
        damages.append(Damage(len(data), "cut off"))


BROKEN = 0


def fragments(data: bytes, damages: list[Damage], at: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """(offset, kind, part) of each fragment from the block boundary `at` on; kind BROKEN where one is damaged."""
    size = len(data)
    while at < size:
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < 7:
            at += left
            continue
        if at + 7 > size:
            damages.append(Damage(at, "cut off"))
            return
        crc, length, kind = _HEADER.unpack_from(data, at)
        part = data[at + 7 : at + 7 + length]
        if kind in _CRC_OF_KIND and length + 7 <= left and _extend(_CRC_OF_KIND[kind], part) == crc:
            yield at, kind, part
            at += length + 7
            continue
        found = next_record(data, at, min(at + left, size), _whole)
        cut = found is None and at + 7 + min(length, left - 7) > size
        damages.append(Damage(at, "cut off" if cut else "checksum does not match"))
        yield at, BROKEN, b""
        at = at + left if found is None else found


def _whole(data: bytes, at: int) -> int | None:
    """Where the fragment there ends, if it is whole."""
    if at + 7 > len(data):
        return None
    crc, length, kind = _HEADER.unpack_from(data, at)
    if kind not in _CRC_OF_KIND or length + 7 > BLOCK_BYTES - at % BLOCK_BYTES:
        return None
    return at + 7 + length if _extend(_CRC_OF_KIND[kind], data[at + 7 : at + 7 + length]) == crc else None


def record_at(data: bytes, at: int) -> Record | None:
    """What a damaged fragment there says about its record: not trustworthy, but worth showing."""
    if at + 7 > len(data):
        return None
    length = _HEADER.unpack_from(data, at)[1]
    return _record(data[at + 7 : at + 7 + length])


def _record(payload: bytes) -> Record | None:
    if len(payload) < _RECORD.size:
        return None
    seq, ms, kind = _RECORD.unpack_from(payload)
    return Record(seq, ms, kind, payload[_RECORD.size :])


def good_end(data: bytes, start: int = 0) -> int:
    """Where the last whole record ends, reading from the block boundary `start` on; 0 if there is none."""
    end, inside = 0, False
    for offset, kind, part in fragments(data, [], start):
        if kind in (FULL, FIRST, BROKEN):
            inside = kind == FIRST
        if kind == FULL or (kind == LAST and inside):
            end = offset + 7 + len(part)
    return end

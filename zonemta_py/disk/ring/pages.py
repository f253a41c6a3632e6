"""The bytes of a ring: its metadata and its pages, to and from bytes. Grammar, with an example: FORMAT.md.

Nothing here touches a file. A page or slot whose bytes are not whole is None, never a guess.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

RESERVED_BYTES = 4096
"""At the start of the file, for configuration and metadata; pages follow."""
PAGE_BYTES = 4096
"""The default, and what page sizes are multiples of."""
PAGES_MAX = 65_535
"""Sequence numbers are 16 bits wide, and each page of a pass has its own."""
SLOTS = (0, 2048)
"""Offsets of the two copies of the metadata, which are written in turns: a torn write leaves the other."""
SLOT_BYTES = 64
VERSION = 1
_MAGIC = b"zmtaring"
_PAGE = struct.Struct("<IHHII")
_LENGTH = struct.Struct("<I")
_SLOT = struct.Struct("<8sHBBIIIIIII")
_CRC = struct.Struct("<I")
_LOOPED, _CLEAN = 1, 2
_FALLING, _PARTIAL, _APART = 1, 2, 4
OVERHEAD_BYTES = _PAGE.size + _LENGTH.size
"""Of a page with one record."""


class Metadata(NamedTuple):
    """What the reserved bytes hold.

    page_size: bytes. ring_id: random, seeds every CRC, so that pages of an earlier ring on a device are none of ours.
    writes: how often it was written; the higher of two slots counts. num_pages: 0 to 3, only rises. looped: the head
    has passed the end once. clean: the rest is a tail index: when the head was `head`, `unread` pages were unread,
    of the first of which `record` records were taken.
    """

    page_size: int
    page_count: int
    ring_id: int
    writes: int = 0
    num_pages: int = 0
    looped: bool = False
    clean: bool = False
    head: int = 0
    unread: int = 0
    record: int = 0


class Page(NamedTuple):
    """seq: 1 … page_count. falling: its pass counts down. partial: written before it was full. apart: the ring was
    empty again when its first record came, so others, never in the ring, may lie between the page before and it."""

    seq: int
    falling: bool
    partial: bool
    records: list[bytes]
    apart: bool = False


def packed_metadata(metadata: Metadata) -> bytes:
    """SLOT_BYTES bytes."""
    flags = (_LOOPED if metadata.looped else 0) | (_CLEAN if metadata.clean else 0)
    body = _SLOT.pack(
        _MAGIC, VERSION, metadata.num_pages, flags, metadata.page_size, metadata.page_count, metadata.ring_id,
        metadata.writes, metadata.head, metadata.unread, metadata.record,
    )  # fmt: skip
    body = body.ljust(SLOT_BYTES - _CRC.size, b"\0")
    return body + _CRC.pack(crc32(body))


def unpacked_metadata(data: bytes) -> Metadata | None:
    """The newer of the slots that are whole; None: neither is. data: the reserved bytes."""
    found = [slot for offset in SLOTS if (slot := _slot(data[offset : offset + SLOT_BYTES])) is not None]
    return max(found, key=lambda slot: slot.writes, default=None)


def _slot(data: bytes) -> Metadata | None:
    if len(data) != SLOT_BYTES or _CRC.unpack(data[-_CRC.size :])[0] != crc32(data[: -_CRC.size]):
        return None
    magic, version, num_pages, flags, size, count, ring_id, writes, head, unread, record = _SLOT.unpack_from(data)
    if magic != _MAGIC or version != VERSION or size < PAGE_BYTES or size % PAGE_BYTES or not 2 <= count <= PAGES_MAX:
        return None
    looped, clean = bool(flags & _LOOPED), bool(flags & _CLEAN)
    return Metadata(size, count, ring_id, writes, num_pages, looped, clean, head, unread, record)


def packed_page(page: Page, size: int, ring_id: int) -> bytes:
    """`size` bytes. The records must fit: see `room`."""
    data = b"".join(piece for record in page.records for piece in (_LENGTH.pack(len(record)), record))
    flags = (_FALLING if page.falling else 0) | (_PARTIAL if page.partial else 0) | (_APART if page.apart else 0)
    head = _PAGE.pack(0, page.seq, flags, len(data), len(page.records))[_CRC.size :]
    return b"".join((_CRC.pack(crc32(data, crc32(head, ring_id))), head, data)).ljust(size, b"\0")


def unpacked_page(data: bytes, ring_id: int) -> Page | None:
    """None: torn, damaged, of another ring, or never written (`is_blank`)."""
    if len(data) < _PAGE.size:
        return None
    crc, seq, flags, used, count = _PAGE.unpack_from(data)
    end = _PAGE.size + used
    if end > len(data) or crc32(data[_CRC.size : end], ring_id) != crc or not seq:
        return None
    records, at = [], _PAGE.size
    for _ in range(count):
        if at + _LENGTH.size > end:
            return None
        (length,) = _LENGTH.unpack_from(data, at)
        records.append(data[at + _LENGTH.size : at + _LENGTH.size + length])
        at += _LENGTH.size + length
    if at != end:
        return None
    return Page(seq, bool(flags & _FALLING), bool(flags & _PARTIAL), records, bool(flags & _APART))


def is_blank(data: bytes) -> bool:
    """Whether nothing was ever written there."""
    return not any(data[: _PAGE.size])


def sequence(position: int, falling: bool, page_count: int) -> int:
    """The sequence number of the page at a position: rises on odd passes, falls on even ones."""
    return page_count - position if falling else position + 1


def room(page_size: int) -> int:
    """Bytes of a page for records, each of which takes `needed`."""
    return page_size - _PAGE.size


def needed(record: bytes) -> int:
    return _LENGTH.size + len(record)

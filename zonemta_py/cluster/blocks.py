"""Blocks of a queue's log: what one message of the stream holds.

    message := crc version kind part parts epoch base sequence piece
    crc       uint32   CRC32C of all that follows
    version   uint8    1
    kind      uint8    `BlockKind`; | 0x80: the pieces joined are one Zstandard frame
    part      uint16   number of this piece, from 0
    parts     uint16   of how many; they follow one another
    epoch     uint32   of the queue's owner who wrote it
    base      uint32   which life of the log it belongs to (BEGIN with a base); 0: none has begun
    writer    uint32   the process that wrote it, at random: after a TAKEOVER all others' blocks are void, which may
                       still come, since each says only after which number it is to be appended
    sequence  uint64   of the message in its stream: known before it is sent
    piece     bytes    of one msgpack value (`BlockKind`)

All integers are little-endian. Nothing here knows of streams: bytes in, bytes out. Failures: none; what is lacking or
damaged is a sentence in `Joiner.faults`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

import google_crc32c
import zstandard

from zonemta_py.disk.packing import unpack

VERSION = 1
PIECE_BYTES = 256 * 1024
_HEAD = struct.Struct("<BBHHIIIQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = _CRC.size + _HEAD.size
_SHRUNK = 0x80
_LEAST_BYTES = 512
"""Less is not worth trying."""
_WORTH = 7 / 8
_UNPACKED_MAX = 1 << 30
_value, _extend = google_crc32c.value, google_crc32c.extend
_compress = zstandard.ZstdCompressor(level=1, write_content_size=True).compress
_decompress = zstandard.ZstdDecompressor().decompress


class BlockKind(IntEnum):
    """What a block holds."""

    STORE = 1
    """[batch, [[key, value or nil] …]]: one batch of the store"""
    JOURNAL = 2
    """[[seq, ms, type, body] …]: records"""
    BODY = 3
    """[id, offset, bytes]: a part of a large body's file, as it is on disk"""
    LIVE = 4
    """[[key, value] …]: keys as they were in the batch that BEGIN names; void where a later STORE has the key"""
    BEGIN = 5
    """[batch, base, [queue, incarnation]]: copying begins; base: all that came before is void once this one has ended;
    the last field: the queue's identity, [] if it has none yet"""
    END = 6
    """[sequence of the BEGIN]"""
    TAKEOVER = 7
    """[epoch, node]: from here on that node alone may write; also its own processes, one after the other"""
    BOTH = 8
    """[[batch, [[key, value or nil] …]], [[seq, ms, type, body] …]]: STORE and JOURNAL of one commit"""


class Block(NamedTuple):
    """first, last: sequences of its first and last message."""

    kind: BlockKind
    epoch: int
    base: int
    writer: int
    first: int
    last: int
    value: Any


def apart(block: Block) -> tuple[Block, ...]:
    """What a block holds, each as a block of its own."""
    if block.kind != BlockKind.BOTH:
        return (block,)
    batch, records = block.value
    return block._replace(kind=BlockKind.STORE, value=batch), block._replace(kind=BlockKind.JOURNAL, value=records)


class Pen(NamedTuple):
    """Who writes: the same in all blocks of a process, but for the base."""

    epoch: int
    base: int
    writer: int


def cut(kind: BlockKind, pen: Pen, sequence: int, body: bytes) -> list[bytes]:
    """The messages of a block, of which the first is to have that sequence. body: one msgpack value."""
    mark = int(kind)
    if len(body) > _LEAST_BYTES and len(frame := _compress(body)) <= len(body) * _WORTH:
        body, mark = frame, mark | _SHRUNK
    if len(body) <= PIECE_BYTES:
        data = _HEAD.pack(VERSION, mark, 0, 1, *pen, sequence) + body
        return [_CRC.pack(_value(data)) + data]
    parts = -(-len(body) // PIECE_BYTES)
    found = []
    for part in range(parts):
        head = _HEAD.pack(VERSION, mark, part, parts, *pen, sequence + part)
        piece = body[part * PIECE_BYTES : (part + 1) * PIECE_BYTES]
        found.append(_CRC.pack(_extend(_value(head), piece)) + head + piece)
    return found


class Head(NamedTuple):
    """Of one message. kind: as it is written."""

    version: int
    kind: int
    part: int
    parts: int
    epoch: int
    base: int
    writer: int
    sequence: int


def head(data: bytes) -> Head | None:
    """None: the message is damaged, or none of ours."""
    if len(data) < HEAD_BYTES or _value(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        return None
    return Head(*_HEAD.unpack_from(data, _CRC.size))


class Joiner:
    """Makes blocks of messages that are given in the order of the stream. faults: one sentence for each loss."""

    def __init__(self, first: int = 0) -> None:
        """first: the sequence of the first message, where that is known."""
        self.faults: list[str] = []
        self.next = first
        self.void = 0
        """How many messages came from a writer who had been replaced."""
        self._writer = 0
        self._pieces: list[bytes] = []
        self._head: Head | None = None

    def take(self, sequence: int, data: bytes) -> Block | None:
        """The block that the message completes."""
        if self.next and sequence > self.next:
            last = sequence - 1
            which = f"message {last} is" if last == self.next else f"messages {self.next} to {last} are"
            self._lost(f"{which} gone from the log")
        self.next = sequence + 1
        found = head(data)
        if found is None or found.sequence != sequence:
            why = "its checksum is wrong" if found is None else f"it was written as message {found.sequence}"
            self._lost(f"message {sequence} of the log cannot be read: {why}")
            return None
        if found.version != VERSION:
            self._lost(f"message {sequence} of the log is of version {found.version}, which this program does not know")
            return None
        if found.kind & ~_SHRUNK == BlockKind.TAKEOVER:
            self._writer = found.writer
        elif self._writer not in (0, found.writer):
            self.void += 1
            return None
        if self._head is not None and (found.kind, found.part) != (self._head.kind, self._head.part + 1):
            # Its writer died before it was whole: nobody was told of it, and the next one begins with TAKEOVER.
            if found.kind & ~_SHRUNK != BlockKind.TAKEOVER:
                self._lost(f"the block that begins with message {sequence - len(self._pieces)} of the log is not whole")
            self._drop()
        if found.part and self._head is None:
            return None  # its beginning has been named, or is void
        self._pieces.append(data[HEAD_BYTES:])
        self._head = found
        if found.part + 1 < found.parts:
            return None
        body = self._pieces[0] if found.parts == 1 else b"".join(self._pieces)
        self._drop()
        try:
            return _block(found, body)
        except (ValueError, zstandard.ZstdError) as error:
            self._lost(f"message {sequence} of the log cannot be read: {error}")
            return None

    def ends(self, last: int) -> None:
        """That was the last one."""
        if self.next <= last:
            self._lost(f"messages {self.next} to {last} are gone from the end of the log")

    def _lost(self, what: str) -> None:
        self.faults.append(what)
        self._drop()

    def _drop(self) -> None:
        self._pieces, self._head = [], None


def _block(found: Head, body: bytes) -> Block:
    if found.kind & _SHRUNK:
        body = _decompress(body, max_output_size=_UNPACKED_MAX)
    kind, first = BlockKind(found.kind & ~_SHRUNK), found.sequence - found.parts + 1
    return Block(kind, found.epoch, found.base, found.writer, first, found.sequence, unpack(body))

"""A summary's file: `NAME.summary` beside `NAME.journal`. Grammar: `disk/FORMAT.md`.

A file that is damaged, of another version, or of a segment that has changed since is never used: `SummaryUnreadable`. A
segment has changed if its time, size or inode has (`disk.files.changed`): after a repair, an erasure, or a copy.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import zstandard

from zonemta_py.disk.files import fresh_file
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.segments import summary_of
from zonemta_py.summary.views import VIEWS, SegmentCounts, Whose

VERSION = 1
LEFT = ".new"
"""How what a killed maker has left ends."""
_MAGIC = b"zonemta summary\n"
_HEAD = struct.Struct("<III")
"""Version, bytes of the header, CRC32C of it."""
_READ_BYTES = 8192
_MODE = 0o640
_MESSAGES, _EXAMPLES = "messages", "examples"


class SummaryUnreadable(Exception):
    """Why a summary is not used."""


class SummaryHeader(NamedTuple):
    """What a summary is of, and where its blocks are.

    segment: `changed` of the segment's file. from_seq: it counts records from there on, since files before have the
    others. first, last, first_ms, last_ms, damages: as of `SegmentCounts`. taken: `changed` of earlier segments whose
    messages it knows, by name (`SegmentPlace.key`). missed: messages whose ENVELOPE was not found, and asked: the
    segments that were looked at for them. blocks: [offset, bytes, CRC32C] by name.
    """

    segment: tuple[int, ...]
    from_seq: int
    first: int
    last: int
    first_ms: int
    last_ms: int
    damages: int
    taken: dict[str, list[int]]
    missed: list[int]
    asked: list[str]
    blocks: dict[str, list[int]]


class ViewColumns(NamedTuple):
    """Columns of a view: of each key the place of its text in `texts`, or the hour; of each number the number."""

    texts: list[str]
    columns: dict[str, array[int]]


def write(segment: Path, header: SummaryHeader, counted: SegmentCounts) -> None:
    """Replaces the summary of the segment. Raises OSError."""
    blocks: dict[str, bytes] = {}
    for name, rows in counted.views.items():
        form, texts = VIEWS[name], dict[str, int]()
        keys = list(zip(*rows, strict=True)) or [()] * len(form.keys)
        numbers = list(zip(*rows.values(), strict=True)) or [()] * len(form.numbers)
        packed = [
            array("I", column if key == "hour" else [texts.setdefault(text, len(texts)) for text in column]).tobytes()
            for key, column in zip(form.keys, keys, strict=True)
        ]
        packed += [array("Q", column).tobytes() for column in numbers]
        blocks[name] = pack([len(rows), list(texts), packed])
    owners: dict[Whose, int] = {}
    messages = sorted(counted.messages.items())
    whose = [owners.setdefault(one, len(owners)) for _, one in messages]
    blocks[_MESSAGES] = pack(
        [array("Q", [number for number, _ in messages]).tobytes(), array("I", whose).tobytes(), list(owners)]
    )
    blocks[_EXAMPLES] = pack(counted.examples)
    data, places = b"", dict[str, list[int]]()
    packer = zstandard.ZstdCompressor(level=3)
    for name, block in blocks.items():
        small = packer.compress(block)
        places[name] = [len(data), len(small), google_crc32c.value(small)]
        data += small
    head = pack(header._replace(blocks=places))
    with fresh_file(summary_of(segment), _MODE, f".{os.getpid()}{LEFT}") as file:
        file.write(_MAGIC + _HEAD.pack(VERSION, len(head), google_crc32c.value(head)) + head + data)


class SegmentSummary:
    """An open one: the header is read, blocks as they are asked for. Raises SummaryUnreadable, OSError."""

    def __init__(self, segment: Path) -> None:
        self._path = summary_of(segment)
        self._blocks: dict[str, bytes] = {}
        with self._path.open("rb") as file:
            data = file.read(_READ_BYTES)
            self.header, self._start = _header(data, file.read)

    @property
    def damages(self) -> int:
        return self.header.damages

    def check(self, views: Iterable[str]) -> None:
        """Reads the blocks of these views, and what they need."""
        with self._path.open("rb") as file:
            for name in views:
                self._read(name, file)
            if "replies" in self._blocks:
                self._read(_EXAMPLES, file)

    def view(self, name: str) -> ViewColumns:
        try:
            return _view(name, self._block(name))
        except (ValueError, TypeError) as error:
            raise SummaryUnreadable(f"{self._path}: {error}") from None

    def examples(self) -> dict[str, str]:
        """Of the shapes of replies."""
        found: dict[str, str] = self._block(_EXAMPLES)
        return found

    def messages(self) -> MessageOwners:
        numbers, whose, owners = self._block(_MESSAGES)
        try:
            return MessageOwners(array("Q", numbers), array("I", whose), [_whose(one) for one in owners])
        except (ValueError, TypeError) as error:
            raise SummaryUnreadable(f"{self._path}: {error}") from None

    def content(self) -> bytes:
        """All that it holds, as it was before it was compressed: for whoever looks for an address in it."""
        return b"\n".join([pack(self.header), *(pack(self._block(name)) for name in self.header.blocks)])

    def _read(self, name: str, file: BinaryIO) -> None:
        try:
            offset, size, crc = self.header.blocks[name]
        except (KeyError, ValueError) as error:
            raise SummaryUnreadable(f"{self._path}: {error}") from None
        file.seek(self._start + offset)
        data = file.read(size)
        if google_crc32c.value(data) != crc:
            raise SummaryUnreadable(f"{self._path}: the checksum of {name} does not match")
        self._blocks[name] = data

    def _block(self, name: str) -> Any:
        if name not in self._blocks:
            with self._path.open("rb") as file:
                self._read(name, file)
        try:
            return unpack(zstandard.ZstdDecompressor().decompress(self._blocks[name]))
        except (ValueError, zstandard.ZstdError) as error:
            raise SummaryUnreadable(f"{self._path}: {error}") from None


class MessageOwners(NamedTuple):
    """Whose messages are: numbers, in their order; for each the place in `owners`."""

    numbers: array[int]
    whose: array[int]
    owners: list[Whose]


def _whose(fields: list[str]) -> Whose:
    tenant, campaign, user, sender = fields
    return tenant, campaign, user, sender


def _header(data: bytes, more: Any) -> tuple[SummaryHeader, int]:
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start or not data.startswith(_MAGIC):
        raise SummaryUnreadable("it is no summary")
    version, size, crc = _HEAD.unpack_from(data, len(_MAGIC))
    if version != VERSION:
        raise SummaryUnreadable(f"it is of version {version}")
    if len(data) < start + size:
        data += more(start + size - len(data))
    head = data[start : start + size]
    if len(head) != size or google_crc32c.value(head) != crc:
        raise SummaryUnreadable("its header is damaged")
    try:
        return SummaryHeader._make(unpack(head)), start + size
    except (ValueError, TypeError) as error:
        raise SummaryUnreadable(f"its header is damaged: {error}") from None


def _view(name: str, block: list[Any]) -> ViewColumns:
    form = VIEWS[name]
    rows, texts, packed = block
    names = (*form.keys, *form.numbers)
    if len(packed) != len(names):
        raise ValueError(f"{name} has {len(packed)} columns")
    columns = {
        one: array("I" if at < len(form.keys) else "Q", data)
        for at, (one, data) in enumerate(zip(names, packed, strict=True))
    }
    if any(len(column) != rows for column in columns.values()):
        raise ValueError(f"{name} has columns of different lengths")
    return ViewColumns(texts, columns)

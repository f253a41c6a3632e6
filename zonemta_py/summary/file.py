"""A summary's file: `NAME.summary` beside `NAME.journal`. Grammar: `disk/FORMAT.md`.

A file that is damaged, of another version, or of a segment that has changed since is never used: `Unreadable`. A
segment has changed if its time, size or inode has (`disk.files.changed`): after a repair, an erasure, or a copy.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import zstandard

from zonemta_py.disk.files import fresh_file
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.summary.views import VIEWS, Counted, Whose

SUFFIX = ".summary"
VERSION = 1
_MAGIC = b"zonemta summary\n"
_HEAD = struct.Struct("<III")
"""Version, bytes of the header, CRC32C of it."""
_READ_BYTES = 8192
_MODE = 0o640
_MESSAGES, _TEXTS = "messages", "texts"


class Unreadable(Exception):
    """Why a summary is not used."""


class Header(NamedTuple):
    """What a summary is of, and where its blocks are.

    segment: `changed` of the segment's file. from_seq: it counts records from there on, as files before have the others.
    first, last, first_ms, last_ms, damages: as of `Counted`. taken: `changed` of earlier segments whose messages it
    knows, by name (`Place.key`). missed: messages whose ENVELOPE was not found, and asked: the segments that were looked
    at for them. blocks: [offset, bytes, CRC32C] by name.
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


class View(NamedTuple):
    """Columns of a view: of each key the place of its text in `texts`, or the hour; of each number the number."""

    texts: list[str]
    columns: dict[str, array[int]]


def path_of(segment: Path) -> Path:
    """The summary's of a segment."""
    return segment.with_suffix(SUFFIX)


def write(segment: Path, header: Header, counted: Counted) -> None:
    """Replaces the summary of the segment. Raises OSError."""
    import os

    blocks: dict[str, bytes] = {}
    texts: dict[str, int] = {}
    for name, rows in counted.views.items():
        form = VIEWS[name]
        keys = list(zip(*rows, strict=True)) or [()] * len(form.keys)
        numbers = list(zip(*rows.values(), strict=True)) or [()] * len(form.numbers)
        packed = [
            array("I", column if key == "hour" else [texts.setdefault(text, len(texts)) for text in column]).tobytes()
            for key, column in zip(form.keys, keys, strict=True)
        ]
        packed += [array("Q", column).tobytes() for column in numbers]
        blocks[name] = pack([len(rows), packed])
    owners: dict[Whose, int] = {}
    messages = sorted(counted.messages.items())
    whose = [owners.setdefault(one, len(owners)) for _, one in messages]
    blocks[_MESSAGES] = pack(
        [array("Q", [number for number, _ in messages]).tobytes(), array("I", whose).tobytes(), list(owners)]
    )
    blocks[_TEXTS] = pack([list(texts), counted.examples])
    data, places = b"", dict[str, list[int]]()
    packer = zstandard.ZstdCompressor(level=3)
    for name, block in blocks.items():
        small = packer.compress(block)
        places[name] = [len(data), len(small), google_crc32c.value(small)]
        data += small
    head = pack(header._replace(blocks=places))
    with fresh_file(path_of(segment), _MODE, f"{SUFFIX}.{os.getpid()}.new") as file:
        file.write(_MAGIC + _HEAD.pack(VERSION, len(head), google_crc32c.value(head)) + head + data)


class Summary:
    """An open one: the header is read, blocks as they are asked for. Raises Unreadable, OSError."""

    def __init__(self, segment: Path) -> None:
        self._path = path_of(segment)
        with self._path.open("rb") as file:
            data = file.read(_READ_BYTES)
            self.header, self._start = _header(data, file.read)

    def views(self, names: Iterable[str]) -> dict[str, View]:
        """Those views."""
        with self._path.open("rb") as file:
            texts = self._block(file, _TEXTS)[0]
            return {name: _view(name, texts, self._block(file, name)) for name in names}

    def examples(self) -> dict[str, str]:
        """Of the shapes of replies."""
        with self._path.open("rb") as file:
            found: dict[str, str] = self._block(file, _TEXTS)[1]
        return found

    def messages(self) -> Messages:
        with self._path.open("rb") as file:
            numbers, whose, owners = self._block(file, _MESSAGES)
        try:
            return Messages(array("Q", numbers), array("I", whose), [_whose(one) for one in owners])
        except (ValueError, TypeError) as error:
            raise Unreadable(f"{self._path}: {error}") from None

    def content(self) -> bytes:
        """All that it holds, as it was before it was compressed: for whoever looks for an address in it."""
        with self._path.open("rb") as file:
            return b"\n".join([pack(self.header), *(pack(self._block(file, name)) for name in self.header.blocks)])

    def _block(self, file: Any, name: str) -> Any:
        try:
            offset, size, crc = self.header.blocks[name]
            file.seek(self._start + offset)
            data = file.read(size)
            if google_crc32c.value(data) != crc:
                raise Unreadable(f"{self._path}: the checksum of {name} does not match")
            return unpack(zstandard.ZstdDecompressor().decompress(data))
        except (KeyError, TypeError, ValueError, zstandard.ZstdError) as error:
            raise Unreadable(f"{self._path}: {error}") from None


class Messages(NamedTuple):
    """Whose messages are: numbers, in their order; for each the place in `owners`."""

    numbers: array[int]
    whose: array[int]
    owners: list[Whose]


def _whose(fields: list[str]) -> Whose:
    tenant, campaign, user, sender = fields
    return tenant, campaign, user, sender


def _header(data: bytes, more: Any) -> tuple[Header, int]:
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start or not data.startswith(_MAGIC):
        raise Unreadable("it is no summary")
    version, size, crc = _HEAD.unpack_from(data, len(_MAGIC))
    if version != VERSION:
        raise Unreadable(f"it is of version {version}")
    if len(data) < start + size:
        data += more(start + size - len(data))
    head = data[start : start + size]
    if len(head) != size or google_crc32c.value(head) != crc:
        raise Unreadable("its header is damaged")
    try:
        return Header._make(unpack(head)), start + size
    except (ValueError, TypeError) as error:
        raise Unreadable(f"its header is damaged: {error}") from None


def _view(name: str, texts: list[str], block: list[Any]) -> View:
    form = VIEWS[name]
    rows, packed = block
    names = (*form.keys, *form.numbers)
    if len(packed) != len(names):
        raise ValueError(f"{name} has {len(packed)} columns")
    columns = {
        one: array("I" if at < len(form.keys) else "Q", data) for at, (one, data) in enumerate(zip(names, packed, strict=True))
    }
    if any(len(column) != rows for column in columns.values()):
        raise ValueError(f"{name} has columns of different lengths")
    return View(texts, columns)

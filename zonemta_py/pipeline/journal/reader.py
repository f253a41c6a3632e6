"""Segment files read fast, whole or by the piece: blocks in, Arrow record batches of the schema out.

Promise: however a file is split at block boundaries, each record is read exactly once, by the split in which it begins,
and each damage is named once, with file and offset; what is read equals `journal.segments.read` over the same folder.
A record number that an earlier file has is left out (`Segment.from_seq`). Memory: one window of 4 MB.
Failures: OSError from the disk; damage as `journal.Fault`s, or `Damaged` where the caller wants that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from zonemta_py.disk.frame import BLOCK_BYTES, BROKEN, FIRST, FULL, LAST, Damage, Record, fragments, parse
from zonemta_py.journal import folders
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Fault, first_seq
from zonemta_py.pipeline.journal import rows
from zonemta_py.pipeline.journal.rows import Misfit

WINDOW_BYTES = 128 * BLOCK_BYTES
SPLIT_BYTES = 256 * BLOCK_BYTES
"""8 MB: half a segment of the usual size, so that one alone keeps two cores busy."""
SLACK_MS = 3_600_000
"""Clocks may be set back: a segment is left out by time only where it is this far away."""
_HEAD_BYTES = 17
EVER_MS = 1 << 62


class Segment(NamedTuple):
    """A file of the archive. from_seq: where its own records begin, since files before it may hold the same ones.

    first_ms, last_ms: times of its first and last record; all time if it has none that can be read. source: of its
    journal; all numbers have its `base_of` added. node: which machine of a cluster has it; "" if nobody says. to_seq:
    where its own end, since the lake has what follows.
    """

    path: Path
    size: int
    first_seq: int
    last_seq: int
    first_ms: int
    last_ms: int
    from_seq: int
    source: int = 0
    node: str = ""
    to_seq: int = rows.EVER

    @property
    def name(self) -> str:
        """As no other queue's is, nor that queue's on another node."""
        stem, suffix = self.path.stem, self.path.suffix
        queue = f"queue-{folders.queue_of(self.source)}-{self.source:x}-" if self.source else ""
        return f"{queue}{stem}@{self.node}{suffix}" if self.node else f"{queue}{stem}{suffix}"

    @property
    def own(self) -> tuple[int, int] | None:
        """First and last sequence number that it alone has; None if earlier files have all of them."""
        first = max(self.first_seq, self.from_seq)
        if self.last_seq < self.first_seq:
            return first, first  # nothing in it can be read: it stands for its first record, which is reported
        return (first, self.last_seq) if first <= self.last_seq else None

    def outside(self, since_ms: int, until_ms: int) -> bool:
        """Whether certainly no record has since_ms ≤ ms < until_ms."""
        return self.last_ms + SLACK_MS < since_ms or self.first_ms - SLACK_MS >= until_ms


class Split(NamedTuple):
    """Bytes start…end of a file, from block boundary to block boundary, or to its end; as of a `Segment`."""

    path: Path
    start: int
    end: int
    from_seq: int
    source: int = 0
    node: str = ""
    to_seq: int = rows.EVER


class Damaged(Exception):
    """The journal is damaged, and the caller asked for an error. One sentence with file, offset and remedy."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)  # what it is made of again in another process
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.fault}; run `zonemta fsck`, or skip what is damaged with damage=skip"


# -- the archive


class Archive(NamedTuple):
    """Of one machine: its archive/, and what it is called in its cluster; "" if it is in none."""

    folder: Path
    node: str = ""

    @classmethod
    def read(cls, text: str) -> Archive:
        """NODE=DIR, or DIR alone."""
        node, equals, folder = text.partition("=")
        return cls(Path(folder), node) if equals and _NODE.fullmatch(node) else cls(Path(text))


_NODE = re.compile(r"[a-z0-9-]+")


def segments(*archives: Archive | Path) -> list[Segment]:
    """All closed segment files of archives, and of those of the MTA's other queues, in the order of their records; one
    queue after another, wherever it has been. Reads the first and last block of each.

    The one that is being written is left out: a part of it would be taken for the whole.
    """
    found = dict[int, list[Segment]]()
    for one in archives:
        archive = one if isinstance(one, Archive) else Archive(one)
        for source, place in folders.beside(archive.folder).items():
            found.setdefault(source, []).extend(_segments(place, source, archive.node))
    return [segment for _, of_queue in sorted(found.items()) for segment in _own(of_queue)]


def _segments(folder: Path, source: int, node: str) -> Iterator[Segment]:
    paths = folders.files(folder)
    if folder.name == "journal" and paths and not _is_closed(paths[-1]):
        paths.pop()
    for path in paths:
        try:
            yield _of_source(_inspect(path), source)._replace(node=node)
        except FileNotFoundError:
            continue  # the MTA keeps its archive for so long only, and has just removed it


def _own(of_queue: list[Segment]) -> Iterator[Segment]:
    """With where their own records begin."""
    expected = 0
    for one in sorted(of_queue, key=lambda one: one.first_seq):
        yield one._replace(from_seq=expected if expected > one.first_seq else 0)
        expected = max(expected, one.last_seq + 1)


def _of_source(segment: Segment, source: int) -> Segment:
    base = folders.base_of(source)
    return segment._replace(first_seq=segment.first_seq + base, last_seq=segment.last_seq + base, source=source)


def _is_closed(path: Path) -> bool:
    """Whether it has its END record. An archive has closed ones only: what lacks an END there is damaged."""
    with path.open("rb") as file:
        last = _last(file, path.stat().st_size)
    return last is not None and last.type == Type.END


def _inspect(path: Path) -> Segment:
    size, named = path.stat().st_size, first_seq(path)
    with path.open("rb") as file:
        first, last = _first(file), _last(file, size)
    if first is None or last is None:
        return Segment(path, size, named, named - 1, 0, EVER_MS, 0)
    return Segment(path, size, first.seq, last.seq, first.ms, last.ms, 0)


def _first(file: BinaryIO) -> Record | None:
    data, more = b"", file.read(BLOCK_BYTES)
    while more:
        data += more
        for record in parse(data, []):
            return record
        more = file.read(BLOCK_BYTES)
    return None


def _last(file: BinaryIO, size: int) -> Record | None:
    """From the end: a window of blocks that doubles until it holds a whole record."""
    window, start = BLOCK_BYTES, size
    while start > 0:
        start = max(0, size - window) // BLOCK_BYTES * BLOCK_BYTES
        file.seek(start)
        found = list(parse(file.read(), []))
        if found:
            return found[-1]
        window *= 2
    return None


def splits(segment: Segment, size: int = SPLIT_BYTES) -> list[Split]:
    """The file in pieces of about `size` bytes, each of whole blocks."""
    step = max(1, size // BLOCK_BYTES) * BLOCK_BYTES
    return [
        Split(segment.path, start, min(start + step, segment.size), segment.from_seq, segment.source, segment.node)
        for start in range(0, segment.size, step)
    ]


# -- what is in a file


def read(split: Split, faults: list[Fault]) -> Iterator[pa.RecordBatch]:
    """The rows of the records that begin in the split. Appends what could not be read to `faults`."""
    misfits: list[Misfit] = []
    name = Segment(split.path, 0, 0, 0, 0, 0, 0, split.source, split.node).name
    base = folders.base_of(split.source)
    for found in payloads(split, faults):
        yield from rows.batches(found, split.from_seq, name, misfits, base, split.node, split.to_seq)
        faults += [Fault(split.path, split.start, f"record {seq - base}: {what}") for seq, what in misfits]
        misfits.clear()


def payloads(split: Split, faults: list[Fault]) -> Iterator[list[bytes]]:
    """Joined records (seq ms type body) that begin in the split, a window at a time."""
    joiner = _Joiner()
    with split.path.open("rb") as file:
        file.seek(split.start)
        at = split.start
        while at < split.end or joiner.parts:
            beyond = at >= split.end
            data = file.read(BLOCK_BYTES if beyond else min(WINDOW_BYTES, split.end - at))
            if not data:
                break
            damages: list[Damage] = []
            found = joiner.finish(data, damages) if beyond else joiner.join(data, damages)
            faults += [Fault(split.path, at + damage.offset, damage.what) for damage in damages]
            at += len(data)
            yield found
    if joiner.parts:
        faults.append(Fault(split.path, at, "cut off"))


class _Joiner:
    """Puts the parts of records together. parts: of the one that is not whole yet."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def join(self, data: bytes, damages: list[Damage]) -> list[bytes]:
        """The records that end in these blocks."""
        found: list[bytes] = []
        parts = self.parts
        for offset, kind, part in fragments(data, damages):
            if kind == FULL and not parts:
                found.append(part)
            elif kind in (FULL, FIRST):
                if parts:
                    damages.append(Damage(offset, "record without its end"))
                    parts.clear()
                (found if kind == FULL else parts).append(part)
            elif kind == BROKEN:
                parts.clear()
            elif parts:
                parts.append(part)
                if kind == LAST:
                    found.append(b"".join(parts))
                    parts.clear()
        return _long_enough(found, damages)

    def finish(self, data: bytes, damages: list[Damage]) -> list[bytes]:
        """The rest of the one record, from blocks of the next split, which names its own damage itself."""
        for offset, kind, part in fragments(data, []):
            if kind in (FULL, FIRST):
                damages.append(Damage(offset, "record without its end"))
            if kind in (FULL, FIRST, BROKEN):
                self.parts.clear()
                return []
            self.parts.append(part)
            if kind == LAST:
                whole = b"".join(self.parts)
                self.parts.clear()
                return _long_enough([whole], damages)
        return []


def _long_enough(found: list[bytes], damages: list[Damage]) -> list[bytes]:
    if found and min(map(len, found)) < _HEAD_BYTES:
        damages.append(Damage(0, "record too short"))
        return [payload for payload in found if len(payload) >= _HEAD_BYTES]
    return found

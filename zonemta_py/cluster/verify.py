"""Whether a queue's log has what the queue's own files have (`zonemta cluster verify`).

The files are those of a copy as of one instant (`zonemta backup`), whose last batch says which message of the log it
is. As of that batch the log is read into a store of its own, and both are compared, key by key; then the journal's
records, by their numbers, and the files of large bodies. What a crash may leave is no difference: records that only one
of the two had got to yet. Failures: NotReached, StoreError, OSError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.cluster.log import LogMark
from zonemta_py.cluster.restore import Files, remove
from zonemta_py.cluster.stream import Stream
from zonemta_py.disk import body_file, keys
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

NAMED_MOST = 100
"""Differences of a kind that are told one by one."""
_APART = (keys.LOG, b"probe")


class Verified(NamedTuple):
    """differences: one sentence for each. counts: keys, records, bodies: how many were compared."""

    differences: list[str]
    counts: dict[str, int]


async def verify(stream: Stream, number: int, folder: Path) -> Verified:
    """folder: of the copy, in which it makes another one for as long as it takes."""
    own = Store(folder / "store")
    scratch = folder / "from-log"
    try:
        mark = LogMark.of(own.get(keys.LOG))
        if not mark.base:
            return Verified([f"queue {number} was never written with a log"], {})
        return await _compared(stream, number, folder, own, mark, scratch)
    finally:
        own.close()
        remove(scratch)


async def _compared(
    stream: Stream, number: int, folder: Path, own: Store, mark: LogMark, scratch: Path
) -> Verified:  # fmt: skip
    info = await stream.info()
    remove(scratch)
    made = Files(number, scratch, mark)
    try:
        joiner = await made.read(stream, info.first, info.last)
        there = made.flush()
        found = list(joiner.faults)
        if made.base != mark.base:
            found.append(f"the log of queue {number} is of another life than its files: it was begun anew since")
        elif not made.is_whole:
            found.append(f"the log of queue {number} has no whole copy of it yet; verify it again in some minutes")
        counts = {"keys": 0, "records": 0, "bodies": 0}
        for differences in (
            _of_stores(own, there, counts), _of_journals(folder, scratch, mark, counts),
            _of_bodies(folder, scratch, own, counts),
        ):  # fmt: skip
            found += await asyncio.to_thread(_told, differences)
        return Verified(found, counts)
    finally:
        made.close()


def _told(differences: Iterator[str]) -> list[str]:
    found = list[str]()
    more = 0
    for one in differences:
        if len(found) < NAMED_MOST:
            found.append(one)
        else:
            more += 1
    return [*found, f"and {more:,} more of these"] if more else found


def _of_stores(own: Store, there: Store, counts: dict[str, int]) -> Iterator[str]:
    for key, mine, other in _pairs(_rows(own), _rows(there)):
        counts["keys"] += 1
        if mine != other:
            yield f"key {key.decode(errors='replace')!r} {_where(mine, other)}"


def _rows(store: Store) -> Iterator[tuple[bytes, bytes]]:
    """Without the index, which the log does not have."""
    for first, stop in ((b"", keys.INDEX), (keys.end(keys.INDEX), b"\xff")):
        for row in store.scan(first, stop):
            if row[0] not in _APART:
                yield row


def _pairs(
    own: Iterable[tuple[bytes, bytes]], there: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Both are in the order of their keys."""
    mine, others = iter(own), iter(there)
    one, other = next(mine, None), next(others, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(mine, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(others, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(mine, None), next(others, None)


def _where(mine: object | None, other: object | None) -> str:
    if other is None:
        return "is not in the log"
    return "is in the log only" if mine is None else "has another value in the log"


def _of_journals(folder: Path, scratch: Path, mark: LogMark, counts: dict[str, int]) -> Iterator[str]:
    kept = segments.files(scratch / "journal")
    if not kept:
        return
    first = segments.first_seq(kept[0])
    own = {row.seq: row for row in _records(folder, first)}
    last = max(own, default=0)
    there = set[int]()
    for path in kept:
        for row in segments.read_file(path, []):
            counts["records"] += 1
            there.add(row.seq)
            mine = own.get(row.seq)
            if mine is None and min(own, default=first) <= row.seq <= last:
                yield f"record {row.seq} of the journal is in the log only"
            elif mine is not None and Type.LOST not in (mine.type, row.type) and not _alike(mine, row):
                yield f"record {row.seq} of the journal has other contents in the log"
    for seq in range(first, mark.record + 1):
        if seq in own and seq not in there:
            yield f"record {seq} of the journal is not in the log"


def _alike(one: Record, other: Record) -> bool:
    """A POSITION counts the segments that there were when its file was made of the log."""
    if one == other:
        return True
    return one[:3] == other[:3] and one.type == Type.POSITION and _without_segments(one) == _without_segments(other)


def _without_segments(position: Record) -> dict[str, Any]:
    body: dict[str, Any] = unpack(position.body)
    body.pop("segments", None)
    return body


def _records(folder: Path, first: int) -> Iterator[Record]:
    return segments.read_files(segments.every_file(folder / "journal", folder / "archive"), first)


def _of_bodies(folder: Path, scratch: Path, own: Store, counts: dict[str, int]) -> Iterator[str]:
    mine, there = folder / body_file.FOLDER, scratch / body_file.FOLDER
    for message_id in body_file.ids(mine):
        if own.get(keys.existence(message_id)) is None:
            continue
        counts["bodies"] += 1
        path = there / message_id
        if not path.exists():
            yield f"the body of message {message_id} is not in the log"
        elif path.read_bytes() != (mine / message_id).read_bytes():
            yield f"the body of message {message_id} is another one in the log"

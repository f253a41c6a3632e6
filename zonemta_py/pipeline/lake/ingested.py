"""Which segments of an archive are in the lake: an entry for each, `<lake>/bronze/_ledger/<segment>.json`.

A lake belongs to one MTA, or one cluster: record numbers and leases are one MTA's own, so rows of two could not be told
apart. A segment of another MTA (its name, or its numbers, are there with other records) is refused: `Foreign`. One of
the same MTA that has changed since (damaged, or repaired) is skipped with a warning, as its rows are in the lake. The
records that both have tell them apart: the same number at the same time.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from zonemta_py.journal.folders import base_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import read_file
from zonemta_py.pipeline.journal.ranges import Ranges
from zonemta_py.pipeline.journal.reader import Segment

FOLDER = "bronze"
LEDGER = "_ledger"
_REMEDY = "a lake belongs to one MTA, or cluster, so ingest this archive into a lake of its own"

Warned = Callable[[str], object]
"""Called with one sentence."""


class Foreign(Exception):
    """The lake has other records of that name, or of these numbers, from another MTA; one sentence."""


@dataclass(frozen=True)
class Ingested:
    """What the ledger says of a segment. days: date → rows. damages: places that could not be read; faults: where.

    first_ms: time of its first record; 0 is unknown. node: whose archive it was in; "" if nobody said.
    """

    segment: str
    first_seq: int
    last_seq: int
    rows: int
    days: dict[str, int]
    damages: int = 0
    faults: tuple[str, ...] = ()
    first_ms: int = 0
    node: str = ""

    def is_of(self, segment: Segment) -> bool:
        """Whether the file begins and ends as it did."""
        numbers = (self.first_seq, self.last_seq) == (segment.first_seq, segment.last_seq)
        return numbers and self.first_ms in (0, segment.first_ms)


def ledger(lake: Path) -> dict[str, Ingested]:
    """Every segment in bronze, by its file name."""
    rows = (json.loads(path.read_bytes()) for path in sorted((lake / FOLDER / LEDGER).glob("*.json")))
    return {row["segment"]: Ingested(**row | {"faults": tuple(row["faults"])}) for row in rows}


def warn(sentence: str) -> None:
    print(f"zonemta: {sentence}", file=sys.stderr)


def news(
    segments: Iterable[Segment], lake: Path, warned: Warned = warn, among: Container[Path] | None = None
) -> list[Segment]:
    """Those that are not in the lake, to be read after what is. segments: all of the archive, in order.

    among: the files that are asked for; None: all. Raises Foreign, OSError.
    """
    known = ledger(lake)
    numbers = Ranges((entry.first_seq, entry.last_seq) for entry in known.values() if entry.rows)
    found, expected = [], 0
    for segment in segments:
        entry = known.get(segment.name)
        wanted = among is None or segment.path in among
        if entry is None and wanted:
            if expected > segment.first_seq:
                segment = segment._replace(from_seq=max(expected, segment.from_seq))
            if segment.first_seq in numbers or segment.last_seq in numbers:
                _refuse_other_numbers(segment, lake, known)
                segment = _rest(segment, numbers)
            found.append(segment)
        elif entry is not None and wanted and not entry.is_of(segment):
            _pass_over(segment, entry, lake, warned)
        expected = max(expected, (entry or segment).last_seq + 1)
    return found


def _rest(segment: Segment, numbers: Ranges) -> Segment:
    """Without the records that the lake has: a queue that another node has taken over begins with what it had last,
    and a segment without any is noted, too."""
    before, after = numbers.around(segment.first_seq), numbers.around(segment.last_seq)
    if before is not None:
        segment = segment._replace(from_seq=max(segment.from_seq, before[1] + 1))
    if after is not None and after[0] > segment.first_seq:
        segment = segment._replace(to_seq=after[0] - 1)
    return segment


def _pass_over(segment: Segment, entry: Ingested, lake: Path, warned: Warned) -> None:
    """Raises Foreign if it is not what was ingested."""
    there = _in_file(segment)
    if there and entry.rows and not _alike(there, _in_lake(lake, entry)):
        raise Foreign(f"{segment.path}: the lake already has different records from a file of this name; {_REMEDY}")
    base = base_of(segment.source)
    had, left = _numbers(entry, base), _numbers(segment, base) if there else "none"
    warned(
        f"{segment.path}: it has changed since it was ingested: it had records {had}, readable now: {left}; its"
        f" {entry.rows:,} rows are in the lake, so it is skipped; run `zonemta fsck`"
    )


def _numbers(of: Segment | Ingested, base: int) -> str:
    return f"{of.first_seq - base}-{of.last_seq - base}"


def _refuse_other_numbers(segment: Segment, lake: Path, known: Mapping[str, Ingested]) -> None:
    """Raises Foreign. An MTA itself writes records again whose first file the disk refused; they are the same ones."""
    there = _in_file(segment)
    for entry in known.values():
        if entry.first_seq <= segment.last_seq and segment.first_seq <= entry.last_seq:
            in_lake = _in_lake(lake, entry)
            if there.keys() & in_lake.keys() and not _alike(there, in_lake):
                raise Foreign(f"{segment.path}: the lake already has different records with these numbers; {_REMEDY}")


def _alike(some: Mapping[int, int], others: Mapping[int, int]) -> bool:
    """Whether most of the numbers that are in both have the same time: single ones may by chance."""
    both = some.keys() & others.keys()
    return sum(some[seq] == others[seq] for seq in both) * 2 > len(both)


def _in_file(segment: Segment) -> dict[int, int]:
    """Number → ms of the records that can be read, but for those that stand for lost ones."""
    base = base_of(segment.source)
    return {record.seq + base: record.ms for record in read_file(segment.path, []) if record.type != Type.LOST}


def _in_lake(lake: Path, entry: Ingested) -> dict[int, int]:
    """The same, of a segment's rows in bronze; what is gone or damaged there is left out."""
    found: dict[int, int] = {}
    for day in entry.days:
        path = lake / FOLDER / f"day={day}" / f"{entry.segment.removesuffix('.journal')}.parquet"
        with contextlib.suppress(FileNotFoundError, pa.ArrowException):
            rows = pq.read_table(path, columns=["seq", "at", "type"], filters=[("type", "!=", Type.LOST.name)])
            times = rows.column("at").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            found |= zip(rows.column("seq").to_pylist(), times.to_pylist(), strict=True)
    return found

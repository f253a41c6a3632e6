"""Repair of the journal's files: what can be read stays, LOST records stand for the rest.

A damaged file is copied to quarantine/ with a note first. Failures: OSError.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import replace_file
from zonemta_py.disk.frame import frame
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

MISSING = "records are missing"


class Damaged(NamedTuple):
    """A file of the journal or the archive. start: the number its records should begin with. until: as for `damaged`,
    if it is the last one; else 0.
    """

    path: Path
    start: int
    until: int
    faults: list[segments.Fault]


def repair(paths: list[Path], quarantine: Quarantine, archive: Path, until: int = 0) -> list[segments.Fault]:
    """Repairs every damaged file among these; returns what was wrong.

    Afterwards they read without a fault, under their names in the archive too. paths, until: as for `damaged`.
    """
    found: list[segments.Fault] = []
    for path, start, last, faults in damaged(paths, until):
        segments.repair(path, start, quarantine, faults, archive, last)
        found += faults
    return found


def damaged(paths: list[Path], until: int = 0) -> Iterator[Damaged]:
    """Those of these files, which follow each other, that have lost records.

    until: the record that follows the last of them, if that is known and they are closed. A file that was given up
    after an error of the disk, with a torn end, has lost nothing if the next one has all of it again.
    """
    expected, ended = 0, True
    for path, following in zip_longest(paths, paths[1:]):
        faults: list[segments.Fault] = []
        first, gap = segments.first_seq(path), False
        if ended:
            expected, ended = max(expected, first), False
        start, missing = min(expected, first), 0
        for record in segments.read_file(path, faults):
            if record.seq > expected and record.type != Type.LOST:
                gap, missing = True, missing or expected
            if record.seq >= expected:
                expected, ended = record.seq + 1, record.type == Type.END
        if following is not None and segments.first_seq(following) <= (missing or expected):
            expected, ended = missing or expected, ended and not missing
            continue
        last = until if path == paths[-1] else 0
        if (gap or (expected < last and not ended)) and not faults:
            faults.append(segments.Fault(path, 0, MISSING))
        if faults:
            yield Damaged(path, start, last, faults)


def repair_segments(
    folder: Path, archive: Path, spans: list[tuple[int, int]], quarantine: Quarantine
) -> list[segments.Fault]:
    """The same for closed segments, each given as (first record, first record of the next one in the journal).

    What lies between two of the journal's segments may have gone to the archive before them.
    """
    found: list[segments.Fault] = []
    for first, following in spans:
        paths = [path for path in segments.files(folder) if first <= segments.first_seq(path) < following]
        last = max(map(segments.first_seq, paths), default=first)
        later = (seq for seq in map(segments.first_seq, segments.every_file(folder, archive)) if seq > last)
        found += repair(paths, quarantine, archive, min(later, default=0))
    return found


def bridge(folder: Path, stable: int) -> None:
    """Records up to `stable` were on stable storage and are gone: a file that says so, to bridge the gap."""
    last = 0
    for path in segments.files(folder)[-1:]:
        for record in segments.read_file(path, []):
            last = record.seq
    if last >= stable:  # the END record has taken the number of the last one that was lost
        return
    rows = [segments.lost_record(last + 1, stable), segments.end_record(stable + 1)]
    replace_file(folder / f"{stable:016d}{segments.SUFFIX}", frame(rows, 0))

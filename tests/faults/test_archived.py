"""Segments go to the archive when their own mail has ended, out of turn; what they say of older mail still counts."""

from __future__ import annotations

import os
from pathlib import Path

from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.core.segments import oldest, outdated


def segment(folder: Path, first: int, count: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [Record(first, 0, Type.SEGMENT, pack({"version": 1, "first": first, "floor": ""}))]
    rows += [Record(first + number, 0, Type.FINISH, pack(["x"])) for number in range(1, count - 1)]
    rows.append(Record(first + count - 1, 0, Type.END, pack(None)))
    path = folder / f"{first:016d}.journal"
    path.write_bytes(frame(rows, 0))
    return path


def test_archived_segments_behind_the_oldest_are_read_along(tmp_path: Path) -> None:
    """Those before it are of no interest: all their mail has ended."""
    here, archive = tmp_path / "journal", tmp_path / "archive"
    for first, folder in ((1, archive), (4, here), (7, archive), (10, here)):
        segment(folder, first)
    faults: list[segments.Fault] = []
    assert [record.seq for record in segments.read(here, 0, faults, archive)] == list(range(4, 13))
    assert faults == []


def test_what_may_still_be_needed_is_not_pruned(tmp_path: Path) -> None:
    """However small the archive has to be."""
    here, archive = tmp_path / "journal", tmp_path / "archive"
    for first, folder in ((1, archive), (4, here), (7, archive), (10, here)):
        segment(folder, first)
    gone = outdated(archive, 0, 0, 1, oldest(here))
    assert [segments.first_seq(path) for path in gone] == [1]


def test_the_archive_is_pruned_from_its_beginning(tmp_path: Path) -> None:
    """A segment that a repair has written again holds back those behind it: they may take back what it says."""
    for first in (1, 4, 7):
        os.utime(segment(tmp_path / "archive", first), (1, 1))
    os.utime(tmp_path / "archive" / f"{4:016d}.journal", (950_000, 950_000))
    gone = outdated(tmp_path / "archive", 1_000_000_000, 1, 0, 100)
    assert [segments.first_seq(path) for path in gone] == [1]

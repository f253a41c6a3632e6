"""The journal: what was promised to be stable is read again, after rotation, failing disks, tears and damage."""

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from zonemta_py.disk.frame import BLOCK_BYTES, Record, frame
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import repair, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Fault, Writer


def row(seq: int, kind: Type = Type.FINISH, size: int = 20) -> Record:
    return Record(seq, 1000 + seq, int(kind), pack([f"{seq:0{size}}"]))


def segment(first: int, count: int) -> list[Record]:
    """SEGMENT, `count` records, END."""
    rows = [row(first, Type.SEGMENT), *(row(seq) for seq in range(first + 1, first + count + 1))]
    return [*rows, row(first + count + 1, Type.END)]


def everything(folder: Path, since: int = 0) -> tuple[list[Record], list[Fault]]:
    faults: list[Fault] = []
    return list(segments.read(folder, since, faults)), faults


class Disk:
    """Fails os.write or os.fdatasync at the calls it is told to; a failed write may have written a part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fail_at: set[int] = set()
        self._write, self._sync = os.write, os.fdatasync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fdatasync", self.sync)

    def _fails(self) -> bool:
        self.calls += 1
        return self.calls in self.fail_at

    def write(self, file: int, data: bytes) -> int:
        if self._fails():
            self._write(file, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(file, data)

    def sync(self, file: int) -> None:
        if self._fails():
            raise OSError(errno.EIO, "Input/output error")
        self._sync(file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_each_segment_is_a_file_named_by_its_first_record(tmp_path: Path) -> None:
    """A SEGMENT record begins a file; reading goes through all of them, from any record on."""
    rows = [*segment(1, 3), *segment(6, 2), *segment(10, 0)]
    Writer(tmp_path).write(rows, sync=True)
    assert [segments.first_seq(path) for path in segments.files(tmp_path)] == [1, 6, 10]
    for since in range(13):
        assert everything(tmp_path, since) == ([r for r in rows if r.seq >= since], [])


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    """Somebody's copy or note beside the segments does not stop the queue from starting."""
    Writer(tmp_path).write(segment(1, 1), sync=True)
    (tmp_path / "old.journal").write_text("a copy")
    (tmp_path / "0000000000000001.journal.mending").write_bytes(b"half")
    assert everything(tmp_path) == (segment(1, 1), [])


@pytest.mark.parametrize("seed", range(25))
def test_a_failing_disk_loses_nothing_that_was_promised(tmp_path: Path, disk: Disk, seed: int) -> None:
    """Writes and syncs fail at random; once a write has returned, all records up to there are read, each once."""
    die = random.Random(seed)
    disk.fail_at = {number for number in range(200) if die.random() < 0.3}
    writer, rows, promised = Writer(tmp_path), list[Record](), 0
    for _ in range(25):
        first = len(rows) + 1
        fresh = segment(first, die.randint(0, 3)) if die.random() < 0.3 else [row(first, size=die.choice((5, 9000)))]
        rows += fresh
        sync = die.random() < 0.6
        try:
            writer.write(fresh, sync)
        except OSError:
            with_retry(writer)
            sync = True
        promised = len(rows) if sync else promised
        found, faults = everything(tmp_path)
        assert found[:promised] == rows[:promised]
        assert faults == []
    assert one_segment_in_each_file(tmp_path)
    with_retry(writer)
    paths = segments.files(tmp_path)
    assert list(repair.damaged(paths, len(rows) + 1)) == [], "what was given up is whole in the next file"


def with_retry(writer: Writer) -> None:
    """As the commit line does: until the disk takes it."""
    for _ in range(100):
        try:
            writer.write([], True)
            return
        except OSError:
            continue
    raise AssertionError("the disk never recovers")


def one_segment_in_each_file(folder: Path) -> bool:
    """Files are archived one by one, by the number they are named by: none may hold records of two segments."""
    for path in segments.files(folder):
        kinds = [record.type for record in segments.read_file(path, [])]
        if Type.SEGMENT in kinds[1:]:
            return False
    return True


def test_a_gap_is_a_fault(tmp_path: Path) -> None:
    """Records that are missing between two others are reported with their numbers; the rest is read."""
    rows = segment(1, 8)
    (tmp_path / f"{1:016d}.journal").write_bytes(frame([r for r in rows if r.seq not in (4, 5)], 0))
    found, faults = everything(tmp_path)
    assert [r.seq for r in found] == [1, 2, 3, 6, 7, 8, 9, 10]
    assert ["records 4 to 5 are missing" in fault.what for fault in faults] == [True]


def test_archived_segments_are_not_missed(tmp_path: Path) -> None:
    """A whole segment that has gone leaves no fault: the one before ends with END."""
    Writer(tmp_path).write([*segment(1, 2), *segment(5, 2), *segment(9, 2)], sync=True)
    (tmp_path / f"{5:016d}.journal").unlink()
    found, faults = everything(tmp_path)
    assert [r.seq for r in found] == [1, 2, 3, 4, 9, 10, 11, 12]
    assert faults == []


@pytest.mark.parametrize("torn", [0, 1, 5, 30])
def test_seal_cuts_the_torn_tail_and_ends_the_file(tmp_path: Path, torn: int) -> None:
    """After a crash the last file gets its END; what is read then has no fault, and sealing again changes nothing."""
    rows = segment(1, 4)[:-1]
    path = tmp_path / f"{1:016d}.journal"
    data = frame([*rows, row(6, size=60)], 0)
    path.write_bytes(data[: len(frame(rows, 0)) + torn])
    last = segments.seal(path, rows[-1], 7)
    assert (last.seq, last.type) == (6, Type.END)
    assert everything(tmp_path) == ([*rows, last], [])
    assert segments.seal(path, last, 8) == last
    assert everything(tmp_path) == ([*rows, last], [])


@pytest.mark.parametrize("size", [BLOCK_BYTES, 40 * BLOCK_BYTES, 70 * BLOCK_BYTES])
def test_seal_behind_a_huge_record(tmp_path: Path, size: int) -> None:
    """A last record larger than what is looked at first is kept."""
    rows = [row(1, Type.SEGMENT), row(2, size=size)]
    path = tmp_path / f"{1:016d}.journal"
    path.write_bytes(frame(rows, 0) + b"torn")
    last = segments.seal(path, rows[-1], 7)
    assert everything(tmp_path) == ([*rows, last], [])


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("seq", range(1, 11))
def test_mend_bridges_what_is_lost(tmp_path: Path, seq: int) -> None:
    """Wherever the damage is, the mended file reads without a fault, says what is lost, and the original is kept."""
    rows = segment(1, 8)
    path = tmp_path / "journal" / f"{1:016d}.journal"
    path.parent.mkdir()
    path.write_bytes(frame(rows, 0))
    flipped(path, len(frame(rows[: seq - 1], 0)) + 12)
    damaged = path.read_bytes()
    _, faults = everything(path.parent)
    assert faults
    segments.repair(path, 1, quarantine := Quarantine(tmp_path / "quarantine"), faults)
    found, faults = everything(path.parent)
    assert faults == []
    assert {r.seq for r in found if r.type != Type.LOST} == {r.seq for r in rows} - {seq}
    (case,) = quarantine.cases()
    assert (case / path.name).read_bytes() == damaged


def test_mend_keeps_the_records_behind_the_damaged_block(tmp_path: Path) -> None:
    """Reading goes on at the next block; a LOST record names the numbers that are gone."""
    rows = [row(seq, size=1000) for seq in range(1, 100)]
    path = tmp_path / f"{1:016d}.journal"
    path.write_bytes(frame(rows, 0))
    flipped(path, 5000)
    segments.repair(path, 1, Quarantine(tmp_path / "quarantine"), [])
    found, faults = everything(tmp_path)
    (lost,) = [r for r in found if r.type == Type.LOST]
    first, last = unpack(lost.body)
    assert faults == []
    assert [r for r in found if r.type != Type.LOST] == [r for r in rows if not first <= r.seq <= last]


@pytest.mark.parametrize("size", [10, 5 * BLOCK_BYTES, 33 * BLOCK_BYTES, 100 * BLOCK_BYTES])
@pytest.mark.parametrize("behind", [0, 20 * BLOCK_BYTES, 64 * BLOCK_BYTES])
def test_the_last_position_is_found_wherever_it_lies(tmp_path: Path, size: int, behind: int) -> None:
    """Across the borders of the windows that are looked at, and larger than any of them."""
    rows = [row(1, Type.SEGMENT), row(2, Type.POSITION), row(3, size=700_000), row(4, Type.POSITION, size)]
    rows.append(row(5, size=behind))
    Writer(tmp_path).write([*rows, row(6, Type.END), row(7, Type.SEGMENT)], sync=True)
    assert segments.last_of(tmp_path, Type.POSITION) == rows[3]
    assert segments.last_of(tmp_path, Type.LOST) is None
    assert [r.seq for r in segments.positions(tmp_path)] == [2, 4]


def test_an_empty_folder_has_no_records(tmp_path: Path) -> None:
    """Before the first mail there is nothing, and that is no fault."""
    assert everything(tmp_path / "none") == ([], [])
    assert segments.last_of(tmp_path, Type.POSITION) is None


@pytest.mark.parametrize("how", ["file", "folder", "moved"])
def test_a_file_that_is_removed_while_it_is_written_is_made_again(tmp_path: Path, how: str) -> None:
    """What a sync was answered for is there, and what comes after it too."""
    folder = tmp_path / "journal"
    writer = segments.Writer(folder)
    rows = segment(1, 8)
    writer.write(rows[:3], sync=True)
    (path,) = segments.files(folder)
    if how == "file":
        path.unlink()
    elif how == "folder":
        shutil.rmtree(folder)
    else:
        folder.rename(tmp_path / "elsewhere")
    writer.write(rows[3:6], sync=True)
    writer.write(rows[6:], sync=True)
    assert everything(folder) == (rows, [])


def test_a_folder_that_is_removed_is_made_again_for_the_next_segment(tmp_path: Path) -> None:
    """Nothing is refused for it, and nothing waits for ever."""
    folder = tmp_path / "journal"
    writer = segments.Writer(folder)
    writer.write(segment(1, 8), sync=True)
    shutil.rmtree(folder)
    later = segment(11, 8)
    writer.write(later, sync=True)
    assert everything(folder) == (later, [])

"""Reading on in the journal: whatever becomes of the files, every stable record comes once and in order."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.disk.frame import BLOCK_BYTES, Record
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import LostRecord
from zonemta_py.journal.tail import JournalTail, last_seq, seq_at
from zonemta_py.queue.core.segments import publish, retire

MS = 1_700_000_000_000


class Scribe:
    """Writes segments as the queue does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seq = folder, 0
        self.writer = segments.Writer(folder / "journal")
        self.written: list[Record] = []
        self.begin()

    def put(self, *rows: tuple[Type, bytes], sync: bool = True) -> list[Record]:
        found = []
        for kind, body in rows:
            self.seq += 1
            found.append(Record(self.seq, MS + self.seq, int(kind), body))
        self.written += found
        self.writer.write(found, sync)
        return found

    def begin(self) -> None:
        self.put((Type.SEGMENT, pack({"version": 1, "first": self.seq + 1})))

    def rotate(self) -> None:
        self.put((Type.END, pack(None)))
        self.begin()
        publish(self.folder / "journal", self.folder / "archive")

    def fill(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            self.put((Type.FINISH, pack(["x" * size])), sync=False)
        self.put()


@pytest.fixture
def scribe(tmp_path: Path) -> Scribe:
    return Scribe(tmp_path)


def rest(tail: JournalTail, until: int, most: int = 1000) -> list[Record]:
    found: list[Record] = []
    while more := tail.read(until, most):
        found += more
    return found


def test_only_what_is_stable_is_read_and_each_once(scribe: Scribe) -> None:
    scribe.fill(10)
    tail = JournalTail(scribe.folder)
    assert tail.read(4, 100) == scribe.written[:4]
    assert tail.read(4, 100) == []
    assert tail.read(11, 2) == scribe.written[4:6]
    scribe.fill(500)
    assert rest(tail, scribe.seq, 7) == scribe.written[6:]
    assert tail.missed == 0


def test_a_long_open_segment_is_not_read_again(scribe: Scribe) -> None:
    """A poll reads the block where it was, and what has come."""
    scribe.fill(20_000)
    tail = JournalTail(scribe.folder)
    assert len(rest(tail, scribe.seq)) == scribe.seq
    read = list[int]()
    pread = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        data = pread(file, size, at)
        read.append(len(data))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", counted)
        for _ in range(10):
            scribe.fill(1)
            assert [record.seq for record in tail.read(scribe.seq, 10)] == [scribe.seq]
        late = JournalTail(scribe.folder, scribe.seq - 5)
        assert len(late.read(scribe.seq, 100)) == 6
    assert sum(read) < 40 * BLOCK_BYTES, "of 2.8 MB"


@pytest.mark.parametrize("size", [BLOCK_BYTES, 40 * BLOCK_BYTES])
def test_records_longer_than_a_block_or_a_window(scribe: Scribe, size: int) -> None:
    scribe.put((Type.FINISH, pack(["short"])), (Type.POSITION, pack(["x" * size])), (Type.FINISH, pack(["after"])))
    tail = JournalTail(scribe.folder)
    assert rest(tail, scribe.seq, 1) == scribe.written
    assert rest(JournalTail(scribe.folder, 4), scribe.seq) == scribe.written[3:]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["fill", "rotate", "move", "put back", "torn", "read", "forget"]), max_size=25))
def test_files_may_move_under_it(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    """Closed, linked, moved, removed and put back, written again after an error, rewritten: nothing twice or never."""
    scribe = Scribe(tmp_path_factory.mktemp("queue"))
    tail, found = JournalTail(scribe.folder), list[Record]()
    for step in steps:
        if step == "fill":
            scribe.fill(random.Random(len(found)).randrange(600))
        elif step == "rotate":
            scribe.rotate()
        elif step == "move":
            gone = segments.files(scribe.folder / "journal")[:-1]
            spans = [(segments.first_seq(path), segments.first_seq(path) + 1) for path in gone]
            retire(scribe.folder / "journal", scribe.folder / "archive", spans)
        elif step == "put back":
            scribe.writer._path.unlink()
            scribe.fill(3)
        elif step == "torn":  # the disk refuses a sync: what was not synced is written again, into a new file
            scribe.put((Type.FINISH, pack(["a"])), (Type.FINISH, pack(["b"])), sync=False)
            scribe.writer._broken = True
            scribe.put((Type.FINISH, pack(["c"])))
        elif step == "forget":
            for path in segments.files(scribe.folder / "archive")[-2:]:
                (path.parent / "new").write_bytes(path.read_bytes())
                (path.parent / "new").replace(path)
        else:
            found += tail.read(scribe.seq, 100)
    assert found + rest(tail, scribe.seq) == scribe.written
    assert rest(JournalTail(scribe.folder, scribe.seq // 2 + 1), scribe.seq) == scribe.written[scribe.seq // 2 :]
    assert last_seq(scribe.folder) == scribe.seq


def test_what_the_archive_no_longer_has_is_counted(scribe: Scribe) -> None:
    for _ in range(3):
        scribe.fill(5)
        scribe.rotate()
    gone = segments.files(scribe.folder / "archive")[0]
    first = segments.first_seq(segments.files(scribe.folder / "archive")[1])
    retire(scribe.folder / "journal", scribe.folder / "archive", [(1, 2)])
    gone.unlink()
    tail = JournalTail(scribe.folder)
    assert rest(tail, scribe.seq) == scribe.written[first - 1 :]
    assert tail.missed == first - 1
    behind = JournalTail(scribe.folder, 3)
    assert behind.read(3, 10) == []
    assert (behind.missed, behind.next_seq) == (1, 4)


def test_pruned_while_it_reads(scribe: Scribe) -> None:
    """A file that is open is read to its end, unless its name has gone; then the rest of it is missed."""
    scribe.fill(2000)
    scribe.rotate()
    tail = JournalTail(scribe.folder)
    assert len(tail.read(scribe.seq, 10)) == 10
    for folder in ("journal", "archive"):
        segments.files(scribe.folder / folder)[0].unlink()
    assert rest(tail, scribe.seq) == scribe.written[-1:]
    assert tail.missed == scribe.seq - 11


def test_damage_is_told_as_a_repair_would_tell_it(scribe: Scribe, tmp_path: Path) -> None:
    scribe.fill(1000)
    scribe.rotate()
    scribe.fill(10)
    path = segments.files(scribe.folder / "journal")[0]
    data = bytearray(path.read_bytes())
    data[BLOCK_BYTES + 500] ^= 1
    path.unlink()
    path.write_bytes(data)
    faults: list[segments.Fault] = []
    whole = segments.read(scribe.folder / "journal", 0, faults)
    readable = [record.seq for record in whole]
    assert faults
    assert len(readable) < scribe.seq
    (scribe.folder / "archive" / path.name).unlink()
    found = rest(JournalTail(scribe.folder), scribe.seq)
    assert [record.seq for record in found if record.type != Type.LOST] == readable
    (lost,) = [record for record in found if record.type == Type.LOST]
    first, last = LostRecord.of(unpack(lost.body))
    assert (lost.seq, first) == (last, next(seq for seq in range(1, scribe.seq) if seq not in readable))
    segments.repair(path, 1, Quarantine(tmp_path / "quarantine"), faults)
    assert rest(JournalTail(scribe.folder), scribe.seq) == found, "the same after the repair, with the same numbers"


def test_repaired_in_place_behind_the_place_where_it_reads(scribe: Scribe, tmp_path: Path) -> None:
    scribe.fill(3000)
    scribe.rotate()
    tail = JournalTail(scribe.folder)
    found = tail.read(scribe.seq, 2500)
    path = segments.files(scribe.folder / "journal")[0]
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.unlink()
    path.write_bytes(data)
    segments.repair(path, 1, Quarantine(tmp_path / "quarantine"), [])
    found += rest(tail, scribe.seq)
    assert found == scribe.written


def test_what_is_not_there_yet_is_waited_for(scribe: Scribe) -> None:
    """Damage is told only when something follows it: a repair may still say more."""
    scribe.fill(5)
    tail = JournalTail(scribe.folder)
    assert tail.read(scribe.seq + 3, 100) == scribe.written
    assert tail.read(scribe.seq + 3, 100) == []
    scribe.fill(3)
    assert tail.read(scribe.seq, 100) == scribe.written[-3:]


def test_nothing_at_all(tmp_path: Path) -> None:
    assert JournalTail(tmp_path).read(0, 10) == []
    assert last_seq(tmp_path) == 0
    assert seq_at(tmp_path, MS) == 1


def test_where_a_time_begins(scribe: Scribe) -> None:
    for _ in range(3):
        scribe.fill(5)
        scribe.rotate()
    assert seq_at(scribe.folder, MS) == 1
    assert seq_at(scribe.folder, MS + 9) == 8
    assert seq_at(scribe.folder, MS + 10_000) == scribe.seq


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_tail import *
folder = Path(sys.argv[1])
scribe = Scribe.__new__(Scribe)
scribe.folder, scribe.seq, scribe.written = folder, int(sys.argv[2]), []
scribe.writer = segments.Writer(folder / "journal")
scribe.begin()
print(scribe.seq, flush=True)
while True:
    scribe.put(*[(Type.FINISH, pack([sys.argv[3]]))] * 3)
    print(scribe.seq, flush=True)
    scribe.put(*[(Type.FINISH, pack([sys.argv[3]]))] * 50, sync=False)  # not stable: may be lost
"""


def test_numbers_that_were_never_stable_are_given_again(tmp_path: Path) -> None:
    """SIGKILL while it writes; what was not stable is cut, as after a power cut, and its numbers used for others."""
    tail, found, seq = JournalTail(tmp_path), list[Record](), 0
    code = WRITER.format(tests=str(Path(__file__).parent))
    for life in ("one", "two", "three"):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(seq), life], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        stable = 0
        for _ in range(30):
            stable = int(process.stdout.readline())
            found += tail.read(stable, 10_000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert found[-1].seq == stable
        path = segments.files(tmp_path / "journal")[-1]
        kept = [record for record in segments.read_file(path, []) if record.seq <= stable]
        assert last_seq(tmp_path) >= stable
        path.write_bytes(segments.frame(kept, 0))
        end = segments.seal(path, kept[-1], MS)
        seq = end.seq
        found += tail.read(seq, 10)
    assert [record.seq for record in found] == list(range(1, seq + 1))
    assert found == list(segments.read(tmp_path / "journal"))

"""A ring against a model: passes, wraps, crashes at any byte of any write, reloads, in both directions."""

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zonemta_py.disk.ring import pages
from zonemta_py.disk.ring.ring import RecordTooLarge, Ring, RingError

PAGE = pages.PAGE_BYTES


def record(number: int, size: int) -> bytes:
    return f"{number:08d}".encode().ljust(size, b"x")


def rest(ring: Ring) -> list[bytes]:
    found: list[bytes] = []
    while (taken := ring.take()[1]) or ring:
        found += taken
    return found


class Crash(Exception):
    pass


class RingMachine(RuleBasedStateMachine):
    """The model: records of written pages, oldest first, with whether they were taken; those not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "ring"

    @initialize(count=st.integers(2, 9), sync=st.booleans())
    def make(self, count: int, sync: bool) -> None:
        self.count, self.number = count, 0
        self.ring = Ring.create(self.path, count, sync=sync)
        self.written: list[list[bytes]] = []  # of this ring, oldest first, at most `count` pages
        self.taken = 0  # of those, so many pages
        self.skip = 0
        self.filling: list[bytes] = []
        self.dropped = 0

    @rule(size=st.integers(8, 2000))
    def append(self, size: int) -> None:
        one = record(self.number, size)
        self.number += 1
        if sum(4 + len(kept) for kept in self.filling) + 4 + size > PAGE - 16:
            self._page()
        self.ring.append(one)
        self.filling.append(one)

    @rule(number=st.integers(1, 40))
    def many(self, number: int) -> None:
        for _ in range(number):
            self.append(1300)

    @rule()
    def flush(self) -> None:
        self.ring.flush()
        if self.filling:
            self._page()

    def _page(self) -> None:
        self.written.append(self.filling)
        self.filling = []
        if len(self.written) > self.count:
            gone = self.written.pop(0)
            if self.taken:
                self.taken -= 1
            else:
                self.dropped += len(gone) - self.skip
                self.skip = 0

    @rule()
    def take(self) -> None:
        _, found = self.ring.take()
        if self.taken < len(self.written):
            assert found == self.written[self.taken][self.skip :]
            self.taken += 1
            self.skip = 0
        else:
            assert found == self.filling
            self.filling = []

    @rule(drop=st.integers(0, 3))
    def clean_end(self, drop: int) -> None:
        """What was being filled is gone; nothing that was taken comes again."""
        self.ring.close()
        self.filling, self.dropped = [], 0
        self.ring = Ring.open(self.path)

    @rule()
    def killed(self) -> None:
        """All that is written comes again."""
        clean = self.ring.metadata.clean
        self.ring.abandon()
        self.filling, self.dropped = [], 0
        self.ring = Ring.open(self.path)
        if not clean:
            self.taken = self.skip = 0
        else:
            self._as_the_index_says()

    @rule(size=st.integers(1200, 4000), cut=st.integers(0, PAGE))
    def killed_in_a_write(self, size: int, cut: int) -> None:
        """The page that was being written is whole, or torn: then it, and what it overwrote, is gone, and all else is
        there."""
        self.append(8)
        image = self.path.read_bytes()
        head, count, ring_id = self.ring.head, self.count, self.ring.metadata.ring_id
        self.flush()
        after = self.path.read_bytes()
        at = PAGE + (head + 1) % count * PAGE
        torn = bytearray(image)
        torn[at : at + cut] = after[at : at + cut]
        torn[:PAGE] = after[:PAGE]  # what is in there is written before the page, or is a hint
        self.ring.abandon()
        self.path.write_bytes(torn)
        old, now, new = (pages.unpacked_page(bytes(data[at : at + PAGE]), ring_id) for data in (image, torn, after))
        if now != new:
            self.written.pop()
            if old is not None and now == old and len(self.written) == count - 1:
                self.written.insert(0, old.records)
        self.ring = Ring.open(self.path)
        self.taken = self.skip = self.dropped = 0
        self.filling = []

    @rule()
    def all_is_there(self) -> None:
        other = Ring.open(self.path, readonly=True)
        try:
            if not self.ring.metadata.clean:
                assert rest(other) == [one for page in self.written for one in page]
        finally:
            other.abandon()

    def _as_the_index_says(self) -> None:
        metadata = self.ring.metadata
        # A torn page counts there, and is none of the model's.
        self.taken, self.skip = max(0, len(self.written) - metadata.unread), metadata.record

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "ring"):
            assert self.ring.dropped == self.dropped

    def teardown(self) -> None:
        if hasattr(self, "ring"):
            self.ring.abandon()
        shutil.rmtree(self.folder)


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def filled(path: Path, count: int, written: int) -> Ring:
    """One record a page, numbered."""
    ring = Ring.create(path, count)
    for number in range(written):
        ring.append(record(number, 100))
        ring.flush()
    return ring


@pytest.mark.parametrize("count", [2, 3, 7, 8])
def test_the_head_is_found_from_the_pages(tmp_path: Path, count: int) -> None:
    """At every place of four passes, rising and falling."""
    for written in range(4 * count + 1):
        path = tmp_path / f"{written}"
        filled(path, count, written).abandon()
        ring = Ring.open(path)
        assert ring.head == (written - 1) % count if written else ring.head == -1
        kept = range(max(0, written - count), written)
        assert rest(ring) == [record(number, 100) for number in kept]
        ring.abandon()


def test_the_head_is_found_without_reading_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "ring", 4096, 6000).abandon()
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: read.append(at) or pread(file, size, at))
    ring = Ring.open(tmp_path / "ring")
    assert ring.head == 5999 - 4096
    assert len(read) < 40
    ring.abandon()


@pytest.mark.parametrize("written", [5, 8, 11, 19])
@pytest.mark.parametrize("harm", ["flip", "zero", "tear"])
def test_a_damaged_page_is_skipped_and_counted(tmp_path: Path, written: int, harm: str) -> None:
    """Any one page, the newest and the oldest as well; all others are read, in order."""
    path, count = tmp_path / "ring", 8
    for position in range(min(written, count)):
        filled(path, count, written).abandon()
        data = bytearray(path.read_bytes())
        at = PAGE + position * PAGE
        if harm == "flip":
            data[at + 60] ^= 4
        elif harm == "zero":
            data[at : at + PAGE] = bytes(PAGE)
        else:
            data[at + 50 : at + PAGE] = bytes(PAGE - 50)
        path.write_bytes(data)
        ring = Ring.open(path)
        numbers = [int(one[:8]) for one in rest(ring)]
        missing = set(range(max(0, written - count), written)) - set(numbers)
        assert len(missing) == 1
        assert {number % count for number in missing} == {position}
        if position and position != ring.head:
            assert numbers == sorted(numbers)
        assert ring.damaged == (0 if position == (written - 1) % count and written <= count else 1)
        ring.append(record(99, 100))
        ring.flush()
        ring.abandon()
        again = Ring.open(path)
        assert record(99, 100) in rest(again)
        again.abandon()


def test_pages_of_an_earlier_ring_are_not_read(tmp_path: Path) -> None:
    """On a device nothing but the metadata and two pages is overwritten."""
    path = tmp_path / "ring"
    filled(path, 8, 11).abandon()
    stale = path.read_bytes()
    fresh = filled(path, 8, 3)
    fresh.abandon()
    data = path.read_bytes()
    path.write_bytes(data[: 4 * PAGE] + stale[4 * PAGE :])
    ring = Ring.open(path)
    assert [int(one[:8]) for one in rest(ring)] == [0, 1, 2]
    ring.abandon()


def test_what_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path / "ring", 4)
    ring.append(bytes(PAGE - pages.OVERHEAD_BYTES))
    with pytest.raises(RecordTooLarge, match="4077 bytes does not fit into a page, which holds 4076"):
        ring.append(bytes(PAGE - pages.OVERHEAD_BYTES + 1))
    assert rest(ring) == [bytes(PAGE - pages.OVERHEAD_BYTES)]
    ring.abandon()


def test_only_full_pages_are_written(tmp_path: Path) -> None:
    """And the metadata three times; no more when records are read."""
    ring = Ring.create(tmp_path / "ring", 64)
    for number in range(9 * 10 + 1):
        ring.append(record(number, 404))
    assert ring.writes == 9 + 3
    rest(ring)
    assert ring.writes == 9 + 3
    ring.abandon()


@pytest.mark.parametrize(
    ("size", "count", "what"),
    [(5000, 4, "page size 5000"), (0, 4, "page size 0"), (PAGE, 1, "1 pages"), (PAGE, 65536, "65536 pages")],
)  # fmt: skip
def test_sizes_that_cannot_be(tmp_path: Path, size: int, count: int, what: str) -> None:
    with pytest.raises(RingError, match=what):
        Ring.create(tmp_path / "ring", count, size)


def test_a_file_that_is_no_ring(tmp_path: Path) -> None:
    (tmp_path / "ring").write_bytes(b"no ring" * 1000)
    with pytest.raises(RingError, match="is not a ring, or its metadata is damaged; move it away"):
        Ring.open(tmp_path / "ring")


@pytest.mark.parametrize("slot", pages.SLOTS)
def test_one_copy_of_the_metadata_may_be_damaged(tmp_path: Path, slot: int) -> None:
    path = tmp_path / "ring"
    filled(path, 4, 7).abandon()
    data = bytearray(path.read_bytes())
    data[slot + 20] ^= 255
    path.write_bytes(data)
    ring = Ring.open(path)
    assert rest(ring) == [record(number, 100) for number in (3, 4, 5, 6)]
    ring.abandon()


def test_two_processes_have_two_rings(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path / "ring", 4)
    with pytest.raises(RingError, match="in use"):
        Ring.open(tmp_path / "ring")
    ring.abandon()
    Ring.open(tmp_path / "ring").abandon()


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A block device of nine pages with old bytes on it; where none can be had, a file that is taken for one."""
    image = tmp_path / "image"
    image.write_bytes(b"\xff" * 9 * PAGE)
    command = ["losetup", "--find", "--show", image]
    made = subprocess.run(command, capture_output=True, text=True) if shutil.which("losetup") else None
    if made is None or made.returncode:
        monkeypatch.setattr(stat, "S_ISREG", lambda _: False)
        yield image
        return
    try:
        yield Path(made.stdout.strip())
    finally:
        subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


def test_of_a_new_file_only_metadata_are_written_and_of_a_device_two_pages_too(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the seed has it; the rest of the device may hold anything."""
    written: list[tuple[int, int]] = []
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: written.append((at, len(data))) or pwrite(file, data, at))
    Ring.create(device, 8).abandon()
    assert sorted(written) == [(0, PAGE), (PAGE, 2 * PAGE)]
    if device.is_block_device():
        del written[:]
        Ring.create(tmp_path / "file", 8).abandon()
        assert written == [(0, PAGE)]


def test_a_ring_on_a_device(device: Path) -> None:
    ring = Ring.create(device, 8)
    for number in range(21):
        ring.append(record(number, 100))
        ring.flush()
        ring.abandon()
        ring = Ring.open(device)
        assert ring.head == number % 8
    assert [int(one[:8]) for one in rest(ring)] == list(range(13, 21))
    ring.abandon()


def test_a_ring_that_a_full_disk_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        Ring.create(tmp_path / "ring", 8)
    assert not (tmp_path / "ring").exists()


@pytest.mark.parametrize("written", [5, 8, 11, 19])
def test_gaps_are_damaged_pages_between_whole_ones(tmp_path: Path, written: int) -> None:
    """One before the first whole page is none: what is missing there is known from what follows."""
    path, count = tmp_path / "ring", 8
    numbers = range(max(0, written - count), written)
    for number in numbers:
        filled(path, count, written).abandon()
        data = bytearray(path.read_bytes())
        data[PAGE + number % count * PAGE + 60] ^= 4
        path.write_bytes(data)
        ring = Ring.open(path)
        at_an_end = number == numbers[0] or (number == numbers[-1] and written <= count)
        newest = number == numbers[-1] and written > count  # looped, it is taken for the oldest
        assert ring.gaps() == (0 if at_an_end or newest else 1)
        assert ring.last() == record(numbers[-2] if number == numbers[-1] else numbers[-1], 100)
        ring.abandon()

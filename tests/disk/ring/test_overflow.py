"""Memory first, then the ring, in order; against a model, with crashes, clean ends and disks that refuse."""

import errno
import os
import shutil
import tempfile
from collections import deque
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.disk.ring.ring import RecordTooLarge


def record(number: int, size: int = 400) -> bytes:
    return f"{number:08d}".encode().ljust(size, b"x")


def number_of(one: bytes) -> int:
    return int(one[:8])


class OverflowMachine(RuleBasedStateMachine):
    """Whatever is put comes out in order, but for what was dropped and counted, or lost by a crash from memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    @initialize(records=st.integers(1, 30), pages=st.integers(2, 6))
    def make(self, records: int, pages: int) -> None:
        self.limits = {"records_max": records, "bytes_max": records * 400, "page_count": pages}
        self.queue = self._open()
        self.number = 0
        self.waiting: deque[int] = deque()
        self.ended = -1
        self.dropped = 0

    def _open(self) -> OverflowQueue:
        return OverflowQueue(self.folder / "ring", **self.limits)

    @rule(count=st.integers(1, 60))
    def put(self, count: int) -> None:
        for _ in range(count):
            assert self.queue.put(record(self.number))
            self.waiting.append(self.number)
            self.number += 1

    @rule(count=st.integers(1, 40), share=st.integers(0, 40))
    def take(self, count: int, share: int) -> None:
        found = [number_of(one) for one in self.queue.peek(count)]
        assert len(found) <= count
        assert bool(found) == bool(self.queue)
        self._are_next(found)
        for number in found[:share]:
            while self.waiting[0] != number:
                self.waiting.popleft()
                self.dropped += 1
            self.waiting.popleft()
        self.queue.done(min(share, len(found)))

    def _are_next(self, found: list[int]) -> None:
        """In order; who is not there was dropped from the middle, and is counted."""
        assert found == sorted(set(found))
        assert set(found) <= set(self.waiting)

    @rule()
    def drain(self) -> None:
        while found := self.queue.peek(7):
            self.take_these([number_of(one) for one in found])
        assert self.dropped + len(self.waiting) == self.queue.dropped
        self.dropped, self.waiting = self.queue.dropped, deque()

    def take_these(self, found: list[int]) -> None:
        self._are_next(found)
        for number in found:
            while self.waiting[0] != number:
                self.waiting.popleft()
                self.dropped += 1
            self.waiting.popleft()
        self.queue.done(len(found))

    @rule()
    def clean_end(self) -> None:
        """Nothing that was ended comes again; what is gone is counted."""
        before = len(self.waiting) + self.dropped - self.queue.dropped
        gone = self.queue.close()
        self.queue = self._open()
        left: list[int] = []
        while found := self.queue.peek(50):
            left += map(number_of, found)
            self.queue.done(len(found))
        assert left == sorted(set(left))
        assert set(left) <= set(self.waiting)
        assert len(left) == before - gone
        self.waiting, self.dropped = deque(), 0
        assert not self.queue

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "queue"):
            page = 4096 // 404
            assert self.queue.in_memory() <= self.limits["records_max"] + page

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()
        shutil.rmtree(self.folder)


TestOverflow = OverflowMachine.TestCase
TestOverflow.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_disk_is_not_touched_while_memory_has_room(tmp_path: Path) -> None:
    queue = OverflowQueue(tmp_path / "ring", records_max=100)
    for number in range(10_000):
        assert queue.put(record(number))
        if number % 50 == 49:
            queue.done(len(queue.peek(100)))
    assert not (tmp_path / "ring").exists()
    assert queue.writes == 0
    assert queue.close() == 0


def test_what_overflows_is_read_again_after_a_kill(tmp_path: Path) -> None:
    """All that was on the disk; memory is gone."""
    queue = OverflowQueue(tmp_path / "ring", records_max=10, page_count=64)
    for number in range(200):
        queue.put(record(number))
    assert [number_of(one) for one in queue.peek(5)] == [0, 1, 2, 3, 4]
    queue.done(5)
    queue.abandon()
    again = OverflowQueue(tmp_path / "ring", records_max=1000)
    assert [number_of(one) for one in again.peek(1000)] == list(range(10, 190))  # the last page was being filled


def test_a_full_ring_loses_its_oldest_page_and_counts(tmp_path: Path) -> None:
    queue = OverflowQueue(tmp_path / "ring", records_max=10, page_count=2)
    for number in range(100):
        queue.put(record(number))
    found = []
    while one := queue.peek(10):
        found += map(number_of, one)
        queue.done(len(one))
    assert found[:10] == list(range(10))
    assert found[-1] == 99
    assert queue.dropped == 100 - len(found) > 0


def test_a_disk_that_refuses_costs_the_newest_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = OverflowQueue(tmp_path / "ring", records_max=10, page_count=64)
    for number in range(40):
        queue.put(record(number))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        taken = [queue.put(record(number)) for number in range(40, 80)]
    assert not all(taken)
    assert queue.dropped == taken.count(False)
    assert caplog.text.count("No space left on device") == 1
    assert queue.put(record(99))
    found = []
    while one := queue.peek(10):
        found += map(number_of, one)
        queue.done(len(one))
    expected = [*range(40), *(40 + at for at, kept in enumerate(taken) if kept), 99]
    assert found == expected


def test_a_page_that_has_waited_is_written_if_asked_for(tmp_path: Path) -> None:
    for flush_s, writes in ((0.0, 0), (5.0, 2)):
        queue = OverflowQueue(tmp_path / f"ring-{flush_s}", records_max=1, page_count=8, flush_s=flush_s)
        queue.put(record(1), now=100.0)
        queue.put(record(2), now=101.0)
        queue.tick(105.9)
        assert queue.writes == 0
        queue.tick(106.0)
        assert queue.writes == writes
        assert [number_of(one) for one in queue.peek(1)] == [1]
        queue.done(1)
        assert [number_of(one) for one in queue.peek(1)] == [2]
        queue.close()


def test_a_damaged_file_is_moved_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ring").write_bytes(b"garbage" * 1000)
    queue = OverflowQueue(tmp_path / "ring")
    assert not queue
    assert (tmp_path / "ring.damaged").exists()
    assert "it is now ring.damaged" in caplog.text


def test_a_record_that_fits_into_no_page_is_refused(tmp_path: Path) -> None:
    queue = OverflowQueue(tmp_path / "ring", records_max=1)
    assert queue.put(bytes(100))
    with pytest.raises(RecordTooLarge):
        queue.put(bytes(5000))


def test_a_ring_is_not_made_where_room_must_be_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = OverflowQueue(tmp_path / "ring", records_max=1, spare_bytes=1 << 60)
    assert [queue.put(record(number)) for number in range(3)] == [True, False, False]
    assert queue.dropped == 2
    assert not (tmp_path / "ring").exists()
    assert caplog.text.count("must be left") == 1


def test_a_ring_with_gaps_is_put_aside_if_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for whole in (False, True):
        path = tmp_path / f"ring-{whole}"
        queue = OverflowQueue(path, records_max=1)
        for number in range(100):
            queue.put(record(number))
        queue.abandon()
        data = bytearray(path.read_bytes())
        data[4096 * 4 + 100] ^= 1
        path.write_bytes(data)
        again = OverflowQueue(path, records_max=1, whole=whole)
        assert bool(again) != whole
        assert path.with_name(path.name + ".damaged").exists() == whole
        if not whole:
            assert number_of(again.last() or b"") == 90
        again.abandon()
    assert "1 damaged pages between whole ones; it is now" in caplog.text

"""A sink's backlog over restarts, against a model: whatever ends the process, every event after the cursor is given at
least once and in order, and what is dropped is counted."""

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zonemta_py.disk.frame import Record
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events import prepared
from zonemta_py.events.backlog import Backlog
from zonemta_py.events.sinks.base import Ready

Place = tuple[int, int]
PAGE = 4096


def chosen(record: Record) -> list[Ready]:
    """As many events as the body says, of some 500 bytes each."""
    found = []
    for part in range(record.body[0]):
        row = {"id": f"q-{record.seq}-{part}", "type": "zonemta.queued", "data": {"x": "x" * 450}}
        found.append(prepared.of_row(record.seq, part, record.ms, row, json.dumps(row).encode()))
    return found


class Journal:
    """Records from 1 on, of which the archive has those from `first` on."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.first = 1

    def grow(self, parts: list[int]) -> None:
        for count in parts:
            seq = len(self.records) + 1
            self.records.append(Record(seq, 1000 * seq, 1, bytes([count])))

    def places(self, after: int, until: int) -> list[Place]:
        return [one[:2] for record in self.records[after:until] for one in chosen(record)]


class Reader:
    """What `JournalTail` does, in memory."""

    def __init__(self, journal: Journal, first: int) -> None:
        self.journal, self.next_seq, self.missed = journal, first, 0

    def read(self, until_seq: int, most: int) -> list[Record]:
        found = self.journal.records[self.next_seq - 1 : min(until_seq, self.next_seq - 1 + most)]
        self.next_seq += len(found)
        return found

    def close(self) -> None:
        pass


class BacklogMachine(RuleBasedStateMachine):
    """The model: `given`, what has been delivered in this life and before, and the cursor that was written last."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    @initialize(memory=st.integers(1, 20), pages=st.integers(2, 5), had=st.integers(0, 4))
    def make(self, memory: int, pages: int, had: int) -> None:
        self.limits = {"records_max": memory, "bytes_max": memory * 600, "page_count": pages, "whole": True}
        self.journal, self.position = Journal(), 0
        self.journal.grow([1] * had)
        self.position = self.start = had
        self.cursor: int | None = None
        self.delivered: set[Place] = set()
        self.lost: set[Place] = set()
        self.opened()
        self.cursor = self.backlog.cursor

    def ends(self) -> None:
        """What was dropped before the cursor is nobody's any more; the count of it ends with the process."""
        missing = set(self.journal.places(self.start, self.cursor or 0)) - self.delivered - self.lost
        assert len(missing) <= self.backlog.queue.dropped - self.dropped
        self.lost |= missing

    def opened(self) -> None:
        queue = OverflowQueue(self.folder / "ring", **self.limits)
        self.backlog = Backlog(queue, self.cursor, self.position, lambda seq: Reader(self.journal, seq), chosen)
        self.last: Place = (0, 0)
        self.seen: set[Place] = set()
        self.dropped = 0

    @rule(parts=st.lists(st.integers(0, 6), min_size=1, max_size=40))
    def happens(self, parts: list[int]) -> None:
        self.journal.grow(parts)
        while self.position < len(self.journal.records):
            record = self.journal.records[self.position]
            self.position += 1
            self.backlog.offer(record.seq, chosen(record) if self.backlog.live else ())

    @rule(most=st.integers(1, 30), share=st.integers(0, 30))
    def take(self, most: int, share: int) -> None:
        batch = self.backlog.take(most, 10_000)
        assert len(batch) <= most
        places = [one[:2] for one in batch]
        assert places == sorted(set(places))
        assert not places or places[0] > self.last
        done = places[:share]
        self.backlog.done(len(done))
        self.delivered |= set(done)
        self.last = max([self.last, *done])

    @rule()
    def drain(self) -> None:
        """Then everything was given, but for as many as were dropped."""
        for _ in range(10_000):
            batch = self.backlog.take(50, 100_000)
            self.backlog.done(len(batch))
            places = [one[:2] for one in batch]
            assert not places or places[0] > self.last
            self.delivered |= set(places)
            self.last = max([self.last, *places])
            if not batch and self.backlog.live and not self.backlog.queue:
                break
        missing = set(self.journal.places(self.start, self.position)) - self.delivered - self.lost
        assert len(missing) == self.backlog.queue.dropped - self.dropped
        self.lost |= missing
        self.dropped = self.backlog.queue.dropped
        assert self.backlog.cursor == self.position

    @rule()
    def cursor_is_written(self) -> None:
        self.cursor = self.backlog.cursor

    @rule()
    def killed(self) -> None:
        """With the cursor that was written last, or one that is a little older."""
        self.backlog.queue.abandon()
        self.ends()
        self.opened()

    @rule()
    def clean_end(self) -> None:
        self.cursor = self.backlog.cursor
        self.backlog.close()
        self.ends()
        self.opened()

    @rule(page=st.integers(0, 4), harm=st.integers(0, PAGE - 1))
    def killed_and_damaged(self, page: int, harm: int) -> None:
        self.backlog.queue.abandon()
        path = self.folder / "ring"
        if path.exists():
            data = bytearray(path.read_bytes())
            at = PAGE + page % self.limits["page_count"] * PAGE + harm
            data[at] ^= 0x55
            path.write_bytes(data)
        self.ends()
        self.opened()

    @rule()
    def folder_is_deleted(self) -> None:
        """The ring with it; the cursor as the feed writes it again a second later."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.cursor = self.backlog.cursor

    @invariant()
    def nothing_behind_the_cursor_is_open(self) -> None:
        if hasattr(self, "backlog") and self.backlog.queue.dropped == self.dropped:
            done = set(self.journal.places(self.start, min(self.backlog.cursor, self.position)))
            assert done <= self.delivered | self.lost

    def teardown(self) -> None:
        if hasattr(self, "backlog"):
            self.backlog.queue.abandon()
        shutil.rmtree(self.folder)


TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_what_the_disk_does_not_give_is_not_done_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor stays while the ring cannot be read, and all comes once it can; a ring that cannot be read at a start
    is put aside, for the journal has everything."""
    journal = Journal()
    pread = os.pread

    def broken(file: int, size: int, at: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    def opened(cursor: int) -> Backlog:
        queue = OverflowQueue(tmp_path / "ring", 5, 3000, 8, whole=True)
        return Backlog(queue, cursor, len(journal.records), lambda seq: Reader(journal, seq), chosen)

    def delivered(backlog: Backlog) -> list[Place]:
        found: list[Place] = []
        while not backlog.live or backlog.queue:
            batch = backlog.take(100, 1_000_000)
            if not batch and backlog.live:
                break
            found += [one[:2] for one in batch]
            backlog.done(len(batch))
        return found

    backlog = opened(0)
    assert delivered(backlog) == []
    journal.grow([1] * 40)
    for record in journal.records:
        backlog.offer(record.seq, chosen(record))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        first = delivered(backlog)
        assert 0 < len(first) < 40
        assert backlog.cursor <= len(first)
    assert first + delivered(backlog) == journal.places(0, 40)
    assert backlog.cursor == 40
    journal.grow([1] * 40)
    for record in journal.records[40:]:
        backlog.offer(record.seq, chosen(record))
    backlog.queue.abandon()
    image, aside = (tmp_path / "ring").read_bytes(), 0
    for page in range(8):
        (tmp_path / "ring").write_bytes(image)
        with monkeypatch.context() as patch:
            bad = (page + 1) * PAGE
            patch.setattr(os, "pread", lambda file, size, at, bad=bad: (broken if at == bad else pread)(file, size, at))
            again = opened(40)
            assert delivered(again) == journal.places(40, 80)
            again.queue.abandon()
        aside += (tmp_path / "ring.damaged").exists()
        (tmp_path / "ring.damaged").unlink(missing_ok=True)
    assert aside


@pytest.mark.parametrize("clean", [False, True])
def test_what_was_in_memory_alone_between_two_uses_of_the_ring(tmp_path: Path, clean: bool) -> None:
    """A receiver comes back for so long that the ring is emptied, but not memory, and is away again until the ring is
    used once more: what lies between its pages comes from the journal."""
    journal = Journal()

    def opened(cursor: int) -> Backlog:
        queue = OverflowQueue(tmp_path / "ring", 20, 100_000, 16, whole=True)
        return Backlog(queue, cursor, len(journal.records), lambda seq: Reader(journal, seq), chosen)

    def happen(count: int) -> None:
        journal.grow([1] * count)
        for record in journal.records[-count:]:
            backlog.offer(record.seq, chosen(record))

    backlog = opened(0)
    assert backlog.take(1, 1) == []
    happen(60)
    backlog.done(len(backlog.take(20, 100_000)))
    backlog.done(len(backlog.take(20, 100_000)))
    backlog.done(len(backlog.take(12, 100_000)))
    assert not backlog.queue.pages()
    happen(60)
    cursor = backlog.cursor
    assert (cursor, backlog.queue.pages() > 3) == (52, True)
    if clean:
        backlog.close()
    else:
        backlog.queue.abandon()
    backlog, found = opened(cursor), list[Place]()
    while batch := backlog.take(100, 1_000_000) or not backlog.live:
        if batch is not True:
            found += [one[:2] for one in batch]
            backlog.done(len(batch))
    assert found == journal.places(52, 120)
    backlog.queue.abandon()


def test_a_ring_that_is_ahead_of_the_journal_is_put_aside(tmp_path: Path) -> None:
    """An older journal was put back: what happens now has numbers that the ring had already."""

    def opened(cursor: int) -> Backlog:
        queue = OverflowQueue(tmp_path / "ring", 5, 3000, 8, whole=True)
        return Backlog(queue, cursor, len(journal.records), lambda seq: Reader(journal, seq), chosen)

    journal = Journal()
    backlog = opened(0)
    assert backlog.take(1, 1) == []
    journal.grow([1] * 60)
    for record in journal.records:
        backlog.offer(record.seq, chosen(record))
    assert backlog.queue.pages()
    backlog.close()
    del journal.records[20:]
    backlog = opened(12)
    journal.grow([2] * 60)
    found = list[Place]()
    for record in journal.records[20:]:
        backlog.offer(record.seq, chosen(record) if backlog.live else ())
        batch = backlog.take(100, 1_000_000)
        found += [one[:2] for one in batch]
        backlog.done(len(batch))
    assert found == journal.places(12, 80)
    assert (tmp_path / "ring.damaged").exists()

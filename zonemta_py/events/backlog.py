"""What waits for one sink, in the order of the journal: in memory and a ring (`OverflowQueue`) or, where a start has
to catch up, in the journal itself.

A start goes on after the sink's cursor. What lies between that and the first event in the ring comes from the journal
(FRONT), then come the ring's events (RING), then, from the journal again, what is after those (BEHIND). Once that has
reached what the feed reads now, events are kept here as they happen (LIVE). So what was missed while nothing ran is
sent at the pace of the sink, and nothing is written for it.

Promise: every event after the cursor is given at least once, and those of one life of the process in order and once,
except the ones counted in `dropped` and, in `missed`, records that the archive had no longer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol

from zonemta_py.disk.frame import Record
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events import prepared
from zonemta_py.events.sinks.base import Ready

PORTION = 256
"""Records that are read from the journal at once."""
SET_S = 2.0
"""A clock that goes ahead or back by more than this was set."""
SETS_MAX = 100
_LAST = 1 << 62
"""A part after all parts of a record."""


class History(Protocol):
    """A reader of the journal (`journal.tail.JournalTail`). missed: records that were there no longer."""

    next_seq: int
    missed: int

    def read(self, until_seq: int, most: int) -> list[Record]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Phase(Enum):
    FRONT = auto()
    RING = auto()
    BEHIND = auto()
    LIVE = auto()


class Ages:
    """How long ago records were written, although the machine's clock may have been set since then, while we ran."""

    def __init__(self) -> None:
        self._apart_s, self._sets = _apart_s(), deque[tuple[int, float]](maxlen=SETS_MAX)

    def look(self, position: int) -> None:
        """Now and then. position: the last record that was written before."""
        by_s = (apart_s := _apart_s()) - self._apart_s
        if abs(by_s) > SET_S:
            self._sets.append((position, by_s))
            self._apart_s = apart_s

    def age_s(self, seq: int, ms: int) -> float:
        """Of the record of that number, which was written then by the clock."""
        return max(0.0, time.time() - ms / 1000 - sum(by_s for before, by_s in self._sets if seq <= before))


def _apart_s() -> float:
    return time.time() - time.monotonic()


class Backlog:
    """cursor: None: the sink is new, and begins after `position`, the last record that the feed has read. history: the
    number of the first record → a reader. chosen: what of a record the sink wants, in order."""

    def __init__(
        self, queue: OverflowQueue, cursor: int | None, position: int, history: Callable[[int], History],
        chosen: Callable[[Record], Iterable[Ready]], missed: int = 0,
    ) -> None:  # fmt: skip
        self.queue, self._make, self._chosen = queue, history, chosen
        self._position = position
        self._front: deque[Ready] = deque()
        self._from_front = False
        self._missed, self._ages = missed, Ages()
        start = position if cursor is None else min(cursor, position)
        newest = queue.last()
        if newest is not None and prepared.place(newest)[0] > position:
            queue.put_aside("its events are ahead of the journal, so it belongs to another one")
            newest = None
        while (found := queue.peek(1)) and prepared.place(found[0])[0] <= start:
            queue.done(1)  # the ring gives again what was delivered before a crash
        self._after = (start, _LAST)
        if newest is not None:
            self._after = max(self._after, prepared.place(newest))
        self._ring_begins = prepared.place(found[0]) if found else self._after
        self._read = self._known = start
        self._history = history(start + 1)
        self.phase = Phase.FRONT if found else Phase.BEHIND

    def offer(self, seq: int, events: Iterable[Ready]) -> None:
        """What the feed has read now: everything that is wanted of a record."""
        self._position = seq
        if self.phase is Phase.LIVE:
            now_s = time.monotonic()
            for one in events:
                self.queue.put(prepared.pack(one), now_s)

    @property
    def live(self) -> bool:
        """False: what is offered is not kept, for it will be read from the journal."""
        return self.phase is Phase.LIVE

    def take(self, most: int, bytes_max: int) -> list[Ready]:
        """The oldest, at most so many, one at least; they stay until `done`. [] while not `live`: ask again.

        Raises OSError: the journal cannot be read now.
        """
        if not self._front:
            self._go_on()
        self._from_front = bool(self._front)
        found: list[Ready] = []
        waiting: Iterable[Ready] = self._front if self._front else map(prepared.unpack, self._waiting(most))
        for one in waiting:
            bytes_max -= len(one.body)
            if len(found) == most or (found and bytes_max < 0):
                break
            found.append(one)
        return found

    def _waiting(self, most: int) -> list[bytes]:
        return self.queue.peek(most) if self.phase in (Phase.RING, Phase.LIVE) else []

    def done(self, count: int) -> None:
        """So many of those taken are delivered, or dead letters."""
        if self._from_front:
            for _ in range(count):
                self._front.popleft()
        else:
            self.queue.done(count)

    @property
    def cursor(self) -> int:
        """The last record that is done with."""
        self._known = self._done_with()
        return self._known

    def _done_with(self) -> int:
        if self._front:
            return self._front[0].seq - 1
        if self.phase in (Phase.FRONT, Phase.BEHIND):
            return self._read
        first = self.queue.peek(1)
        if first:
            return prepared.place(first[0])[0] - 1
        if self.queue:  # `stuck`
            return self._known
        return self._position if self.phase is Phase.LIVE else self._begun(self._after)

    @property
    def stuck(self) -> bool:
        """Whether the disk does not give what is in the ring."""
        return self.phase in (Phase.RING, Phase.LIVE) and bool(self.queue) and not self.queue.peek(1)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest that waits here happened, UNIX ms."""
        oldest = self._oldest()
        return oldest.ms if oldest else None

    @property
    def waits_s(self) -> float:
        """How long it has been waiting; 0: nothing waits."""
        oldest = self._oldest()
        return self._ages.age_s(oldest.seq, oldest.ms) if oldest else 0.0

    def _oldest(self) -> Ready | None:
        if self._front:
            return self._front[0]
        first = self._waiting(1)
        return prepared.unpack(first[0]) if first else None

    @property
    def missed(self) -> int:
        """Records that the archive had no longer, or that another journal had."""
        return self._missed + self._history.missed

    def in_memory(self) -> int:
        return len(self._front) + self.queue.in_memory()

    def emptied_by(self, count: int) -> bool:
        """Whether nothing waits but so many: what is taken next has yet to happen."""
        return self.live and self.in_memory() <= count and not self.queue.pages()

    def tick(self) -> None:
        """Now and then: writes a page that was begun long ago (`ring_flush_s`)."""
        self.queue.tick(time.monotonic())
        self._ages.look(self._position)

    def close(self) -> None:
        """A clean end: the ring remembers what was done with; the journal has what is in memory alone."""
        self._history.close()
        self.queue.close()

    # -- the journal

    def _go_on(self) -> None:
        if self.phase is Phase.FRONT:
            self._read_front()
        if self.phase is Phase.RING and not self.queue:
            self._leave_ring()
        if self.phase is Phase.BEHIND:
            self._read_behind()

    def _read_front(self) -> None:
        seq, part = self._ring_begins
        for record in self._history.read(min(seq, self._position), PORTION):
            self._front += [one for one in self._chosen(record) if (one.seq, one.part) < (seq, part)]
            self._read = min(record.seq, seq - 1)
        if self._history.next_seq > seq:
            self.phase = Phase.RING

    def _leave_ring(self) -> None:
        self._missed += self._history.missed
        self._history.close()
        self._read = self._begun(self._after)
        self._history = self._make(self._read + 1)
        self.phase = Phase.BEHIND

    def _read_behind(self) -> None:
        for record in self._history.read(self._position, PORTION):
            self._front += [one for one in self._chosen(record) if (one.seq, one.part) > self._after]
            self._read = record.seq
        if self._history.next_seq > self._position:
            self._read = self._position
            self._history.close()
            self.phase = Phase.LIVE

    @staticmethod
    def _begun(place: tuple[int, int]) -> int:
        """The last record that is done with when everything up to that place is."""
        return place[0] if place[1] == _LAST else place[0] - 1

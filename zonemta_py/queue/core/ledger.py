"""The queue's side of the journal, and the order that everything relies on: a record is written; once it is stable, it
is applied to the store, in the order of the records; only then does it count as applied.

After a crash before that, replay applies the record in the same way (`replay`). Records that change nothing in the
store are only appended. Segments begin and end here. All methods are called in the event loop.

Failures: a record that cannot be applied (`apply`) ends the process. While the journal's disk has errors, records wait
(`commit.JournalLine`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from zonemta_py.config.server import Queue
from zonemta_py.disk import keys, packing
from zonemta_py.journal.records import FORMAT, Type
from zonemta_py.journal.records.files import END_BODY, SegmentRecord
from zonemta_py.queue.core.commit import JournalLine
from zonemta_py.queue.core.segments import Segments
from zonemta_py.schedule.time.steady import Steady

FRAME_BYTES = 24
"""About what a record takes in its file besides its body."""


class Ledger:
    """rotated: set when a segment was closed and may not be in the archive yet."""

    def __init__(
        self,
        settings: Queue,
        journal: JournalLine,
        segments: Segments,
        ids: keys.Ids,
        clock: Steady,
        failed: Callable[[Exception], None],
    ) -> None:
        self._settings, self._journal, self._segments, self._ids, self._clock = settings, journal, segments, ids, clock
        self._failed = failed
        self._open: deque[int] = deque()
        self._closed: set[int] = set()
        """Records applied before an earlier one."""
        self._bytes = self._began_ms = 0
        self.written_bytes = self.written_records = 0
        self._news = self._writing = False
        self.rotated = asyncio.Event()
        self.rotated.set()

    def configure(self, settings: Queue) -> None:
        """Other settings from now on."""
        self._settings = settings

    def append(self, kind: Type, body: bytes, ms: int = 0, *, awaited: bool = False) -> int:
        """Appends a record (of now, or of `ms`), in a new segment if this one is full. Returns its number. awaited: as
        of `JournalLine.append`."""
        if not self._writing or self._bytes > self._settings.segment_bytes:
            self.rotate()
        size = len(body) + FRAME_BYTES
        self._bytes += size
        self.written_bytes += size
        self.written_records += 1
        if kind is not Type.POSITION:
            self._news = True
        return self._journal.append(kind, body, ms or self._clock.ms(), awaited)

    def write(self, kind: Type, body: bytes, apply: Callable[[], object], ms: int = 0, *, patient: bool = False) -> int:
        """Appends a record that changes the store: `apply` submits the changes once the record is stable. patient: as
        of `JournalLine.when_stable`."""
        seq = self.append(kind, body, ms, awaited=True)
        self._open.append(seq)
        self._journal.when_stable(partial(self.apply, seq, apply), patient)
        return seq

    def open(self, kind: Type, body: bytes, ms: int = 0) -> int:
        """Appends a record that changes the store later: the writer then calls `apply`, or `close`."""
        seq = self.append(kind, body, ms)
        self._open.append(seq)
        return seq

    def expect(self, seq: int) -> None:
        """Replay: an existing record that will be applied in its turn (`close`)."""
        self._open.append(seq)

    def apply(self, seq: int, apply: Callable[[], object]) -> None:
        """Applies an open record to the store, now that it is stable.

        An error leaves memory between two records, with counters that the next batch would write. So `failed` ends the
        process first, and the next start applies the record.
        """
        try:
            apply()
        except Exception as error:
            self._failed(error)
            raise
        if self._closed or not self._open or self._open[0] != seq:
            self.close(seq)
        else:
            self._open.popleft()

    def close(self, seq: int) -> None:
        """The changes of the record are submitted: from the next batch on it counts as applied."""
        if not self._open or self._open[0] != seq:
            self._closed.add(seq)
            return
        self._open.popleft()
        while self._closed and self._open and self._open[0] in self._closed:
            self._closed.discard(self._open.popleft())

    def applied(self) -> int:
        """Every record up to this number has been applied to the store."""
        return self._open[0] - 1 if self._open else self._journal.stable_seq

    # -- segments

    def ready(self) -> None:
        """Begins a segment if the next record would: so a record about segments knows its own."""
        if not self._writing or self._bytes > self._settings.segment_bytes:
            self.rotate()

    def rotate(self) -> None:
        """Closes the open segment, if there is one, and begins the next."""
        now_ms = self._clock.ms()
        if self._writing:
            self._journal.append(Type.END, END_BODY, now_ms)
        self.rotated.set()
        self._writing = True
        floor = self._ids.next(now_ms)
        first = self._journal.next_seq
        body: SegmentRecord = {"version": FORMAT, "first": first, "floor": floor, "clock": self._clock.state()}
        self._journal.append(Type.SEGMENT, packing.pack(body), now_ms)
        self._segments.begin(first, floor)
        self._bytes, self._began_ms, self._news = 0, self._clock.steady_ms(), False

    def rotate_old(self) -> None:
        """Closes a segment whose time has come, so that readers of the archive get its content."""
        if self._clock.steady_ms() - self._began_ms >= self._settings.segment_s * 1000:
            self.rotate_with_news()

    def rotate_with_news(self) -> bool:
        """Closes the segment if it holds anything but position records."""
        news = self._news
        if news:
            self.rotate()
        return news

"""A pull zone's part of the schedule: what is taken next by whoever comes, the oldest first.

Each recipient waits on the shelf of its flow queue, that is, in a range of parked keys in the order in which the
messages came; a flow queue's list in memory is the beginning of that range, together with what was given back or has
become due. So whatever happens to a message meanwhile, it keeps its place: the highest priority goes first, and within
one the oldest.

Promise: unless a shelf has been read to its end, nothing in memory is younger than what has not been read. What would
be is put on the shelf.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeAlias, cast

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Note
from zonemta_py.schedule.batch import NEVER_MS, Batch, EgressPath, Entry, FlowQueue
from zonemta_py.schedule.shared import Shared
from zonemta_py.schedule.window import READ_AT_ONCE
from zonemta_py.schedule.zone import ZoneSchedule

_Rank: TypeAlias = tuple[int, str, str]
_LAST: _Rank = (100, "", "")
KEPT = 64
"""Recipients of a flow queue that are in memory."""
LOW = KEPT // 4
"""With so many left, more are read."""


class PullQueue(FlowQueue):
    """A flow queue without a turn: those who come look at all of them."""

    __slots__ = ()

    def enlist(self) -> None:
        """It has no turn to wait for; but those who wait at its zone look again."""
        cast(PullZone, self.zone).enlisted()


class PullZone(ZoneSchedule):
    """One pull zone."""

    def __init__(
        self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], shared: Shared,
        stirred: set[PullZone],
    ) -> None:  # fmt: skip
        super().__init__(zone, store, busy, marks, shared, PullQueue)
        self.awaited = False
        """Somebody waits to take something."""
        self._stirred, self._wake_ms = stirred, NEVER_MS
        self.moving: set[_Rank] = set()
        """What is on its way to a shelf: nothing that comes after it is taken before it has arrived."""

    # -- what is taken

    def next(self) -> Batch | None:
        """The recipients of the message that is to be taken now."""
        if not self._open():
            return None
        looked: set[str] = set()
        while (flow_queue := self._first(looked)) is not None:
            looked.add(flow_queue.key)
            batch = self._offer(flow_queue)
            if batch is not None:
                self.begin(batch)
                self.unpark(flow_queue)
                return batch
        return None

    def peek(self, most: int) -> list[tuple[FlowQueue, Entry]]:
        """What is to be taken next, as far as it is in memory."""
        if not self._open():
            return []
        self._load()
        found = [
            (flow_queue, entry)
            for flow_queue in self.flow_queues.by_key.values()
            if flow_queue.held is None and self._shared.admission.hold(flow_queue) is None
            for entry in flow_queue.entries
        ]
        return sorted(found, key=lambda row: _rank(*row))[:most]

    def in_memory(self) -> Iterator[Entry]:
        """What waits, as far as it is in memory."""
        return (entry for flow_queue in self.flow_queues.by_key.values() for entry in flow_queue.entries)

    def _first(self, looked: set[str]) -> FlowQueue | None:
        """Of the flow queues that may go, the one with the message that is next."""
        self._load()
        best, first = None, min(self.moving, default=_LAST)
        for flow_queue in self.flow_queues.by_key.values():
            if flow_queue.entries and flow_queue.held is None and flow_queue.key not in looked:
                rank = _rank(flow_queue, flow_queue.entries[0])
                if rank < first:
                    best, first = flow_queue, rank
        return best

    def _load(self) -> None:
        """Reads on where nothing is left in memory."""
        for flow_queue in list(self.flow_queues.by_key.values()):
            if not flow_queue.entries:
                self.unpark(flow_queue)

    def may_have(self, path: EgressPath) -> bool:
        """It connects to nobody."""
        return True

    # -- who waits

    def awaits(self, somebody: bool) -> None:
        """Whether somebody waits to take something, and so looks now."""
        self.awaited = somebody
        (self._stirred.add if somebody else self._stirred.discard)(self)

    def enlisted(self) -> None:
        """There may be something that could not be taken before."""
        if self.awaited:
            self._stirred.add(self)

    def rest(self) -> None:
        """Nothing can be taken until it is `enlisted`, or something becomes due."""
        if self.held is not None or self.moving or not self.fresh.exhausted:
            return  # nobody would say when that ends
        self._stirred.discard(self)
        if self.next_due_ms < self._wake_ms:
            self._wake_ms = self.next_due_ms
            self._shared.wake_at(self.next_due_ms / 1000, self._is_due)

    def _is_due(self) -> None:
        self._wake_ms = NEVER_MS
        self.enlisted()

    def due_at(self, due_ms: int) -> None:
        super().due_at(due_ms)
        self.enlisted()

    @property
    def idle(self) -> bool:
        """Whether nothing of it is in memory."""
        return not (self.active or self.loaded or self.moving or self.flow_queues.by_key)

    # -- what comes in

    def takes(self, flow_queue: FlowQueue) -> bool:
        """Each has its place on a shelf."""
        return False

    def takes_parked(self, flow_queue: FlowQueue, key: bytes) -> bool:
        """Whether what has just been put on the shelf is its beginning, and somebody waits for it."""
        if not self.awaited:
            return False
        flow_queue = self.flow_queues.known(flow_queue)
        shelf = flow_queue.parked
        return (shelf.exhausted and len(flow_queue.entries) < KEPT) or shelf.is_past(key)

    def put(self, flow_queue: FlowQueue, entry: Entry) -> None:
        """Where it belongs among those in memory, if it does. Its key must be in `busy`."""
        flow_queue = self.flow_queues.known(flow_queue)
        key = keys.parked(self.zone.name, flow_queue.key, entry.id, entry.address)
        shelf = flow_queue.parked
        if not (shelf.exhausted or shelf.is_past(key)):
            self._park([(flow_queue, entry)])
            return
        shelf.pass_by(key)
        entries = flow_queue.entries
        if not entries or _place(entries[-1]) < _place(entry):
            entries.append(entry)
        else:
            insort(entries, entry, key=_place)
        self._count(flow_queue, 1)
        self.enlisted()
        if len(entries) > KEPT:
            self._put_aside(flow_queue, KEPT // 2)

    def put_back(self, batch: Batch, entries: list[Entry]) -> None:
        """What was leased and not taken: to its old place."""
        for entry in entries:
            self.put(batch.flow_queue, entry)

    def parked_key(self, flow_queue: FlowQueue, key: bytes, deadline_ms: int) -> None:
        """A parked key is in the store now. What is younger and in memory goes back to the shelf first."""
        flow_queue = self.flow_queues.known(flow_queue)
        if flow_queue.entries:
            place = keys.place(key)
            older = bisect_left(flow_queue.entries, (place.id, place.recipient), key=_place)
            if older < len(flow_queue.entries):
                self._put_aside(flow_queue, older)
        flow_queue.deadline_ms = min(flow_queue.deadline_ms, deadline_ms or NEVER_MS)
        flow_queue.parked.arrived(key)
        self.enlisted()

    def _put_aside(self, flow_queue: FlowQueue, kept: int) -> None:
        """All but the first few go back to the shelf."""
        aside, flow_queue.entries = flow_queue.entries[kept:], flow_queue.entries[:kept]
        self._count(flow_queue, -len(aside))
        self._park([(flow_queue, entry) for entry in aside])

    def _park(self, rows: list[tuple[FlowQueue, Entry]]) -> None:
        for flow_queue, entry in rows:
            if keys.parked(self.zone.name, flow_queue.key, entry.id, entry.address) != entry.key:
                self.moving.add(_rank(flow_queue, entry))
        super()._park(rows)

    def _parked(self, moved: list[tuple[FlowQueue, bytes, bytes, int]]) -> None:
        for flow_queue, _, key, _ in moved:
            place = keys.place(key)
            self.moving.discard((-flow_queue.flow_id.priority, place.id, place.recipient))
        super()._parked(moved)

    # -- what is read on

    def fill(self, now_ms: int) -> bool:
        """Reads what has become due, and what another kind of zone has left. True: there is more to read."""
        more = False
        if self.next_due_ms <= now_ms:
            more |= self._read_due(now_ms)
        if not self.fresh.exhausted:
            self._admit(self.fresh.read(READ_AT_ONCE))
            more |= not self.fresh.exhausted
        self._hungry.clear()  # each is looked at when somebody comes
        return more

    def _room(self, flow_queue: FlowQueue) -> int:
        return max(0, KEPT - len(flow_queue.entries))

    def _admit(self, rows: list[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            place, note = keys.place(key), Note.of(value)
            self._busy.add(key)
            entry = Entry(key, place.id, place.recipient, note)
            self.put(self.flow_queues.of(place.id, place.recipient, note), entry)

    def unpark(self, flow_queue: FlowQueue) -> None:
        """Reads on on its shelf, if few are left in memory."""
        if flow_queue.parked.exhausted or len(flow_queue.entries) > LOW:
            return
        elsewhere: list[tuple[FlowQueue, Entry]] = []
        for key, value in flow_queue.parked.read(self._room(flow_queue)):
            place, note = keys.place(key), Note.of(value)
            self._busy.add(key)
            entry = Entry(key, place.id, place.recipient, note)
            other = self.flow_queues.of(place.id, place.recipient, note)
            if other is flow_queue:
                flow_queue.entries.append(entry)
                self._count(flow_queue, 1)
            else:  # it was parked when the zone was of another kind
                elsewhere.append((other, entry))
        if elsewhere:
            self._park(elsewhere)


def _rank(flow_queue: FlowQueue, entry: Entry) -> _Rank:
    """The lowest is taken first."""
    return -flow_queue.flow_id.priority, entry.id, entry.address


def _place(entry: Entry) -> tuple[str, str]:
    """What comes first goes first: ids grow with time."""
    return entry.id, entry.address

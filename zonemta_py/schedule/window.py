"""The window: which of a zone's recipients are in memory, and how the others wait in the store.

The zone walks its range of fresh recipients and its due deferred ones by turns and keeps a bounded window of them in
memory, in flow queues (`batch.py`). A recipient whose queue cannot take it now (its list is full, its destination is
down) is parked: re-keyed into a range of that queue's own, once, and read from there when there is room again. So
it is never walked over twice, and it holds up no others, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.disk.notes import Note
from zonemta_py.mail.envelope import Recipient
from zonemta_py.schedule.batch import NEVER_MS, Batch, Entry, FlowQueue
from zonemta_py.schedule.cursor import Cursor, Ground
from zonemta_py.schedule.flow_queues import FlowQueues, Make, domain_of
from zonemta_py.schedule.shared import Shared
from zonemta_py.schedule.unreachable import Away
from zonemta_py.zones.site import Site

READ_AT_ONCE = 125
"""Recipients read from the store in one go, which takes two milliseconds; the event loop gets its turn in between."""


class Accepted(Protocol):
    """A recipient just accepted."""

    @property
    def recipient(self) -> Recipient: ...
    @property
    def note(self) -> Note: ...


class ZoneWindow:
    """One zone's cursors and its window. make: a flow queue of the zone."""

    def __init__(
        self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], shared: Shared, make: Make
    ) -> None:
        self.zone, self._busy, self._shared = zone, busy, shared
        ground = Ground(store, busy, zone.name)
        self.fresh = Cursor(ground, keys.fresh_range(zone.name), marks.get("fresh", b""))
        self.due = Cursor(ground, keys.deferred_range(zone.name), marks.get("due", b""))
        self.flow_queues = FlowQueues(zone, ground, shared, make)
        self.loaded = 0  # recipients in the window …
        self.stuck = 0  # … and how many of them are in flow queues that are held
        self.active = 0
        self.next_due_ms = 0
        self.deadline_ms = 0  # as a flow queue's: of all that waits in the zone; 0: not known
        self.away = Away(shared.retry.down_s)
        self._leaving: dict[FlowQueue, None] = {}  # those whose recipients go on in another zone
        self._hungry: deque[FlowQueue] = (
            deque()
        )  # those that have parked recipients, and no room in the window for them
        self._flow_queue_max = max(100, shared.window // 10)
        self._hungry.extend(self.flow_queues.parked())

    def configure(self, zone: Zone) -> None:
        """Other settings from now on: what waits goes where it belongs by them."""
        self.zone = zone
        self._flow_queue_max = max(100, self._shared.window // 10)
        self.away.configure(self._shared.retry.down_s)
        moved = self.flow_queues.configure(zone)
        for flow_queue in list(self.flow_queues.by_key.values()):
            if moved:
                self.reassign(flow_queue)
            self.unpark(flow_queue)
            flow_queue.enlist()

    # -- what comes in

    def takes(self, flow_queue: FlowQueue) -> bool:
        """Whether the flow queue has room for one more recipient."""
        return flow_queue.path.failures == 0 and not flow_queue.aside and self._room(flow_queue) > 0

    def _room(self, flow_queue: FlowQueue) -> int:
        """How many more it may have: a part of what is free, so that however many are slow, a newcomer finds room."""
        window, usual = self._shared.window, flow_queue.path.terms.zone.recipients_per_delivery
        most = min(self._flow_queue_max, (window - self.loaded) // 4)
        if not flow_queue.entries:
            most = max(most, usual if self.loaded < 2 * window else max(1, usual // 10))
        return max(0, most - len(flow_queue.entries))

    def room_for_new(self, flow_queue: FlowQueue, message_id: str, rows: Sequence[Accepted]) -> int:
        """How many of these recipients just accepted, the first ones, may go into the window without being read from
        the store."""
        count = len(rows)
        if self._shared.policy.stops and self._is_aside(flow_queue, message_id, rows):
            return 0  # else it would go before those that are parked, or behind younger ones
        room = self._shared.window - self.loaded if self.fresh.exhausted else 0
        if room < 1 and not flow_queue.entries and self.loaded < 2 * self._shared.window:
            room = 1  # it has nothing to do, whatever others wait for
        return max(0, min(count, room))

    def _is_aside(self, flow_queue: FlowQueue, message_id: str, rows: Sequence[Accepted]) -> bool:
        """Whether one of them is for a domain whose mail is set aside, maybe since it was found where it goes."""
        queues = self.flow_queues
        there = (queues.still(flow_queue, message_id, row.recipient.address, row.note) for row in rows)
        return any(queues.known(one).aside for one in there)

    def put_new(self, flow_queue: FlowQueue, entries: list[Entry]) -> None:
        """Recipients just accepted, straight into the window; several have one note, without a priority of a plugin."""
        if self.fresh.exhausted:
            self.fresh.pass_by([entry.key for entry in entries])
        else:
            for entry in entries:
                self.fresh.promise(entry.key)
        if entries[0].note.routing:
            self.put(flow_queue, entries[0])
            return
        if self._is_old(flow_queue):
            for entry in entries:
                self.put(flow_queue, entry)
            return
        flow_queue = self.flow_queues.known(flow_queue)
        flow_queue.entries += entries
        self._count(flow_queue, len(entries))
        flow_queue.enlist()

    def _is_old(self, flow_queue: FlowQueue) -> bool:
        """Whether what was found to belong there may belong elsewhere by now: while a message becomes stable, a domain
        can be stopped, and its smart host be another."""
        return flow_queue.path.old or bool(self._shared.policy.stops)

    def left_unread(self, key: bytes, deadline_ms: int) -> None:
        """A fresh key is in the store now, to be read in its turn. deadline_ms: of its recipient; 0: none."""
        self.deadline_ms = min(self.deadline_ms, deadline_ms or NEVER_MS)
        self.fresh.back_to(key)

    def takes_parked(self, flow_queue: FlowQueue, key: bytes) -> bool:
        """Whether mail just accepted, and parked, may go into the window all the same."""
        return False

    def put(self, flow_queue: FlowQueue, entry: Entry) -> None:
        """Into the window; priority, where a plugin gives it, is the head of the list. Its key must be in `busy`."""
        if self._is_old(flow_queue) and not entry.key.startswith(b"parked "):  # a parked key names its flow queue
            flow_queue = self.flow_queues.still(flow_queue, entry.id, entry.address, entry.note)
        flow_queue = self.flow_queues.known(flow_queue)
        if entry.note.routing and entry.note.routing.get("priority", 0) > 0:
            flow_queue.entries.insert(0, entry)
        else:
            flow_queue.entries.append(entry)
        self._count(flow_queue, 1)
        flow_queue.enlist()

    def _count(self, flow_queue: FlowQueue, more: int) -> None:
        """So many more are in the window, on that flow queue, which has them already."""
        self.loaded += more
        length = len(flow_queue.entries)
        flow_queue.turn.members.move(flow_queue, length - more, length)
        if flow_queue.held is not None:
            self.stuck += more

    def put_back(self, batch: Batch, entries: list[Entry]) -> None:
        """A lease that was not used, or part of one: to the front of its list."""
        flow_queue = self.flow_queues.known(batch.flow_queue)
        if len(entries) < len(batch.entries):  # its flow's share was used by the others only
            self.flow_queues.fair.charge(flow_queue.turn.flow, -len(entries))
        flow_queue.entries[:0] = entries
        self._count(flow_queue, len(entries))
        if flow_queue.path.old:
            self.reassign(flow_queue)
            self.unpark(flow_queue)  # what is parked goes the same way
        flow_queue.enlist()

    # -- what is read on

    def fill(self, now_ms: int) -> bool:
        """Reads on where there is room: due recipients, fresh ones, parked ones. True: there is more to read."""
        more = self._send_on() if self._leaving else False
        window = self._shared.window
        idle = self.active < self.zone.connections and not self.flow_queues.fair.root.ready_count
        if self.loaded - self.stuck < window // 2 or idle:  # idle: does anything wait behind the slow ones?
            if self.next_due_ms <= now_ms:
                more |= self._read_due(now_ms)
            if self.away.back:
                more |= self._read_back()
            if not self.fresh.exhausted:
                self._admit(self.fresh.read(READ_AT_ONCE))
                more |= not self.fresh.exhausted
            if self._hungry:
                self.unpark(self._hungry.popleft())
                more |= bool(self._hungry) and self.loaded < 2 * window
        return more

    def leave(self, flow_queue: FlowQueue) -> None:
        """What is on it goes to another zone, whatever this one waits for, when the zone reads on next."""
        self._leaving[flow_queue] = None
        self._shared.changed()

    def _send_on(self) -> bool:
        """One flow queue's recipients at a time. True: there are more."""
        flow_queue = next(iter(self._leaving))
        entries = flow_queue.entries[:READ_AT_ONCE]
        if entries:
            self._shared.rehome(self.zone.name, flow_queue.path.leaving, entries)
            del flow_queue.entries[: len(entries)]
            self._count(flow_queue, -len(entries))
        if not flow_queue.entries:
            del self._leaving[flow_queue]
            self.unpark(flow_queue)
            flow_queue.enlist()
            self.flow_queues.forget(flow_queue)
        return bool(self._leaving)

    def _read_due(self, now_ms: int) -> bool:
        stop = b"%s%012x " % (keys.deferred_range(self.zone.name), now_ms + 1)
        self._admit(self.due.read(READ_AT_ONCE, stop))
        if not self.due.exhausted:
            return True
        following = self.due.peek()
        self.next_due_ms = keys.place(following).due_ms if following else 1 << 62
        return False

    def _read_back(self) -> bool:
        """Those whose destination is there again, before their time."""
        back, ground = self.away.back, self.due.ground
        keys_ = dict.fromkeys(back.popleft() for _ in range(min(READ_AT_ONCE, len(back))))
        found = ((key, ground.store.get(key)) for key in keys_ if key not in self._busy)
        rows = [(key, value) for key, value in found if value is not None]
        for key, _ in rows:
            self.due.promise(key)
        self._admit(rows)
        return bool(back)

    def _admit(self, rows: list[tuple[bytes, bytes]]) -> None:
        aside: list[tuple[FlowQueue, Entry]] = []
        for key, value in rows:
            place = keys.place(key)
            note = Note.of(value)
            flow_queue = self.flow_queues.of(place.id, place.recipient, note)
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if self.takes(flow_queue):
                self.put(flow_queue, entry)
            else:
                aside.append((flow_queue, entry))
        if aside:
            self._park(aside)

    def promise(self, due: list[bytes]) -> None:
        """These deferred keys are on their way to the store, and busy until they are there (`due_at`).

        However long the disk takes, and however far the walk has come by then, no mark is set beyond them.
        """
        self._busy.update(due)
        for key in due:
            self.due.promise(key)

    def due_at(self, due_ms: int) -> None:
        """A deferred key that is due then is in the store now."""
        self.next_due_ms = min(self.next_due_ms, due_ms)
        # The walk may have come further while the key was on its way, or the clock has gone back.
        self.due.back_to(b"%s%012x " % (keys.deferred_range(self.zone.name), due_ms))
        self._shared.changed()

    # -- what is parked

    def unpark(self, flow_queue: FlowQueue) -> None:
        """Fills a flow queue that has run low from its parked recipients; one that is being probed gets a few."""
        path = flow_queue.path
        if flow_queue.parked.exhausted or path.down_until or len(flow_queue.entries) > self._flow_queue_max // 4:
            return
        if flow_queue.aside:
            return
        room = self._room(flow_queue)
        if not room:
            if not flow_queue.entries:  # else it is looked at again when one of them goes
                self._hungry.append(flow_queue)
            return
        elsewhere: list[tuple[FlowQueue, Entry]] = []
        most = min(room, path.terms.zone.recipients_per_delivery) if path.failures else room
        for key, value in flow_queue.parked.read(most):
            place, note = keys.place(key), Note.of(value)
            other = self.flow_queues.still(flow_queue, place.id, place.recipient, note)
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if other is flow_queue:
                self.put(flow_queue, entry)
            else:  # it goes another way now; journal and key must name the same one
                elsewhere.append((other, entry))
        if elsewhere:
            self._park(elsewhere)
        if not flow_queue.entries and not flow_queue.parked.exhausted:  # they went elsewhere, or the store is fenced
            self._hungry.append(flow_queue)

    def parked_key(self, flow_queue: FlowQueue, key: bytes, deadline_ms: int) -> None:
        """A parked key is in the store now. deadline_ms: of its recipient; 0: none."""
        flow_queue = self.flow_queues.known(flow_queue)
        flow_queue.deadline_ms = min(flow_queue.deadline_ms, deadline_ms or NEVER_MS)
        flow_queue.parked.back_to(key)
        if not flow_queue.path.down_until:
            self.unpark(flow_queue)
            flow_queue.enlist()

    def _clear(self, flow_queue: FlowQueue) -> list[tuple[FlowQueue, Entry]]:
        """Takes all of it out of the window, to be parked."""
        entries, flow_queue.entries = flow_queue.entries, []
        self._count(flow_queue, -len(entries))
        return [(flow_queue, entry) for entry in entries]

    def put_aside(self, flow_queue: FlowQueue, entry: Entry) -> None:
        """A recipient that is busy, and in nobody's hands, is parked."""
        self._park([(flow_queue, entry)])

    def _park(self, rows: list[tuple[FlowQueue, Entry]]) -> None:
        operations: list[Operation] = []
        moved: list[tuple[FlowQueue, bytes, bytes, int]] = []
        for flow_queue, entry in rows:
            if entry.pinned:
                self._shared.unpin(entry.id)
            key = keys.parked(self.zone.name, flow_queue.key, entry.id, entry.address)
            if key == entry.key:  # it was parked already: read it again when its turn comes
                self._busy.discard(key)
                flow_queue.parked.back_to(key)
                flow_queue.deadline_ms = min(flow_queue.deadline_ms, entry.note.deadline_ms or NEVER_MS)
                continue
            if entry.key.startswith(b"deferred "):
                self._shared.requeued(self.zone.name, entry.address, entry.note.flow)
            operations += ((entry.key, None), (key, entry.note.value()))
            moved.append((flow_queue, entry.key, key, entry.note.deadline_ms))
        if operations:
            self._shared.rekey(operations, lambda: self._parked(moved))

    def _parked(self, moved: list[tuple[FlowQueue, bytes, bytes, int]]) -> None:
        """The new keys are in the store, the old ones are gone."""
        for flow_queue, old, new, deadline_ms in moved:
            self._busy.discard(old)
            self.parked_key(flow_queue, new, deadline_ms)
        self._shared.changed()

    # -- what leaves without being sent

    def reassign(self, flow_queue: FlowQueue, unknown: str = "") -> bool:
        """Moves what waits here to where it belongs now; False if that is here.

        unknown: a domain that is not to stay here although nothing is known of it.
        """
        entries, flow_queue.entries = flow_queue.entries, []
        self._count(flow_queue, -len(entries))
        parked: list[tuple[FlowQueue, Entry]] = []
        moved = False
        for entry in entries:
            other = self.flow_queues.still(flow_queue, entry.id, entry.address, entry.note, unknown)
            moved |= other is not flow_queue
            if other is not flow_queue and entry.key.startswith(b"parked "):
                parked.append((other, entry))  # journal and key must name the same flow queue
            else:
                other.entries.append(entry)
                self._count(other, 1)
                other.enlist()
        if parked:
            self._park(parked)
        return moved or not entries

    def separate(self, domain: str) -> list[FlowQueue]:
        """That domain's mail is kept apart from now on: what is in memory of it leaves the flow queues of others, at
        once where it is known to go. The others, in which there may be some, are to be told (`take_apart`)."""
        queues = self.flow_queues
        for path in queues.paths.values():
            path.old = True
        site = self._shared.sites.known(domain)
        for name in dict.fromkeys((site.key if isinstance(site, Site) else domain, domain)):
            for path in queues.names.of(name):
                self.take_apart(domain, list(path.flow_queues.values()))
        return list(queues.by_key.values())

    def take_apart(self, domain: str, flow_queues: Iterable[FlowQueue]) -> None:
        """What of the domain is in these leaves them, as far as they still exist."""
        for flow_queue in flow_queues:
            there = self.flow_queues.by_key.get(flow_queue.key) is flow_queue
            if there and any(domain_of(entry.address) == domain for entry in flow_queue.entries):
                self.reassign(flow_queue)
                self.tidy(flow_queue)

    def withdraw(self, flow_queue: FlowQueue, over: Callable[[Entry], bool]) -> list[Entry]:
        """Takes those out of the window of which that is true; the caller is responsible for them."""
        found = [entry for entry in flow_queue.entries if over(entry)]
        if found:
            gone = {entry.key for entry in found}
            flow_queue.entries = [entry for entry in flow_queue.entries if entry.key not in gone]
            self._count(flow_queue, -len(found))
        return found

    def tidy(self, flow_queue: FlowQueue) -> None:
        """Drops it if nothing is left of it: its recipients may all have gone another way."""
        if not (flow_queue.entries or flow_queue.listed or flow_queue.held):
            self.unpark(flow_queue)
            flow_queue.enlist()
            self.flow_queues.forget(flow_queue)

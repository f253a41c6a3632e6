"""Scheduling: which recipients go next, and who may take them.

Each zone walks its range of fresh recipients and its due deferred ones by turns and keeps a bounded window of them in
memory, in one list for each destination. Destinations take turns; each has its connection limit, and the zone has one
over all. A recipient whose destination cannot take it now (its list is full, or it is down) is parked: re-keyed into a
range of that destination's own, once, and read from there when the destination has room again. So nobody walks over it
twice, and it holds up no one else, however many there are.

A destination that cannot be reached is down for a time that doubles; then one probe may try, and a success opens it.
Time is monotonic seconds for rests, UNIX milliseconds for due times; both are arguments.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from zonemta_py.config import Config, Zone
from zonemta_py.disk import keys
from zonemta_py.disk.records import Note
from zonemta_py.disk.store import Operation, Store
from zonemta_py.queue.cursor import Cursor
from zonemta_py.queue.pace import Pace
from zonemta_py.zones.zone import Destination as Target
from zonemta_py.zones.zone import destination, named

READ_AT_ONCE = 500
"""Recipients read from the store in one go; the event loop gets its turn in between."""


class Entry:
    """A recipient in the window: its key, taken apart, and its note. pinned: its message is kept in memory for it."""

    __slots__ = ("address", "id", "key", "note", "pinned")

    def __init__(self, key: bytes, message_id: str, address: str, note: Note, pinned: bool = False) -> None:
        self.key, self.id, self.address, self.note, self.pinned = key, message_id, address, note, pinned


class Lane:
    """A destination within a zone: its list of ready recipients and what it may take."""

    __slots__ = ("active", "down_until", "entries", "failures", "listed", "parked", "reason", "target")

    def __init__(self, target: Target, parked: Cursor) -> None:
        self.target = target
        self.entries: deque[Entry] = deque()
        self.parked = parked
        self.active = 0
        self.failures = 0
        self.down_until = 0.0
        self.reason = ""
        self.listed = False


class Group:
    """Recipients of one message that go to one destination together."""

    __slots__ = ("entries", "lane", "zone")

    def __init__(self, zone: ZoneSchedule, lane: Lane, entries: list[Entry]) -> None:
        self.zone, self.lane, self.entries = zone, lane, entries


class ZoneSchedule:
    """One zone's cursors, window and lanes."""

    def __init__(self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], schedule: Schedule) -> None:
        self.zone, self._store, self._busy, self._schedule = zone, store, busy, schedule
        self.fresh = Cursor(store, keys.fresh_range(zone.name), busy, marks.get("fresh", b""))
        self.due = Cursor(store, keys.deferred_range(zone.name), busy, marks.get("due", b""))
        self.lanes: dict[str, Lane] = {}
        self.loaded = 0
        self.active = 0
        self.next_due_ms = 0
        self._ready: deque[Lane] = deque()
        self._waiting: deque[Lane] = deque()  # lanes that may not have the zone's last connections
        self._waiting_turn = False
        self._pace = Pace(zone.connections)
        self._hungry: deque[Lane] = deque()  # lanes that have parked recipients, and no room in the window for them
        self._lane_max = max(100, schedule.window // 10)
        self._find_parked()

    def _find_parked(self) -> None:
        """Destinations that have parked recipients: one seek each."""
        start, stop = keys.parked_range(self.zone.name), keys.end(keys.parked_range(self.zone.name))
        while (key := self._store.first(start, stop)) is not None:
            name = keys.place(key).destination
            self._hungry.append(self.lane(Target(name, "", self.zone.port)))
            start = keys.end(keys.parked_range(self.zone.name, name))

    # -- what comes in

    def lane(self, target: Target) -> Lane:
        """The destination's lane. One that was found by its parked recipients learns here which host it means."""
        lane = self.lanes.get(target.key)
        if lane is None:
            prefix = keys.parked_range(self.zone.name, target.key)
            lane = self.lanes[target.key] = Lane(target, Cursor(self._store, prefix, self._busy))
        elif target.host and not lane.target.host:
            lane.target = target
        return lane

    def target(self, address: str, routing: dict[str, Any] | None) -> Target:
        """Where a recipient goes: the host a plugin named, the zone's, or its domain's MX."""
        if routing and routing.get("host"):
            return named(routing["host"], routing.get("port") or 25)
        return destination(self.zone, address.rpartition("@")[2])

    def takes(self, lane: Lane) -> bool:
        """Whether the lane has room for one more recipient."""
        return lane.failures == 0 and self._room(lane) > 0

    def _room(self, lane: Lane) -> int:
        """How many more it may have: a part of what is free, so that however many are slow, a newcomer finds room."""
        window = self._schedule.window
        most = min(self._lane_max, (window - self.loaded) // 4)
        if not lane.entries and self.loaded < 2 * window:
            most = max(most, self.zone.recipients_per_delivery)
        return max(0, most - len(lane.entries))

    def ready_for_new(self) -> bool:
        """Whether mail just accepted may go into the window without being read from the store."""
        return self.fresh.exhausted and self.loaded < self._schedule.window

    def put(self, lane: Lane, entry: Entry) -> None:
        """Into the window; priority, where a plugin gives it, is the head of the list. Its key must be in `busy`."""
        lane = self.lanes.setdefault(lane.target.key, lane)
        if entry.note.routing and entry.note.routing.get("priority", 0) > 0:
            lane.entries.appendleft(entry)
        else:
            lane.entries.append(entry)
        self.loaded += 1
        self._list(lane)

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
        self._schedule.changed()

    def parked_key(self, lane: Lane, key: bytes) -> None:
        """A parked key is in the store now."""
        lane = self.lanes.setdefault(lane.target.key, lane)
        lane.parked.back_to(key)
        if not lane.down_until:
            self.unpark(lane)
            self._list(lane)

    def put_back(self, lane: Lane, entries: list[Entry]) -> None:
        """A lease that came to nothing: to the front of its list."""
        lane = self.lanes.setdefault(lane.target.key, lane)
        lane.entries.extendleft(reversed(entries))
        self.loaded += len(entries)
        self._list(lane)

    def fill(self, now_ms: int) -> bool:
        """Reads on where there is room: due recipients, fresh ones, parked ones. True: there is more to read."""
        more = False
        window = self._schedule.window
        idle = not self._ready and self.active < self.zone.connections  # who waits behind the slow ones?
        if self.loaded < window // 2 or idle:
            if self.next_due_ms <= now_ms:
                more |= self._read_due(now_ms)
            if not self.fresh.exhausted:
                self._admit(self.fresh.read(READ_AT_ONCE))
                more |= not self.fresh.exhausted
            if self._hungry:
                self.unpark(self._hungry.popleft())
                more |= bool(self._hungry) and self.loaded < 2 * window
        return more

    def _read_due(self, now_ms: int) -> bool:
        stop = b"%s%012x " % (keys.deferred_range(self.zone.name), now_ms + 1)
        self._admit(self.due.read(READ_AT_ONCE, stop))
        if not self.due.exhausted:
            return True
        following = self.due.peek()
        self.next_due_ms = keys.place(following).due_ms if following else 1 << 62
        return False

    def _admit(self, rows: list[tuple[bytes, bytes]]) -> None:
        aside: list[tuple[Lane, Entry]] = []
        for key, value in rows:
            place = keys.place(key)
            note = Note.of(value)
            lane = self.lane(self.target(place.recipient, note.routing))
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if self.takes(lane):
                self.put(lane, entry)
            else:
                aside.append((lane, entry))
        if aside:
            self._park(aside)

    def unpark(self, lane: Lane) -> None:
        """Fills a lane that has run low from its parked recipients; a lane that is being probed gets a few."""
        if lane.parked.exhausted or lane.down_until or len(lane.entries) > self._lane_max // 4:
            return
        room = self._room(lane)
        if not room:
            if not lane.entries:  # else it is looked at again when one of them goes
                self._hungry.append(lane)
            return
        elsewhere: list[tuple[Lane, Entry]] = []
        for key, value in lane.parked.read(min(room, self.zone.recipients_per_delivery) if lane.failures else room):
            place, note = keys.place(key), Note.of(value)
            target = self.target(place.recipient, note.routing)
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if target.key == lane.target.key:
                lane.target = target
                self.put(lane, entry)
            else:  # the configuration names another host now; journal and key must name the same one
                elsewhere.append((self.lane(target), entry))
        if elsewhere:
            self._park(elsewhere)

    # -- what goes out

    def next(self) -> Group | None:
        """The next delivery that is allowed now; destinations by turns."""
        while (lane := self._turn()) is not None:
            lane.listed = False
            if not self._may_go(lane):
                continue
            if not self._may_have(lane):
                if self.zone.connections - self.active <= self._pace.reserve:
                    lane.listed = True
                    self._waiting.append(lane)
                continue  # else it has its share, and is listed again when one of its leases ends
            entries = self._take(lane)
            lane.active += 1
            self.active += 1
            self.unpark(lane)
            self._list(lane)
            return Group(self, lane, entries)
        return None

    def _turn(self) -> Lane | None:
        """Who is looked at next: while connections are plenty, those that waited for them have their turns too."""
        free = self.zone.connections - self.active
        if free > self._pace.reserve and self._waiting and (self._waiting_turn or not self._ready):
            self._waiting_turn = False
            return self._waiting.popleft()
        self._waiting_turn = True
        return self._ready.popleft() if free > 0 and self._ready else None

    def _may_have(self, lane: Lane) -> bool:
        """Whether the zone has a connection for it, seen how quick it was."""
        own = bool(self.zone.host) and lane.target.key == named(self.zone.host, self.zone.port).key
        return own or self._pace.may(lane.target.key, lane.active, self.active, lane.failures > 0)

    def took(self, lane: Lane, took_ms: int, size: int) -> None:
        """How long a transaction with a message of `size` bytes took, from connecting to the last reply."""
        self._pace.learn(lane.target.key, took_ms, size)

    def _may_go(self, lane: Lane) -> bool:
        if not lane.entries or lane.down_until:
            return False
        return lane.active < (1 if lane.failures else self.zone.connections_per_destination)

    def _take(self, lane: Lane) -> list[Entry]:
        entries = lane.entries
        first = entries.popleft()
        group = [first]
        while entries and len(group) < self.zone.recipients_per_delivery:
            other = entries[0]
            if other.id != first.id or other.note.routing != first.note.routing:
                break
            group.append(entries.popleft())
        self.loaded -= len(group)
        return group

    def _list(self, lane: Lane) -> None:
        if not lane.listed and self._may_go(lane):
            lane.listed = True
            self._ready.append(lane)

    def done(self, lane: Lane) -> None:
        """A lease on this lane has ended."""
        lane.active -= 1
        self.active -= 1
        self.unpark(lane)
        self._list(lane)
        if not lane.entries and not lane.active and not lane.failures and lane.parked.exhausted:
            self.lanes.pop(lane.target.key, None)

    # -- destinations that cannot be reached

    def down(self, lane: Lane, now: float, seconds: float, reason: str) -> None:
        """Rests the destination and parks its window; `seconds` 0: as configured, doubling."""
        if lane.down_until:
            return
        retry = self._schedule.retry
        lane.failures += 1
        lane.reason = reason
        lane.down_until = now + (seconds or min(retry.down_s * 2 ** min(lane.failures - 1, 20), retry.down_max_s))
        self._schedule.wake_at(lane.down_until, self, lane)
        if lane.entries:
            entries, lane.entries = list(lane.entries), deque()
            self.loaded -= len(entries)
            self._park([(lane, entry) for entry in entries])

    def up(self, lane: Lane) -> None:
        """It has answered."""
        if lane.failures:
            lane.failures, lane.down_until, lane.reason = 0, 0.0, ""
            self.unpark(lane)
            self._list(lane)

    def probe(self, lane: Lane) -> None:
        """Its rest is over: one delivery may try."""
        lane.down_until = 0.0
        self.unpark(lane)
        self._list(lane)

    def _park(self, rows: list[tuple[Lane, Entry]]) -> None:
        operations: list[Operation] = []
        moved: list[tuple[Lane, bytes, bytes]] = []
        for lane, entry in rows:
            if entry.pinned:
                self._schedule.unpin(entry.id)
            key = keys.parked(self.zone.name, lane.target.key, entry.id, entry.address)
            if key == entry.key:  # it was parked already: read it again when its turn comes
                self._busy.discard(key)
                lane.parked.back_to(key)
                continue
            if entry.key.startswith(b"deferred "):
                self._schedule.requeued(self.zone.name, entry.address)
            operations += ((entry.key, None), (key, entry.note.value()))
            moved.append((lane, entry.key, key))
        if operations:
            self._schedule.rekey(operations, lambda: self._parked(moved))

    def _parked(self, moved: list[tuple[Lane, bytes, bytes]]) -> None:
        """The new keys are in the store, the old ones are gone."""
        for lane, old, new in moved:
            self._busy.discard(old)
            self.parked_key(lane, new)
        self._schedule.changed()


class Schedule:
    """All zones, in turns; and the clock for destinations that rest.

    rekey(operations, done): writes to the store, synced. changed(): something may be allowed now that was not before.
    unpin(id): a recipient of that message has left the window. requeued(zone, address): a deferred one was parked.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        marks: dict[str, dict[str, bytes]],
        rekey: Callable[[list[Operation], Callable[[], None]], None],
        changed: Callable[[], None],
        unpin: Callable[[str], None],
        requeued: Callable[[str, str], None],
    ) -> None:
        self.retry, self.window = config.retry, config.queue.window
        self.rekey, self.changed, self.unpin, self.requeued = rekey, changed, unpin, requeued
        self.busy: set[bytes] = set()
        self._resting: list[tuple[float, int, ZoneSchedule, Lane]] = []
        self._count = 0
        self.zones = {
            zone.name: ZoneSchedule(zone, store, self.busy, marks.get(zone.name, {}), self) for zone in config.zones
        }
        self._turns = deque(self.zones.values())

    def next(self) -> Group | None:
        for _ in range(len(self._turns)):
            zone = self._turns[0]
            self._turns.rotate(-1)
            group = zone.next()
            if group is not None:
                return group
        return None

    def fill(self, now_ms: int) -> bool:
        """Every zone reads on where it has room; True: call again soon."""
        more = [zone.fill(now_ms) for zone in self.zones.values()]
        return any(more)

    def wake_at(self, when: float, zone: ZoneSchedule, lane: Lane) -> None:
        self._count += 1
        heapq.heappush(self._resting, (when, self._count, zone, lane))

    def wake(self, now: float) -> None:
        """Lets the destinations whose rest is over be probed."""
        while self._resting and self._resting[0][0] <= now:
            _, _, zone, lane = heapq.heappop(self._resting)
            if lane.down_until and lane.down_until <= now:
                zone.probe(lane)

    def next_wake(self, now: float, now_ms: int) -> float:
        """Seconds until time alone changes something (a rest ends, a deferred recipient is due); at most 60."""
        waits = [60.0]
        if self._resting:
            waits.append(self._resting[0][0] - now)
        waits += [(zone.next_due_ms - now_ms) / 1000 for zone in self.zones.values()]
        return max(0.0, min(waits))

    def marks(self) -> dict[str, dict[str, bytes]]:
        """Low-water marks for the position record."""
        return {name: {"fresh": zone.fresh.mark(), "due": zone.due.mark()} for name, zone in self.zones.items()}

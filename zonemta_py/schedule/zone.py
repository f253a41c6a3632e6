"""One zone's part of the schedule: who is in the window, who is parked, who goes next.

The zone walks its range of fresh recipients and its due deferred ones by turns and keeps a bounded window of them in
memory, in strands (`lane.py`). A recipient whose strand cannot take it now (its list is full, its destination is down)
is parked: re-keyed into a range of that strand's own, once, and read from there when there is room again. So nobody
walks over it twice, and it holds up no one else, however many there are.

Who goes next: flows share the zone by weight (`fair.py`), a flow's strands take turns, each lane has the connections
that it has earned (`feedback.py`), and every limit is asked (`permits.py`). A destination that cannot be reached is
down for a time that doubles; then one probe may try, and a success opens it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.disk.records import Note
from zonemta_py.disk.store import Operation, Store
from zonemta_py.mail.classify import NoRoute
from zonemta_py.schedule.cursor import Cursor
from zonemta_py.schedule.lane import NEVER_MS, Entry, Group, Hold, Lane, Strand, Turn
from zonemta_py.schedule.pace import Pace
from zonemta_py.schedule.shared import Shared
from zonemta_py.schedule.strands import NO_SOURCE, Strands, domain_of
from zonemta_py.zones.site import Site

READ_AT_ONCE = 500
"""Recipients read from the store in one go; the event loop gets its turn in between."""


class ZoneSchedule:
    """One zone's cursors, window and lanes."""

    def __init__(self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], shared: Shared) -> None:
        self.zone, self._store, self._busy, self._shared = zone, store, busy, shared
        self.fresh = Cursor(store, keys.fresh_range(zone.name), busy, marks.get("fresh", b""))
        self.due = Cursor(store, keys.deferred_range(zone.name), busy, marks.get("due", b""))
        self.strands = Strands(zone, store, busy, shared, self)
        self.loaded = 0  # recipients in the window …
        self.stuck = 0  # … and how many of them are in strands that are held
        self.active = 0
        self.next_due_ms = 0
        self.held: Hold | None = None
        self._waiting: dict[Turn, deque[Strand]] = {}  # those that may not have the zone's last connections
        self._pace = Pace(zone.connections)
        tls = shared.config.tls
        self.by_domain = tls.mta_sts or tls.dane or bool(zone.tls_required_domains)
        self._hungry: deque[Strand] = deque()  # those that have parked recipients, and no room in the window for them
        self._strand_max = max(100, shared.window // 10)
        self.gates = shared.permits.zone_gates(zone.name)
        self._hungry.extend(self.strands.parked())

    # -- what DNS says

    def _look_up(self, strand: Strand, domain: str) -> None:
        """Asks where a domain's mail goes; the strand goes on when the answer is there."""
        strand.hold(Hold("dns", f"{domain} is being looked up", math.inf, self._shared.now_ms()))
        self._shared.sites.look(domain, lambda found: self._looked_up(strand, domain, found))

    def _looked_up(self, strand: Strand, domain: str, found: Site | NoRoute) -> None:
        strand.free()
        if isinstance(found, Site):
            if found.key == strand.lane.site:
                self.strands.learn_provider(strand.lane, found.provider)
        elif found.temporary and strand.lane.site == domain:
            self.down(strand.lane, self._shared.now(), 0, str(found.reply))
        if strand.lane.failures and not strand.lane.down_until:
            self.up(strand.lane) if isinstance(found, Site) else None
        self.reassign(strand, unknown=domain if isinstance(found, NoRoute) else "")
        self.unpark(strand)
        self.enlist(strand)
        self._shared.changed()

    def reassign(self, strand: Strand, unknown: str = "") -> bool:
        """Moves what waits here to where it belongs now; False if that is here.

        unknown: a domain that is not to stay here although nothing is known of it.
        """
        entries = list(strand.entries)
        self._count(strand, -len(entries))
        strand.entries = deque()
        parked: list[tuple[Strand, Entry]] = []
        moved = False
        for entry in entries:
            other = self.strands.still(strand, entry.id, entry.address, entry.note, unknown)
            moved |= other is not strand
            if other is not strand and entry.key.startswith(b"parked "):
                parked.append((other, entry))  # journal and key must name the same strand
            else:
                other.entries.append(entry)
                self._count(other, 1)
                self.enlist(other)
        if parked:
            self._park(parked)
        return moved or not entries

    # -- what comes in

    def takes(self, strand: Strand) -> bool:
        """Whether the strand has room for one more recipient."""
        return strand.lane.failures == 0 and self._room(strand) > 0

    def _room(self, strand: Strand) -> int:
        """How many more it may have: a part of what is free, so that however many are slow, a newcomer finds room."""
        window, usual = self._shared.window, self.zone.recipients_per_delivery
        most = min(self._strand_max, (window - self.loaded) // 4)
        if not strand.entries:
            most = max(most, usual if self.loaded < 2 * window else max(1, usual // 10))
        return max(0, most - len(strand.entries))

    def ready_for_new(self, strand: Strand) -> bool:
        """Whether mail just accepted may go into the window without being read from the store."""
        if not strand.entries and self.loaded < 2 * self._shared.window:
            return True  # it has nothing to do, whatever others wait for
        return self.fresh.exhausted and self.loaded < self._shared.window

    def put_new(self, strand: Strand, entry: Entry) -> None:
        """Mail just accepted, straight into the window."""
        if self.fresh.exhausted:
            self.fresh.pass_by(entry.key)
        else:
            self.fresh.promise(entry.key)
        self.put(strand, entry)

    def put(self, strand: Strand, entry: Entry) -> None:
        """Into the window; priority, where a plugin gives it, is the head of the list. Its key must be in `busy`."""
        strand = self.strands.known(strand)
        if entry.note.routing and entry.note.routing.get("priority", 0) > 0:
            strand.entries.appendleft(entry)
        else:
            strand.entries.append(entry)
        self._count(strand, 1)
        self.enlist(strand)

    def _count(self, strand: Strand, more: int) -> None:
        """So many more are in the window, on that strand."""
        self.loaded += more
        if strand.held is not None:
            self.stuck += more

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

    def parked_key(self, strand: Strand, key: bytes, deadline_ms: int) -> None:
        """A parked key is in the store now. deadline_ms: of its recipient; 0: none."""
        strand = self.strands.known(strand)
        strand.deadline_ms = min(strand.deadline_ms, deadline_ms or NEVER_MS)
        strand.parked.back_to(key)
        if not strand.lane.down_until:
            self.unpark(strand)
            self.enlist(strand)

    def put_back(self, group: Group, entries: list[Entry]) -> None:
        """A lease that came to nothing: to the front of its list."""
        strand = self.strands.known(group.strand)
        strand.entries.extendleft(reversed(entries))
        self._count(strand, len(entries))
        self.enlist(strand)

    def fill(self, now_ms: int) -> bool:
        """Reads on where there is room: due recipients, fresh ones, parked ones. True: there is more to read."""
        more = False
        window = self._shared.window
        idle = (
            self.strands.fair.pick() is None and self.active < self.zone.connections
        )  # who waits behind the slow ones?
        if self.loaded - self.stuck < window // 2 or idle:
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
        aside: list[tuple[Strand, Entry]] = []
        for key, value in rows:
            place = keys.place(key)
            note = Note.of(value)
            strand = self.strands.of(place.id, place.recipient, note)
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if self.takes(strand):
                self.put(strand, entry)
            else:
                aside.append((strand, entry))
        if aside:
            self._park(aside)

    def unpark(self, strand: Strand) -> None:
        """Fills a strand that has run low from its parked recipients; one that is being probed gets a few."""
        lane = strand.lane
        if strand.parked.exhausted or lane.down_until or len(strand.entries) > self._strand_max // 4:
            return
        room = self._room(strand)
        if not room:
            if not strand.entries:  # else it is looked at again when one of them goes
                self._hungry.append(strand)
            return
        elsewhere: list[tuple[Strand, Entry]] = []
        most = min(room, self.zone.recipients_per_delivery) if lane.failures else room
        for key, value in strand.parked.read(most):
            place, note = keys.place(key), Note.of(value)
            other = self.strands.still(strand, place.id, place.recipient, note)
            entry = Entry(key, place.id, place.recipient, note)
            self._busy.add(key)
            if other is strand:
                self.put(strand, entry)
            else:  # it goes another way now; journal and key must name the same one
                elsewhere.append((other, entry))
        if elsewhere:
            self._park(elsewhere)
            if not strand.entries and not strand.parked.exhausted:
                self._hungry.append(strand)

    # -- what goes out

    def next(self) -> Group | None:
        """The next delivery that is allowed now: flows by weight, their strands by turns."""
        if not self._open():
            return None
        while (strand := self._turn()) is not None:
            if self._may_go(strand) and (group := self._offer(strand)) is not None:
                return self._gone(group)
        return None

    def _offer(self, strand: Strand) -> Group | None:
        """What the strand may send now; None: it waits for something, and is listed again when that is there."""
        lane, permits, first = strand.lane, self._shared.permits, strand.entries[0]
        site: Site | NoRoute | None = None
        if self.strands.by_dns(first.note):
            domain = domain_of(first.address)
            site = self._shared.sites.known(domain)
            if site is None:
                self._look_up(strand, domain)
                return None
            if isinstance(site, NoRoute):
                return Group(strand, self._take(strand, 1), refusal=site.reply)
            if site.key == lane.site:
                self.strands.learn_provider(lane, site.provider)
            elif self.reassign(strand):  # it was made before its domain's site was known, or that has changed
                self.unpark(strand)
                self.enlist(strand)
                return None
        if lane.source == NO_SOURCE:
            reason = "every source address is kept from this domain by disabled_domains"
            self.down(lane, self._shared.now(), 0, reason)
            return None
        hold = permits.hold(strand)
        if hold is not None:
            if hold.kind == "source":
                if self.reassign(strand):
                    self.unpark(strand)  # what is parked goes the same way
                    self.enlist(strand)
                    return None
                hold = hold._replace(until=self.strands.any_source_at(strand, hold.until))
            self._shared.hold(strand, hold)
            return None
        if not self.may_have(lane):
            if self.zone.connections - self.active <= self._pace.reserve:
                strand.listed = True
                self._waiting.setdefault(strand.turn, deque()).append(strand)
            return None  # else it has its share, and is listed again when one of its leases ends
        group = permits.grant(strand, self._take)
        if group is not None:
            group.site = site if isinstance(site, Site) else None
        return group

    def _gone(self, group: Group) -> Group:
        strand, lane = group.strand, group.lane
        self.strands.fair.charge(strand.turn.flow, len(group.entries))
        lane.active += 1
        self.active += 1
        self.unpark(strand)
        self.enlist(strand)
        return group

    def _open(self) -> bool:
        """Whether the zone as a whole may send: its hours, and the limits that count for all of it."""
        before = self.held
        if before is not None and self._shared.now() < before.until < math.inf:
            return False
        self.held = self._shared.permits.zone_hold(self.zone, self.gates)
        if self.held is not None:
            if before is not None and before.cause == self.held.cause:
                self.held = before._replace(until=self.held.until)  # it has waited since then
            self._shared.wake_at(self.held.until, self._shared.changed)
        return self.held is None

    def _turn(self) -> Strand | None:
        """Who is looked at next: while connections are plenty, those that waited for them have their turns too."""
        free = self.zone.connections - self.active
        if free <= 0:
            return None
        if self._waiting and free > self._pace.reserve:
            self._end_waiting()
        flow = self.strands.fair.pick()
        if flow is None:
            return None
        turn = self.strands.by_flow[flow]
        strand = turn.strands.popleft()
        if not turn.strands:
            flow.ready = False
        strand.listed = False
        return strand

    def _end_waiting(self) -> None:
        """One strand of each flow that waited for a connection may try again."""
        for turn, strands in list(self._waiting.items()):
            strand = strands.popleft()
            if not strands:
                del self._waiting[turn]
            strand.listed = False
            self.enlist(strand)

    def may_have(self, lane: Lane) -> bool:
        """Whether the zone has a connection for it, seen how quick it was."""
        own = self.strands.own is not None and lane.site == self.strands.own.key
        return own or self._pace.may(lane.site, lane.active, self.active, lane.failures > 0)

    def took(self, lane: Lane, took_ms: int, size: int) -> None:
        """How long a transaction with a message of `size` bytes took, from connecting to the last reply."""
        self._pace.learn(lane.site, took_ms, size)

    def _may_go(self, strand: Strand) -> bool:
        lane = strand.lane
        if not strand.entries or lane.down_until or strand.held is not None:
            return False
        return lane.active < (1 if lane.failures else lane.concurrency.window)

    def _take(self, strand: Strand, most: int) -> list[Entry]:
        """The recipients of the first message, at most so many."""
        entries = strand.entries
        first = entries.popleft()
        group = [first]
        while entries and len(group) < most:
            other = entries[0]
            if other.id != first.id or other.note.routing != first.note.routing:
                break
            if self.by_domain and domain_of(other.address) != domain_of(first.address):
                break  # what TLS must do there may differ
            group.append(entries.popleft())
        self.loaded -= len(group)
        return group

    def withdraw(self, strand: Strand, over: Callable[[Entry], bool]) -> list[Entry]:
        """Takes those out of the window of which that is true; whoever asks answers for them."""
        found = [entry for entry in strand.entries if over(entry)]
        if found:
            gone = {entry.key for entry in found}
            strand.entries = deque(entry for entry in strand.entries if entry.key not in gone)
            self._count(strand, -len(found))
        return found

    def tidy(self, strand: Strand) -> None:
        """Forgets it, if nothing is left of it: its recipients may all have gone another way."""
        if not (strand.entries or strand.listed or strand.held):
            self.unpark(strand)
            self.enlist(strand)
            self.strands.forget(strand)

    def enlist(self, strand: Strand) -> None:
        """It may go: it has its turn among its flow's."""
        if not strand.listed and self._may_go(strand):
            strand.listed = True
            strand.turn.strands.append(strand)
            strand.turn.flow.ready = True

    def begin(self, group: Group) -> None:
        """A lease that the schedule did not give: it counts all the same."""
        group.lane.active += 1
        self.active += 1

    def done(self, group: Group) -> None:
        """A lease of this group has ended."""
        lane = group.lane
        lane.active -= 1
        self.active -= 1
        self._shared.permits.release(group)
        for strand in list(lane.strands.values()):
            self.unpark(strand)
            self.enlist(strand)
            self.strands.forget(strand)

    def now(self) -> float:
        return self._shared.now()

    def ms_at(self, steady: float) -> int:
        """The UNIX time that a moment of steady seconds is."""
        return self._shared.now_ms() + int((steady - self._shared.now()) * 1000)

    # -- destinations that cannot be reached

    def down(self, lane: Lane, now: float, seconds: float, reason: str) -> None:
        """Rests the destination and parks its window; `seconds` 0: as configured, doubling."""
        if lane.down_until:
            return
        retry = self._shared.retry
        lane.failures += 1
        lane.reason = reason
        lane.down_since_ms = lane.down_since_ms or self._shared.now_ms()
        lane.down_until = now + (seconds or min(retry.down_s * 2 ** min(lane.failures - 1, 20), retry.down_max_s))
        self._shared.wake_at(lane.down_until, lambda: self._probe(lane))
        rows: list[tuple[Strand, Entry]] = []
        for strand in lane.strands.values():
            rows += [(strand, entry) for entry in strand.entries]
            self._count(strand, -len(strand.entries))
            strand.entries = deque()
        if rows:
            self._park(rows)

    def up(self, lane: Lane) -> None:
        """It has answered."""
        if lane.failures:
            lane.failures, lane.down_until, lane.down_since_ms, lane.reason = 0, 0.0, 0, ""
            self._go_on(lane)

    def _probe(self, lane: Lane) -> None:
        """Its rest is over: one delivery may try."""
        if lane.down_until and lane.down_until <= self._shared.now():
            lane.down_until = 0.0
            self._go_on(lane)

    def _go_on(self, lane: Lane) -> None:
        for strand in list(lane.strands.values()):
            self.unpark(strand)
            self.enlist(strand)

    def _park(self, rows: list[tuple[Strand, Entry]]) -> None:
        operations: list[Operation] = []
        moved: list[tuple[Strand, bytes, bytes, int]] = []
        for strand, entry in rows:
            if entry.pinned:
                self._shared.unpin(entry.id)
            key = keys.parked(self.zone.name, strand.key, entry.id, entry.address)
            if key == entry.key:  # it was parked already: read it again when its turn comes
                self._busy.discard(key)
                strand.parked.back_to(key)
                strand.deadline_ms = min(strand.deadline_ms, entry.note.deadline_ms or NEVER_MS)
                continue
            if entry.key.startswith(b"deferred "):
                self._shared.requeued(self.zone.name, entry.address)
            operations += ((entry.key, None), (key, entry.note.value()))
            moved.append((strand, entry.key, key, entry.note.deadline_ms))
        if operations:
            self._shared.rekey(operations, lambda: self._parked(moved))

    def _parked(self, moved: list[tuple[Strand, bytes, bytes, int]]) -> None:
        """The new keys are in the store, the old ones are gone."""
        for strand, old, new, deadline_ms in moved:
            self._busy.discard(old)
            self.parked_key(strand, new, deadline_ms)
        self._shared.changed()

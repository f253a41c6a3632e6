"""What follows from replies, bounces and complaints: who gets on the suppression list by itself, and when.

`settled` and `heard` are called where a record is applied to the store, live and in a replay, and give back what is to
be written in the same batch: so after a crash evidence is there exactly once. Whom it is enough for is put on the list
a moment later, by a record of its own (SUPPRESS, by "policy"); what a crash leaves undone of that is found again at the
next start (`begin`), since the evidence says on which lists it has put the person.

Cost: a delivery to somebody against whom nothing was heard reads nothing. Failures: a disk with errors is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container
from contextvars import Context
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.config.suppression import GROUPS
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError, StoreFenced
from zonemta_py.logs.causes import cause
from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.questions.question import Refused, is_repeated
from zonemta_py.queue.suppression import evidence as proof
from zonemta_py.queue.suppression.entry import ALL, Suppressed
from zonemta_py.queue.suppression.evidence import Evidence, Item
from zonemta_py.queue.suppression.evidence_store import is_pending
from zonemta_py.queue.suppression.from_evidence import BY, GUARD_BY, HARD_BOUNCE, scope_of, wanted
from zonemta_py.queue.suppression.guard import Guard, News, Pair, Raised, covers, name_of
from zonemta_py.queue.suppression.register import SuppressionList
from zonemta_py.schedule.policy.state import GUARD
from zonemta_py.schedule.time.pace import behind

log = logging.getLogger(__name__)

SAID_MAX = 160
AGAIN_S = 1.0
AT_ONCE = 500
PEOPLE_MAX = 1_000_000
"""With evidence that is not enough yet; of others, a reply that is not agreed is not noted."""
BEGIN_RESTS = 4.0
"""For each second of what a start has to look at, while mail is sent."""
TAKEN_BACK_MS = 3_600_000
"""A start looks for entries that had to be taken back in so long before it."""


class Statement(NamedTuple):
    """Something that was said of a recipient. what: the class of a reply (`mail.rules.classes`), "complaint" or
    "unsubscribe". agreed: as of `Classified`. message: our id of the message; if that is unknown, whatever tells it
    from others. ms: when, steady time. pair: which source of ours, and which provider or site, "" if unknown. said:
    the reply. stage: as of an outcome, or "report". scope: of an unsubscribe; of others as
    of an `Item`."""

    address: str
    what: str
    message: str
    ms: int
    agreed: bool = False
    tenant: str = ""
    campaign: str = ""
    pair: Pair = ("", "")
    said: str = ""
    stage: str = proof.REPORT
    scope: str = ""


class SuppressionPolicy:
    """Decides for all people. listed: the list that it adds to."""

    def __init__(self, core: Core, listed: SuppressionList) -> None:
        self._core, self._list, self.store = core, listed, listed.evidence
        self.guard = Guard(core)
        self._due: dict[str, None] = {}
        self._back: dict[str, None] = {}
        """Whose entry is taken back, as it is held back now."""
        self._taught: dict[str, None] = {}
        """Those of whom another queue has heard last, or whom it has released: it tells that they are listed, or taken
        off."""
        self._at_work = False
        self._tidied = b""
        self._later: list[Callable[[], list[Operation]]] = []
        """What could not be decided because the store could not be read."""

    # -- what is heard

    def relays(self, zone: str) -> bool:
        """Whether it gives all mail to a smart host, which answers for many providers."""
        found = self._core.schedule.zones.get(zone)
        return found is not None and found.flow_queues.own is not None

    def took(self, address: str, message: str, ms: int) -> list[Operation]:
        """The person's server took a message. ms: steady time. Only to be called if `store.any`."""
        # For every delivery: what `person` gives for nearly all, without the call.
        who = address.lower() if address.isascii() and address[-1] != "." and address[0] != '"' else person(address)
        if not self.store.maybe(who):
            return []
        try:
            before = self.store.get(who)
        except StoreFenced:
            return self._wait(partial(self.took, address, message, ms))
        if before is None or not is_pending(before):
            return []
        found = before.copy()
        if not found.delivered(message, ms):
            return []
        return [*self.store.put(who, found, before), *self._teach("took", [address, message, ms])]

    def heard(self, heard: Statement, taught: bool = False) -> list[Operation]:
        """For whoever applies the record that says so, in its turn; what it gives back goes into the same batch. What
        nothing proves to be genuine must not be given here. taught: another of several queues has heard it."""
        who, group = person(heard.address), proof.OF_CLASS.get(heard.what, heard.what)
        if not heard.address or who in self._list.leaving or not self._counts(group, heard.tenant):
            return []
        try:
            before = self.store.get(who)
        except StoreFenced:
            return self._wait(partial(self.heard, heard, taught))
        if before is None and self.store.pending >= PEOPLE_MAX and not heard.agreed and group in GROUPS:
            return []
        found, name = before.copy() if before is not None else Evidence(who), name_of(heard.pair)
        later = heard.stage == proof.REPORT
        raised, written = None, list[Operation]()
        final = group in proof.GUARDED and not heard.said.startswith("4")
        news = final and not any(map(proof.is_final, found.items))
        if news and taught:
            self.guard.taught(heard.pair, who, heard.ms, later)
        elif news:
            raised = self.guard.refused(heard.pair, who, heard.ms, later)
        if news:
            written = self.guard.state(name) if name else []
        guard = self.guard.holder(heard.pair, later) if group in proof.GUARDED else ""
        item = Item(
            group, heard.ms, heard.message, heard.tenant, heard.agreed, bool(guard),
            guard or name, heard.what, heard.said[:SAID_MAX], heard.stage, heard.campaign, heard.scope,
        )  # fmt: skip
        found.forget_old(heard.ms)
        if not found.add(item) and raised is None:
            return []
        written += self.store.put(who, found, before)
        for other, here in self.guard.recent(raised).items() if raised is not None else ():
            if other != who:
                written += self._hold(other, guard, heard.ms, here)
        self._tells(who, not taught)
        if not taught:
            written += self._teach("heard", list(heard))
            written += self._teach("held", list(raised)) if raised is not None else []
        self._look(who)
        return written

    def guarded(self, up: Raised) -> list[Operation]:
        """Another of several queues has put that guard up, and it has not ended yet: what was heard shortly before is
        held back here too, wherever it was heard."""
        written = list[Operation]()
        for who, here in self.guard.recent(up).items() if self.guard.up(up.name) else ():
            written += self._hold(who, up.name, up.ms, here)
        return written

    def _teach(self, kind: str, row: list[Any]) -> list[Operation]:
        """The other queues, if there are any."""
        member = self._core.membership
        return [] if member is None else member.lesson(kind, row)

    def knows(self, heard: Statement) -> bool:
        """Whether the like was heard before, and counts still. Raises StoreError."""
        found = self.store.get(person(heard.address))
        said = (heard.what, heard.tenant, heard.scope)
        return found is not None and any((one.group, one.tenant, one.scope) == said for one in found.items)

    def holds(self, who: str) -> bool:
        """Whether a guard holds back what would otherwise be enough. Raises StoreError."""
        found = self.store.get(who)
        if found is None or not any(item.held for item in found.items):
            return False
        return not wanted(found, self._core.config.suppression, self._core.clock.steady_ms())

    def _counts(self, group: str, tenant: str) -> bool:
        return group in proof.AT_ONCE or (group in GROUPS and self._core.config.suppression.of(tenant).automatic)

    def _hold(self, who: str, name: str, ms: int, here: bool) -> list[Operation]:
        """What that provider has just said of the person is held back, and an entry that it led to is taken back. here:
        this queue has heard it, and tells of that."""
        since_ms = ms - self._core.config.suppression.guard_within_s * 1000
        try:
            before = self.store.get(who)
        except StoreFenced:
            return self._wait(partial(self._hold, who, name, ms, here))
        if before is None:
            return []
        found = before.copy()
        found.items = [
            one._replace(held=True, at=name)
            if one.group in proof.GUARDED and covers(name, one.at) and one.ms > since_ms
            else one
            for one in found.items
        ]
        self._due.pop(who, None)
        self._back[who] = None
        self._tells(who, here)
        self._wake()
        return self.store.put(who, found, before)

    def _tells(self, who: str, here: bool) -> None:
        """Whether this queue is the one that tells of what follows for the person."""
        if here:
            self._taught.pop(who, None)
        else:
            self._taught[who] = None

    def _wait(self, again: Callable[[], list[Operation]]) -> list[Operation]:
        """The disk has errors: the store cannot be read now. It is done before the next batch is written, which is the
        one with what it follows from."""
        self._later.append(again)
        return []

    def catch_up(self) -> None:
        """Before each batch."""
        later, self._later = self._later, []
        for again in later:
            self._core.disk.lines.submit(again(), immediately, sync=False, keep=True)

    # -- what follows

    def _look(self, who: str) -> None:
        """It may be enough now."""
        self._due[who] = None
        self._wake()

    def _wake(self) -> None:
        if not self._at_work and self._core.ready:
            self._at_work = True
            # Whoever is due then, it is not done by the order that has woken it: that one may be told by another queue.
            self._core.keep(asyncio.get_running_loop().create_task(self._work(), context=Context()))

    async def _work(self) -> None:
        """Until nothing is due."""
        try:
            while (self._due or self._back) and not self._core.disk.closed:
                due, back = _some(self._due), _some(self._back)
                try:
                    await self._add(due)
                    await self._take_back(back)
                except (StoreError, QueueRefusal) as error:
                    self._due |= dict.fromkeys(due)
                    self._back |= dict.fromkeys(back)
                    if isinstance(error, StoreDamaged):
                        self._core.disk.read_failed(error)
                        return
                    log.warning("%s; people are put on the suppression list later", cause(error))
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._at_work = False

    async def _add(self, people: list[str]) -> None:
        missing = [row for who in people for row in self._missing(self.store.get(who))]
        missing = [row._replace(again=True) if row.address in self._taught else row for row in missing]
        for who in people:
            self._taught.pop(who, None)
        if missing:
            await self._list.add(missing)
            kinds = Counter(row.kind for row in missing if not row.again)
            for kind, count in kinds.items():
                self._core.counters.meter.add("zonemta_people_suppressed_total", (kind,), count)
        scopes: dict[str, list[str]] = {}
        for row in missing:
            scopes.setdefault(row.address, []).append(place_of(row))
        for who, places in scopes.items():
            self._note(who, lambda listed, places=places: [*listed, *places])  # type: ignore[misc]

    def _missing(self, found: Evidence | None) -> list[Suppressed]:
        """Entries that the evidence asks for, and has not led to."""
        if found is None:
            return []
        clock, terms = self._core.clock, self._core.config.suppression
        made = wanted(found, terms, clock.steady_ms(), clock.apart_ms())
        return [row for row in made.values() if place_of(row) not in found.listed]

    def _note(self, who: str, change: Callable[[list[str]], list[str]]) -> None:
        """What it has led to. Meanwhile it may have been held back, or cleared."""
        before = self.store.get(who)
        if before is not None:
            found = before.copy()
            found.listed = list(dict.fromkeys(change(found.listed)))
            self._core.disk.lines.submit(self.store.put(who, found, before), immediately, sync=False, keep=True)

    async def _take_back(self, people: list[str]) -> None:
        """Their entries that this policy has made, unless there is other evidence."""
        scopes: dict[tuple[str, bool], list[str]] = {}
        clock, terms = self._core.clock, self._core.config.suppression
        for who in people:
            found = self.store.get(who)
            asked = wanted(found, terms, clock.steady_ms()) if found is not None else {}
            tenants = {scope_of("tenant", item.tenant) for item in found.items} if found is not None else set()
            for scope in {ALL, *tenants}:
                entry = self._list.of(who, scope)
                ours = entry is not None and entry.by == BY and entry.kind == HARD_BOUNCE
                if ours and (scope, HARD_BOUNCE) not in asked:
                    scopes.setdefault((scope, who in self._taught), []).append(who)
        for (scope, again), those in scopes.items():
            await self._list.remove(those, GUARD_BY, scope, again)
            for who in those:
                self._note(who, lambda listed, scope=scope: [one for one in listed if one != f"{HARD_BOUNCE} {scope}"])  # type: ignore[misc]

    # -- a start, and the time

    def begin(self) -> None:
        """After recovery: finds what a crash has left undone."""
        self._core.keep(asyncio.ensure_future(behind(self._begin, BEGIN_RESTS)))

    async def _begin(self) -> None:
        now_ms, recent = self._core.clock.steady_ms(), list[News]()
        since_ms = now_ms - self._core.config.suppression.guard_within_s * 1000

        def seen(found: Evidence) -> None:
            if (not found.listed or len(found.items) > 1) and self._missing(found):
                self._due[found.who] = None
            first = next(filter(proof.is_final, found.items), None)
            if first is not None and first.ms > since_ms and first.at:
                recent.append(News(first.ms, found.who, first.at, first.stage == proof.REPORT))
            if any(item.held and now_ms - item.ms < TAKEN_BACK_MS for item in found.items):
                self._back[found.who] = None

        try:
            await self.store.fill(seen)
            self.guard.restore(recent)
        except StoreError as error:
            if isinstance(error, StoreDamaged):
                self._core.disk.read_failed(error)
            return
        self._wake()

    def tick(self) -> None:
        """About once a second."""
        now_ms, member = self._core.clock.steady_ms(), self._core.membership
        self.guard.tick(now_ms)
        if member is not None:
            written = list[Operation]()
            for up in self.guard.decide(now_ms):
                written += [*self.guarded(up), *self._teach("held", list(up))]
            if not member.is_telling("counted") and (figures := self.guard.figures(now_ms)):
                written += [*self.guard.told(figures), *self._teach("counted", figures)]
            if written:
                self._core.disk.lines.submit(written, immediately, sync=False, keep=True)

    def tidy(self) -> None:
        """Forgets what is old, a portion at each call. Raises StoreError."""
        now_ms, changes = self._core.clock.steady_ms(), list[Operation]()
        rows, self._tidied = self.store.portion(self._tidied)
        for found in rows:
            kept = found.copy()
            kept.forget_old(now_ms)
            if len(kept.items) != len(found.items):
                changes += self.store.put(found.who, kept if kept.items else None, found)
        if changes:
            self._core.disk.lines.submit(changes, immediately, sync=False, keep=True)

    # -- operators

    async def guards(self) -> list[dict[str, Any]]:
        """Those that are up, and for how many people something is held back there."""
        stops, counts, after = self._core.schedule.policy.stops, Counter[str](), b""
        while names := self.guard.names():
            rows, after = self.store.portion(after)
            for found in rows:
                counts.update({item.at for item in found.items if item.held})
            if not after:
                break
            await asyncio.sleep(0)
        return [
            {"name": name, "cause": stop.cause, "since_ms": stop.since_ms, "people": counts[name]}
            for name in names
            if (stop := stops.get((GUARD, name))) is not None
        ]

    async def release(self, name: str, drop: bool = False) -> int:
        """Ends a guard: what it holds back counts from now on, or is dropped. Returns how many people that is about.
        Raises ValueError."""
        names = self._called(name)
        count, after = 0, b""
        while True:
            rows, after = self.store.portion(after)
            changes = list[Operation]()
            for found in rows:
                if any(item.held and item.at in names for item in found.items):
                    changes += self._released(found, names, drop)
                    count += 1
            if changes:
                self._core.disk.lines.submit(changes, immediately, sync=False, keep=True)
            if not after:
                break
            await asyncio.sleep(0)
        for one in names:
            self.guard.lift(one, "dropped by an operator" if drop else "released by an operator")
        self._wake()
        await self._core.disk.journal.stable()
        await self._core.disk.lines.stable()
        return count

    def _released(self, found: Evidence, names: Container[str], drop: bool) -> list[Operation]:
        kept = found.copy()
        theirs = [item for item in found.items if item.held and item.at in names]
        kept.items = [item for item in found.items if item not in theirs]
        if not drop:
            kept.items += [item._replace(held=False) for item in theirs]
            self._due[found.who] = None
            self._tells(found.who, not is_repeated())
        return self.store.put(found.who, kept, found)

    def _called(self, name: str) -> list[str]:
        """The guards that are meant: by the whole name, or by provider or source. Those that have ended hold nothing
        back, but what they held back may still be released."""
        found = [one for one in self.guard.names() if name == one or name in one.split()]
        if not found and not name:
            raise Refused("which provider? `zonemta suppression guards` shows them")
        return found or [name]


def place_of(entry: Suppressed) -> str:
    """As `Evidence.listed` has it."""
    return f"{entry.kind} {entry.scope}"


def _some(people: dict[str, None]) -> list[str]:
    """They are not among them any more."""
    some = list(islice(people, AT_ONCE))
    for who in some:
        del people[who]
    return some

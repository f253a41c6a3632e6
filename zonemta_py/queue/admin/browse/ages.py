"""How old the queue's mail is, by destination: Postfix's qshape. Counted in passes over all recipients.

A pass begins when somebody asks and the last one is older than KEPT_S, or less where there was little to count. It goes
in portions, at the pace of a question (`schedule/time/pace.py`), and goes on when the question has been answered; so
the first answers may have a part only: `walked` says how many recipients were counted `of` how many, and `complete`
whether these were all. Or they are those of the last pass: `at_ms` says when it began, and `counting` that a new one is
being made. The ages are those at the moment when each was counted.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreError
from zonemta_py.queue.admin.browse.ranges import OVER
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.schedule.time.pace import PAGE_S, Pace, behind
from zonemta_py.zones.site import Site

MINUTES = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Where one age ends and the next begins; the last has no end."""
AGES_MAX = 50
BY = ("domain", "site", "provider", "sender")
"""sender: the domain of the envelope sender, which is read from each message."""
STATES = (State.QUEUED, State.LEASED, State.DEFERRED, State.HELD)
NO_SENDER = "MAILER-DAEMON"
KEPT_S, KEPT_OF, OLD_S = 30.0, 300_000, 60.0
"""A pass of so many recipients is kept so long, of fewer so much shorter. An older one is no answer any more."""
BEHIND = 59.0
"""A pass rests so long for each second of its work, while mail is sent."""
AT_ONCE, AT_ONCE_READ = 500, 25
"""Keys that are counted before the event loop runs; and where messages have to be read."""
NAMED_AT_ONCE, PART = 500, 5_000
"""What is named before the event loop runs; and of a pass that goes on, in one answer."""
PAGE_MAX = 1_000
_SHAPES_MAX = 4
_SENDERS_MAX = 10_000


class Kind(NamedTuple):
    """What a pass counts. minutes: as MINUTES. sender: domains of senders, instead of recipients."""

    minutes: tuple[int, ...] = MINUTES
    sender: bool = False


class Wanted(NamedTuple):
    """What of a pass a table shows. zone: None: of all. states: (): all. subdomains: domains with at least so many
    right below them have a row for all of these, too; 0: none has."""

    by: str
    zone: str | None = None
    states: tuple[str, ...] = ()
    subdomains: int = 0


class Table(NamedTuple):
    """The largest, PAGE_MAX at most: names and ages; the ages of all of them, and how many names there are. walked: of
    how many recipients; complete: whether these are all."""

    largest: list[tuple[str, list[int]]]
    all_of_it: list[int]
    names: int
    walked: int
    complete: bool


class Shape:
    """One pass: recipients by zone, domain, age and state."""

    def __init__(self, queue: QueueContext, kind: Kind) -> None:
        self._queue, self._core, self._kind = queue, queue.core, kind
        self._at_once = AT_ONCE_READ if kind.sender else AT_ONCE
        self._bounds_ms = [minutes * 60_000 for minutes in reversed(kind.minutes)]
        self._senders = dict[bytes, bytes]()
        self.counts: dict[tuple[bytes, bytes, int, State], int] = {}
        self.tables: dict[Wanted, Table] = {}
        """Of a pass that is complete, as they were asked for."""
        self._making: set[Wanted] = set()
        self.walked, self.complete, self.ended = 0, False, asyncio.Event()
        self.begun_s, self.begun_ms = self._core.clock.monotonic(), self._core.clock.ms()

    @property
    def kept_s(self) -> float:
        """How long nobody counts again, by what it costs."""
        return KEPT_S * min(1.0, self.walked * (AT_ONCE / self._at_once) / KEPT_OF)

    async def run(self) -> None:
        """Raises StoreError."""
        at_once = self._at_once
        for family, state in sorted((family, state) for family, state in FAMILY.items() if state not in OVER):
            prefix = f"{family} ".encode()
            start, stop, pace = prefix, keys.end(prefix), Pace(math.inf)
            before_id = 3 if prefix in keys.PLACED else 2
            while rows := list(islice(self._core.disk.store.keys(start, stop), at_once)):
                self._count(rows, before_id, state)
                start = rows[-1] + b"\0"
                await pace.turn()
        self.complete = True

    def _count(self, rows: list[bytes], before_id: int, state: State) -> None:
        """Keys are only cut, not taken apart: there may be millions. before_id: how many parts are before the id."""
        clock, counts, last = self._core.clock, self.counts, len(self._bounds_ms)
        now_ms, was_set = clock.steady_ms(), len(clock.steps) > 1
        bounds = [keys.id_at(now_ms - clock.apart_ms() - ms + 1).encode() for ms in self._bounds_ms]
        busy, leased = self._core.schedule.busy, None
        for key in rows:
            parts, its = key.split(b" ", before_id + 1), state
            if key in busy:
                leased = self._leased() if leased is None else leased
                its = State.LEASED if key in leased else state
            id = parts[before_id]
            name = self._sender(id) if self._kind.sender else parts[-1].rpartition(b"@")[2]
            if was_set:  # then ids do not say how old they are
                id = keys.id_at(clock.born_ms(id.decode()) - clock.apart_ms()).encode()
            where = parts[1], name, last - bisect_right(bounds, id), its
            counts[where] = counts.get(where, 0) + 1
        self.walked += len(rows)

    def _leased(self) -> set[bytes]:
        return {entry.key for lease in self._queue.leases.out.values() for entry in lease.open}

    def _sender(self, message_id: bytes) -> bytes:
        """Its domain."""
        known = self._senders.get(message_id)
        if known is None:
            if len(self._senders) >= _SENDERS_MAX:
                self._senders.clear()
            try:
                sender = str(self._core.messages.peek(message_id.decode()).get("sender", ""))
            except StoreDamaged:
                return b""
            known = self._senders[message_id] = (sender.rpartition("@")[2].lower() or NO_SENDER).encode()
        return known

    async def table(self, wanted: Wanted, pace: Pace) -> Table:
        """If there is too much for its time, of a part; the whole is made behind the answer."""
        known = self.tables.get(wanted)
        if known is not None:
            return known
        table = await self._made(wanted, pace)
        if table.complete:
            self.tables[wanted] = table
        elif self.complete and wanted not in self._making:
            self._making.add(wanted)
            self._core.keep(asyncio.ensure_future(behind(lambda: self._keep(wanted), BEHIND)))
        return table

    async def _keep(self, wanted: Wanted) -> None:
        self.tables[wanted] = await self._made(wanted, Pace(math.inf))

    async def _made(self, wanted: Wanted, pace: Pace) -> Table:
        width = len(self._kind.minutes) + 1
        found, total, there = dict[str, list[int]](), [0] * width, (wanted.zone or "").encode()
        by_domain, name_of, complete, walked = dict[bytes, list[int]](), _names(self._core, wanted.by), self.complete, 0
        states = frozenset(wanted.states or STATES)
        # what is complete changes no more, so that it can be walked in portions
        items = iter(self.counts.items() if complete else list(islice(self.counts.items(), PART)))
        while part := list(islice(items, NAMED_AT_ONCE)):
            if walked and pace.over:
                complete = False
                break
            for (zone_name, domain, age, state), count in part:
                walked += count
                if state in states and (wanted.zone is None or zone_name == there):
                    ages = by_domain.get(domain)
                    if ages is None:
                        ages = by_domain[domain] = found.setdefault(name_of(domain.decode()), [0] * width)
                    ages[age] += count
                    total[age] += count
            await pace.turn()
        names = len(found)
        if wanted.subdomains:
            found |= await parents(found, wanted.subdomains, pace)
        return Table(await _largest(found, pace), total, names, walked, complete)


async def _largest(found: dict[str, list[int]], pace: Pace) -> list[tuple[str, list[int]]]:
    names, largest = iter(found), list[tuple[int, str]]()
    while some := [(sum(found[name]), name) for name in islice(names, NAMED_AT_ONCE)]:
        largest = heapq.nlargest(PAGE_MAX, largest + some)
        await pace.turn()
    return [(name, found[name]) for _, name in largest]


async def parents(found: dict[str, list[int]], least: int, pace: Pace) -> dict[str, list[int]]:
    """Rows of domains with a dot before their names: the sums of all that are below them, where so many are right
    below; top-level domains have none."""
    sums, below = dict[str, list[int]](), dict[str, int]()
    async for name, ages in pace.each(found.items()):
        new, parent = True, name.partition(".")[2]
        while "." in parent:
            below[parent] = below.get(parent, 0) + new
            new = parent not in sums
            sums[parent] = [one + more for one, more in zip(sums.get(parent, [0] * len(ages)), ages, strict=True)]
            parent = parent.partition(".")[2]
    return {f".{name}": ages for name, ages in sums.items() if below[name] >= least}


_shapes: WeakKeyDictionary[Core, dict[Kind, tuple[Shape | None, Shape | None]]] = WeakKeyDictionary()
"""Of each kind the last complete pass, and the one that is being made."""


async def qshape(
    queue: QueueContext, by: str = "domain", zone: str | None = None, limit: int = 50, after: int = 0,
    states: list[str] | None = None, minutes: list[int] | None = None, subdomains: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """rows: {name, total, ages}, the largest first, without the first `after`; `all`: the same of all; `minutes`: where
    each age ends. states: only recipients in these.

    Raises ValueError.
    """
    if by not in BY:
        raise Refused(f"ages are counted by {', '.join(BY)}, not by {by!r}")
    if unknown := set(states or ()).difference(STATES):
        raise Refused(f"what waits is {', '.join(STATES)}, not {min(unknown)!r}")
    kind = Kind(_checked(minutes) if minutes else MINUTES, by == "sender")
    pace = Pace()
    shape = await _shape(queue, kind)
    table = await shape.table(Wanted(by, zone, tuple(sorted(states or ())), subdomains), pace)
    _, running = _shapes[queue.core].get(kind, (None, None))
    rows = [_row(name, ages) for name, ages in table.largest[max(0, after) :][: max(1, limit)]]
    return {
        "by": by, "minutes": list(kind.minutes), "rows": rows, "all": _row("all", table.all_of_it),
        "names": table.names, "walked": table.walked, "of": sizes.waiting(queue.core.counters.sizes.total),
        "complete": table.complete, "counting": running is not None, "at_ms": shape.begun_ms,
    }  # fmt: skip


def _checked(minutes: list[int]) -> tuple[int, ...]:
    """Raises ValueError."""
    if len(minutes) >= AGES_MAX or minutes[0] < 1 or any(one >= next_ for one, next_ in pairwise(minutes)):
        raise Refused(f"ages are fewer than {AGES_MAX} numbers of minutes, each more than the one before")
    return tuple(minutes)


def _row(name: str, ages: list[int]) -> dict[str, Any]:
    return {"name": name, "total": sum(ages), "ages": ages}


def _names(core: Core, by: str) -> Callable[[str], str]:
    if by == "provider":
        return lambda domain: core.counters.sizes.providers.provider_of.get(domain, "")
    if by == "site":
        known = core.schedule.sites.known
        return lambda domain: site.key if isinstance(site := known(domain), Site) else domain
    return lambda domain: domain


async def _shape(queue: QueueContext, kind: Kind) -> Shape:
    """The last one, if it is new enough; otherwise a new one begins, and there is a moment to wait for it."""
    core, shapes = queue.core, _shapes.setdefault(queue.core, {})
    last, running = shapes.get(kind, (None, None))
    if last is not None and core.clock.monotonic() < last.begun_s + last.kept_s:
        return last
    if running is None:
        running = Shape(queue, kind)
        idle = [one for one, (_, busy) in shapes.items() if busy is None and one != kind]
        for one in idle[: max(0, len(shapes) + 1 - _SHAPES_MAX)]:
            del shapes[one]
        shapes[kind] = last, running
        core.keep(asyncio.ensure_future(_run(shapes, kind, running)))
    with suppress(TimeoutError):
        await asyncio.wait_for(running.ended.wait(), PAGE_S / 2)
    if running.complete or last is None or core.clock.monotonic() >= last.begun_s + OLD_S:
        return running
    return last


async def _run(shapes: dict[Kind, tuple[Shape | None, Shape | None]], kind: Kind, running: Shape) -> None:
    last = shapes[kind][0]
    try:
        await behind(running.run, BEHIND)
        last = running
    except StoreError:
        pass  # the next question begins again
    finally:
        shapes[kind] = last, None
        running.ended.set()

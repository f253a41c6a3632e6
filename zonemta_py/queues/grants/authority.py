"""Who gives the shares of limits: rates in parts, slots and quota in units, to queues that ask for them.

Promise: what all queues together take of a limit in any time is no more than its rate and burst allow; no more slots
are open, nor more of a quota is spent, than there are; whatever is late or lost, whoever ends or stands still, and
whenever another authority follows this one. And whoever needs something gets it, with all that it needs together.

A bucket of rate r, burst b and level l may be split into several with rates, bursts and levels that add up to these:
together they pass no more. What is on its way refills for as long as it is known to have been (`Lag`). A queue that
is not heard of loses its rates when its lease is over by both clocks; what it had left is taken for nothing. It keeps
slots and quota until it says something else, or its next process does.

Who alone wants a limit has all of it. A limit on which several queues wait is divided by what they use, where each
part's burst is at least the largest cost that was asked for; where not, all of it goes to one after the other: first to
who has waited longest, together with everything else that it needs, once all of that is there. What that one cannot
use until then goes to others meanwhile, as far as it is back in time. A queue that has it may use it for TURN_S.

An authority keeps nothing. Its successor begins with what all queues say they have and have used. A queue that does not
say that within a lease has no rates any more; then limits begin empty, and nobody gets slots, quotas, or rates with
costs that may be above their burst.

Pure: `connected`, `heard` and `disconnected` take in, `tick` decides and says what is to be sent: after each event and
at `next_at`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from zonemta_py.queues.grants.messages import (
    BEAT_S,
    COUNTS,
    IDLE_S,
    LEASE_S,
    MARGIN_S,
    PARTS,
    QUOTA,
    TURN_S,
    Granted,
    Granting,
    Held,
    Id,
    Lag,
    Used,
    Welcome,
)

AHEAD_S = 0.05
"""A limit is handed over so long before it allows the next cost: its new holder waits by its own clock."""
CONTESTED_S = 3.0
"""Others who were there so long ago may come again."""
BALANCE_S = 0.25
MANY = 10
"""Of so many slots each queue keeps one, although others want it and it has not used any lately."""
SWEEP_S = 10.0
HUNGRY_S = 1.0
WHOLE = ("messages", "new_connections")
"""Each costs one."""
_ALMOST = 1e-9


class _Queue:
    """What is known of one queue. end: of its lease. life: its shares of rates are those given since that number."""

    def __init__(self) -> None:
        self.connected = self.introduced = self.stated = self.greet = False
        self.session, self.life, self.process = 0, 1, ""
        self.haunted = True
        self.unknown = False
        """Earlier connections of it may be open, of which this authority does not know how many."""
        self.end = self.echo = 0.0
        self.owed = False
        """An answer."""
        self.lag = Lag()
        self.needs: dict[int, _Need] = {}


class _Need:
    __slots__ = ("given", "number", "queue", "since", "wanted")

    def __init__(self, queue: int, number: int, since: float, wanted: list[tuple[_Rate | _Count, float]]) -> None:
        self.queue, self.number, self.since, self.wanted = queue, number, since, wanted
        self.given = False
        """Its queue has had all of that. If other mail went with it, that is the queue's own affair: it waits anew."""


class _Contest:
    """Who wants a resource."""

    def __init__(self, id: Id) -> None:
        self.id = id
        self.sizes: dict[int, tuple[float, float]] = {}
        self.wanters: set[int] = set()
        """Whose needs, of those that wait now, name it."""
        self.hungry: dict[int, float] = {}
        self.granted_at: dict[int, float] = {}
        self.cut: dict[int, int] = {}
        self.several_at = -math.inf
        """When more than one wanted it."""
        self.seen = dict[int, float]()
        """When each wanted it, or had some."""

    def of_late(self, interested: set[int], now: float) -> set[int]:
        """With those that wanted it a moment ago, and will again."""
        self.seen.update(dict.fromkeys(interested, now))
        return {queue for queue, at in self.seen.items() if now - at < HUNGRY_S}

    def contested(self, interested: set[int], now: float) -> bool:
        if len(interested) > 1:
            self.several_at = now
        return now - self.several_at < CONTESTED_S


class _Rate(_Contest):
    """A rate: who has which parts, and what is left here."""

    def __init__(self, id: Id, now: float) -> None:
        super().__init__(id)
        self.parts: dict[int, int] = {}
        self.costs: dict[int, float] = {}
        self.worst: dict[int, float] = {}
        self.debts: dict[int, float] = {}
        """What was missing in what each got."""
        self.speeds: dict[int, tuple[float, float]] = {}
        """Units a second, as of when."""
        self.turn_end: dict[int, float] = {}
        self.size = self.burst = 0.0
        self.pool, self.at = 0.0, now
        self.balanced = -math.inf
        self.used = self.held = 0.0
        """Of the whole, and there, by what queues say of themselves: until the authority has begun."""

    def resize(self, queue: int, size: float, burst: float, now: float) -> None:
        if self.sizes.get(queue) == (size, burst):
            return
        if self.sizes:
            self.level(now)
        self.sizes[queue] = size, burst
        self._strictest()

    def _strictest(self) -> None:
        if self.sizes:
            self.size = min(size for size, _ in self.sizes.values())
            self.burst = min(burst for _, burst in self.sizes.values())

    @property
    def free(self) -> int:
        return PARTS - sum(self.parts.values())

    def level(self, now: float) -> float:
        """Of the parts that nobody has."""
        free = max(0, self.free)
        self.pool = min(self.pool + (now - self.at) * self.size * free / PARTS, self.burst * free / PARTS)
        self.at = now
        return self.pool

    def back(self, queue: int, parts: int, level: float, late: float, now: float) -> None:
        """parts may be 0: a debt."""
        self.level(now)
        parts = min(parts, self.parts.get(queue, 0))
        left = self.parts.get(queue, 0) - parts
        if left:
            self.parts[queue] = left
        else:
            self.parts.pop(queue, None)
            self.turn_end.pop(queue, None)
            self.debts.pop(queue, None)
        level = min(level + late * self.size * parts / PARTS, max(level, self.burst * parts / PARTS))
        self.pool = min(self.pool + level, self.burst * max(0, self.free) / PARTS)

    def lose(self, queue: int, keep: int, now: float) -> None:
        """What a queue had, of which nobody knows how much is left."""
        parts = self.parts.get(queue, 0) - keep
        if parts > 0:
            debt = self.debts.get(queue, 0.0)
            if parts + keep == PARTS:
                debt = max(debt, self.worst.get(queue, 0.0) - self.burst)
            self.back(queue, parts, -debt, 0.0, now)
        self.cut.pop(queue, None)

    def ready_s(self, cost: float, now: float) -> float:
        """Seconds until that may go, if all parts are here."""
        return max(0.0, min(cost, self.burst) - self.level(now)) / self.size

    def granule(self, queues: set[int]) -> float:
        return max((self.costs.get(queue, 0.0) for queue in queues), default=0.0) or 1.0

    def divisible(self, queues: set[int]) -> bool:
        return self._least(queues) * len(queues) <= PARTS

    def _least(self, queues: set[int]) -> int:
        """Parts of which the burst is enough for each cost."""
        return max(1, math.ceil(PARTS * self.granule(queues) / self.burst - _ALMOST))

    def targets(self, queues: set[int], now: float) -> dict[int, int]:
        """Parts for each: as much as it uses, and the rest to those that would use more."""
        least = self._least(queues)
        wants = dict[int, float]()
        for queue in queues:
            waits = queue in self.wanters and not self.parts.get(queue)
            hungry = waits or now - self.hungry.get(queue, -math.inf) < HUNGRY_S
            speed, at = self.speeds.get(queue, (0.0, now))
            wants[queue] = math.inf if hungry or now - at > IDLE_S else 1.25 * speed / self.size * PARTS
        return _levelled(wants, PARTS, least)


class _Count(_Contest):
    """Slots, or a quota: how many each has, with those that are in use."""

    def __init__(self, id: Id) -> None:
        super().__init__(id)
        self.charged: dict[int, int] = {}
        self.ghosts: dict[int, int] = {}
        """Slots of processes that have ended, whose connections may be open."""
        self.in_use: dict[int, int] = {}
        self.size = 0
        self.reserved = 0

    def resize(self, queue: int, size: float) -> None:
        self.sizes[queue] = size, 0.0
        self.size = int(min(size for size, _ in self.sizes.values()))

    @property
    def free(self) -> int:
        return self.size - sum(self.charged.values()) - sum(self.ghosts.values())

    def spent(self, queue: int) -> int:
        return self.in_use.get(queue, 0) if self.id[0] == QUOTA else 0

    def has(self, queue: int) -> int:
        """Of what can be used once more."""
        return self.charged.get(queue, 0) - self.spent(queue)

    def _keeps(self, queue: int) -> int:
        """Of a queue that wants no more: so that it can go on."""
        if self.id[0] == QUOTA:
            return 1
        used = self.in_use.get(queue, 0)
        return used + used // 4 + (1 if used or self.size >= MANY else 0)

    def targets(self, queues: set[int], now: float) -> dict[int, int]:
        room = self.size - sum(self.ghosts.values()) - sum(self.spent(queue) for queue in self.charged)
        wants = dict[int, float]()
        for queue in queues:
            waits = queue in self.wanters and self.charged.get(queue, 0) <= self.in_use.get(queue, 0)
            hungry = waits or now - self.hungry.get(queue, -math.inf) < HUNGRY_S
            wants[queue] = math.inf if hungry else self._keeps(queue)
        return _levelled(wants, max(0, room), 0)


def _levelled(wants: dict[int, float], total: int, least: int) -> dict[int, int]:
    """Who wants little gets that, the others as much as each other; nobody less than `least`."""
    found, rest = dict[int, int](), total
    order = sorted(wants, key=wants.__getitem__)
    for index, queue in enumerate(order):
        equal = rest // (len(order) - index)
        if wants[queue] >= equal:  # so do all that follow; what does not divide is nobody's
            return found | dict.fromkeys(order[index:], equal)
        found[queue] = max(int(wants[queue]), least)
        rest -= found[queue]
    return found


class GrantAuthority:
    """For queues with these numbers. era: another text for each authority that there ever was."""

    def __init__(self, queues: Iterable[int], era: str, now: float) -> None:
        self._era = era
        self._queues = {number: _Queue() for number in queues}
        self._all: dict[Id, _Rate | _Count] = {}
        self._begun_at: float | None = None
        """When it began to give."""
        self._adopt_until = now + LEASE_S + MARGIN_S
        self._whole = False
        """All have stated what they had when it began."""
        self._next, self._swept = -math.inf, now
        self._wanted = set[_Rate | _Count]()
        self._contests = set[_Rate | _Count]()

    # -- what comes in

    def connected(self, queue: int, now: float) -> None:
        """A new connection of the queue's present process; an earlier one is over."""
        state = self._queues[queue]
        state.session += 1
        state.connected, state.introduced, state.greet = True, False, True
        state.owed = False
        state.needs.clear()
        self._next = now

    def disconnected(self, queue: int, now: float) -> None:
        """Nothing more of this connection comes, or goes."""
        state = self._queues[queue]
        state.connected = state.introduced = state.greet = False
        state.needs.clear()
        self._next = now

    def used(self, id: Id, now: float) -> float:
        """Units that are missing in those parts of a rate that no queue has."""
        rate = self._all.get(id)
        if not isinstance(rate, _Rate):
            return 0.0
        return max(0.0, rate.burst * max(0, rate.free) / PARTS - rate.level(now))

    def heard(self, queue: int, message: Sequence[Any], now: float) -> None:
        """Messages of a connection that is over must not come."""
        state = self._queues[queue]
        if not state.connected or message[0] != state.session:
            return
        self._next = now
        if message[-1] == "hello":
            self._introduced(queue, state, now, *message[1:-1])
        elif message[-1] == "asking" and state.introduced:
            self._asked(queue, state, now, *message[1:-1])

    def _introduced(
        self, queue: int, state: _Queue, now: float, process: str, haunted: bool, sent: float, rows: list[Any]
    ) -> None:
        first, another = not state.stated, process != state.process
        if another:
            state.lag = Lag()
        state.lag.late(sent, now)
        held = {(row := Held(tuple(id), *values)).id: row for id, *values in rows}
        adopting = first and self._begun_at is None
        for id, row in held.items():
            found = self._find(id, now)
            if isinstance(found, _Count):
                found.resize(queue, row.size)
            else:
                found.resize(queue, row.size, row.burst, now)
                found.worst[queue] = max(found.worst.get(queue, 0.0), row.cost)
                if first:
                    found.used += row.used
                if adopting and row.has:
                    found.parts[queue] = row.has
                    found.held += max(0.0, row.level)
                    found.debts[queue] = max(0.0, -row.level)
        for id, found in self._all.items():
            mine = held.get(id)
            if isinstance(found, _Rate):
                found.lose(queue, mine.has if mine else 0, now)
                continue
            if another and not first and haunted and id[0] != QUOTA:
                found.ghosts[queue] = found.ghosts.get(queue, 0) + found.charged.get(queue, 0)
            found.charged.pop(queue, None)
            found.in_use.pop(queue, None)
            found.cut.pop(queue, None)
            if mine:
                found.charged[queue], found.in_use[queue] = mine.has, mine.in_use
        if first:
            state.unknown = haunted
        state.process, state.introduced, state.stated = process, True, True
        state.end, state.echo, state.owed = now + LEASE_S + MARGIN_S, sent, True
        self._haunt(queue, state, haunted)

    def _haunt(self, queue: int, state: _Queue, haunted: bool) -> None:
        state.haunted = haunted
        if not haunted:
            state.unknown = False
            for found in self._all.values():
                if isinstance(found, _Count):
                    found.ghosts.pop(queue, None)

    def _asked(
        self, queue: int, state: _Queue, now: float, haunted: bool, sent: float, rows: list[Any], needs: list[Any],
        served: list[int],
    ) -> None:  # fmt: skip
        late = state.lag.late(sent, now)
        state.end, state.echo, state.owed = now + LEASE_S + MARGIN_S, sent, True
        if state.haunted and not haunted:
            self._haunt(queue, state, haunted)
        for id, *values in rows:
            self._changed_row(queue, Used(tuple(id), *values), late, now)
        for number in served:
            state.needs.pop(number, None)
        for number, wanted in needs:
            before = state.needs.get(number)
            since = before.since if before and not before.given else now
            found = [(self._find(tuple(id), now), cost) for id, cost in wanted]
            state.needs[number] = _Need(queue, number, since, found)

    def _changed_row(self, queue: int, row: Used, late: float, now: float) -> None:
        found = self._find(row.id, now)
        if row.hungry:
            found.hungry[queue] = now
        if isinstance(found, _Count):
            found.resize(queue, row.size)
            left = found.charged.get(queue, 0) - row.back
            found.charged[queue], found.in_use[queue] = left, row.in_use
            if found.free < 0:
                self._contests.add(found)
            if left <= found.cut.get(queue, 0):
                found.cut.pop(queue, None)
            return
        found.cut.pop(queue, None)
        found.resize(queue, row.size, row.burst, now)
        found.costs[queue] = row.cost
        found.worst[queue] = max(found.worst.get(queue, 0.0), row.cost)
        speed, at = found.speeds.get(queue, (0.0, now))
        if now > at:
            weight = min(1.0, (now - at) / (2 * BEAT_S))
            speed += weight * (row.taken / (now - at) - speed)
        found.speeds[queue] = speed, now
        if row.back or row.level:
            found.back(queue, row.back, row.level, late, now)

    def _find(self, id: Id, now: float) -> Any:
        found = self._all.get(id)
        if found is None:
            if id[0] in COUNTS:
                found = _Count(id)
            else:
                found = _Rate(id, now)
                found.pool = math.inf  # full, if …
                if not self._whole and self._begun_at is not None:
                    found.at, found.pool = self._begun_at, 0.0  # … it could be known
            self._all[id] = found
        return found

    # -- what is decided

    def next_at(self) -> float:
        """When `tick` may have something, if nothing comes in before."""
        return self._next

    def tick(self, now: float) -> list[tuple[int, Welcome | Granting]]:
        """What is to be sent now. What is lost is as if the connection had been lost: `disconnected` must follow."""
        self._next = now + 60.0
        out = list[tuple[int, Welcome | Granting]]()
        for number, state in self._queues.items():
            self._expire(number, state, now)
            if state.greet:
                state.greet = False
                adopting = self._begun_at is None and not state.stated
                out.append((number, Welcome(self._era, state.session, state.life, adopting, now)))
        self._begin(now)
        decided = _Decided(now)
        if self._begun_at is not None:
            self._decide(decided, now)
        for number, state in self._queues.items():
            adds, cuts = decided.adds.get(number, []), decided.cuts.get(number, [])
            if state.introduced and (state.owed or adds or cuts):
                state.owed = False
                out.append((number, Granting(state.session, now, state.echo, adds, cuts)))
        self._sweep(now)
        return out

    def _expire(self, number: int, state: _Queue, now: float) -> None:
        if not state.stated or state.end == math.inf:
            return
        if now < state.end:
            self._at(state.end)
            return
        state.life += 1
        state.end = math.inf
        for found in self._all.values():
            if isinstance(found, _Rate):
                found.lose(number, 0, now)
        if state.connected:
            state.session += 1
            state.introduced, state.greet = False, True
            state.needs.clear()

    def _begin(self, now: float) -> None:
        stated = all(state.stated for state in self._queues.values())
        if self._begun_at is None:
            if not stated and now < self._adopt_until:
                self._at(self._adopt_until)
                return
            self._begun_at = now
            for state in self._queues.values():
                if not state.stated:
                    state.life += 1
            for found in self._all.values():
                if isinstance(found, _Rate):
                    self._open(found, stated, now)
        self._whole = stated

    @staticmethod
    def _open(found: _Rate, stated: bool, now: float) -> None:
        """What is left of it, by what queues have said."""
        worst = max(found.worst.values(), default=0.0)
        least = -max(0.0, worst - found.burst)
        left = found.burst - found.used - found.held if stated else least
        found.pool, found.at = max(least, left), now
        found.level(now)

    def _at(self, when: float) -> None:
        self._next = min(self._next, when)

    def _decide(self, decided: _Decided, now: float) -> None:
        for found in self._wanted:
            found.wanters.clear()
        self._wanted.clear()
        needs = list[_Need]()
        for number, state in self._queues.items():
            if not state.introduced or now >= state.end:
                continue
            for need in state.needs.values():
                needs.append(need)
                for found, _ in need.wanted:
                    found.wanters.add(number)
                    self._wanted.add(found)
        needs.sort(key=lambda need: (need.since, need.queue, need.number))
        decided.live = {number for number, state in self._queues.items() if state.introduced and now < state.end}
        for need in needs:
            if not need.given:
                self._serve(need, decided, now)
        for found in list(self._contests):
            if isinstance(found, _Rate):
                self._balance(found, decided, now)
            elif found.free < 0:  # there are fewer than there were
                targets = found.targets(self._interested(found), now)
                for queue, most in targets.items():
                    if found.has(queue) > most:
                        decided.cut(found, queue, found.spent(queue) + most)
            elif not found.contested(self._interested(found), now):
                self._contests.discard(found)

    def _serve(self, need: _Need, decided: _Decided, now: float) -> None:
        """All that it needs and nobody else may have, at once or not at all; what is its own anyway, at once."""
        together, lacking, when = list[tuple[_Rate | _Count, Granted]](), list[tuple[_Rate | _Count, float]](), now
        for found, cost in need.wanted:
            if isinstance(found, _Count):
                offer = self._offer_count(found, need.queue, cost, decided)
            else:
                offer = self._offer_rate(found, need.queue, cost, decided)
            if offer.granted is not None and offer.alone:
                self._give(found, need.queue, offer.granted, decided)
            elif offer.granted is not None:
                together.append((found, offer.granted))
                lacking.append((found, cost))
            elif offer.when > now:
                when = max(when, offer.when)
                if offer.claims:
                    lacking.append((found, cost))
        if when <= now:
            for found, granted in together:
                self._give(found, need.queue, granted, decided)
            need.given = True
            return
        for found, cost in lacking:
            if isinstance(found, _Rate):
                decided.claims[found] = min(decided.claims.get(found, math.inf), when)
            elif when - now < TURN_S:
                decided.reserved[found] = decided.reserved.get(found, 0) + int(cost)

    def _interested(self, found: _Rate | _Count) -> set[int]:
        if isinstance(found, _Rate):
            return found.wanters | found.parts.keys()
        return found.wanters | {queue for queue in found.charged if found.has(queue) > 0}

    def _offer_rate(self, found: _Rate, queue: int, cost: float, decided: _Decided) -> _Offer:
        now, has, free = decided.now, found.parts.get(queue, 0), found.free
        if not self._whole and (found.id[0] not in WHOLE or found.burst < 1):
            return _Offer(math.inf)
        interested = self._interested(found)
        contested = found.contested(interested, now)
        if contested:
            self._contests.add(found)
        if len(interested) == 1:
            if has == PARTS or not free:
                return _IN_HAND
            turn_s = 0.0 if not contested else -1.0 if has or found.divisible({0, 1}) else TURN_S
            return _Offer(now, Granted(found.id, free, found.level(now), turn_s), alone=True)
        interested = found.of_late(interested, now)
        if found.divisible(interested):
            if cost <= found.burst * has / PARTS + _ALMOST:
                return _IN_HAND
            targets = found.targets(interested, now)
            more = min(free, targets[queue] - has)
            if more > 0 and cost <= found.burst * (has + more) / PARTS + _ALMOST:
                return _Offer(now, Granted(found.id, more, found.level(now) * more / free, -1.0), alone=True)
            self._cut_down(found, targets, 1.0, decided)
            return _Offer(math.inf)
        if has == PARTS:
            return _IN_HAND
        claim = decided.claims.get(found)
        if free < PARTS:
            if claim is not None:
                return _Offer(max(claim, now + AHEAD_S), claims=True)
            when = now
            for other, parts in found.parts.items():
                end = found.turn_end.get(other, now) if parts == PARTS else now
                if end <= now:
                    decided.cut(found, other, 0)
                else:
                    self._at(end)
                when = max(when, end)
            return _Offer(when + AHEAD_S, claims=True)
        ready = now + found.ready_s(cost, now) - AHEAD_S
        if ready > now:
            self._at(ready)
            return _Offer(ready + AHEAD_S, claims=True)
        turn_s = TURN_S
        if claim is not None:
            turn_s = min(turn_s, claim - now)
            if turn_s < max(2 * AHEAD_S, min(cost, found.burst) / found.size):
                return _Offer(max(claim, now + AHEAD_S), claims=True)
        return _Offer(now, Granted(found.id, PARTS, found.level(now), turn_s))

    def _offer_count(self, found: _Count, queue: int, cost: float, decided: _Decided) -> _Offer:
        now = decided.now
        if not self._whole or any(state.unknown for state in self._queues.values()):
            return _Offer(math.inf)
        charged, cut = found.charged.get(queue, 0), found.cut.get(queue)
        if cut is None and charged - found.in_use.get(queue, 0) >= cost:
            return _IN_HAND
        interested = self._interested(found)
        contested = found.contested(interested, now)
        if contested:
            self._contests.add(found)
        free = max(0, found.free)
        if len(interested) == 1:
            if not free and cut is None:
                return _Offer(math.inf)
            return _Offer(now, Granted(found.id, free, 0.0, -1.0 if contested else 0.0), alone=True)
        free -= decided.reserved.get(found, 0)
        targets = found.targets(interested, now)
        has = {other: found.has(other) for other in interested}
        fewer = any(has[other] < targets[other] for other in found.wanters if other != queue)
        if has[queue] >= targets[queue] and fewer:
            return _Offer(math.inf)
        if free >= cost:
            more = min(free, max(int(cost), targets[queue] - has[queue]))
            return _Offer(now, Granted(found.id, more, 0.0, -1.0 if targets[queue] else TURN_S))
        for other in interested - {queue}:
            if has[other] > targets[other]:
                since = found.granted_at.get(other, -math.inf)
                if has[other] > targets[other] + 1 or now - since >= TURN_S:
                    decided.cut(found, other, found.spent(other) + targets[other])
                else:
                    self._at(since + TURN_S)
        return _Offer(now + AHEAD_S, claims=True)

    @staticmethod
    def _cut_down(found: _Rate, targets: dict[int, int], slack: float, decided: _Decided) -> None:
        for queue, parts in found.parts.items():
            if parts > targets[queue] * slack:
                decided.cut(found, queue, targets[queue])

    def _balance(self, found: _Rate, decided: _Decided, now: float) -> None:
        interested = self._interested(found)
        if not found.contested(interested, now):
            self._contests.discard(found)
            for queue in interested & decided.live:  # the only one
                self._give(found, queue, Granted(found.id, found.free, found.level(now), 0.0), decided)
            return
        if now < found.balanced + BALANCE_S:
            self._at(found.balanced + BALANCE_S)
            return
        found.balanced = now
        interested = found.of_late(interested, now)
        if not interested or not found.divisible(interested):
            return
        targets = found.targets(interested, now)
        short = [
            queue
            for queue, parts in found.parts.items()
            if parts < 0.9 * targets[queue] and now - found.hungry.get(queue, -math.inf) < HUNGRY_S
        ]
        for queue in short:
            more = min(found.free, targets[queue] - found.parts[queue])
            if more > 0 and queue in decided.live:
                level = found.level(now) * more / found.free
                self._give(found, queue, Granted(found.id, more, level, -1.0), decided)
        if any(found.parts[queue] < 0.9 * targets[queue] for queue in short):
            self._cut_down(found, targets, 1.05, decided)
        if found.parts:
            self._at(now + BALANCE_S)

    def _give(self, found: _Rate | _Count, queue: int, granted: Granted, decided: _Decided) -> None:
        decided.add(queue, granted)
        found.cut.pop(queue, None)
        found.granted_at[queue] = decided.now
        if isinstance(found, _Count):
            found.charged[queue] = found.charged.get(queue, 0) + granted.more
            return
        found.level(decided.now)
        found.pool -= granted.level
        if granted.level < 0:
            found.debts[queue] = found.debts.get(queue, 0.0) - granted.level
        found.parts[queue] = found.parts.get(queue, 0) + granted.more
        if granted.turn_s > 0:
            found.turn_end[queue] = decided.now + granted.turn_s
        else:
            found.turn_end.pop(queue, None)

    def _sweep(self, now: float) -> None:
        """Forgets what nobody has, and what is as if nobody had had it."""
        if now < self._swept + SWEEP_S or self._begun_at is None:
            return
        self._swept = now
        needed = {found for state in self._queues.values() for need in state.needs.values() for found, _ in need.wanted}
        for id, found in list(self._all.items()):
            if found in needed or found in self._contests:
                continue
            if isinstance(found, _Rate):
                idle = not found.parts and found.level(now) >= found.burst
            else:
                idle = not (any(found.charged.values()) or any(found.ghosts.values()))
            if idle:
                del self._all[id]


class _Offer:
    """granted: now. alone: it does not matter what else is needed. when: not before. claims: until then it is kept."""

    __slots__ = ("alone", "claims", "granted", "when")

    def __init__(self, when: float, granted: Granted | None = None, alone: bool = False, claims: bool = False) -> None:
        self.when, self.granted, self.alone, self.claims = when, granted, alone, claims


_IN_HAND = _Offer(-math.inf)


class _Decided:
    """What one `tick` comes to."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.adds: dict[int, list[Granted]] = {}
        self.cuts: dict[int, list[tuple[Id, int]]] = {}
        self.live = set[int]()
        self.claims: dict[_Rate, float] = {}
        """Until when others may have it meanwhile."""
        self.reserved: dict[_Count, int] = {}

    def add(self, queue: int, granted: Granted) -> None:
        self.adds.setdefault(queue, []).append(granted)

    def cut(self, found: _Rate | _Count, queue: int, most: int) -> None:
        """The queue is to give back what it has above that."""
        if queue in self.live and found.cut.get(queue) != most:
            found.cut[queue] = most
            self.cuts.setdefault(queue, []).append((found.id, most))

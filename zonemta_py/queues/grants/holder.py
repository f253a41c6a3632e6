"""A queue's side of the limits that it shares with other queues: what of each is its own, for now.

`rate` and `count` give the resources of a limit; each take looks at the clock, so that a process that was stopped takes
nothing of what it had before. A delivery that has to wait says so by `need`, with everything that it needs together;
`heard` says what may be tried again. What cannot be used is given back.

A rate is a bucket of its own (`zones/throttle.py`), with a part of the whole's rate and burst. It may be used while the
holder's lease lasts, which each answer of the authority renews. A cost above the burst goes only where the queue has
the whole, and the authority has been told of so large a cost before. Slots and quota are the queue's own until they are
given back, whatever becomes of the authority.

Pure: time is an argument (steady seconds), messages are handed over and fetched. After each event, and at `next_at`,
`next_message` is asked for what there is to send.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from zonemta_py.config import Rate
from zonemta_py.queues.grants.messages import (
    BEAT_S,
    GAP_S,
    IDLE_S,
    KEEP_S,
    LEASE_S,
    PARTS,
    Asking,
    Granted,
    Held,
    Hello,
    Id,
    Lag,
    Used,
)
from zonemta_py.zones.throttle import Bucket

NEEDS_MAX = 256
"""In one message."""
FORGET_S = 60.0
FREE_S = 0.03
"""A slot that others want is kept for the next mail for so long."""
COST_S = 10.0
"""The largest cost asked for is remembered for so long."""
_ALMOST = 1e-9


class SharedRate(Bucket):
    """So much per time, and a burst: what this queue has of it. size, whole: rate and burst of all queues together."""

    __slots__ = (
        "_holder", "announced", "contested", "cost", "cost_until", "cut", "hungry", "id", "last",
        "owed", "own", "parts", "size", "taken", "turn_until", "used_turn", "whole",
    )  # fmt: skip

    def __init__(self, holder: GrantHolder, id: Id, size: float, burst: float) -> None:
        super().__init__(Rate(size, 1), burst)
        self._holder, self.id, self.size, self.whole = holder, id, size, burst
        self.own = Bucket(Rate(size / holder.queues, 1), burst)
        """What the queue took of the whole, and refills at a queue's part of the rate: the limit is never emptier than
        that of all queues together says. It survives the authority, and by the journal the process."""
        self.parts = 0
        self.turn_until = math.inf
        self.contested = self.hungry = self.used_turn = False
        self.cut: int | None = None
        self.taken = self.owed = self.last = 0.0
        self.cost = self.cost_until = 0.0
        self.announced = 0.0
        """The authority knows that so much may be taken at once, although it is more than the burst."""

    def wait(self, now: float, cost: float = 1) -> float:
        """Seconds until `cost` may go; inf: when more of it is granted."""
        if not self.parts or now >= self._holder.until or now >= self.turn_until:
            return math.inf
        if cost > self.burst + _ALMOST and (self.parts < PARTS or cost > self.announced):
            return math.inf
        return super().wait(now, cost)

    def take(self, now: float, cost: float = 1) -> None:
        self.own.take(now, cost)
        self.own.tat = min(self.own.tat, now + max(self.whole, cost) * self.own.interval_s)
        if self.parts:
            super().take(now, cost)
            self.taken += cost
            self.last, self.used_turn = now, True
            if self.turn_until < math.inf and self.over(now):
                self._holder.touch(self)
        elif self._holder.until:
            self.owed += cost
            self._holder.touch(self)

    def give(self, now: float, cost: float, taken: float | None = None) -> None:
        """Gives back what was taken and not used, as far as it is certain that it is still missing."""
        if self.parts:
            self.own.give(now, cost, taken)
            super().give(now, cost, taken)

    def level(self, now: float) -> float:
        return super().level(now) if self.parts else 0.0

    def used(self, now: float) -> float:
        """Units that are missing in what it has."""
        return self.owed + (max(0.0, self.tat - now) / self.interval_s if self.parts else 0.0)

    def shown(self, now: float) -> dict[str, Any]:
        """The whole limit, of which this queue has used so much; with its id (`questions.shared`)."""
        ahead_s = round(self.used(now) / self.size, 3)
        return {"every_s": 1 / self.size, "burst": self.whole, "ahead_s": ahead_s, "id": list(self.id)}

    def idle(self, now: float) -> bool:
        return self.own.idle(now) and not self.owed and (not self.parts or super().idle(now))

    def asked(self, now: float, cost: float) -> bool:
        """Somebody waits for so much of it; whether it has to be granted first."""
        self.last = now
        if now >= self.cost_until:
            self.cost, self.cost_until = 0.0, now + COST_S
        self.cost = max(self.cost, cost)
        wait = self.wait(now, cost)
        self.hungry |= wait > 0  # else it is something else that is missing
        return wait == math.inf

    @property
    def has(self) -> int:
        return self.parts

    # -- by the holder

    def resize(self, size: float, burst: float, now: float) -> None:
        """Another limit from now on."""
        self.size, self.whole = size, burst
        self.own.change(Rate(size / self._holder.queues, 1), burst, now)
        if self.parts:
            self.change(Rate(size * self.parts / PARTS, 1), burst * self.parts / PARTS, now)

    def add(self, granted: Granted, late: float, now: float) -> None:
        level, part = granted.level, granted.more / PARTS
        more = min(level + late * self.size * part, max(level, self.whole * part))
        before = self.level(now) - self.owed
        self.owed, self.cut = 0.0, None
        self.parts += granted.more
        self.contested, self.used_turn = granted.turn_s != 0, False
        self.turn_until = now + granted.turn_s if granted.turn_s > 0 else math.inf
        self.last = now
        self._shape(before + more, now)

    def back(self, keep: int, now: float) -> tuple[int, float]:
        """Gives back all but `keep` parts: how many, and the level that goes with them."""
        parts, level = self.parts, self.level(now)
        back = max(0, parts - keep)
        self.cut, owed, self.owed = None, self.owed, 0.0
        if not back:
            return 0, -owed
        self.parts = parts - back
        if not self.parts:
            self.turn_until = math.inf
            return back, level - owed
        stays = level * self.parts / parts if level > 0 else level
        self._shape(stays, now)
        return back, level - stays - owed

    def over(self, now: float) -> bool:
        """Whether it is no use to keep it any longer."""
        if self.turn_until < math.inf:
            idle = now - self.last > KEEP_S
            return now >= self.turn_until or idle or (self.used_turn and self.wait(now, self.cost or 1) > KEEP_S)
        return self.contested and now - self.last > IDLE_S

    def drop(self) -> None:
        """The authority has given it to others, or will."""
        self.parts, self.cut, self.owed, self.turn_until = 0, None, 0.0, math.inf

    def _shape(self, level: float, now: float) -> None:
        if self.parts:
            self.interval_s = PARTS / (self.size * self.parts)
            self.burst = self.whole * self.parts / PARTS
            self.restore(now + (self.burst - level) * self.interval_s, now)


class SharedCount:
    """So many at once, or in a time: what this queue has of them. in_use: slots that are open, or quota spent."""

    __slots__ = (
        "_holder", "contested", "cut", "free_since", "granted", "hungry", "id", "in_use", "last", "needs", "said",
        "scarce", "size",
    )  # fmt: skip

    def __init__(self, holder: GrantHolder, id: Id, size: int) -> None:
        self._holder, self.id, self.size = holder, id, size
        self.granted = self.in_use = self.said = 0
        self.cut: int | None = None
        self.contested = self.hungry = False
        self.scarce = False
        """There are fewer than queues that want one: what is not used goes back at once."""
        self.needs = 0
        """How many who wait need one, as the authority was told: it has to know what is free here."""
        self.last, self.free_since = 0.0, math.inf

    @property
    def has(self) -> int:
        return self.granted

    def idle(self, now: float) -> bool:
        return not self.in_use

    @property
    def most(self) -> int:
        """How many may be in use."""
        return min(self.granted, self.size) if self.cut is None else min(self.granted, self.size, self.cut)

    @property
    def room(self) -> int:
        """How many more may be taken."""
        return max(0, self.most - self.in_use)

    def wait(self, now: float, cost: float = 1) -> float:
        """0.0, or inf: until some are free, or granted."""
        return 0.0 if self.room >= cost else math.inf

    def take(self, count: int = 1) -> None:
        """Takes without asking."""
        self.in_use += count
        if self.in_use > self.granted or self.contested:
            self._holder.touch(self)

    def release(self, count: int = 1) -> None:
        self.in_use -= count
        if self.contested or self.cut is not None or (self.needs and self.in_use + count >= self.most):
            self._holder.touch(self)

    def asked(self, now: float, cost: float) -> bool:
        """Somebody waits for so many; whether they have to be granted first."""
        self.last = now
        self.hungry |= self.room < cost
        return self.room < cost and (self.contested or self.granted < self.size)

    def spare(self) -> int:
        """How many others should have; below 0: more are in use than were granted."""
        if self.cut is not None:
            return self.granted - max(self.in_use, min(self.cut, self.granted))
        return min(0, self.granted - self.in_use)

    def unused(self, now: float) -> bool:
        """Whether others should have what is free here. To be asked often."""
        if not (self.scarce and self.room):
            self.free_since = math.inf
            return False
        self.free_since = min(self.free_since, now)
        return now >= self.free_since + FREE_S

    def back(self) -> int:
        """Gives those back."""
        back = self.spare()
        self.granted -= back
        if self.cut is not None and self.granted <= self.cut:
            self.cut = None
        return back


Resource = SharedRate | SharedCount


class _Need:
    __slots__ = ("_told", "known", "number", "usable", "wanted")

    def __init__(self, number: int, wanted: list[tuple[Resource, float]]) -> None:
        self.number, self.wanted = number, wanted
        self.known = False
        """The authority knows it, as it is now."""
        self._told = False
        self.usable = False
        """It could go on, and has not."""

    @property
    def told(self) -> bool:
        """The authority has heard of it."""
        return self._told

    @told.setter
    def told(self, told: bool) -> None:
        if told != self._told:
            self._told = told
            for resource, _ in self.wanted:
                if isinstance(resource, SharedCount):
                    resource.needs += 1 if told else -1

    def wait(self, now: float) -> float:
        """Seconds until all of it may be taken; inf: when more is granted."""
        return max((resource.wait(now, cost) for resource, cost in self.wanted), default=0.0)


class GrantHolder:
    """All that one queue shares. process: another text in each of its processes. haunted: connections of an earlier
    process may still be open, until `exorcise`."""

    def __init__(self, process: str, queues: int, haunted: bool = False) -> None:
        self.process, self.queues, self.haunted = process, queues, haunted
        self.until = 0.0
        """Rates may be used until then."""
        self._all: dict[Id, Resource] = {}
        self._era, self._life, self._session = "", 0, 0
        self._connected = self._introduced = False
        self._lag = Lag()
        self._touched: dict[Resource, None] = {}
        self._watched: dict[Resource, None] = {}
        """Those that somebody else wants too."""
        self._announcing: dict[SharedRate, tuple[float, float]] = {}
        """When what was told."""
        self._needs: dict[tuple[Id, ...], _Need] = {}
        self._untold: dict[tuple[Id, ...], None] = {}
        self._number = 0
        self._served: list[int] = []
        self._last = self._beat = self._swept = -math.inf

    # -- resources

    def rate(self, id: Id, size: float, burst: float, now: float) -> SharedRate:
        """The rate of that name. size: units a second of all queues together."""
        found = self._all.get(id)
        if not isinstance(found, SharedRate):
            found = self._all[id] = SharedRate(self, id, size, burst)
        elif (found.size, found.whole) != (size, burst):
            found.resize(size, burst, now)
            self._touched[found] = None
        return found

    def count(self, id: Id, size: int) -> SharedCount:
        """The slots or the quota of that name."""
        found = self._all.get(id)
        if not isinstance(found, SharedCount):
            found = self._all[id] = SharedCount(self, id, size)
        elif found.size != size:
            found.size = size
            self._touched[found] = None
        return found

    def touch(self, resource: Resource) -> None:
        """The authority has to hear of it."""
        self._touched[resource] = None

    def count_again(self, kind: str) -> None:
        """What is in use of all of that kind will be taken again."""
        for id, one in self._all.items():
            if id[0] == kind and isinstance(one, SharedCount):
                one.in_use = 0
                self._touched[one] = None

    def exorcise(self) -> None:
        """All connections of earlier processes are closed."""
        self.haunted = False
        self._beat = -math.inf

    # -- who waits

    def need(self, wanted: Sequence[tuple[Resource, float]], now: float) -> None:
        """Somebody waits who takes all of that together."""
        lacking = False
        for resource, cost in wanted:
            if self._all.get(resource.id) is not resource:
                self._all[resource.id] = resource
            lacking |= resource.asked(now, cost)
        key = tuple(resource.id for resource, _ in wanted)
        need = self._needs.get(key)
        if need is None:
            self._number += 1
            need = self._needs[key] = _Need(self._number, list(wanted))
        need.usable = False
        costs = [max(cost, before) for (_, cost), (_, before) in zip(wanted, need.wanted, strict=True)]
        if costs != [before for _, before in need.wanted]:
            told, need.told = need.told, False
            need.wanted = [(resource, cost) for (resource, _), cost in zip(wanted, costs, strict=True)]
            need.known, need.told = False, told
        if lacking and not need.known:
            self._untold[key] = None
            self._touched.update(dict.fromkeys(resource for resource, _ in wanted))

    def used(self, ids: Iterable[Id], now: float) -> list[float]:
        """Of these rates, units that are missing in what this queue has; 0: also of one that it does not know."""
        rates = [self._all.get(id) for id in ids]
        return [one.used(now) if isinstance(one, SharedRate) else 0.0 for one in rates]

    @property
    def waiting(self) -> bool:
        """Somebody needs something."""
        return bool(self._needs)

    def served(self, wanted: Iterable[Resource]) -> None:
        """Somebody has gone who needed exactly these."""
        if self._needs:
            self._end(tuple(resource.id for resource in wanted))

    def _end(self, key: tuple[Id, ...]) -> None:
        need = self._needs.pop(key, None)
        if need is not None:
            self._untold.pop(key, None)
            if need.told:
                need.told = False
                self._served.append(need.number)

    def _again(self, id: Id) -> None:
        """What is needed together with it has to be granted anew."""
        for key, need in self._needs.items():
            if id in key:
                need.known = False
                self._untold[key] = None

    # -- the authority

    def disconnected(self) -> None:
        """Nothing more of this connection comes, or goes."""
        self._connected = False

    def heard(self, message: Sequence[Any], now: float) -> set[Id]:
        """What somebody may have waited for, and may try now."""
        if message[-1] == "welcome":
            return self._welcomed(now, *message[:-1])
        if message[-1] == "granting" and self._connected:
            return self._granted(now, *message[:-1])
        return set()

    def _welcomed(self, now: float, era: str, session: int, life: int, adopting: bool, sent: float) -> set[Id]:
        keep = now < self.until and (adopting or (era, life) == (self._era, self._life))
        if era != self._era:
            self._lag = Lag()
        self._lag.late(sent, now)
        self._era, self._life, self._session = era, life, session
        self._connected, self._introduced = True, False
        for resource in self._all.values():
            resource.cut = None
            if isinstance(resource, SharedRate) and not keep:
                resource.drop()
        if not keep:
            self.until = min(self.until, now)
        for key, need in self._needs.items():
            need.known = need.told = False
            self._untold[key] = None
        self._served.clear()
        return set()

    def _granted(self, now: float, session: int, sent: float, echo: float, adds: list[Any], cuts: list[Any]) -> set[Id]:
        if session != self._session:
            return set()
        late, lapsed = self._lag.late(sent, now), now >= self.until
        self.until = max(self.until, echo + LEASE_S)
        woken = set[Id]()
        if lapsed and now < self.until:
            woken.update(id for key in self._needs for id in key)
        for id, *row in adds:
            granted = Granted(tuple(id), *row)
            resource = self._all.get(granted.id)
            if isinstance(resource, SharedRate):
                resource.add(granted, late, now)
            elif resource is not None:
                resource.granted += granted.more
                resource.cut, resource.contested, resource.last = None, granted.turn_s != 0, now
                resource.scarce, resource.free_since = granted.turn_s > 0, now
            else:
                continue
            self._watch(resource)
            woken.add(granted.id)
            for key, need in self._needs.items():
                if granted.id in key:
                    need.known = False
        for id, most in cuts:
            resource = self._all.get(tuple(id))
            if resource is not None:
                resource.cut, resource.contested = most, True
                self._watched[resource] = self._touched[resource] = None
        for rate, (at, cost) in list(self._announcing.items()):
            if at <= echo:
                del self._announcing[rate]
                rate.announced = cost
                woken.add(rate.id)
        return woken

    def _watch(self, resource: Resource) -> None:
        if resource.contested:
            self._watched[resource] = None
        else:
            self._watched.pop(resource, None)

    def next_at(self) -> float:
        """When `next_message` has something, if nothing happens before; inf: it is not connected."""
        if not self._connected:
            return math.inf
        if not self._introduced:
            return -math.inf
        if self._touched or self._served or self._untold:
            return self._last + GAP_S
        when = self._beat + BEAT_S
        for resource in self._watched:
            if isinstance(resource, SharedRate) and resource.turn_until < math.inf:
                when = min(when, resource.turn_until, resource.last + KEEP_S)
            elif isinstance(resource, SharedCount):
                when = min(when, resource.free_since + FREE_S)
        return max(when, self._last + GAP_S)

    def next_message(self, now: float) -> Hello | Asking | None:
        """What is to be sent now; only what is certain to be sent, or else `disconnected` follows."""
        if not self._connected:
            return None
        if not self._introduced:
            return self._hello(now)
        if now < self._last + GAP_S:
            return None
        beat = now >= self._beat + BEAT_S
        rows = self._rows(now, beat)
        needs = self._tell()
        if not (beat or rows or needs or self._served):
            return None
        if beat:
            self._beat = now
        served, self._served, self._last = self._served, [], now
        return Asking(self._session, self.haunted, now, rows, needs, served)

    def _hello(self, now: float) -> Hello:
        self._introduced, self._last, self._beat = True, now, now
        self._touched.clear()
        self._announcing.clear()
        rows, needed = list[Held](), {id for key in self._needs for id in key}
        for id, one in self._all.items():
            if id in needed:
                self._touched[one] = None
            if isinstance(one, SharedCount):
                if one.granted or one.in_use:
                    one.granted = max(one.granted, one.in_use)
                    rows.append(Held(id, one.size, 0.0, one.granted, 0.0, 0.0, one.in_use, 0.0))
            elif one.parts or not one.own.idle(now):
                used = one.own.burst - one.own.level(now)
                rows.append(Held(id, one.size, one.whole, one.parts, one.level(now), used, 0, one.announced))
            else:
                one.announced = 0.0
        return Hello(self._session, self.process, self.haunted, now, rows)

    def _rows(self, now: float, beat: bool) -> list[Used]:
        for resource in list(self._watched):
            if isinstance(resource, SharedRate):
                if resource.cut is not None:
                    self._touched[resource] = None
                elif resource.parts and resource.over(now):
                    self._lapse(resource, now)
                    resource.cut = 0
                    self._touched[resource] = None
                elif beat and (resource.taken or resource.hungry):
                    self._touched[resource] = None
            else:
                if resource.cut is None and resource.unused(now):
                    if self._soon(resource, now):
                        resource.free_since = now
                    else:
                        self._lapse(resource, now)
                        resource.cut = resource.in_use
                if resource.spare() or (beat and resource.in_use != resource.said):
                    self._touched[resource] = None
        if beat:
            self._expire(now)
        if beat and now - self._swept > FORGET_S / 2:
            self._sweep(now)
        rows = [self._row(resource, now) for resource in self._touched]
        self._touched.clear()
        return rows

    def _soon(self, resource: SharedCount, now: float) -> bool:
        """Whether somebody needs it who has everything else, and only waits for a rate to allow the next."""
        for need in self._needs.values():
            if any(one is resource for one, _ in need.wanted) and 0 < need.wait(now) <= KEEP_S:
                return True
        return False

    def _lapse(self, unused: Resource, now: float) -> None:
        """Ends the needs that had all they wanted for as long as it was kept: whoever waited is not there any more, or
        says it again."""
        for key, need in list(self._needs.items()):
            if unused.id in key and not need.wait(now):
                self._end(key)

    def _row(self, resource: Resource, now: float) -> Used:
        hungry, resource.hungry = resource.hungry, False
        if isinstance(resource, SharedCount):
            back = resource.back()
            resource.said = resource.in_use
            if back > 0:
                self._again(resource.id)
            return Used(resource.id, resource.size, 0.0, back, 0.0, 0.0, hungry, resource.in_use, 0.0)
        back, level = 0, 0.0
        if resource.cut is not None or resource.owed:
            back, level = resource.back(resource.parts if resource.cut is None else resource.cut, now)
        if back:
            self._again(resource.id)
            self._watch(resource)
        taken, resource.taken = resource.taken, 0.0
        cost = resource.cost
        if cost > resource.whole and cost > resource.announced:
            cost *= 2  # so that it need not be told again for each that is a little larger
            self._announcing[resource] = now, cost
        return Used(resource.id, resource.size, resource.whole, back, level, taken, hungry, 0, cost)

    def _tell(self) -> list[tuple[int, list[tuple[Id, float]]]]:
        if not self._untold:
            return []
        needs = []
        for key in list(self._untold)[:NEEDS_MAX]:
            need = self._needs[key]
            del self._untold[key]
            need.known = need.told = True
            needs.append((need.number, [(resource.id, cost) for resource, cost in need.wanted]))
        return needs

    def _expire(self, now: float) -> None:
        """Ends the needs of those that could have gone on, and are not there any more."""
        for key, need in list(self._needs.items()):
            usable = not need.wait(now)
            if usable and need.usable:
                self._end(key)
            need.usable = usable

    def _sweep(self, now: float) -> None:
        """Forgets what nobody has used for long."""
        self._swept = now
        needed = {id for key in self._needs for id in key}
        for id, one in list(self._all.items()):
            if id in needed or one in self._touched or now - one.last < FORGET_S or not one.idle(now):
                continue
            if one.has:
                one.cut = 0
                self._touched[one] = None
            else:
                del self._all[id]
                self._watched.pop(one, None)

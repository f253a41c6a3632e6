"""Limits that hold exactly: a throttle of the configuration is a `Limit` for each combination of what it counts by.

A Bucket is the generic cell rate algorithm (ITU-T I.371, virtual scheduling): one number, the theoretical arrival time,
is the whole state, so it costs nothing while idle and is journalled as it is. A Limit is one configured throttle for
one combination of the values it counts by; `Throttles.of(scope)` gives all limits in the way of a delivery.

Promises: what is taken with a wait of 0 never exceeds rate × time + burst over any interval (one cost above the burst
counts as the burst there); what is given back is never more than what the limit would have allowed had it not been
taken; a restored state grants nothing twice; memory is bounded by the limits in use.

`now` is seconds on a clock that goes on while the program is down (wall time) and does not step back: a state saved
before the clock was set back waits for that clock to catch up. Every limit is found by its key, so the caller need
not keep limits, but may: the same key is the same limit for as long as anybody holds it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from zonemta_py.config import Rate, Throttle, rate

_SLACK_S = 1e-6
"""Who waits as long as told is let through although floating point numbers of wall time are only this exact."""
_PEAKS_MAX = 16
_SCOPES_MAX = 16_384
_KINDS = ("messages", "recipients", "new_connections", "bytes")
Level = Literal["zone", "flow", "lane"]


class Scope(NamedTuple):
    """What a delivery is; "" is none. site: the destination. provider: the group of sites it belongs to."""

    zone: str
    source: str
    site: str
    provider: str
    tenant: str
    campaign: str


class Bucket:
    """So much per time, and a burst after a pause. burst: in the rate's unit; 0: what one second allows, at least 1."""

    __slots__ = ("_peaks", "burst", "interval_s", "tat")

    def __init__(self, rate: Rate, burst: float = 0.0) -> None:
        self.interval_s = rate.seconds / rate.amount
        self.burst = burst or max(1.0, rate.amount / rate.seconds)
        self.tat = 0.0
        self._peaks: list[tuple[float, float]] = []
        # Moments of taking and how far tat was ahead just before, rising in both: where the bucket was fullest since.

    def wait(self, now: float, cost: float = 1) -> float:
        """Seconds until `cost` may go, 0.0: now. A cost above the burst may go when the bucket is full."""
        ahead = self.tat - now
        if ahead <= _SLACK_S:
            return 0.0
        room = self.burst - cost
        wait = ahead - room * self.interval_s if room > 0 else ahead
        return wait if wait > _SLACK_S else 0.0

    def take(self, now: float, cost: float = 1) -> None:
        """Takes without asking; what was not there is a debt."""
        tat = self.tat
        ahead = tat - now
        if ahead <= 0:
            ahead, tat = 0.0, now
        peaks = self._peaks
        while peaks and peaks[-1][1] >= ahead:
            peaks.pop()
        if not peaks or peaks[-1][0] < now:
            peaks.append((now, ahead))
            if len(peaks) > _PEAKS_MAX:
                peaks[:2] = [(peaks[1][0], peaks[0][1])]
        self.tat = tat + cost * self.interval_s

    def give(self, now: float, cost: float, taken: float | None = None) -> None:
        """Gives back what was taken at `taken` (None: just now) and not used.

        Exactly as if it had not been taken, or less: what would have flowed over a full bucket since is lost, else two
        bursts could follow each other.
        """
        ahead = max(0.0, self.tat - now)
        back = cost * self.interval_s
        if taken is not None:
            for index, (moment, before) in enumerate(self._peaks):
                if moment > taken:
                    ahead = min(ahead, before)
                    self._peaks[index:] = [(m, max(0.0, a - back)) for m, a in self._peaks[index:]]
                    break
        self.tat -= min(back, ahead)

    def level(self, now: float) -> float:
        """Units there; below 0: a debt."""
        return self.burst - max(0.0, self.tat - now) / self.interval_s

    def shown(self, now: float) -> dict[str, Any]:
        """For operators: one goes `every_s` seconds, but `burst` at once where none went for long; what has gone counts
        for `ahead_s` more."""
        return {"every_s": self.interval_s, "burst": self.burst, "ahead_s": round(max(0.0, self.tat - now), 3)}

    def idle(self, now: float) -> bool:
        """Whether it is full, and so no different from a new one."""
        return self.tat <= now

    def change(self, rate: Rate, burst: float, now: float) -> None:
        """Another rate and burst from now on: what is used stays used, an empty bucket empty, a debt a debt."""
        used = max(0.0, self.tat - now) / self.interval_s
        debt = max(0.0, used - self.burst)
        self.interval_s = rate.seconds / rate.amount
        self.burst = burst or max(1.0, rate.amount / rate.seconds)
        self.tat = now + (min(used - debt, self.burst) + debt) * self.interval_s
        self._peaks = [(now, 0.0)]  # what was taken before is not given back after

    def state(self) -> float:
        return self.tat

    def restore(self, tat: float, now: float) -> None:
        """Takes over `state()`; what was taken before is not given back after."""
        self.tat = tat
        self._peaks = [(now, 0.0)]


class Limit:
    """One throttle for one combination of values. Kept from the first taking until it is idle (`Throttles.forget`).

    key: name of the throttle, then the values in the order of `per`. level: what a wait holds up: "zone" everything,
    "flow" a tenant or campaign, "lane" a source, site or provider. connections: in use, counted by take and release;
    most: so many at once. blocking: which limit made the last wait, "" if none. counts_mail: it limits more than those.
    """

    __slots__ = (
        "__weakref__", "_kept", "_limits", "_round", "_used", "blocking", "bytes", "connections", "counts_mail", "key",
        "label", "level", "messages", "most", "new_connections", "recipients", "throttle",
    )  # fmt: skip
    wanted = False
    """Somebody of whom this queue knows nothing waits for its connections."""

    def __init__(self, throttle: Throttle, key: tuple[str, ...], label: str, level: Level, kept: deque[Limit]) -> None:
        self.throttle, self.key, self.label, self.level = throttle, key, label, level
        self.connections = 0
        self.messages = _bucket(throttle.messages, throttle.burst)
        self.recipients = _bucket(throttle.recipients, throttle.burst)
        self.new_connections = _bucket(throttle.new_connections, throttle.burst)
        self.bytes = _bucket(throttle.bytes, throttle.burst)
        self.blocking = ""
        self.most = throttle.connections or math.inf
        buckets = (self.messages, self.recipients, self.new_connections, self.bytes)
        self._limits = [(i, kind, b) for i, (kind, b) in enumerate(zip(_KINDS, buckets, strict=True)) if b]
        self._used = self._limits
        """What `state` is about."""
        self.counts_mail = bool(self.messages or self.recipients or self.bytes)
        self._round, self._kept = kept, False

    def wait(
        self, now: float, messages: float = 1, recipients: float = 1, new_connections: float = 0, bytes: float = 0
    ) -> float:
        """Seconds until all of it may go; inf: when a connection is released. What costs 0 is not asked for."""
        self.blocking = ""
        longest = 0.0
        if self._limits:
            costs = (messages, recipients, new_connections, bytes)
            for index, kind, bucket in self._limits:
                if bucket.tat > now and costs[index]:
                    wait = bucket.wait(now, costs[index])
                    if wait > longest:
                        longest, self.blocking = wait, kind
        if self.connections >= self.most:
            self.blocking = "connections"
            return math.inf
        return longest

    def take(
        self, now: float, messages: float = 1, recipients: float = 1, new_connections: float = 0, bytes: float = 0
    ) -> None:
        """Takes all of it and a connection, without asking."""
        self.hold()
        if self._limits:
            costs = (messages, recipients, new_connections, bytes)
            for index, _, bucket in self._limits:
                if costs[index]:
                    bucket.take(now, costs[index])

    def hold(self) -> None:
        """Takes a connection only."""
        self.connections += 1
        if not self._kept:
            self._keep()

    def release(self) -> None:
        """The connection that `take` counted is free. Raises ValueError for one release too many."""
        if not self.connections:
            raise ValueError(f"{self.label}: a connection is released that nobody took")
        self.connections -= 1

    def give(
        self,
        now: float,
        taken: float,
        messages: float = 0,
        recipients: float = 0,
        new_connections: float = 0,
        bytes: float = 0,
    ) -> None:
        """Gives back what was taken at `taken` and not used (the connection goes by `release`)."""
        costs = (messages, recipients, new_connections, bytes)
        for index, _, bucket in self._limits:
            if costs[index]:
                bucket.give(now, costs[index], taken)

    @property
    def why(self) -> str:
        """What made the last wait, for people."""
        return self.blocking

    def idle(self, now: float) -> bool:
        """Whether nothing of it is in use, so that a new limit would be the same."""
        return not self.connections and all(bucket.idle(now) for _, _, bucket in self._limits)

    def state(self, now: float = 0.0) -> dict[str, list[float]]:
        """What is used: limit → [tat, interval_s, burst] of its buckets that are not full. No connections: those
        end with the program."""
        return {kind: [b.tat, b.interval_s, b.burst] for _, kind, b in self._used if not b.idle(now)}

    def restore(self, state: dict[str, list[float]], now: float) -> None:
        """Takes over `state()`, also where the configuration has changed since: what was used stays used."""
        for _, kind, bucket in self._used:
            if kind in state:
                tat, interval_s, burst = state[kind]
                new, new_burst = Rate(1, bucket.interval_s), bucket.burst
                bucket.interval_s, bucket.burst = interval_s, burst
                bucket.restore(tat, now)
                if (interval_s, burst) != (new.seconds, new_burst):
                    bucket.change(new, new_burst, now)
        if not self._kept and not self.idle(now):
            self._keep()

    def _keep(self) -> None:
        self._kept = True
        self._round.append(self)

    def _drop(self) -> None:
        self._kept = False


class Most(NamedTuple):
    """The strictest of the throttles for one scope; 0 and None: nothing said."""

    messages_per_connection: int
    recipients_per_delivery: int
    idle_s: float | None


Make = Callable[[Throttle, tuple[str, ...], str, Level, deque[Limit]], Limit]


class Throttles:
    """All throttles, compiled. make: a limit that is needed."""

    def __init__(self, throttles: Iterable[Throttle], make: Make = Limit) -> None:
        self._make = make
        self._rules = [_Rule(throttle) for throttle in throttles]
        self._limits: WeakValueDictionary[tuple[str, ...], Limit] = WeakValueDictionary()
        self._round: deque[Limit] = deque()
        self._cache: dict[Scope, tuple[Limit, ...]] = {}
        self._most: dict[Scope, Most] = {}

    def of(self, scope: Scope) -> tuple[Limit, ...]:
        """The limits that a delivery of this scope must pass, in the order of the configuration."""
        found = self._cache.get(scope)
        if found is None:
            found = tuple(self._limit(rule, scope) for rule in self._rules if rule.applies(scope))
            if len(self._cache) >= _SCOPES_MAX:
                self._cache.clear()
            self._cache[scope] = found
        return found

    def most(self, scope: Scope) -> Most:
        """Messages per connection, recipients per delivery and idle time: the strictest that applies."""
        found = self._most.get(scope)
        if found is None:
            throttles = [limit.throttle for limit in self.of(scope)]
            found = Most(
                min((t.messages_per_connection for t in throttles if t.messages_per_connection), default=0),
                min((t.recipients_per_delivery for t in throttles if t.recipients_per_delivery), default=0),
                min((t.idle_s for t in throttles if t.idle_s is not None), default=None),
            )
            if len(self._most) >= _SCOPES_MAX:
                self._most.clear()
            self._most[scope] = found
        return found

    def __iter__(self) -> Iterator[Limit]:
        """The limits that something was taken from and that are not forgotten."""
        return iter(list(self._round))

    def forget(self, now: float, most: int = 1000) -> int:
        """Drops idle limits among the next `most`; returns how many are left. To be called now and then."""
        for _ in range(min(most, len(self._round))):
            limit = self._round.popleft()
            if limit.idle(now):
                limit._drop()
            else:
                self._round.append(limit)
        return len(self._round)

    def state(self, now: float) -> list[list[Any]]:
        """[key as a list, Limit.state()] of every limit with something used, for the journal."""
        states = ([list(limit.key), limit.state(now)] for limit in self._round)
        return [entry for entry in states if entry[1]]

    def restore(self, state: list[list[Any]], now: float) -> None:
        """Takes over `state()`; limits of throttles that are no longer configured, or count by something else, go."""
        rules = {rule.throttle.name: rule for rule in self._rules}
        for (name, *values), used in state:
            rule = rules.get(name)
            if rule and len(values) == len(rule.indices):
                self._find(rule, tuple(values)).restore(used, now)

    def _limit(self, rule: _Rule, scope: Scope) -> Limit:
        return self._find(rule, rule.values(scope))

    def _find(self, rule: _Rule, values: tuple[str, ...]) -> Limit:
        key = (rule.throttle.name, *values)
        limit = self._limits.get(key)
        if limit is None:
            limit = self._make(rule.throttle, key, rule.label(values), rule.level, self._round)
            self._limits[key] = limit
        return limit


class _Rule:
    """A throttle's dimensions, compiled.

    `only` is matched as fnmatch does, whatever the case, or letter by letter (so that "[::1]:25" names itself). No
    tenant is the value "": "*" and "" match it, "?*" is any tenant but none. In `per` "" is a value like others, so
    all mail without a tenant counts together; but a site without a provider is one by itself, and counts by the site.
    """

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle
        self.indices = [Scope._fields.index(dimension) for dimension in throttle.per]
        self._only = [
            (Scope._fields.index(dimension), pattern.lower(), re.compile(translate(pattern.lower())))
            for dimension, pattern in throttle.only.items()
        ]
        dimensions = {*throttle.per, *throttle.only}
        flow = dimensions <= {"zone", "tenant", "campaign"}
        self.level: Level = "zone" if dimensions <= {"zone"} else "flow" if flow else "lane"

    def applies(self, scope: Scope) -> bool:
        values = ((scope[index].lower(), literal, pattern) for index, literal, pattern in self._only)
        return all(value == literal or pattern.match(value) is not None for value, literal, pattern in values)

    def values(self, scope: Scope) -> tuple[str, ...]:
        if not scope.provider:
            scope = scope._replace(provider=scope.site)
        return tuple(scope[index] for index in self.indices)

    def label(self, values: tuple[str, ...]) -> str:
        named = (f"{dimension}={value or 'none'}" for dimension, value in zip(self.throttle.per, values, strict=True))
        return f"{self.throttle.name}: {' '.join(named)}" if values else self.throttle.name


def _bucket(text: str, burst: float) -> Bucket | None:
    return Bucket(rate(text), burst) if text else None

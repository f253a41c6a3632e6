"""The limits of where a lease goes after all: to its domain's own MX hosts, when none of the smart hosts takes it.

A lease is granted by the limits of the smart hosts, before anybody knows that. So its sender asks when it comes to it,
and connects only if there is a place at that site too: these limits count the lease then like the others, until it has
ended and its connection is closed, whatever becomes of the sender. Else the mail is put off without an attempt, each
message to a moment of its own, by how many were put off for the same reason before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zonemta_py.schedule.admission.idle_connections import IdleConnections
from zonemta_py.schedule.batch import Batch, Entry
from zonemta_py.schedule.policy.state import PolicyState
from zonemta_py.schedule.time.clock import Timers
from zonemta_py.zones.admittance import Admittance, Charge, Elsewhere
from zonemta_py.zones.throttle import Limit, Scope, Throttles

LEAST_S = 1.0
MOST_S = 900.0
"""A place is asked for again after so long at the latest."""
APART_S = 0.01
CAUSES_MAX = 10_000


class Elsewheres:
    """For all zones. charge: what is taken from limits for these recipients of a message."""

    def __init__(
        self, timers: Timers, policy: PolicyState, idle: IdleConnections, charge: Callable[[list[Entry]], Charge]
    ) -> None:
        self._timers, self._policy, self._idle, self._charge = timers, policy, idle, charge
        self._booked: dict[str, float] = {}
        """When the last of those that were put off comes again, by cause."""
        self.need: Callable[[tuple[Limit, ...], Charge, float], None] | None = None
        """As `Grants.need`; None: no other queue shares the limits."""

    def place(self, batch: Batch, site: str, provider: str, throttles: Throttles) -> Admittance:
        """Charges the lease there, if it may go there now."""
        if batch.elsewhere is not None:  # for another message of that lease
            return Admittance(False)
        scope, at, now = (
            batch.flow_queue.scope._replace(site=site, provider=provider),
            provider or site,
            self._timers.now(),
        )
        charge = batch.charge or self._charge(batch.entries)
        limits = tuple(limit for limit in throttles.of(scope) if limit not in batch.limits)
        if self._idle.unsaid and any(limit.throttle.connections for limit in limits):
            return self._later("earlier senders are to say which connections they have", LEAST_S, APART_S)
        if hold := self._policy.hold_at(scope.source, site, provider):
            return self._later(hold.cause, hold.until - now, APART_S)
        for limit in limits:
            if wait := limit.wait(now, *charge):
                if self.need is not None:
                    self.need(limits, charge, now)
                return self._later(f"{limit.label} ({limit.why})", *_waits(limit, wait, charge))
        learned = self._policy.learned_at(scope.source, at)
        if learned is not None and (wait := learned.wait(now)):
            return self._later(f"learned rate at {at}: {learned.cause}", wait, 1 / (learned.rate(now) or 1))
        days = self._policy.warmups.of(scope.source, at) if scope.source else None
        if days is not None and days.sent and days.room(round(now * 1000)) < charge[1]:
            return self._later(f"warm-up of {scope.source} at {at}", MOST_S, APART_S)
        there = batch.elsewhere = Elsewhere(scope, now, learned, days)
        if batch.charge is None:
            batch.charge, batch.taken = charge, now
        for limit in limits:
            limit.take(now, *charge)
        batch.limits += limits
        there.take(charge[1])
        return Admittance(True, bool(limits) or learned is not None or days is not None)

    def _later(self, cause: str, wait_s: float, apart_s: float) -> Admittance:
        now = self._timers.now()
        if len(self._booked) >= CAUSES_MAX:
            self._booked.clear()
        due = max(self._booked.get(cause, 0.0), now + max(LEAST_S, min(wait_s, MOST_S)))
        self._booked[cause] = min(due + apart_s, now + MOST_S)
        return Admittance(False, False, due - now, cause)


def limits_of(throttles: Throttles, scope: Scope, elsewhere: Elsewhere | None) -> tuple[Limit, ...]:
    """All that count a lease, or its connection."""
    found = throttles.of(scope)
    more = () if elsewhere is None else throttles.of(elsewhere.scope)
    return (*found, *(limit for limit in more if limit not in found))


def _waits(limit: Limit, wait_s: float, charge: Charge) -> tuple[float, float]:
    """When there may be a place, and how long each needs it."""
    if wait_s == math.inf:
        return LEAST_S, LEAST_S / (limit.throttle.connections or 1)
    costs = dict(zip(("messages", "recipients", "new_connections", "bytes"), charge, strict=True))
    bucket = getattr(limit, limit.blocking)
    return wait_s, bucket.interval_s * costs[limit.blocking]

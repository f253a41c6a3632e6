"""How fast a provider takes mail from a source: a rate that deferrals for rate ("complaints") lower, and time raises.

Unbounded until the provider first complains (421, "too many messages"). Then, by multiplicative decrease, the bound is
`rate_decrease` of what was accepted just before, and by multiplicative steps of `rate_increase` it rises again every
`rate_increase_s` in which it was used and nobody complained. The rate that was too much is remembered as the ceiling:

- close below it the rate stays until a dozen steps have passed since the complaint, since most probes would be refused;
- far below it, clearly above it, and while none is known, each step is twice the last (at most a half, a quarter).

At `rate_max`, or ten times the first bound, the bound is removed. Complaints about what was sent before the last
decrease, or shortly after it, are of the same burst and change nothing. A provider that complains whatever it is sent
halves the rate each time, down to `rate_min`; that does not set the ceiling.

The unit is the caller's: messages or recipients a second. `now` is a clock that does not step back, as in `throttle`.
"""

from __future__ import annotations

from typing import Any

from zonemta_py.config import Learning, Rate, rate
from zonemta_py.zones.throttle import Bucket

_MEASURED_S = 10
"""What was accepted is counted over this long."""
_PAUSE_S = 2.0
"""After so long without an acceptance counting restarts, or the pause would pass for slowness."""
_SETTLE_S = 3.0
"""A decrease takes so long to be felt: providers count what they refuse, too."""
_BURST_S = 0.1
"""Even flow: what this time allows may go at once. A provider counting by the second sees no more than the rate."""
_FIRST_LEAST = 1.0
"""The first bound is not lower, for nothing is known yet."""
_LOOK_S = 2.0
"""Complaints are ignored before there is so much to measure: the first tenth of a second is chance."""
_HEARD_S = 60.0
"""A complaint so long ago was another burst's."""
_STEPS_BELOW_CEILING = 12
_CLOSE = 0.96
_CLEARLY = 1.1
_STEP_MAX_BELOW = 0.5
_STEP_MAX_ABOVE = 0.25
_NEVER = -1e12


class Learned:
    """One source at one provider. bucket: what holds it to the rate, None while unbounded.

    cause: why the rate last changed, in words; "" while it never did. ceiling: the rate that last was too much, or 0.
    """

    __slots__ = (
        "_began", "_counts", "_cut", "_first", "_good", "_got", "_heard", "_last", "_learning", "_most", "_next",
        "_rate", "_since", "_step", "_used", "bucket", "cause", "ceiling",
    )  # fmt: skip
    bucket: Bucket | None
    ceiling: float
    _rate: float
    _first: float
    _used: float
    _got: int
    _good: float
    _cut: float
    _next: float
    _heard: float
    _since: float
    _step: float

    def __init__(self, learning: Learning) -> None:
        self._learning = learning
        self._most = _per_second(learning.rate_max)
        self._counts: dict[int, int] = {}
        self._began = self._last = _NEVER
        self.cause = ""
        self._free()

    def configure(self, learning: Learning) -> None:
        """Other settings from now on; what was learned stays."""
        self._learning, self._most = learning, _per_second(learning.rate_max)

    # -- the flow

    def wait(self, now: float, cost: float = 1) -> float:
        """Seconds until `cost` may go; 0.0: now."""
        return self.bucket.wait(now, cost) if self.bucket is not None else 0.0

    def take(self, now: float, cost: float = 1) -> None:
        if self.bucket is not None:
            self.bucket.take(now, cost)
            self._used += cost

    def give(self, now: float, cost: float, taken: float) -> None:
        """Gives back what was taken at `taken` and not sent."""
        if self.bucket is not None:
            self.bucket.give(now, cost, taken)
            self._used -= cost

    def rate(self, now: float) -> float | None:
        """Per second; None: unbounded."""
        return self._rate or None

    @property
    def lowered(self) -> float:
        """When it was last lowered; below 0: never."""
        return self._cut

    # -- what the provider says

    def accepted(self, now: float, n: int = 1) -> bool:
        """So many were accepted; True if the rate changed by it."""
        if now - self._last > _PAUSE_S:
            self._counts.clear()
            self._began = now
        self._last = now
        self._got += n
        second = int(now)
        self._counts[second] = self._counts.get(second, 0) + n
        if len(self._counts) > _MEASURED_S + 1:
            self._counts = {s: c for s, c in self._counts.items() if s >= second - _MEASURED_S}
        return bool(self._rate) and now >= self._next and self._grow(now)

    def slowed(self, now: float, cause: str, sent: float | None = None) -> bool:
        """The provider complained of the rate; True if that lowered it. sent: when what it complained of went out."""
        if (now if sent is None else sent) < self._cut + _SETTLE_S:
            self._next = max(self._next, now + self._learning.rate_increase_s)
            return False
        before, measured = self._rate, self._measured(now)
        if not before:
            if not self._listens(now):
                return False
            basis = self._first = max(measured, _FIRST_LEAST)
            least = 0.0
        else:
            basis = min(before, max(measured, self._good)) if before * _MEASURED_S >= 20 else before
            least = before / 2
            if self._got and basis >= least:
                self.ceiling = basis
            else:
                basis = 0.0
        self._got, self._good, self._cut, self._step = 0, 0.0, now, self._learning.rate_increase
        self._set(max(basis * self._learning.rate_decrease, least), now, cause)
        return self._rate != before

    def clear(self, cause: str) -> None:
        """Removes the bound and forgets what was learned."""
        if self._rate:
            self.cause = f"{_text(self._rate)} → unbounded: {cause}"
        self._free()

    # -- what survives

    def state(self) -> dict[str, Any]:
        """{} while unbounded."""
        if self.bucket is None:
            return {}
        return {
            "rate": self._rate, "ceiling": self.ceiling, "first": self._first, "cut": self._cut, "next": self._next,
            "step": self._step, "tat": self.bucket.state(), "cause": self.cause,
        }  # fmt: skip

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Takes over `state()`, within the bounds of today; {}: the bound is taken away."""
        self._free()
        if not state:
            return
        self.ceiling, self._first, self._cut = state["ceiling"], state["first"], state["cut"]
        self._step, self._next = state["step"], max(state["next"], now + self._learning.rate_increase_s)
        self._set(state["rate"], now, "")
        self.cause = state["cause"]
        if self.bucket is not None:
            self.bucket.restore(state["tat"], now)

    # -- inside

    def _free(self) -> None:
        self.bucket = None
        self._rate = self.ceiling = self._first = self._used = self._since = 0.0
        self._got, self._good = 0, 0.0
        self._cut = self._next = self._heard = _NEVER
        self._step = self._learning.rate_increase

    def _listens(self, now: float) -> bool:
        """Whether the first complaint comes late enough for what was accepted until now to say something."""
        if now - self._heard > _HEARD_S:
            self._heard = now
        flowing = now - self._last <= _PAUSE_S and now - self._began >= _LOOK_S
        return flowing or now - self._heard >= _LOOK_S

    def _measured(self, now: float) -> float:
        """What was accepted per second, as far back as there was neither a pause nor a decrease."""
        since = int(max(now - _MEASURED_S, self._cut + 1))
        span = max(1.0, now - max(self._began, since))
        return sum(count for second, count in self._counts.items() if second >= since) / span

    def _grow(self, now: float) -> bool:
        """One step up, if the bound was what kept the mail back and the ceiling does not say to stay."""
        period = self._learning.rate_increase_s
        used, wanted = self._used, self._rate * (now - self._since) / 2
        self._used, self._since, self._next = 0.0, now, now + period
        if used < wanted:
            return False
        grown, ceiling = self._grown(), self.ceiling
        if ceiling * _CLOSE < grown <= ceiling * _CLEARLY and now < self._cut + _STEPS_BELOW_CEILING * period:
            return False
        if grown >= (self._most or 10 * self._first):
            self.clear("no complaint up to here")
        else:
            self._good = self._rate
            self._set(grown, now, f"no complaint for {period:g} s")
        return True

    def _grown(self) -> float:
        """The rate after the next step, and the size of the one after it."""
        grown, after_cut = self._rate * (1 + self._step), self.ceiling * self._learning.rate_decrease
        if grown < after_cut or grown > self.ceiling * _CLEARLY:
            most = _STEP_MAX_BELOW if grown < after_cut else _STEP_MAX_ABOVE
            self._step = max(min(self._step * 2, most), self._learning.rate_increase)
            return grown
        self._step = self._learning.rate_increase
        return max(self._rate * (1 + self._step), min(grown, after_cut))

    def _set(self, wanted: float, now: float, cause: str) -> None:
        before = self._rate
        self._rate = max(wanted, _per_second(self._learning.rate_min))
        if self._most:
            self._rate = min(self._rate, self._most)
        burst = max(1.0, self._rate * _BURST_S)
        if self.bucket is None:
            self.bucket = Bucket(Rate(self._rate, 1), burst)
            self.bucket.take(now, burst)  # the provider has just had more than it wants
        else:
            self.bucket.change(Rate(self._rate, 1), burst, now)
        if self._rate != before:
            self._used, self._since, self._next = 0.0, now, now + self._learning.rate_increase_s
            self.cause = f"{_text(before)} → {_text(self._rate)}: {cause}"


def _per_second(text: str) -> float:
    if not text:
        return 0.0
    amount, seconds = rate(text)
    return amount / seconds


def _text(per_second: float) -> str:
    """A readable rate: 45/s, 3/min."""
    if not per_second:
        return "unbounded"
    for name, seconds in (("s", 1), ("min", 60)):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:.3g}/{name}"
    return f"{per_second * 3600:.3g}/h"

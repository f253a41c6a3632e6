"""Steady time: the time that has passed, whatever the machine's clock is set to.

The rule, for the whole queue. The machine's clock (`ms`) says when something was: it stands in records, fields and
lists, is that of sending hours, and is compared with nothing. How long something waits is steady time (`steady_ms`):
retries, the life of mail, deadlines, stops, rates, warm-up days, the ends of request keys, and the times in all keys
of the store but message ids, which only grow. Steady time begins as the machine's clock, advances with the time that
really passes, and never steps:

- A clock that is set, by more than STEP_MS, moves nothing. The step is logged, and is a record of the journal (STANDING
  "clock"), so that the age of a message is known although its id was given out by the other clock (`born_ms`).
- After a restart of the process it advances by the time since the machine started, which cannot be set.
- While the machine was off only its clock knows how long that was, so that time counts; but where it is more than
  GAP_MS, nothing expires before GRACE_MS have passed: all mail is tried again first. If the clock is
  set back later, it had been wrong, and the same is taken back from what was counted.

`apart_ms` is steady time less the clock's; 0 where no clock was ever set.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from time import time
from typing import Any, NamedTuple

from zonemta_py.disk import keys
from zonemta_py.schedule.time.clock import Clock

log = logging.getLogger(__name__)

STEP_MS = 2_000
GAP_MS = 3_600_000
GRACE_MS = 3_600_000
STEPS_MAX = 50
_FIRST_ID = "0" * 16


class Step(NamedTuple):
    """From the id `since` on, steady time was `apart_ms` ahead of the clock, which had just been set to `clock_ms`."""

    since: str
    apart_ms: int
    clock_ms: int


class Steady(Clock):
    """The clock of one queue. kept: `state` of the position record, with later records of steps taken in; last_ms: the
    clock at the last record of the journal, 0 if there is none.

    next_id(): a lower bound of the ids to come. on_step(steps): the clock was stepped; records it.
    """

    def __init__(
        self, base: Clock, kept: dict[str, Any] | None = None, last_ms: int = 0, *,
        next_id: Callable[[], str] = lambda: _FIRST_ID, on_step: Callable[[list[list[Any]]], None] = lambda steps: None,
    ) -> None:  # fmt: skip
        kept = kept or {}
        self.base = base
        self.monotonic = base.monotonic
        self._clock_ms = base.ms if type(base) is not Clock else None
        """None: it is the machine's own, which `ms` reads itself, several times for each message."""
        self._next_id, self._on_step = next_id, on_step
        self.steps = [Step(*row) for row in kept.get("steps", [])] or [Step(_FIRST_ID, 0, 0)]
        self._credit_ms, self._began_id = kept.get("credit", (0, _FIRST_ID))
        self.grace_until_ms = int(kept.get("grace_until_ms", 0))
        """Steady time before which nothing expires."""
        clock_ms, now_ms = base.ms(), base.monotonic() * 1000
        self._offset_ms = self._resume(kept, last_ms, clock_ms, now_ms) - now_ms
        self._seen_ms = clock_ms - now_ms
        self.stepped = False
        """The clock was set unnoticed; `tell` records it."""
        back_ms = self._offset_ms - self._seen_ms - self.steps[-1].apart_ms
        if abs(back_ms) > STEP_MS:
            self._take_back(back_ms)
            self._append(clock_ms)
            self.stepped = True
        else:
            self._offset_ms = self._seen_ms + self.steps[-1].apart_ms  # less than a step is no difference

    def _resume(self, kept: dict[str, Any], last_ms: int, clock_ms: int, now_ms: float) -> float:
        """Steady time now."""
        if not last_ms:
            return clock_ms
        last = last_ms + self.steps[-1].apart_ms
        if kept.get("boot") == self.boot() and now_ms >= kept["monotonic_ms"]:
            return float(kept["steady_ms"] + now_ms - kept["monotonic_ms"])
        gap = max(0, clock_ms - last_ms)
        if gap > GAP_MS:
            self._credit_ms, self._began_id = gap, self._next_id()
            self.grace_until_ms = last + gap + GRACE_MS
            log.warning("the queue was down for %s: what is too old now is tried once more first", _long(gap))
        return last + gap

    # -- the time

    def random(self) -> float:
        return self.base.random()

    def boot(self) -> str:
        return self.base.boot()

    def ms(self) -> int:
        """The machine's clock, UNIX ms."""
        clock_ms = int(time() * 1000) if self._clock_ms is None else self._clock_ms()
        if not -STEP_MS <= clock_ms - self.monotonic() * 1000 - self._seen_ms <= STEP_MS:
            self._step(clock_ms)
        return clock_ms

    def steady_ms(self) -> int:
        return round(self.monotonic() * 1000 + self._offset_ms)

    def steady(self) -> float:
        """The same in seconds."""
        return self.monotonic() + self._offset_ms / 1000

    def apart_ms(self) -> int:
        return self.steps[-1].apart_ms

    def ahead_ms(self) -> int:
        """How far the machine's clock is ahead of CLOCK_MONOTONIC, which all its processes share."""
        return round(self._seen_ms)

    def earlier_ms(self) -> int:
        """The earlier of both: for what is deleted when it is old enough."""
        return min(self.ms(), self.steady_ms())

    # -- how old a message is

    def apart_of(self, message_id: str) -> int:
        """How far apart both were when the id was given out."""
        return self._step_of(message_id).apart_ms

    def _step_of(self, message_id: str) -> Step:
        if len(self.steps) == 1:
            return self.steps[0]
        return self.steps[max(0, bisect_right(self.steps, message_id, key=lambda step: step.since) - 1)]

    def born_ms(self, message_id: str) -> int:
        """Steady time at which the id was given out, or before: it grows with the id."""
        step, given_ms = self._step_of(message_id), keys.id_ms(message_id)
        if given_ms - keys.id_ms(step.since) < 1000:  # the clock was set back: ids stand until it is there again
            given_ms = min(given_ms, max(step.clock_ms, 0) or given_ms)
        return given_ms + step.apart_ms

    # -- the clock was set

    def _step(self, clock_ms: int) -> None:
        seen = clock_ms - self.base.monotonic() * 1000
        shift, self._seen_ms = seen - self._seen_ms, seen
        log.warning(
            "the machine's clock was set %s by %s: waiting mail is not affected, and its age does not change",
            "forward" if shift > 0 else "back", _long(abs(shift)),
        )  # fmt: skip
        self._take_back(-shift)
        self._append(clock_ms)
        self.tell()

    def _take_back(self, back_ms: float) -> None:
        """The clock was set back, so it may have been wrong when the machine started: the gap was not so long."""
        undone = int(min(self._credit_ms, back_ms))
        if undone <= 0:
            return
        self._credit_ms -= undone
        self.steps = [
            step._replace(apart_ms=step.apart_ms + undone) if step.since < self._began_id else step
            for step in self.steps
        ]

    def _append(self, clock_ms: int) -> None:
        apart = round(self.base.monotonic() * 1000 + self._offset_ms - clock_ms)
        self.steps.append(Step(max(self._next_id(), self.steps[-1].since), apart, clock_ms))
        if len(self.steps) > STEPS_MAX:
            del self.steps[1]

    def tell(self) -> None:
        """Writes the steps down."""
        self.stepped = False
        self._on_step([list(step) for step in self.steps])

    def state(self) -> dict[str, Any]:
        """For position records."""
        return {
            "boot": self.boot(), "monotonic_ms": int(self.base.monotonic() * 1000), "steady_ms": self.steady_ms(),
            "steps": [list(step) for step in self.steps], "grace_until_ms": self.grace_until_ms,
            "credit": [self._credit_ms, self._began_id],
        }  # fmt: skip


def _long(ms: float) -> str:
    if ms < 120_000:
        return f"{ms / 1000:.0f} seconds"
    return f"{ms / 60_000:.0f} minutes" if ms < 2 * 3_600_000 else f"{ms / 3_600_000:.0f} hours"

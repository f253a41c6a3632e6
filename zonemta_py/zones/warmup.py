"""How much a new source IP may send to a provider in a day, until it is known there.

Each (source, provider) climbs its schedule's caps by itself: a UTC day that went well (few enough attempts deferred,
few enough refused for reputation, policy or a block) raises the next day's cap by one step; a bad day repeats it; a day
with too few attempts to judge changes nothing: fewer than `least`, while the cap allowed more. After the last cap the
address is warm and has no limit.

Promise: no more recipients are leased in a day than its cap, however many senders there are and however often we
restart, if `state` is journalled. What is leased before midnight and answered after it counts for the new day's result.

Pure: the time is an argument. A clock that goes back does not restart a day. Memory: places where an address is
still at its first step, and never had attempts enough to tell, are forgotten when their day is over.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from zonemta_py.config import ConfigError
from zonemta_py.config.sources import Source, Warmup
from zonemta_py.mail.schedule_fields import InvalidValue

UNLIMITED = 1 << 62
"""Room of an address that is warm."""
DAY_MS = 86_400_000
HISTORY_DAYS = 30
WHOLE = (0, 1)
"""There is one queue."""
_EPOCH = datetime.date(1970, 1, 1)


def date_of(day: int) -> str:
    """ISO 8601."""
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


class Days:
    """One address at one provider. since: before this date nothing is sent, and what was learnt does not count.

    changed: is told of each change of the cap, with its cause. part: which of how many queues, each of which may use
    that part of a cap; what does not divide goes to another one each day."""

    __slots__ = (
        "_changed", "_part", "blocked", "day", "deferred", "delivered", "first", "history", "schedule", "sent", "since",
        "step",
    )  # fmt: skip

    def __init__(
        self,
        schedule: Warmup,
        since: datetime.date | None = None,
        changed: Callable[[str], None] = lambda cause: None,
        part: tuple[int, int] = WHOLE,
    ) -> None:
        self._changed, self._part = changed, part
        self.schedule = schedule
        self.since = (since - _EPOCH).days if since else 0
        self.day = self.first = 0
        self.step = 0
        self.sent = self.delivered = self.deferred = self.blocked = 0
        self.history: deque[str] = deque(maxlen=HISTORY_DAYS)

    @property
    def warm(self) -> bool:
        return self.step >= len(self.schedule.caps)

    @property
    def cap(self) -> int | None:
        """Recipients in the present day; None: no limit."""
        return None if self.warm else self.schedule.caps[self.step]

    @property
    def own_cap(self) -> int:
        """This queue's part of the cap."""
        cap, (number, queues) = self.schedule.caps[self.step], self._part
        return cap // queues + ((number + self.day) % queues < cap % queues)

    def room(self, now_ms: int) -> int:
        """Recipients that may still be leased today."""
        day = now_ms // DAY_MS
        if day > self.day:
            self._begin(day)
        if self.step >= len(self.schedule.caps):
            return UNLIMITED
        return max(0, self.own_cap - self.sent) if day >= self.since else 0

    def next_ms(self) -> int:
        """When there is room again, if there is none: the next UTC midnight, or the first day."""
        return max(self.day + 1, self.since) * DAY_MS

    def take(self, recipients: int) -> int:
        """They are leased (after `room` said so). Gives the day, for `give`."""
        self.first = self.first or self.day
        self.sent += recipients
        return self.day

    def give(self, recipients: int, day: int | None = None) -> None:
        """They were not sent after all. day: on which they were taken; another day's count is not touched."""
        if day is None or day == self.day:
            self.sent = max(0, self.sent - recipients)
            if not self.begun and not self.step:
                self.first = 0

    @property
    def begun(self) -> bool:
        """Whether anything was sent, or ordered: there is something to show."""
        return bool(self.sent or self.delivered or self.deferred or self.blocked or self.history)

    def result(self, delivered: int = 0, deferred: int = 0, blocked: int = 0) -> None:
        """Attempts that were answered. delivered: also those refused because of the recipient (user unknown …)."""
        self.delivered += delivered
        self.deferred += deferred
        self.blocked += blocked

    @property
    def verdict(self) -> str:
        """The result of today so far: "good", "bad: and why", or "quiet" (too few attempts to tell)."""
        attempts, cap = self.delivered + self.deferred + self.blocked, UNLIMITED if self.warm else self.own_cap
        if not attempts or (attempts < min(self.schedule.least, cap) and self.sent < cap):
            return "quiet"  # a day that used its whole cap counts, however small that is
        for count, most, what in (
            (self.blocked, self.schedule.blocked_max, "blocked"),
            (self.deferred, self.schedule.deferred_max, "deferred"),
        ):
            if count / attempts > most:
                return f"bad: {count / attempts:.1%} {what}, more than {most:.1%}"
        return "good"

    def _begin(self, day: int) -> None:
        """The present day is over."""
        verdict, cap = self.verdict, self.cap
        if verdict != "quiet" or (self.sent and self.step):
            self.history.append(f"{date_of(self.day)} cap {cap or 'none'} sent {self.sent} {verdict}")
        if cap is not None and verdict != "quiet":
            self.step += verdict == "good"
            after = "no limit" if self.cap is None else f"{self.cap} a day"
            self._changed(f"{date_of(self.day)} was {verdict}; now {after}")
        self.day = day
        self.sent = self.delivered = self.deferred = self.blocked = 0

    def set_step(self, step: int, now_ms: int) -> None:
        """An operator's order: this many good days count as done; the number of caps or more: it is warm.

        What was sent today stays counted; whether today goes well decides about tomorrow as ever.
        """
        self.room(now_ms)  # a new day may begin with it
        self.step = min(max(0, step), len(self.schedule.caps))
        self.first = self.first or max(self.day, self.since)  # a place that is known, and is not forgotten overnight
        after = "warm" if self.warm else f"step {self.step + 1} of {len(self.schedule.caps)}"
        self.history.append(f"{date_of(self.day)} set to {after} by order")

    def state(self) -> list[Any]:
        """For a position record; msgpack can carry it."""
        today = [self.sent, self.delivered, self.deferred, self.blocked]
        return [self.first, self.day, self.step, today, list(self.history)]

    def restore(self, state: list[Any]) -> None:
        """What `state` gave; nothing, if the warm-up was ordered to begin (`since`) after that one's first day."""
        first, day, step, today, history = state
        if first and first < self.since:
            return
        self.first, self.day, self.step = first, day, step
        self.sent, self.delivered, self.deferred, self.blocked = today
        self.history.extend(history)

    def describe(self) -> dict[str, Any]:
        """A row for a table. step: good days of `steps`. Caps are None where there is no limit; shares are 0 … 1."""
        attempts = self.delivered + self.deferred + self.blocked
        caps = self.schedule.caps
        return {
            "schedule": self.schedule.name,
            "first": date_of(self.first) if self.first else "",
            "day": date_of(self.day) if self.day else "",
            "step": self.step,
            "steps": len(caps),
            "cap": self.cap,
            "sent": self.sent,
            "attempts": attempts,
            "deferred": self.deferred / attempts if attempts else 0.0,
            "blocked": self.blocked / attempts if attempts else 0.0,
            "today": self.verdict,
            "next": caps[self.step + 1] if self.step + 1 < len(caps) else None,
            "warm": self.warm,
            "history": list(self.history),
        }


class Warmups:
    """All of them, made as they are needed. Raises ConfigError where one address has two schedules."""

    def __init__(
        self, schedules: Iterable[Warmup], sources: Iterable[Source], part: tuple[int, int] = WHOLE
    ) -> None:  # fmt: skip
        """part: as of `Days`."""
        self._part = part
        by_name = {schedule.name: schedule for schedule in schedules}
        self._cold: dict[str, tuple[Warmup, datetime.date | None]] = {}
        self._days: dict[tuple[str, str], Days] = {}
        self._changes: list[tuple[str, str, str]] = []
        self._day = 0
        for source in sources:
            if source.warmup:
                self._add(source, by_name[source.warmup])

    def _add(self, source: Source, schedule: Warmup) -> None:
        plan = (schedule, source.warmup_since)
        if self._cold.setdefault(source.address, plan) != plan:
            raise ConfigError(
                f"pools: {source.address} is warmed up in two ways; give it the same warmup and warmup_since in each"
            )

    def of(self, source: str, provider: str) -> Days | None:
        """The address at the provider ("": all that are none's); None: it needs no warm-up."""
        days = self._days.get((source, provider))
        if days is None and source in self._cold:
            changed = partial(self._changed, source, provider)
            days = self._days[source, provider] = Days(*self._cold[source], changed, self._part)
        return days

    def schedule_of(self, source: str) -> Warmup:
        """Raises ValueError with one sentence for an address that is not being warmed up."""
        if source not in self._cold:
            known = f"use {' or '.join(sorted(self._cold))}" if self._cold else "give it a `warmup` in its pool"
            raise InvalidValue(f"no source {source!r} is warming up; {known}")
        return self._cold[source][0]

    def knows(self, source: str, provider: str) -> bool:
        """Whether there is a row of it in `describe`."""
        return (source, provider) in self._days

    def room(self, source: str, provider: str, now_ms: int) -> int:
        """Recipients that it may still be sent today; UNLIMITED where it is warm."""
        days = self.of(source, provider)
        return UNLIMITED if days is None else days.room(now_ms)

    def _changed(self, source: str, provider: str, cause: str) -> None:
        self._changes.append((source, provider, cause))

    def changes(self, now_ms: int) -> list[tuple[str, str, str]]:
        """(source, provider, what changed and why) since the last call, to be journalled; ask at least once a minute.
        The first call of a day begins it for all; the others cost next to nothing."""
        if now_ms // DAY_MS > self._day:
            self._day = now_ms // DAY_MS
            for key, days in list(self._days.items()):
                days.room(now_ms)
                if not (days.step or days.sent or days.history):
                    del self._days[key]
        changes, self._changes = self._changes, []
        return changes

    def state(self) -> list[list[Any]]:
        """For a position record: [source, provider, its state] of all that have begun."""
        return [
            [source, provider, days.state()]
            for (source, provider), days in self._days.items()
            if days.first or days.step
        ]

    def restore(self, state: list[list[Any]]) -> None:
        """What `state` gave. Addresses that are no longer warmed up are left out."""
        for source, provider, saved in state:
            days = self.of(source, provider)
            if days is not None:
                days.restore(saved)

    def describe(self) -> list[dict[str, Any]]:
        """A row for each address and provider to which anything was sent, sorted."""
        found = [(key, days) for key, days in sorted(self._days.items()) if days.begun or days.step]
        return [{"source": key[0], "provider": key[1], **days.describe()} for key, days in found]

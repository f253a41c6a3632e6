"""When mail may go: weekdays and hours in a time zone, exact over changes of its clocks.

A window is open exactly while the local clock shows a time within its hours, on one of its days; hours that go past
midnight belong to the day they begin on. So where clocks go forward, a window that would begin in the hour left out
begins after it; where they go back, the hour that comes twice counts twice.

Promise: `opens`, `is_open`, `closed` and `local_ms` are exact. An unknown time zone is UTC. Answers are kept for each
window and time zone until the next change, so asking again costs less than a microsecond; what is kept is bounded.

Times are UNIX milliseconds. Time zones come from the system, or else from the package tzdata.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from zonemta_py.config.limits import DAYS, Day, Window

NEVER_MS = 1 << 62
"""When a window that is always open closes."""
WEEK_MS = 7 * 86_400_000
_HORIZON_DAYS = 21  # a weekly window that clocks going forward leave out, twice
_ZONES_MAX = 1024
_DAY = datetime.timedelta(days=1)


def opens(window: Window, time_zone: str, now_ms: int) -> int:
    """When it is open next; now_ms, if it is. time_zone: the recipient's, "" if not known."""
    span = _span(window, time_zone, now_ms)
    return now_ms if span.is_open else span.until_ms


def is_open(window: Window, time_zone: str, now_ms: int) -> bool:
    return _span(window, time_zone, now_ms).is_open


def closed(window: Window, time_zone: str, since_ms: int, until_ms: int) -> list[tuple[int, int]]:
    """When it is closed between these: (from, until), in their order."""
    name = time_zone if window.time_zone == "recipient" else window.time_zone
    found = list[tuple[int, int]]()
    for week in range(since_ms // WEEK_MS, -(-until_ms // WEEK_MS)):
        for begin, end in _closed_in(window.hours, tuple(window.days), name, week):
            if end > since_ms and begin < until_ms:
                found.append((max(begin, since_ms), min(end, until_ms)))
    return found


def local_ms(time_zone: str, local: datetime.datetime) -> int:
    """When the clocks there show that time (without a zone of its own): the first time, where they go back past it;
    where they go forward past it, when they do so."""
    first, *others = _times(_zone(time_zone), local)
    return others[1] if others and others[0] < first else first


def local(time_zone: str, ms: int) -> datetime.datetime:
    """What the clocks there show then."""
    return _local(_zone(time_zone), ms)


class _Span:
    """A time in which nothing changes: since ≤ t < until."""

    __slots__ = ("is_open", "since_ms", "until_ms")

    def __init__(self, is_open: bool, since_ms: int, until_ms: int) -> None:
        self.is_open, self.since_ms, self.until_ms = is_open, since_ms, until_ms


def _span(window: Window, time_zone: str, now_ms: int) -> _Span:
    hours = _hours(window.hours, tuple(window.days))
    name = time_zone if window.time_zone == "recipient" else window.time_zone
    span = hours.spans.get(name)
    if span is None or not span.since_ms <= now_ms < span.until_ms:
        if len(hours.spans) >= _ZONES_MAX:
            hours.spans.clear()
        span = hours.spans[name] = hours.span(_zone(name), now_ms)
    return span


@lru_cache(4 * _ZONES_MAX)
def _closed_in(hours: str, days: tuple[Day, ...], name: str, week: int) -> tuple[tuple[int, int], ...]:
    """When it is closed in a week of UNIX time."""
    window, zone, at_ms, found = _hours(hours, days), _zone(name), week * WEEK_MS, list[tuple[int, int]]()
    while at_ms < (week + 1) * WEEK_MS:
        span = window.span(zone, at_ms)
        until_ms = min(span.until_ms, (week + 1) * WEEK_MS)
        if not span.is_open:
            found.append((at_ms, until_ms))
        at_ms = until_ms
    return tuple(found)


@lru_cache(_ZONES_MAX)
def _zone(name: str) -> ZoneInfo:
    """The time zone of that name; UTC, if there is none."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):  # unknown, a path out of the database, a folder of it
        return ZoneInfo("UTC")


@lru_cache(256)
def _hours(hours: str, days: tuple[Day, ...]) -> _Hours:
    return _Hours(hours, days)


class _Hours:
    """A window, compiled. Minutes of the local day; until > 1440 where it goes past midnight."""

    def __init__(self, hours: str, days: tuple[Day, ...]) -> None:
        self._from, self._until = (int(time[:2]) * 60 + int(time[3:]) for time in hours.split("-"))
        if self._until <= self._from:
            self._until += 24 * 60
        self._days = frozenset(DAYS.index(day) for day in days)
        self.spans: dict[str, _Span] = {}

    def span(self, zone: ZoneInfo, now_ms: int) -> _Span:
        """The span that holds now; it is open or closed, and so until the first change."""
        now = _local(zone, now_ms)
        state = self._open_at(now)
        yesterday = now.date() - _DAY
        for days in range(_HORIZON_DAYS):
            changes = self._changes(zone, yesterday + days * _DAY, now_ms, state)
            if changes:  # where clocks go back, the next day's window may begin before this one's has ended
                changes += self._changes(zone, yesterday + (days + 1) * _DAY, now_ms, state)
                return _Span(state, now_ms, min(changes))
        return _Span(state, now_ms, NEVER_MS)

    def _open_at(self, local: datetime.datetime) -> bool:
        minutes, day = local.hour * 60 + local.minute, local.weekday()
        today = day in self._days and self._from <= minutes < self._until
        return today or ((day - 1) % 7 in self._days and minutes + 24 * 60 < self._until)

    def _changes(self, zone: ZoneInfo, date: datetime.date, now_ms: int, state: bool) -> list[int]:
        """Times after now, among those at which the window that begins on this date may change, with another state."""
        midnight = datetime.datetime.combine(date, datetime.time())
        return [
            edge_ms
            for minutes in (self._from, self._until)
            for edge_ms in _times(zone, midnight + datetime.timedelta(minutes=minutes))
            if edge_ms > now_ms and self._open_at(_local(zone, edge_ms)) is not state
        ]


def _local(zone: ZoneInfo, ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms // 1000, zone)


def _times(zone: ZoneInfo, local: datetime.datetime) -> tuple[int, ...]:
    """When the local clock shows that time: once; twice where it goes back, and then also when it does so; where it
    goes forward past that time, when it does so (and what its old and new offsets make of the time: no harm)."""
    first, second = (int(local.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    if first == second:
        return (first * 1000,)
    return first * 1000, second * 1000, _transition(zone, min(first, second), max(first, second)) * 1000


def _transition(zone: ZoneInfo, before: int, after: int) -> int:
    """The second in (before, after] from which on the clock is what it is then."""
    offset = _local(zone, after * 1000).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if _local(zone, middle * 1000).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after

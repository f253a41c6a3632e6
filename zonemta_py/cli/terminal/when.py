"""Times and spans as users write them: parsed for every option that takes one, and printed alike everywhere.

A span is 90s, 15min, 2h, 3d, 1w, or several of those: 1d12h. A moment is a span from now (2h), a time of day (14:30,
the next one), today or tomorrow and a time, a date with or without a time (2026-12-01 09:00), ISO 8601, or what a Date
field has. Without an offset from UTC it is this machine's local time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Brief, moment
from zonemta_py.mail.schedule_fields import InvalidValue, mail_date

SPAN_S_MAX = 366 * 86_400
SPANS = "90s, 15min, 2h, 3d or 1d12h"
PAST = "2h (ago), 14:30, yesterday 9:00, 2026-12-01, 2026-12-01 09:00 or 2026-12-01T09:00+01:00"
MOMENTS = "2h, 14:30, tomorrow 9:00, 2026-12-01, 2026-12-01 09:00 or 2026-12-01T09:00+01:00"
_UNITS = {
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400,
    "day": 86_400, "w": 7 * 86_400, "week": 7 * 86_400,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+?)s?(?![a-z])[ ,]*", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"(?:(yesterday|today|tomorrow) (?:at )?)?(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII | re.IGNORECASE)

_ISO = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def span(text: str, option: str) -> float:
    """ "90s", "15min", "1d12h" → seconds. Raises CommandError: what is wrong with the option, and how it is written."""
    seconds = _seconds(text.strip())
    if seconds is None:
        raise CommandError(Exit.USAGE, f"{option}: {text!a} is not a length of time; write it like {SPANS}")
    if not 1 <= seconds <= SPAN_S_MAX:
        raise CommandError(Exit.USAGE, f"{option}: {text!a} is not between a second and a year; write it like {SPANS}")
    return seconds


def ahead(text: str, option: str, now_ms: int) -> float | None:
    """Seconds, if the text says how long from now: "2h", "in 2h", "+3600", "3600"; else None. Raises CommandError."""
    bare = text.strip().removeprefix("+").removeprefix("in ").strip()
    if bare.isascii() and bare.isdigit():
        return int(bare)
    return span(bare, option) if _seconds(bare) is not None else None


def at(text: str, option: str, now_ms: int) -> int:
    """A moment → UNIX ms. Raises CommandError: what is wrong with the option, and what is understood."""
    seconds = ahead(text, option, now_ms)
    if seconds is not None:
        return now_ms + round(seconds * 1000)
    try:
        return _time_of_day(text.strip(), now_ms, 1) or _date(text.strip())
    except (ValueError, OverflowError):
        raise CommandError(Exit.USAGE, f"{option}: {text!a} is not a moment in time; write it like {MOMENTS}") from None


def past(text: str, option: str, now_ms: int) -> int:
    """The same of what has been: a span is so long ago, a time of day the last such. UNIX ms. Raises CommandError."""
    bare = text.strip().removesuffix("ago").strip()
    if _seconds(bare) is not None:
        return now_ms - round(span(bare, option) * 1000)
    try:
        return _time_of_day(text.strip(), now_ms, -1) or _date(text.strip())
    except (ValueError, OverflowError):
        raise CommandError(Exit.USAGE, f"{option}: {text!a} is not a moment in time; write it like {PAST}") from None


def _seconds(text: str) -> float | None:
    total, place = 0.0, 0
    while place < len(text):
        found = _PART.match(text, place)
        unit = _UNITS.get(found[2].lower()) if found else None
        if found is None or unit is None:
            return None
        total, place = total + float(found[1]) * unit, found.end()
    return total if text else None


def _time_of_day(text: str, now_ms: int, way: int) -> int:
    """UNIX ms; without a day it is the next such time (way 1) or the last (way -1); 0 if the text is something else.
    Raises ValueError."""
    found = _TIME.fullmatch(text)
    if not found:
        return 0
    now = datetime.fromtimestamp(now_ms / 1000)
    then = now.replace(hour=int(found[2]), minute=int(found[3]), second=int(found[4] or 0), microsecond=0)
    day = (found[1] or "").lower()
    if not day and (then <= now if way > 0 else then > now):
        then += timedelta(days=way)
    then += timedelta(days={"yesterday": -1, "tomorrow": 1}.get(day, 0))
    return _unix_ms(then)


def _date(text: str) -> int:
    """UNIX ms of ISO 8601, or of a Date field. Raises ValueError."""
    try:
        return mail_date(text)
    except InvalidValue:
        if not _ISO.match(text):
            raise ValueError(text) from None
        return _unix_ms(datetime.fromisoformat(text))


def _unix_ms(then: datetime) -> int:
    """Raises ValueError for a local time that the clocks leave out in spring."""
    ms = round(then.timestamp() * 1000)
    if then.tzinfo is None and datetime.fromtimestamp(ms / 1000) != then:
        raise ValueError("there is no such time on that day")
    return ms


def length(seconds: float) -> str:
    """Of a span, in the unit that fits: "45 s", "4 min", "3 h", "2 days"."""
    seconds = max(0.0, seconds)
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def since(ms: int, now_ms: int) -> Brief:
    """ "2026-11-22 13:02:11+01:00, 4 min ago", in brief "4 min ago"; "" if unknown."""
    ago = f"{length((now_ms - ms) / 1000)} ago" if ms else ""
    return Brief.of(f"{moment(ms)}, {ago}" if ms else "", ago)


def until(ms: int, now_ms: int, endless: str = "") -> Brief:
    """ "2026-11-22 13:10:00+01:00, in 4 min", rounded up: it is over then; in brief "in 4 min"; `endless` for 0."""
    if ms <= now_ms:
        return Brief.of("now" if ms else endless, "now" if ms else endless)
    over_ms = -(-ms // 1000) * 1000
    left = f"in {length((over_ms - now_ms) / 1000)}"
    return Brief.of(f"{moment(over_ms)}, {left}", left)

"""Moments and spans as people say them: local time with "in 4 min", and "2h" read back as seconds."""

from __future__ import annotations

import re
from datetime import datetime

from zonemta_py.cli.errors import Exit, Stop

SPAN_S_MAX = 366 * 86_400
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "day": 86_400, "days": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)", re.ASCII | re.IGNORECASE)


def span(text: str, option: str) -> float:
    """ "90s", "15min", "2h", "3d" → seconds. Raises Stop: what is wrong with the option, and how it is written."""
    found = _SPAN.fullmatch(text.strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise Stop(Exit.USAGE, f"{option}: {text!a} is no time; write it like 90s, 15min, 2h or 3d")
    seconds = float(found[1]) * unit
    if not 1 <= seconds <= SPAN_S_MAX:
        raise Stop(Exit.USAGE, f"{option}: {text!a} is not between a second and a year; write it like 90s, 2h or 3d")
    return seconds


def length(seconds: float) -> str:
    """Of a span, in the unit that fits: "45 s", "4 min", "3 h", "2 days"."""
    seconds = max(0.0, seconds)
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def clock(ms: int, now_ms: int) -> str:
    """Local time; with its date unless that is today's."""
    moment, today = datetime.fromtimestamp(ms / 1000), datetime.fromtimestamp(now_ms / 1000)
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%Y-%m-%d %H:%M")


def since(ms: int, now_ms: int) -> str:
    """ "13:02:11, 4 min ago"; "" if nobody knows."""
    return f"{clock(ms, now_ms)}, {length((now_ms - ms) / 1000)} ago" if ms else ""


def until(ms: int, now_ms: int, endless: str = "") -> str:
    """ "13:10:00, in 4 min", rounded up: it is over then; `endless` for 0."""
    if not ms:
        return endless
    over_ms = -(-ms // 1000) * 1000
    return f"{clock(over_ms, now_ms)}, in {length((over_ms - now_ms) / 1000)}" if ms > now_ms else "now"

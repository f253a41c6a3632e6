"""How figures, times and causes are written on pages. Pure, but for the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from zonemta_py.metrics.quantities import size

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")
_UNIT_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, None: 1}
LESSONS = {
    "rate": "sending rate", "concurrency": "connections at once", "recipients": "recipients a message",
    "messages": "messages a connection", "no-tls": "no TLS", "lost": "lost with damage",
    "guard": "refusals held back",
}  # fmt: skip


class Wrong(ValueError):
    """What somebody asked for or filled in, in one sentence; any other error is a fault of ours."""


def count(number: float | None) -> str:
    """1 234 567, with thin spaces that do not break."""
    if number is None:
        return "–"
    text = f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:,.1f}"
    return text.replace(",", "\u202f")


def span(seconds: float) -> str:
    """2 h 5 min; 40 s: the two largest units."""
    left, said = max(0, int(seconds)), list[str]()
    for unit_s, unit in _UNITS:
        if left >= unit_s:
            said.append(f"{left // unit_s} {unit}")
            left %= unit_s
        elif said:
            break
        if len(said) == 2:
            break
    return " ".join(said) or "0 s"


def seconds(text: str) -> float | None:
    """Of 2 h, 30 min, 1.5d; None: nothing was said. Raises Wrong."""
    said = text.strip().lower()
    parts = list(_SPAN.finditer(said))
    if said and "".join(one[0] for one in parts).replace(" ", "") != said.replace(" ", ""):
        raise Wrong(f"{text[:40]!r} is no length of time; write it as 90 s, 30 min, 2 h or 3 d")
    return sum(float(one[1]) * _UNIT_S[one[2]] for one in parts) if said else None


def moment(ms: float | None) -> str:
    """A UNIX time in milliseconds as UTC."""
    if not ms:
        return ""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "never"


def distance(ms: float | None) -> str:
    """in 5 min, 5 min ago."""
    if not ms:
        return ""
    seconds = ms / 1000 - time.time()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def heat(part: float, most: float) -> int:
    """0 … 6: how dark a cell is; each step is four times the one before."""
    if part <= 0 or most <= 0:
        return 0
    step = 6
    while step > 1 and part * 4 <= most:
        part, step = part * 4, step - 1
    return step


def query(**values: Any) -> str:
    """The part of an address behind ?, without what is empty."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "")})


def place(text: str) -> int:
    """How many rows come before a page, as its address says; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def lesson(kind: str) -> str:
    return LESSONS.get(kind, kind)


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count, "size": size, "span": span, "moment": moment, "distance": distance, "percent": percent,
    "lesson": lesson,
}  # fmt: skip
GLOBALS: dict[str, Callable[..., Any]] = {"query": query, "heat": heat}

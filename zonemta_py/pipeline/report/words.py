"""Formatting of figures, and shortening of names for plots. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_UNITS = (
    (0.1, 0.001, "ms"),
    (120.0, 1, "s"),
    (120 * 60.0, 60, "min"),
    (48 * 3600.0, 3600, "h"),
    (float("inf"), 86_400, "days"),
)


def number(count: int) -> str:
    return f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """ "1 recipient", "1,204 recipients"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(part: float, whole: float) -> str:
    """With as many digits as are significant: "97.3%", "99.97%"; never rounded to 0 or 100; "–" of nothing."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if share in (0, 100):
        return f"{share:.0f}%"
    edge = min(share, 100 - share)
    if edge < 0.005:
        return "under 0.01%" if share < 50 else "over 99.99%"
    return f"{share:.2f}%" if edge < 1 else f"{share:.1f}%"


def span(seconds: float | None) -> str:
    """ "40 ms", "0.8 s", "45 s", "12 min", "3.5 h", "2.1 days"; "–" for none."""
    if seconds is None:
        return "–"
    size, unit = next((size, unit) for most, size, unit in _UNITS if seconds < most)
    value = seconds / size
    return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"


def moment(at: int) -> str:
    """ISO 8601 without seconds or zone, as plots and tables take it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def second(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def day(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def cut(text: str, most: int) -> str:
    """At most so many characters, an ellipsis in place of the rest."""
    return text if len(text) <= most else text[: most - 1] + "…"


def labels(names: Sequence[str], most: int = 24) -> list[str]:
    """Names cut for an axis, still different from each other."""
    cuts = [cut(name, most) for name in names]
    return [text if cuts.count(text) == 1 else f"{cut(text, most - 3)} {at + 1}" for at, text in enumerate(cuts)]

"""When a recipient may be tried, limits aside: held until a time, sending hours, deadline (life: `core.lifetime`).

Waiting that the sender or we chose does not count as an attempt. `terms` are a message's metadata, with what its
campaign says of the recipient (`queue.core.campaigns`); their times are by the machine's clock, as sending hours
are; all other times are steady (`steady.py`), and apart_ms is how far these are ahead of it. What its sender gave as an
interval is by the clock as it was when the mail came, `apart_ms` in the terms.
"""

from __future__ import annotations

from typing import Any

from zonemta_py.config import Config, Window, Zone
from zonemta_py.zones import campaign_hours, window

WEEKS_MAX = 520
"""How far `later_ms` looks."""
_NOT_AGAIN_MS = 60_000


def again_ms(config: Config, zone: Zone, terms: dict[str, Any], due_ms: int, apart_ms: int) -> int:
    """When a recipient that is due then may be tried: in its hours, not before its time, and not past its deadline."""
    due_ms = first_ms(config, zone, terms, due_ms, apart_ms)
    return min(due_ms, deadline_ms(terms)) if terms.get("deadline_mode") == "R" else due_ms


def first_ms(config: Config, zone: Zone, terms: dict[str, Any], at_ms: int, apart_ms: int) -> int:
    """The first moment from `at_ms` on at which its time has come and its hours are open."""
    at_ms = max(at_ms, hold_ms(terms, apart_ms))
    name = terms.get("window", "")
    if name or zone.window:
        at_ms = opens(config, zone, name, terms.get("time_zone", ""), at_ms - apart_ms) + apart_ms
    until_ms = terms.get("until_ms", 0)
    if until_ms and at_ms - apart_ms >= until_ms:  # too late there: the campaign's end takes it away
        at_ms = max(at_ms + _NOT_AGAIN_MS, int(terms["ends_ms"]) + apart_ms)
    return at_ms


def closed(
    config: Config, zone: Zone, terms: dict[str, Any], since_ms: int, until_ms: int, apart_ms: int
) -> list[tuple[int, int]]:  # fmt: skip
    """When its hours are closed between these: (from, until); of two windows together, so that some may overlap."""
    if not (terms.get("window") or zone.window) or until_ms <= since_ms:
        return []
    found = [one for one in (_window(config, terms.get("window", "")), _window(config, zone.window)) if one is not None]
    return [
        (begin + apart_ms, end + apart_ms)
        for one in found
        for begin, end in window.closed(one, terms.get("time_zone", ""), since_ms - apart_ms, until_ms - apart_ms)
    ]


def later_ms(config: Config, zone: Zone, terms: dict[str, Any], at_ms: int, open_ms: int, apart_ms: int) -> int:
    """When its hours have been open for so long since then."""
    if open_ms <= 0 or not (terms.get("window") or zone.window):
        return at_ms + open_ms
    for _ in range(WEEKS_MAX):
        end_ms = at_ms + window.WEEK_MS
        for begin, end in sorted(closed(config, zone, terms, at_ms, end_ms, apart_ms)):
            if begin - at_ms >= open_ms:
                return at_ms + open_ms
            open_ms -= max(0, begin - at_ms)
            at_ms = max(at_ms, end)
        if end_ms - at_ms >= open_ms:
            return at_ms + open_ms
        open_ms -= end_ms - at_ms
        at_ms = end_ms
    return at_ms


def hold_ms(terms: dict[str, Any], apart_ms: int) -> int:
    """Until when its sender wants it held: for so long (HOLDFOR), or until a time of day, as the clock is set now."""
    until_ms = int(terms.get("hold_until_ms", 0))
    return until_ms and until_ms + (int(terms.get("apart_ms", 0)) if terms.get("hold_for") else apart_ms)


def deadline_ms(terms: dict[str, Any]) -> int:
    """When its deadline is: its sender gave hours, not a time of day. 0: there is none."""
    return int(terms["deadline_ms"]) + int(terms.get("apart_ms", 0)) if terms.get("deadline_ms") else 0


def opens(config: Config, zone: Zone, name: str, time_zone: str, at_ms: int) -> int:
    """The first moment from `at_ms` on at which both the message's hours and the zone's are open, by the clock."""
    hours = [found for found in (_window(config, name), _window(config, zone.window)) if found is not None]
    for _ in range(8 * len(hours)):  # hours that exclude each other never agree: then the last of them decides
        before = at_ms
        for found in hours:
            at_ms = window.opens(found, time_zone, at_ms)
        if at_ms == before:
            break
    return at_ms


def _window(config: Config, name: str) -> Window | None:
    if not name:
        return None
    if ":" not in name:
        return next((found for found in config.windows if found.name == name), None)
    return campaign_hours.window(name)


def too_late(terms: dict[str, Any], now_ms: int) -> bool:
    """Whether its deadline has passed and it is to be returned (RFC 2852 4.1.2)."""
    return terms.get("deadline_mode") == "R" and now_ms >= deadline_ms(terms)


def to_be_told(terms: dict[str, Any], now_ms: int) -> bool:
    """Whether its deadline has passed and its sender is to be notified while delivery continues (RFC 2852 4.1.1)."""
    return terms.get("deadline_mode") == "N" and now_ms >= deadline_ms(terms)

"""When a recipient may be tried, limits aside: held until a time, sending hours, deadline, and the end of its life.

Waiting that the sender or we chose is no attempt, and is not taken from a message's life: that begins when it may first
be sent. `terms` are a message's metadata.
"""

from __future__ import annotations

from typing import Any

from zonemta_py.config import Config, Retry, Window, Zone
from zonemta_py.mail.envelope import Envelope
from zonemta_py.zones import window


def wait_s(config: Config, zone: Zone, envelope: Envelope, now_ms: int) -> float:
    """Seconds until a message just accepted may first be sent; 0: now."""
    if not (envelope.hold_until_ms or envelope.window or zone.window):
        return 0.0
    start_ms = max(now_ms, envelope.hold_until_ms)
    return (opens(config, zone, envelope.window, envelope.time_zone, start_ms) - now_ms) / 1000


def again_ms(config: Config, zone: Zone, terms: dict[str, Any], due_ms: int) -> int:
    """When a recipient that is due then may be tried: in its hours, not before its time, and not past its deadline."""
    due_ms = max(due_ms, terms.get("hold_until_ms", 0))
    name = terms.get("window", "")
    if name or zone.window:
        due_ms = opens(config, zone, name, terms.get("time_zone", ""), due_ms)
    if terms.get("deadline_mode") == "R":
        due_ms = min(due_ms, terms["deadline_ms"])
    return due_ms


def opens(config: Config, zone: Zone, name: str, time_zone: str, at_ms: int) -> int:
    """The first moment from `at_ms` on at which both the message's hours and the zone's are open."""
    hours = [found for found in (_window(config, name), _window(config, zone.window)) if found is not None]
    for _ in range(8 * len(hours)):  # hours that exclude each other never agree: then the last of them decides
        before = at_ms
        for found in hours:
            at_ms = window.opens(found, time_zone, at_ms)
        if at_ms == before:
            break
    return at_ms


def _window(config: Config, name: str) -> Window | None:
    return next((found for found in config.windows if found.name == name), None) if name else None


def life_ends_ms(retry: Retry, created_ms: int, terms: dict[str, Any], first_ms: int, windowed: bool) -> int:
    """When an undelivered recipient is given up. first_ms: its first attempt, 0: none yet."""
    begins = max(created_ms, terms.get("hold_until_ms", 0))
    if windowed and first_ms:
        begins = max(begins, first_ms)
    return int(begins) + int(retry.life_h * 3_600_000)


def over(config: Config, zone: Zone, terms: dict[str, Any], created_ms: int, first_ms: int, now_ms: int) -> bool:
    """Whether a recipient that is not being tried has waited for all of its life."""
    name = terms.get("window", "")
    begins_ms = max(created_ms, terms.get("hold_until_ms", 0))
    if name or zone.window:
        begins_ms = opens(config, zone, name, terms.get("time_zone", ""), begins_ms)
    windowed = bool(name or zone.window)
    return now_ms >= life_ends_ms(config.retry, begins_ms, terms, first_ms, windowed)


def too_late(terms: dict[str, Any], now_ms: int) -> bool:
    """Whether its deadline has passed and it is to be returned (RFC 2852 4.1.2)."""
    return terms.get("deadline_mode") == "R" and now_ms >= terms["deadline_ms"]


def to_be_told(terms: dict[str, Any], now_ms: int) -> bool:
    """Whether its deadline has passed and its sender is to hear of it while it goes on (RFC 2852 4.1.1)."""
    return terms.get("deadline_mode") == "N" and now_ms >= terms["deadline_ms"]

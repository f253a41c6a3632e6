"""When and how urgently a message is to go, as its sender asks: parameters of MAIL and header fields, parsed.

Parameters: MT-PRIORITY (RFC 6710), HOLDFOR and HOLDUNTIL (RFC 4865), BY (RFC 2852), REQUIRETLS (RFC 8689). Fields:
X-Campaign, X-Tenant, X-Priority-Level, X-Deliver-After, X-Deliver-By, X-Window, X-Time-Zone, X-Unsubscribe and
X-Track. A parameter of MAIL overrides a field; of several equal fields the first counts.

Promise: nothing is guessed. What cannot be understood, or cannot be kept, is refused with a sentence that names it and
the remedy (`InvalidValue`). Moments are UNIX ms; the clock is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from zonemta_py.mail.addresses.link import WIDENING
from zonemta_py.mail.envelope import Envelope

PARAMETERS = frozenset(("MT-PRIORITY", "HOLDFOR", "HOLDUNTIL", "BY", "REQUIRETLS"))
BY_S_MIN = 1
"""Shortest deadline with BY=…;R, the DELIVERBY keyword's parameter (RFC 2852)."""
TRACKED = ("yes", "no", "opens", "clicks")
_DAY_S = 86_400
_SHOWN_MAX = 60
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES = {"UT": 0, "GMT": 0, "UTC": 0, "Z": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6,
          "PST": -8, "PDT": -7}  # fmt: skip

_PRIORITY = re.compile(r"0|-?[1-9]", re.ASCII)
_INTERVAL = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_SECONDS = re.compile(r"\+?(\d{1,9})", re.ASCII)
_BY = re.compile(r"([+-]?\d{1,9});([NR])(T?)", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_RFC5322 = re.compile(
    r"(?:[A-Za-z]{3} *, *)?(\d{1,2}) +([A-Za-z]{3}) +(\d{4}) +(\d\d):(\d\d)(?::(\d\d))? +"
    r"(?:([A-Za-z]{1,3})|([+-])(\d\d)(\d\d))(?: *\([^()]*\))?",
    re.ASCII,
)
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class InvalidValue(ValueError):
    """One sentence for the client: what it said, and what it may say instead."""


class Terms(NamedTuple):
    """What can be asked for here: hold_days: longest hold; windows: names of [[windows]]; time_zones: IANA names."""

    hold_days: float = 30.0
    windows: frozenset[str] = frozenset()
    time_zones: Container[str] = frozenset()


DEFAULT_TERMS = Terms()

# --- values


def priority(text: str) -> int:
    """-9 … 9 (RFC 6710)."""
    if not _PRIORITY.fullmatch(text):
        raise _invalid(text, "not a priority; give a number from -9 to 9")
    return int(text)


def hold_for(text: str) -> int:
    """Seconds, 1 … 999999999 (RFC 4865)."""
    if not _INTERVAL.fullmatch(text):
        raise _invalid(text, "not an interval; give whole seconds, at least 1")
    return int(text)


def deliver_by(text: str) -> tuple[int, str]:
    """ "120;R" → seconds from now, "N" or "R" (RFC 2852). A request for a trace ("RT") changes nothing."""
    found = _BY.fullmatch(text)
    if not found:
        raise _invalid(text, "not a deadline; give seconds, a semicolon, and N or R")
    seconds, mode = int(found[1]), found[2].upper()
    if mode == "R" and seconds < BY_S_MIN:
        raise _invalid(text, f"too short; give {BY_S_MIN} second or more with R")
    return seconds, mode


def date_time(text: str) -> int:
    """ "2026-11-21T08:00:00+01:00" → UNIX ms (RFC 3339 5.6; with a blank in place of the T too)."""
    found = _RFC3339.fullmatch(text)
    if not found:
        raise _invalid(text, "not a date; write it like 2026-11-21T08:00:00Z, with Z or an offset")
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    offset = 0 if found[8] else _offset(found[9], found[10], found[11])
    fraction_ms = int((found[7] or "0")[:3].ljust(3, "0"))
    return _unix_ms(text, (year, month, day, hour, minute, second), offset) + fraction_ms


def mail_date(text: str) -> int:
    """ "Sat, 21 Nov 2026 08:00:00 +0100" → UNIX ms (RFC 5322 3.3; obsolete zones too, but no military letters)."""
    found = _RFC5322.fullmatch(text)
    zone = (found[7] or "").upper() if found else ""
    if not found or found[2].lower() not in _MONTHS or (zone and zone not in _ZONES):
        raise _invalid(text, "not a date; write it like Sat, 21 Nov 2026 08:00:00 +0000")
    offset = _ZONES[zone] * 60 if zone else _offset(found[8], found[9], found[10])
    month = _MONTHS.index(found[2].lower()) + 1
    clock = (int(found[3]), month, int(found[1]), int(found[4]), int(found[5]), int(found[6] or 0))
    return _unix_ms(text, clock, offset)


def moment(text: str, now_ms: int) -> int:
    """Either kind of date, or seconds from now → UNIX ms."""
    seconds = _SECONDS.fullmatch(text)
    if seconds:
        return now_ms + int(seconds[1]) * 1000
    for parse in (date_time, mail_date):
        try:
            return parse(text)
        except InvalidValue:
            continue
    raise _invalid(
        text, "not a date; write it like 2026-11-21T08:00:00Z or as in a Date field, or give seconds from now"
    )


def name(text: str) -> str:
    """Of a campaign, tenant or window: it stands in keys, labels and file names."""
    if not _NAME.fullmatch(text):
        raise _invalid(text, "not a valid name; use up to 63 letters, digits, dots, underscores and hyphens")
    return text


def _invalid(text: str, what: str) -> InvalidValue:
    return InvalidValue(f"{text[:_SHOWN_MAX]!a} is {what}")


def _offset(sign: str, hours: str, minutes: str) -> int:
    """Minutes east of UTC; beyond a day it is no offset, and _unix_ms says so."""
    value = int(hours) * 60 + int(minutes)
    return -value if sign == "-" else value


def _unix_ms(text: str, clock: tuple[int, int, int, int, int, int], offset_min: int) -> int:
    year, month, day, hour, minute, second = clock
    leap = second == 60  # counted as the second after, as UNIX does
    try:
        zone = timezone(timedelta(minutes=offset_min))
        there = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=zone)
    except ValueError:
        raise _invalid(text, "not a date that exists; correct it") from None
    since = there - datetime(1970, 1, 1, tzinfo=UTC)
    return (since // timedelta(seconds=1) + leap) * 1000


# --- parameters of MAIL


@dataclass(slots=True)
class ScheduleParameters:
    """What parameters of MAIL ask of the schedule. by_s: seconds, None: no deadline. `settle` makes moments of them.

    clock_ahead_ms: as in an envelope, when that was.
    """

    priority: int | None = None
    hold_for_s: int = 0
    hold_until_ms: int = 0
    by_s: int | None = None
    by_mode: str = ""
    deadline_ms: int = 0
    require_tls: bool = False
    clock_ahead_ms: int = 0

    def say(self, keyword: str, value: str) -> None:
        """Takes one of PARAMETERS. Raises InvalidValue."""
        if keyword == "MT-PRIORITY":
            self.priority = priority(value)
        elif keyword == "HOLDFOR":
            self.hold_for_s = hold_for(value)
        elif keyword == "HOLDUNTIL":
            self.hold_until_ms = date_time(value)
        elif keyword == "BY":
            self.by_s, self.by_mode = deliver_by(value)
        elif value:
            raise _invalid(value, f"a value, but {keyword} takes none; omit it")
        else:
            self.require_tls = True

    def settle(self, now_ms: int, hold_days: float) -> None:
        """Makes moments of intervals, and checks them against each other and the limits. Raises InvalidValue."""
        if self.hold_for_s and self.hold_until_ms:
            raise InvalidValue("HOLDFOR and HOLDUNTIL exclude each other; give one of them (RFC 4865)")
        if self.hold_until_ms and self.hold_until_ms < now_ms:
            raise InvalidValue("HOLDUNTIL is in the past; omit it to send at once")
        if self.hold_for_s:
            self.hold_until_ms = now_ms + self.hold_for_s * 1000
        _check_hold(self.hold_until_ms, now_ms, hold_days)
        if self.by_s is not None:
            self.deadline_ms = now_ms + self.by_s * 1000
            _check_order(self.hold_until_ms, self.deadline_ms, self.by_mode)

    def put_into(self, envelope: Envelope) -> None:
        envelope.priority, envelope.require_tls = self.priority, self.require_tls
        envelope.hold_until_ms, envelope.hold_for = self.hold_until_ms, self.hold_for_s > 0
        envelope.deadline_ms, envelope.deadline_mode = self.deadline_ms, self.by_mode
        if self.deadline_ms or self.hold_for_s:
            envelope.clock_ahead_ms = self.clock_ahead_ms


def _check_hold(hold_until_ms: int, now_ms: int, hold_days: float) -> None:
    if hold_until_ms - now_ms > hold_days * _DAY_S * 1000:
        raise InvalidValue(f"messages are held for {hold_days:g} days at most; hand it in later")


def _check_order(hold_until_ms: int, deadline_ms: int, mode: str) -> None:
    if mode == "R" and deadline_ms <= hold_until_ms:
        raise InvalidValue("the deadline passes before the hold ends; shorten the hold, or give a later deadline")


# --- header fields


def _campaign(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    envelope.campaign = name(value)


def _tenant(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    envelope.tenant = name(value)


def _level(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    level = priority(value)
    if envelope.priority is None:
        envelope.priority = level


def _after(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    after_ms = moment(value, now_ms)
    _check_hold(after_ms, now_ms, terms.hold_days)
    if after_ms > now_ms and not envelope.hold_until_ms:
        envelope.hold_until_ms, envelope.hold_for = after_ms, _SECONDS.fullmatch(value) is not None


def _by(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    by_ms = moment(value, now_ms)
    if by_ms <= now_ms:
        raise _invalid(value, "in the past; give a later deadline, or omit it")
    if not envelope.deadline_mode:
        envelope.deadline_ms, envelope.deadline_mode = by_ms, "R"


def _window(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    if value not in terms.windows:
        raise _invalid(value, "not a window of this server; name a [[windows]] table, or add one")
    envelope.window = value


def _time_zone(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    if value not in terms.time_zones:
        raise _invalid(value, "not a time zone; give an IANA name such as Europe/Berlin")
    envelope.time_zone = value


def _unsubscribe(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    """yes, no, or what the link stops, which means yes."""
    word = value.lower()
    if word not in _YES and word not in WIDENING:
        raise _invalid(
            value, f"neither yes nor no, and not what an unsubscribe stops ({', '.join(WIDENING)}); give one"
        )
    envelope.unsubscribe, envelope.unsubscribe_scope = _YES.get(word, True), word if word in WIDENING else ""


def _track(envelope: Envelope, value: str, terms: Terms, now_ms: int) -> None:
    word = value.lower()
    if word not in TRACKED:
        raise _invalid(value, f"not one of {', '.join(TRACKED)}; give one of them")
    envelope.track = word


FIELDS: dict[str, Callable[[Envelope, str, Terms, int], None]] = {
    "X-Campaign": _campaign,
    "X-Tenant": _tenant,
    "X-Priority-Level": _level,
    "X-Deliver-After": _after,
    "X-Deliver-By": _by,
    "X-Window": _window,
    "X-Time-Zone": _time_zone,
    "X-Unsubscribe": _unsubscribe,
    "X-Track": _track,
}
"""Name of a field → what puts its value into the envelope."""


def apply(envelope: Envelope, fields: dict[str, str], terms: Terms, now_ms: int) -> None:
    """fields: name, as in FIELDS, → unfolded value. Raises InvalidValue."""
    for field, value in fields.items():
        try:
            FIELDS[field](envelope, value, terms, now_ms)
        except InvalidValue as invalid:
            raise InvalidValue(f"{field}: {invalid}") from None
    _check_order(envelope.hold_until_ms, envelope.deadline_ms, envelope.deadline_mode)

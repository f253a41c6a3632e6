"""How much goes out: throttles, concurrency and rates that learn, shares between campaigns and tenants, windows."""

from __future__ import annotations

import fnmatch
import re
import zoneinfo
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from zonemta_py.config.section import NAME, Section
from zonemta_py.config.values import NameStart, ip_address, site

Dimension = Literal["zone", "source", "site", "provider", "tenant", "campaign"]
SECONDS = {
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600,
    "d": 86400, "day": 86400,
}  # fmt: skip
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?([KMG]?)(B?) ?/ ?(\d*) ?([a-z]+)", re.ASCII | re.IGNORECASE)
_AMOUNT_MAX = 1e15
_SECONDS_MAX = 366 * 86400
_HOURS = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)


_WILD = re.compile(r"[*?\[]")
_NAMES = re.compile(r"[A-Za-z0-9._*?\[\]!-]*")
_ONLY: dict[Dimension, re.Pattern[str]] = {
    "zone": _NAMES, "tenant": _NAMES, "campaign": _NAMES, "provider": re.compile(r"[^\s/@,;]*"),
    "site": re.compile(r"(?!.*://)[^\s@,;]*"), "source": re.compile(r"[0-9a-fA-F:.*?\[\]!-]*"),
}  # fmt: skip
"""What may be in a pattern, by what the values themselves may have."""


def _matches(pattern: str, values: Iterable[str]) -> bool:
    """As throttles compare them."""
    wanted = pattern.lower()
    return any(value.lower() == wanted or fnmatch.fnmatchcase(value.lower(), wanted) for value in values)


class Rate(NamedTuple):
    """So much in so many seconds."""

    amount: float
    seconds: float


def rate(text: str) -> Rate:
    """ "100/s", "5000/min", "10 MB/s", "300/10min", "2K/h" (K, M, G are powers of 1,000) → Rate.

    Raises ValueError with the fault and the notation.
    """
    found = _RATE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a rate; write it like 100/s, 5000/min, 300/10min or 10MB/s")
    unit = SECONDS.get(found[5].lower())
    if unit is None:
        raise ValueError(f"{text!r} is not a rate, {found[5]!r} is not a unit of time; write s, min, h or day")
    amount, seconds = float(found[1]) * _UNITS[found[2].upper()], unit * int(found[4][:12] or 1)
    if not 0 < amount <= _AMOUNT_MAX:
        raise ValueError(f"{text!r} is not a limit; write more than 0, or leave it empty for none")
    if not 0 < seconds <= _SECONDS_MAX:
        raise ValueError(f"{text!r} is not a rate; its time must be between a second and a year")
    return Rate(amount, seconds)


def _counted(text: str, unit: str) -> str:
    """A rate of things, not bytes; "" is none. Raises ValueError."""
    if text:
        rate(text)
        if "b" in text.partition("/")[0].lower():
            raise ValueError(f"{text!r} counts bytes, but this limit counts {unit}; omit the B, or set bytes")
    return text


class Throttle(Section):
    """A limit. It counts for every combination of the values of `per` by itself, for all senders together, and holds
    across restarts. Rates are spread evenly over their time: "24/day" is one an hour, and nothing is reset at midnight.
    Empty or 0: not limited."""

    name: str = Field(pattern=NAME)
    """Name in explanations."""
    per: list[Dimension] = []
    """Dimensions with a limit for each value: any of zone, source, site, provider, tenant, campaign; empty: all
    together."""
    only: dict[Dimension, str] = {}
    """Where it applies: dimension → name, * matches any part ({ provider = "google", campaign = "news-*" }); mail that
    has none (no tenant, no campaign …) matches * but not ?*."""
    connections: int = Field(0, ge=0)
    """Connections open at once, idle ones too. Where several destinations or sources share the limit, one may hold a
    connection for 5 s at most while others wait, and for 1 s at most without mail."""
    messages: str = ""
    """Messages (transactions) per time, "100/min"."""
    recipients: str = ""
    """Recipients per time."""
    new_connections: str = ""
    """Connections opened per time."""
    bytes: str = ""
    """Bytes of messages per time, "10MB/s"."""
    burst: float = Field(0, ge=0)
    """How much may go at once after a pause, in the limit's own unit; 0: what one second allows, at least one."""
    messages_per_connection: int = Field(0, ge=0)
    """Messages over one connection before it is closed."""
    recipients_per_delivery: int = Field(0, ge=0)
    """Recipients in one transaction."""
    idle_s: float | None = Field(None, ge=0)
    """Seconds an idle connection is kept."""

    @field_validator("messages", "recipients", "new_connections")
    @classmethod
    def _check_counts(cls, value: str, info: ValidationInfo) -> str:
        return _counted(value, str(info.field_name).replace("_", " "))

    @field_validator("bytes")
    @classmethod
    def _check_bytes(cls, value: str) -> str:
        if value:
            rate(value)
        return value

    @field_validator("only")
    @classmethod
    def _check_only(cls, values: dict[Dimension, str]) -> dict[Dimension, str]:
        """What no value of the dimension can be is a mistake, and would limit nothing."""
        for dimension, value in values.items():
            plain = not _WILD.search(value)
            try:
                if dimension == "site" and plain and value:
                    site(value)
                elif dimension == "source" and plain and value:
                    ip_address(value)
                elif not _ONLY[dimension].fullmatch(value):
                    raise ValueError(f"{value!r} matches no {dimension} that there can be")
            except ValueError as error:
                raise ValueError(f"{dimension}: {error}; correct it, or remove it") from None
        return values

    def elsewhere(self, zones: set[str], sources: set[str], chosen: bool) -> Iterator[tuple[str, str]]:
        """(dimension, why) for what `only` names and nobody has. chosen: plugins may choose other sources."""
        known = {"zone": zones} if chosen else {"zone": zones, "source": {*sources, ""}}
        for dimension, value in self.only.items():
            there = known.get(dimension)
            if there is not None and not _matches(value, there):
                names = ", ".join(sorted(filter(None, there))[:10]) or "none"
                yield dimension, f"{value!r} is no {dimension} of this file, so nothing is limited; there are {names}"

    @model_validator(mode="after")
    def _check_use(self) -> Throttle:
        counts = self.messages or self.recipients or self.new_connections
        per_connection = self.messages_per_connection or self.recipients_per_delivery or self.idle_s is not None
        if not (counts or self.bytes or self.connections or per_connection):
            raise ValueError(f"throttle {self.name!r} limits nothing; set messages, connections …, or remove it")
        if self.burst and self.bytes and counts:
            raise ValueError(
                f"throttle {self.name!r}: its burst would apply to bytes too; move bytes to a throttle of its own"
            )
        if self.burst and not (counts or self.bytes):
            raise ValueError(f"throttle {self.name!r} has a burst but no rate; set messages, recipients or bytes")
        return self


class Learning(Section):
    """Concurrency and rates that adapt to what destinations accept."""

    initial: int = Field(5, ge=1)
    """Initial connections to a destination that nothing is known about."""
    success: float = Field(1, gt=0)
    """What a round of as many successes as there are connections adds to them."""
    failure: float = Field(1, gt=0)
    """What a round of as many failures takes away."""
    dead_after: int = Field(1, ge=1)
    """Rounds of failures in a row after which the destination is rested."""
    rate_decrease: float = Field(0.9, gt=0, lt=1)
    """A source slowed down at a provider continues at this share of the rate last accepted."""
    rate_increase: float = Field(0.02, gt=0, le=1)
    """Then its rate grows by this share of itself …"""
    rate_increase_s: float = Field(10, gt=0)
    """… every so many seconds without a deferral; just below the rate that last was too much it waits for a dozen of
    them, far below it each step is up to twice the last."""
    rate_min: str = "1/min"
    """Never slower than this."""
    rate_max: str = ""
    """At this rate the limit is removed again; empty: at ten times the rate that first was too much."""

    @field_validator("rate_min", "rate_max")
    @classmethod
    def _check_rates(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "rate_min":
            raise ValueError("rate_min is empty; write the slowest useful rate, such as 1/min")
        return _counted(value, "messages")

    @model_validator(mode="after")
    def _check_order(self) -> Learning:
        slowest, fastest = rate(self.rate_min), rate(self.rate_max) if self.rate_max else None
        if fastest and slowest.amount / slowest.seconds >= fastest.amount / fastest.seconds:
            raise ValueError(
                f"rate_min {self.rate_min} is not below rate_max {self.rate_max}; lower rate_min or raise rate_max"
            )
        return self


class SharesSection(Section):
    """Shares of a zone when demand exceeds its capacity. Names may end in *; the longest match counts."""

    tenants: dict[NameStart, Annotated[float, Field(gt=0)]] = {}
    """Tenant → weight; 1 where none is given."""
    campaigns: dict[NameStart, Annotated[float, Field(gt=0)]] = {}
    """Campaign → weight within its tenant."""


class Window(Section):
    """Hours in which mail may be sent; outside of them it waits, which counts as no attempt."""

    name: str = Field(pattern=NAME)
    """Name that zones and the header X-Window refer to."""
    days: list[Day] = [*DAYS]
    """Days of the week."""
    hours: str = "09:00-18:00"
    """From and until; "22:00-06:00" goes past midnight and belongs to the day it begins on."""
    time_zone: str = "recipient"
    """An IANA name such as Europe/Berlin, or recipient: the one that came with the recipient, else UTC."""

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, value: str) -> str:
        found = _HOURS.fullmatch(value)
        if not found or "24:" in value.replace("24:00", "") or found[1] == "24" or value[:5] == value[6:]:
            raise ValueError(f"{value!r} are not hours such as 09:00-18:00")
        return value

    @field_validator("time_zone")
    @classmethod
    def _check_zone(cls, value: str) -> str:
        if value != "recipient":
            try:
                zoneinfo.ZoneInfo(value)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError):
                raise ValueError(f'{value!r} is not a time zone such as Europe/Berlin, nor "recipient"') from None
        return value

    @model_validator(mode="after")
    def _check_days(self) -> Window:
        if not self.days:
            raise ValueError(f"window {self.name!r} has no day; name some, or omit days")
        return self

"""How much goes out: throttles, concurrency and rates that learn, shares between campaigns and tenants, windows."""

from __future__ import annotations

import re
import zoneinfo
from typing import Literal, NamedTuple, get_args

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import NAME, Section

Dimension = Literal["zone", "source", "site", "provider", "tenant", "campaign"]
SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?([KMG]?)B?/(\d*) ?([a-z]+)")
_HOURS = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)


class Rate(NamedTuple):
    """So much in so many seconds."""

    amount: float
    seconds: float


def rate(text: str) -> Rate:
    """ "100/s", "5000/min", "10 MB/s", "300/10min" → Rate. Raises ValueError."""
    found = _RATE.fullmatch(text.strip())
    if not found or found[4] not in SECONDS or float(found[1]) <= 0 or found[3].strip("0") == "" != found[3]:
        raise ValueError(f"{text!r} is not a rate such as 100/s, 5000/min, 300/10min or 10MB/s")
    return Rate(float(found[1]) * _UNITS[found[2]], SECONDS[found[4]] * int(found[3] or 1))


class Throttle(Section):
    """A limit. It counts for every combination of the values of `per` by itself, for all senders together, and holds
    across restarts. Empty or 0: not limited."""

    name: str = Field(pattern=NAME)
    """Name in explanations."""
    per: list[Dimension] = []
    """What each has a limit of its own: any of zone, source, site, provider, tenant, campaign; empty: all together."""
    only: dict[Dimension, str] = {}
    """Where it applies: dimension → name, * matches any part ({ provider = "google", campaign = "news-*" })."""
    connections: int = Field(0, ge=0)
    """Connections at once."""
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

    @field_validator("messages", "recipients", "new_connections", "bytes")
    @classmethod
    def _check_rates(cls, value: str) -> str:
        if value:
            rate(value)
        return value


class Learning(Section):
    """Concurrency and rates that follow what destinations bear."""

    initial: int = Field(5, ge=1)
    """Connections to a destination that nothing is known about."""
    success: float = Field(1, gt=0)
    """What a round of as many successes as there are connections adds to them."""
    failure: float = Field(1, gt=0)
    """What a round of as many failures takes away."""
    dead_after: int = Field(1, ge=1)
    """Rounds of failures in a row after which the destination is rested."""
    rate_decrease: float = Field(0.9, gt=0, lt=1)
    """A source slowed down at a provider goes on at this part of what was last accepted."""
    rate_increase: float = Field(0.02, gt=0, le=1)
    """Then its rate grows by this part of itself …"""
    rate_increase_s: float = Field(10, gt=0)
    """… every so many seconds without a complaint."""
    rate_min: str = "1/min"
    """Never slower than this."""
    rate_max: str = ""
    """At this rate the bound is taken away again; empty: at ten times the rate that first was too much."""

    @field_validator("rate_min", "rate_max")
    @classmethod
    def _check_rates(cls, value: str) -> str:
        if value:
            rate(value)
        return value


class Shares(Section):
    """Who gets how much of a zone when all want more than there is. Names may end in *; the longest match counts."""

    tenants: dict[str, float] = {}
    """Tenant → weight; 1 where nothing is said."""
    campaigns: dict[str, float] = {}
    """Campaign → weight within its tenant."""


class Window(Section):
    """Hours in which mail may go; outside of them it waits, and the wait is no attempt."""

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
            raise ValueError(f"window {self.name!r} has no day, name some or leave days out")
        return self

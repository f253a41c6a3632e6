"""What a report is about: a day, or a campaign, source address, provider or zone between two moments.

All times are whole seconds since 1970, UTC. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum

HOUR_S, DAY_S = 3600, 86_400
STEPS_S = ((30 * HOUR_S, 300), (15 * DAY_S, HOUR_S))
"""Bars over time are this many seconds wide for periods of at most that length; a day for longer ones."""


class Kind(Enum):
    """The value is the column of `deliveries` and `outcomes` that holds the name; "" for a day, which is all mail."""

    DAY = ""
    CAMPAIGN = "campaign"
    IP = "source"
    PROVIDER = "provider"
    ZONE = "zone"


@dataclass(frozen=True)
class ReportScope:
    """From `start` to before `end`. `rival` is what a campaign is compared with: the campaign before it, "" for none;
    everything else is compared with the same span of time that ends at `start`.
    """

    kind: Kind
    name: str
    start: int
    end: int
    rival: str = ""
    lasted_s: int = 0
    """From a campaign's first recipient until something happened last; 0: unknown. Short ones get finer steps."""

    @property
    def before(self) -> int:
        """Where the period before starts."""
        return self.start - (self.end - self.start)

    @property
    def step_s(self) -> int:
        return next((step for length, step in STEPS_S if self.end - self.start <= length), DAY_S)

    @property
    def cohort_s(self) -> int:
        """Rates of what came back are told for the mail accepted in steps of so many seconds: an hour, or a day."""
        return HOUR_S if self.end - self.start <= 2 * DAY_S else DAY_S

    @property
    def by_hour_of_day(self) -> bool:
        """The heat map's columns are the 24 hours of all days together, as there are too many to show each."""
        return self.end - self.start > 2 * DAY_S

    @property
    def title(self) -> str:
        what = {Kind.CAMPAIGN: "Campaign", Kind.IP: "Source", Kind.PROVIDER: "Provider", Kind.ZONE: "Zone"}
        return f"{what[self.kind]} {self.name}" if self.kind in what else f"Day {self.name}"

    @property
    def span(self) -> str:
        """ "2026-05-04 UTC", or "2026-05-04 to 2026-05-06 UTC" for whole days, or with hours and minutes."""
        start, end = (datetime.fromtimestamp(at, UTC) for at in (self.start, self.end))
        if self.start % DAY_S == self.end % DAY_S == 0:
            first, last = start.date(), (end - timedelta(days=1)).date()
            return f"{first} UTC" if first == last else f"{first} to {last} UTC"
        return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"

    @property
    def compared_with(self) -> str:
        if self.kind is Kind.CAMPAIGN:
            return f"campaign {self.rival}" if self.rival else ""
        return "the day before" if self.end - self.start == DAY_S else "the period before"


def seconds(day: date) -> int:
    """Its midnight, UTC."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def of_day(day: date) -> ReportScope:
    return ReportScope(Kind.DAY, day.isoformat(), seconds(day), seconds(day) + DAY_S)

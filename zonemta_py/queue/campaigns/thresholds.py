"""Thresholds of a campaign: the share of its attempts that may fail before it is paused automatically.

{"least": n, "deferred": share, "bounced": share, "blocked": share, "complaints": share}: shares from 0 to 1 of all
attempts since it was last resumed (complaints: of recipients delivered since then), checked from `least` attempts on.
Who bounced later, by a message of their server, has bounced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zonemta_py.queue.core.campaign_counters import CampaignCounts
from zonemta_py.queue.questions.question import Refused

if TYPE_CHECKING:
    from zonemta_py.queue.core.campaigns import Campaign
    from zonemta_py.queue.core.core import Core
    from zonemta_py.schedule.policy.state import Suspension

LEAST = 100
SHARES = ("deferred", "bounced", "blocked", "complaints")
FIGURES = 6
_SAID = {
    "deferred": "attempts were deferred", "bounced": "attempts bounced", "blocked": "attempts were blocked",
    "complaints": "delivered messages drew complaints",
}  # fmt: skip


def checked(bounds: dict[str, Any]) -> dict[str, float]:
    """Raises ValueError with one sentence for invalid thresholds."""
    for name, value in bounds.items():
        if name not in ("least", *SHARES):
            raise Refused(f"there is no bound {name!r}; use least, {', '.join(SHARES)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise Refused(f"the bound {name} is {value!r}; write a number")
        if name != "least" and value > 1:
            raise Refused(f"the bound {name} is {value!r}; write a share from 0 to 1, such as 0.05 for 5%")
    return dict(bounds)


def figures(tally: CampaignCounts) -> list[int]:
    """The figures that thresholds apply to: [delivered, deferred, bounced, blocked, complaints,
    bounced_later]."""
    return [
        tally.delivered, tally.deferred, tally.bounced, tally.blocked, tally.complaints, tally.bounced_later,
    ]  # fmt: skip


def counted(tally: CampaignCounts, base: list[int]) -> list[int]:
    """The same, since those were `base`."""
    before = [*base, *[0] * (FIGURES - len(base))]  # older versions knew fewer
    return [figure - earlier for figure, earlier in zip(figures(tally), before, strict=False)]


def passed(bounds: dict[str, float], counted: list[int]) -> str:
    """The first threshold that was passed, as a sentence with figure and threshold; "" if none was."""
    for name, count, of in _shares(bounds, counted):
        share = count / of if of else 0.0
        if of >= max(1, bounds.get("least", LEAST)) and share > bounds[name]:
            return f"{count:,} of {of:,} {_SAID[name]} ({share:.1%}), the bound is {bounds[name]:.1%}"
    return ""


def perhaps_passed(bounds: dict[str, float], counted: list[int]) -> bool:
    """Whether these figures, added to others that have passed no threshold, may pass one: the share of a sum is no
    larger than the largest of its parts'."""
    return any(count > bounds[name] * of for name, count, of in _shares(bounds, counted))


def _shares(bounds: dict[str, float], counted: list[int]) -> Iterator[tuple[str, int, int]]:
    """Of each that has a threshold: its name, how many, of how many."""
    delivered, deferred, bounced, blocked, complaints, later = counted
    counts = {"deferred": deferred, "bounced": bounced + later, "blocked": blocked, "complaints": complaints}
    for name in SHARES:
        if name in bounds:
            yield name, counts[name], delivered if name == "complaints" else delivered + deferred + bounced


def stop_of(core: Core, campaign: Campaign) -> Suspension | None:
    """What has paused it: an order, a threshold, a rule; None, too, if only other tenants' mail is stopped."""
    policy = core.schedule.policy
    stop = policy.stops.get(("campaign", campaign.name)) if policy.stopped("campaign", campaign.name) else None
    if stop is None or not campaign.tenants or any(map(stop.is_about, campaign.tenants)):
        return stop
    return None

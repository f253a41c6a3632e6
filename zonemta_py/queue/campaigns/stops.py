"""What has paused a campaign."""

from __future__ import annotations

from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.schedule.policy.state import Suspension


def stop_of(core: Core, campaign: Campaign) -> Suspension | None:
    """An order, a threshold, a rule; None, too, if only other tenants' mail of its name is stopped."""
    policy = core.schedule.policy
    stop = policy.stops.get(("campaign", campaign.name)) if policy.stopped("campaign", campaign.name) else None
    if stop is None or not campaign.tenants or any(map(stop.is_about, campaign.tenants)):
        return stop
    return None

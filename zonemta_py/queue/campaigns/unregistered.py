"""Mail that names a campaign (X-Campaign) of which no figures are kept: there are `campaign_names` of them already, or
it is from before there were any.

How many of its recipients wait is counted (`core/sums`), so it can be shown, paused and canceled like other campaigns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.campaign_counters import CampaignCounts
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sums.flows import pair

Delete = Callable[[str, str | None, str, int], Awaitable[int]]
"""(campaign, tenant, cause, number of the task or 0) → how many waiting recipients are deleted (`queue.tasks.orders`).
tenant None: of all."""


async def row(core: Core, name: str, removed: int = 0) -> dict[str, Any]:
    """As for campaigns, with what is known: how many recipients wait. Empty if none does, or did."""
    await core.disk.lines.stable()  # recently ended recipients should be out of the store
    count = waiting(core, name)
    if not count and not removed:
        return {}
    stop = core.schedule.policy.stops.get(("campaign", name))
    about = {"name": name, "sender": "", "tenant": "", "zone": "", "created_ms": 0, "planned": 0, "registered": False}
    about |= {"of_all": True}
    tally = CampaignCounts(accepted=count + removed, removed=removed)
    return about | asdict(tally) | {
        "state": "paused" if stop else "running", "cause": stop.cause if stop else "", "waiting": count,
        "deleted": core.counters.sizes.flows.campaigns.of(name)[sizes.DELETED],
        "rate_per_s": 0.0, "eta_ms": None,
    }  # fmt: skip


def waiting(core: Core, name: str, campaign: Campaign | None = None) -> int:
    """What a cancel is about: all that waits of that name and its campaign's tenant, but what a task has deleted
    and what has bounced."""
    flows = core.counters.sizes.flows
    counts = flows.campaigns.of(name) if campaign is None else flows.pairs.of(pair(campaign.tenant, name))
    return sizes.waiting(counts)


def deleted(core: Core, campaign: Campaign) -> int:
    """What of it a task has deleted, and can still put back: it has not ended, and does not wait."""
    flows = core.counters.sizes.flows
    pairs = [flows.pairs.of(pair(tenant, campaign.name)) for tenant in campaign.tenants]
    return sum(counts[sizes.DELETED] for counts in pairs or [flows.campaigns.of(campaign.name)])

"""Room for one more campaign that only mail names, when there are `campaign_names` of them.

A tenant that has fewer than its share of the names takes one over from the tenant that has most: of what is at rest
there, else of what waits, the one that the latest result is longest ago of. That mail is sent like any; it counts no
more, and mail of the same name later begins anew (`Campaign.first`).
"""

from __future__ import annotations

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import BOUNCED


def room(core: Core, tenant: str) -> bool:
    """Whether mail of that tenant ("": of none) may begin one."""
    campaigns, most = core.campaigns, core.config.queue.campaign_names
    if len(campaigns.named) < most:
        return True
    names = campaigns.names_of
    if names[tenant] * len(names) >= most:  # it has its share
        return False
    largest, count = names.most_common(1)[0]
    if names[tenant] + 1 >= count:
        return False
    found = [one for one in campaigns.named.values() if one.tenant == largest and not _needed(core, one)]
    if not found:
        return False
    oldest = min(found, key=lambda one: (campaigns.tally(one.name).waiting > 0, latest_ms(core, one), one.created_ms))
    campaigns.replaced.append(oldest.name)
    core.disk.lines.submit(forget(core, oldest), immediately, sync=False, keep=True)
    return True


def forget(core: Core, campaign: Campaign) -> list[Operation]:
    """Deletes all that there is of it; mail of its name that waits, another tenant's or its own, counts for none."""
    waits = any(core.counters.sizes.flows.campaigns.of(campaign.name))
    return core.campaigns.forget(campaign, core.disk.ids.next(core.clock.ms()) if waits else "")


def gone(core: Core) -> list[Operation]:
    """Of what `forget` has left, what has no mail waiting any more."""
    left, campaigns = core.campaigns.counters.left, core.counters.sizes.flows.campaigns
    names = [name for name in left if not any(campaigns.of(name))]
    left.difference_update(names)
    return [(keys.left(name), None) for name in names]


def latest_ms(core: Core, campaign: Campaign) -> int:
    return max(campaign.created_ms, core.campaigns.tally(campaign.name).last_ms)


def at_rest(core: Core, campaign: Campaign) -> bool:
    """Nothing of it waits or is kept, and no order about it holds."""
    return core.campaigns.tally(campaign.name).waiting <= 0 and not _needed(core, campaign)


def _needed(core: Core, campaign: Campaign) -> bool:
    """Even if nothing of it waits."""
    if core.campaigns.arrives(campaign.name):
        return True
    return core.schedule.policy.stopped("campaign", campaign.name) or keeps_bounces(core, campaign)


def keeps_bounces(core: Core, campaign: Campaign) -> bool:
    """Whether any of it has bounced and can be queued again, for which its template and its figures are needed."""
    return core.counters.sizes.flows.campaigns.of(campaign.name)[BOUNCED] > 0

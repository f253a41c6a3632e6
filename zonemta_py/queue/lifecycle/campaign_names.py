"""Campaigns that only mail names (X-Campaign): whether there is room for one more, and which are forgotten when.

A sender can name as many as it likes. So `campaign_names` of them have figures; mail of further names is taken, paused
and canceled as well, but only what waits of it is counted. Forgotten is what has nothing waiting and is not paused:
after `campaign_days` without mail, or sooner if there are nearly too many, and then first those of the tenant that has
most of them, the longest at rest first. So names that one tenant invents push out none of others.

While mail waits under all of them, a tenant that has fewer than its share of the names takes one over from the tenant
that has most: of what is at rest there, else of what waits, the one whose latest result is the oldest. That mail is
sent like any; it counts no more, and mail of the same name later begins anew (`Campaign.first`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import BOUNCED

_DAY_MS = 86_400_000
_FULL = 0.9
"""Share of `campaign_names` from which some are forgotten, so that there is room for new ones."""


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


def forgotten(core: Core, now_ms: int) -> Iterator[Campaign]:
    """Those that are to be forgotten now."""
    named, most = core.campaigns.named, core.config.queue.campaign_names
    too_many = len(named) - int(most * _FULL)
    until_ms = now_ms - int(core.config.queue.campaign_days * _DAY_MS)
    if too_many > 0:
        yield from _superfluous(core, too_many)
        return
    yield from [one for one in named.values() if latest_ms(core, one) < until_ms and at_rest(core, one)]


def _superfluous(core: Core, count: int) -> list[Campaign]:
    """So many, as far as they are at rest."""
    named = core.campaigns.named.values()
    newest = sorted(named, key=lambda one: (latest_ms(core, one), one.created_ms), reverse=True)
    among_own = dict(_numbered(newest))
    resting = [one for one in reversed(newest) if at_rest(core, one)]
    return sorted(resting, key=lambda one: -among_own[one.name])[:count]


def _numbered(newest: Iterable[Campaign]) -> Iterator[tuple[str, int]]:
    """Each with how many newer ones its tenant has."""
    seen: dict[str, int] = {}
    for one in newest:
        seen[one.tenant] = seen.get(one.tenant, 0) + 1
        yield one.name, seen[one.tenant]

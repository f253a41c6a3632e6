"""Campaigns that nobody has put, but that mail names (X-Campaign): which of them are forgotten, and when.

A sender can name as many as it likes. So `campaign_names` of them have figures; mail of further names is taken, paused
and canceled as well, but only what waits of it is counted. Forgotten is what has nothing waiting and is not paused:
after `campaign_days` without mail, or sooner if there are nearly too many, and then first those of the tenant that has
most of them, the longest at rest first. So names that one tenant invents push out none of others; and while mail of
them waits, others still get theirs (`lifecycle.campaign_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.campaign_names import at_rest, latest_ms

_DAY_MS = 86_400_000
_FULL = 0.9
"""Share of `campaign_names` from which some are forgotten, so that there is room for new ones."""


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

"""Mail that names a campaign (X-Campaign) that is not registered with the queue: it came by SMTP, and has no counters.

How many of its recipients wait is counted (`core/sums`), so it can be shown, paused and canceled like other campaigns.
A cancel removes what is there; later mail of that name is accepted as before.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from zonemta_py.queue.campaigns.purge import Sweep
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.counters import CampaignCounts


async def row(core: Core, name: str, state: str = "", removed: int = 0) -> dict[str, Any]:
    """As for campaigns, with what is known: how many recipients wait. Empty if none does, or did."""
    await core.lines.stable()  # recently ended recipients should be out of the store
    waiting = sum(core.sizes.flows.campaigns.of(name))
    if not waiting and not removed:
        return {}
    stop = core.schedule.policy.stops.get(("campaign", name))
    about = {"name": name, "sender": "", "tenant": "", "zone": "", "created_ms": 0, "planned": 0}
    tally = CampaignCounts(accepted=waiting + removed, removed=removed)
    state = state or ("paused" if stop else "running")
    return about | asdict(tally) | {
        "state": state, "cause": stop.cause if stop else "", "waiting": waiting, "rate_per_s": 0.0, "eta_ms": None,
    }  # fmt: skip


async def cancel(core: Core, name: str, cause: str) -> dict[str, Any]:
    """Removes its waiting recipients; returns its row, empty if there were none. Raises StoreError."""
    before = sum(core.sizes.flows.campaigns.of(name))
    if not before:
        return {}
    now_ms = core.clock.ms()
    campaign = Campaign(name, "", "", "", 0, 0, {}, 0, now_ms, "", 0, 0, cause=cause, canceled_ms=now_ms)
    sweep = Sweep(core, {name: campaign}, all_of_it=True)
    while sweep.go_on():
        await core.lines.stable()
    await core.journal.stable()
    await core.lines.stable()
    return await row(core, name, "canceled", before - sum(core.sizes.flows.campaigns.of(name)))

"""Mail that names a campaign (X-Campaign) that is not registered with the queue: it came by SMTP, and has no counters.

How many of its recipients wait is counted (`core/sums`), so it can be shown, paused and canceled like other campaigns.
A cancel removes what is there; later mail of that name is accepted as before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.counters import CampaignCounts
from zonemta_py.queue.core.sizes import DELETED

Delete = Callable[[str, str], Awaitable[int]]
"""(campaign, cause) → how many waiting recipients are deleted (`queue.tasks.orders`)."""


async def row(core: Core, name: str, state: str = "", removed: int = 0) -> dict[str, Any]:
    """As for campaigns, with what is known: how many recipients wait. Empty if none does, or did."""
    await core.lines.stable()  # recently ended recipients should be out of the store
    waiting = _waiting(core, name)
    if not waiting and not removed:
        return {}
    stop = core.schedule.policy.stops.get(("campaign", name))
    about = {"name": name, "sender": "", "tenant": "", "zone": "", "created_ms": 0, "planned": 0}
    tally = CampaignCounts(accepted=waiting + removed, removed=removed)
    state = state or ("paused" if stop else "running")
    return about | asdict(tally) | {
        "state": state, "cause": stop.cause if stop else "", "waiting": waiting, "rate_per_s": 0.0, "eta_ms": None,
    }  # fmt: skip


async def cancel(core: Core, delete: Delete, name: str, cause: str) -> dict[str, Any]:
    """Deletes its waiting recipients for good, by a task; returns its row, empty if there were none.

    In effect at once, also for what is being delivered and comes back: the task waits for that, this does not.
    """
    if not _waiting(core, name):
        return {}
    return await row(core, name, "canceled", await delete(name, cause))


def _waiting(core: Core, name: str) -> int:
    """Without what a task has deleted."""
    counts = core.sizes.flows.campaigns.of(name)
    return sum(counts) - counts[DELETED]

"""Questions and orders about campaigns, as `answers.answer` calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from zonemta_py.queue.api import EVERYBODY, QueueRefusal
from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule.time.pace import Pace

CAMPAIGNS = 1_000
"""Rows of one answer."""


async def _campaign_put(
    campaigns: CampaignCommands, queue: QueueContext, name: str, sender: str, template: bytes, **more: Any
) -> dict[str, bool]:
    refusal = queue.core.disk.refusal(queue.core.clock.monotonic())  # no space on the disk, or disk errors
    if refusal is not None:
        raise QueueRefusal(refusal)
    return await campaigns.put(name, sender, template, **more)


async def _campaign_pause(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.pause(name, cause or "by an operator")


async def _campaign_resume(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.resume(name, cause or "by an operator")


async def _campaign_cancel(campaigns: CampaignCommands, _: QueueContext, name: str, cause: str = "") -> dict[str, Any]:
    return await campaigns.cancel(name, cause or "by an operator")


async def _campaign_complete(campaigns: CampaignCommands, _: QueueContext, name: str) -> dict[str, Any]:
    return await campaigns.complete(name)


async def _campaign_decide(
    campaigns: CampaignCommands, _: QueueContext, name: str, winner: str = "", cause: str = ""
) -> dict[str, Any]:
    return await campaigns.decide(name, winner, cause or "by an operator")


async def _campaign_text(
    campaigns: CampaignCommands, queue: QueueContext, name: str, template: bytes, cause: str = ""
) -> dict[str, Any]:
    refusal = queue.core.disk.refusal(queue.core.clock.monotonic())
    if refusal is not None:
        raise QueueRefusal(refusal)
    return await campaigns.text(name, template, cause or "by an operator")


async def _campaign_templates(campaigns: CampaignCommands, _: QueueContext, name: str) -> list[list[str]]:
    return campaigns.templates(name)


async def _campaign(campaigns: CampaignCommands, _: QueueContext, name: str) -> dict[str, Any]:
    return await campaigns.full_row(name)


async def _campaign_tenant(
    _: CampaignCommands, queue: QueueContext, name: str, registered: bool = False
) -> str | None:  # fmt: skip
    campaigns = queue.core.campaigns
    campaign = campaigns.registered(name) if registered else campaigns.by_name.get(name)
    return None if campaign is None else EVERYBODY if campaign.of_all else campaign.tenant


async def _campaigns(
    campaigns: CampaignCommands, _: QueueContext, limit: int = CAMPAIGNS, after: str = ""
) -> list[dict[str, Any]]:
    """The newest first. after: the name of the last one that an earlier answer had."""
    pace = Pace()
    chosen = campaigns.newest(max(1, min(limit, CAMPAIGNS)), after)
    return [campaigns.row(campaign) async for campaign in pace.each(chosen)]


async def _campaign_ends(campaigns: CampaignCommands, _: QueueContext, name: str = "") -> list[dict[str, Any]]:
    pace = Pace()
    return [campaigns.end(one) async for one in pace.each(campaigns.put_ones(name))]


async def _campaign_hours(campaigns: CampaignCommands, _: QueueContext, name: str) -> Any:
    return await campaigns.hours(name)


async def _campaign_schedule(campaigns: CampaignCommands, _: QueueContext, name: str, **hours: Any) -> Any:
    return await campaigns.schedule(name, hours)


OF_CAMPAIGNS: dict[str, Callable[..., Awaitable[Any]]] = {
    "campaign-put": _campaign_put,
    "campaign-pause": _campaign_pause,
    "campaign-resume": _campaign_resume,
    "campaign-cancel": _campaign_cancel,
    "campaign-complete": _campaign_complete,
    "campaign-decide": _campaign_decide,
    "campaign-text": _campaign_text,
    "campaign-templates": _campaign_templates,
    "campaign": _campaign,
    "campaign-tenant": _campaign_tenant,
    "campaigns": _campaigns,
    "campaign-ends": _campaign_ends,
    "campaign-hours": _campaign_hours,
    "campaign-schedule": _campaign_schedule,
}

"""/v1/planning: what a campaign is planned by: zones and their sources, warm-up, providers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from zonemta_py.config import Config
from zonemta_py.config.section import shipped
from zonemta_py.queue import questions
from zonemta_py.web.api.admin import rows
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.zones.site import Providers

router = APIRouter(prefix="/v1")
ANY = "*"


@router.get("/planning", **operation("read", "What a campaign is planned by", rows.Planning))
async def planning(request: Request) -> Response:
    """What `zonemta campaign send` asks before it plans: zones with their sources, what those that are new may send on
    each of the next days, and which domains are whose."""
    here, _ = asked(request)
    config = here.config
    zones = [
        {
            "name": zone.name,
            "default": zone.default,
            "sources": [{"address": one.address, "weight": one.weight} for one in config.sources(zone)],
        }
        for zone in config.zones
        if zone.delivery != "pull"
    ]
    warming = _warming(config, await ask(here, "not-found", questions.warmup))
    providers = Providers.load(config.dns.providers or shipped("providers.toml")).domains
    return answer({"zones": zones, "warming": warming, "providers": providers})


def _warming(config: Config, begun: list[questions.WarmupRow]) -> list[dict[str, Any]]:
    """Rows of sources that are not warm: with each provider that they have sent to, and with ANY other."""
    schedules = {one.name: one for one in config.warmups}
    found = [
        {"source": one.address, "provider": ANY, "per_day": list(schedules[one.warmup].caps)}
        for pool in config.pools
        for one in pool.sources
        if one.warmup
    ]
    for row in begun:
        caps = list(schedules[row["schedule"]].caps) if row["schedule"] in schedules else []
        left = caps[row["step"] :]
        today = [max(0, left[0] - row["sent"])] if left else []
        found.append({"source": row["source"], "provider": row["provider"], "per_day": today + left[1:]})
    return found

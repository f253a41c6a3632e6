"""Zones, and where their mail goes to."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.reception.http.dashboard.desk import Desk

ROWS = 50
LANES = 100
BY = ("domain", "provider", "site")


async def zones(desk: Desk, request: Request) -> Response:
    """Each zone with what waits, and the lanes in memory of the one that is chosen."""
    chosen = request.query_params.get("zone", "")
    sizes, standing, lanes = await asyncio.gather(
        desk.ask("size"), desk.ask("standing"), desk.ask("lanes", zone=chosen) if chosen else _none()
    )
    stopped = {row["name"]: row for row in standing if row["kind"] == "zone"}
    settings = {zone.name: zone for zone in desk.config.zones}
    lanes = sorted(lanes, key=lambda row: (-len(row["reasons"]), -row["waiting"]))
    return desk.page(request, "zones", sizes=sizes["zones"], stopped=stopped, settings=settings, chosen=chosen,
                     lanes=lanes[:LANES], more=max(0, len(lanes) - LANES))  # fmt: skip


async def _none() -> list[dict[str, object]]:
    return []


async def destinations(desk: Desk, request: Request) -> Response:
    """Where most waits, by age."""
    asked = request.query_params
    by, zone = (asked.get("by") if asked.get("by") in BY else "domain"), asked.get("zone", "")
    found, sizes = await asyncio.gather(desk.ask("qshape", by=by, zone=zone or None, limit=ROWS), desk.ask("size"))
    most = max((max(row["ages"]) for row in found["rows"]), default=0)
    return desk.page(
        request, "destinations", by=by, kinds=BY, zone=zone, found=found, most=most, zones=list(sizes["zones"])
    )

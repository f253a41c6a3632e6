"""Zones, and where their mail goes to."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.words import place, query

ROWS = 50
LANES = 100
BY = ("domain", "provider", "site")


async def zones(desk: Desk, request: Request) -> Response:
    """Each zone with what waits, and the lanes in memory of the one that is chosen."""
    chosen, after = request.query_params.get("zone", ""), place(request.query_params.get("after", ""))
    sizes, standing, page = await asyncio.gather(
        desk.ask(questions.size),
        desk.ask(questions.standing),
        desk.ask(questions.lanes, zone=chosen, limit=LANES, after=after) if chosen else _none(),
    )
    stopped = {row["name"]: row for row in standing if row["kind"] == "zone"}
    settings = {zone.name: zone for zone in desk.config.zones}
    following = query(zone=chosen, after=page["next"]) if page["next"] else ""
    lanes = sorted(page["rows"], key=lambda row: (-len(row["reasons"]), -row["waiting"]))
    return desk.page(request, "zones", sizes=sizes["zones"], stopped=stopped, settings=settings, chosen=chosen,
                     lanes=lanes, whole=page["whole"], first=query(zone=chosen), following=following,
                     paged=bool(after))  # fmt: skip


async def _none() -> questions.Lanes:
    return {"rows": [], "next": None, "whole": []}


async def destinations(desk: Desk, request: Request) -> Response:
    """Where most waits, by age."""
    asked = request.query_params
    by, zone = asked.get("by", ""), asked.get("zone", "")
    by = by if by in BY else "domain"
    after = place(asked.get("after", ""))
    found, sizes = await asyncio.gather(
        desk.ask(questions.qshape, by=by, zone=zone or None, limit=ROWS + 1, after=after), desk.ask(questions.size)
    )
    rows, there = found["rows"][:ROWS], {"by": by, "zone": zone}
    most = max((max(row["ages"]) for row in rows), default=0)
    return desk.page(
        request, "destinations", by=by, kinds=BY, zone=zone, found=found | {"rows": rows}, most=most,
        first=query(**there),
        following=query(**there, after=after + ROWS) if len(found["rows"]) > ROWS else "", after=after,
        zones=list(sizes["zones"]),
    )  # fmt: skip

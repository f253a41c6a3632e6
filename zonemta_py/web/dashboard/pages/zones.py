"""Zones, and where their mail goes to; what is suspended, rests or was learned; warm-up; configurations."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.schedule.admin_orders import STOPPED
from zonemta_py.schedule.policy.standing import LEARNED, NOTED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.words import Wrong, place, query

ROWS = 50
LANES = 100
BY = ("domain", "provider", "site")


async def zones(desk: Desk, request: Request) -> Response:
    """Each zone with what waits, and the lanes in memory of the one that is chosen."""
    chosen, after = request.query_params.get("zone", ""), request.query_params.get("after", "")
    sizes, standing, page = await asyncio.gather(
        desk.ask(questions.size),
        desk.ask(questions.standing),
        desk.ask(questions.lanes, zone=chosen, limit=LANES, after=after or 0) if chosen else _none(),
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


async def suspensions(desk: Desk, request: Request) -> Response:
    after = place(request.query_params.get("after", ""))
    rows = await desk.ask(questions.standing, limit=ROWS + 1, after=after)
    following, rows = query(after=after + ROWS) if len(rows) > ROWS else "", rows[:ROWS]
    return desk.page(
        request, "suspensions", following=following, paged=bool(after), kinds=STOPPED,
        stopped=[row for row in rows if row["group"] == SUSPENDED],
        away=[row for row in rows if row["group"] == RESTING],
        learned=[row for row in rows if row["group"] == LEARNED],
        noted=[row for row in rows if row["group"] == NOTED and row["kind"] != GUARD],
    )  # fmt: skip


async def sources(desk: Desk, request: Request) -> Response:
    warm, rows = await asyncio.gather(desk.ask(questions.warmup), desk.ask(questions.standing))
    pools = [(pool.name, [source.address for source in pool.sources]) for pool in desk.config.pools]
    of_sources = [row for row in rows if row["kind"] in ("source", "rest", "rate", "concurrency")]
    return desk.page(request, "sources", warm=warm, rows=of_sources, pools=pools,
                     stopped={row["name"]: row["group"] for row in rows if row["kind"] == "source"})  # fmt: skip


async def configuration(desk: Desk, request: Request) -> Response:
    checked, wrong = None, ""
    rows, generation = await asyncio.gather(desk.ask(questions.configurations), desk.ask(questions.generation))
    if "check" in request.query_params:
        try:
            checked = await desk.ask(questions.reload, check=True)
        except Wrong as error:
            wrong = str(error)
    after = place(request.query_params.get("after", ""))
    following = query(after=after + ROWS) if len(rows) > after + ROWS else ""
    return desk.page(request, "configuration", rows=rows[after : after + ROWS], following=following, paged=bool(after),
                     number=generation["number"], checked=checked, wrong=wrong)  # fmt: skip

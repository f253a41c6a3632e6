"""What is suspended, what rests, and what was learned; warm-up of sources."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.schedule.admin_orders import STOPPED
from zonemta_py.schedule.policy.standing import LEARNED, NOTED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import GUARD
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.words import place, query

ROWS = 50


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
                     stopped={row["name"] for row in rows if row["kind"] == "source"})  # fmt: skip

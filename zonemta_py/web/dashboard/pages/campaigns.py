"""Campaigns: how far each is, and when it will be through."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.reception.scope import EVERYTHING
from zonemta_py.web.dashboard.desk import Desk, NoPage
from zonemta_py.web.dashboard.words import Wrong, query
from zonemta_py.web.serving import report_page
from zonemta_py.zones.calendar.campaign_hours import words

ROWS = 50
FIGURES = (
    "accepted",
    "waiting",
    "delivered",
    "deferred",
    "bounced",
    "held",
    "suppressed",
    "deleted",
    "removed",
    "expired",
)


async def every(desk: Desk, request: Request) -> Response:
    after = request.query_params.get("after", "")
    rows = await desk.ask(questions.campaigns, limit=ROWS + 1, after=after)
    following = query(after=rows[ROWS - 1]["name"]) if len(rows) > ROWS else ""
    return desk.page(request, "campaigns", rows=rows[:ROWS], following=following, paged=bool(after))


async def one(desk: Desk, request: Request) -> Response:
    try:
        row = await desk.ask(questions.campaign, name=request.path_params["name"])
    except Wrong as error:
        raise NoPage(404, str(error)) from None
    points = [[ms // 1000 for ms, *_ in row["history"]], *([point[at] for point in row["history"]] for at in (1, 2))]
    made = await report_page.known(desk.config, row["name"], EVERYTHING)
    figures = [(name, n) for name, n in row.items() if name in FIGURES]
    return desk.page(
        request, "campaign", row=row, figures=figures, points=json.dumps(points), goes=words(row.get("hours")),
        report=made if made is not None and made.created_ms == row["created_ms"] else None,
    )  # fmt: skip


async def report(desk: Desk, request: Request) -> Response:
    """The page itself, in no frame of ours, under a policy of its own."""
    try:
        return await report_page.shown(desk.config, request.path_params["name"], EVERYTHING)
    except report_page.NoReport as none:
        raise NoPage(404, str(none)) from None

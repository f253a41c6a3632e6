"""The configurations there have been, and what a reload would change."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.words import Wrong, place, query

ROWS = 50


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

"""What was done to many recipients at once, and what is about to be."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk, NoPage
from zonemta_py.web.dashboard.words import Wrong, query

ROWS = 50
MOVING = ("counting", "running")


async def every(desk: Desk, request: Request) -> Response:
    after = request.query_params.get("after", "")
    rows = await desk.ask(questions.tasks, limit=ROWS + 1, after=after)
    following = query(after=rows[ROWS - 1]["id"]) if len(rows) > ROWS else ""
    return desk.page(request, "tasks", rows=rows[:ROWS], following=following, paged=bool(after),
                     moving=any(row["state"] in MOVING for row in rows))  # fmt: skip


async def one(desk: Desk, request: Request) -> Response:
    try:
        row = await desk.ask(questions.task_row, id=request.path_params["id"])
    except Wrong as error:
        raise NoPage(404, str(error)) from None
    return desk.page(request, "task", row=row, moving=row["state"] in MOVING)

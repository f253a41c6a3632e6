"""What was done to many recipients at once, and what is about to be."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.reception.http.dashboard.desk import Desk, NoPage

MOVING = ("counting", "running")


async def every(desk: Desk, request: Request) -> Response:
    rows = await desk.ask("tasks")
    return desk.page(request, "tasks", rows=rows, moving=any(row["state"] in MOVING for row in rows))


async def one(desk: Desk, request: Request) -> Response:
    try:
        row = await desk.ask("task-row", id=request.path_params["id"])
    except ValueError as error:
        raise NoPage(404, str(error)) from None
    return desk.page(request, "task", row=row, moving=row["state"] in MOVING)

"""What waits: browsed with a filter, one message with its story, why something waits; tasks for many recipients."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from zonemta_py.metrics.quantities import STATES
from zonemta_py.queue import questions
from zonemta_py.web.dashboard import filters
from zonemta_py.web.dashboard.desk import HOME, Desk, NoPage
from zonemta_py.web.dashboard.words import Wrong, query

ROWS = 50
SHOWN = 20
"""Recipients of one message."""
_ID = re.compile(r"[0-9a-f]{16}")


async def browse(desk: Desk, request: Request) -> Response:
    asked = request.query_params
    filled, sizes, wrong = filters.chosen(asked), await desk.ask(questions.size), ""
    counted = filters.counted(filled)
    found: questions.Recipients = {"rows": [], "next": None, "more": False, "walked": 0}
    of: int | None = None
    try:
        found = await desk.ask(questions.list_, limit=ROWS, after=asked.get("after", ""), **filters.where(filled))
        if counted is not None:
            counts = await desk.ask(questions.size_of, **counted)
            of = filters.matching(filled, counts)
    except Wrong as error:
        wrong = str(error)
    return desk.page(request, "queue", filled=filled, found=found, wrong=wrong, of=of, filters=filters, states=STATES,
                     zones=list(sizes["zones"]), first=query(**filled), paged=bool(asked.get("after")),
                     following=query(**filled, after=found["next"]) if found["next"] else "")  # fmt: skip


async def message(desk: Desk, request: Request) -> Response:
    id = request.path_params["id"]
    if not _ID.fullmatch(id):
        raise NoPage(404, f"{id[:80]!r} is no message id; they have sixteen hexadecimal digits")
    try:
        shown, why = await asyncio.gather(desk.ask(questions.show, id=id), desk.ask(questions.explain, what=id))
    except Wrong:
        shown, why = None, None
    reasons = {(row.get("zone"), row.get("recipient")): row for row in (why["rows"] if why else ())}
    told = await desk.ask(questions.trace, what=id, before=request.query_params.get("before", ""))
    if shown is None:
        return desk.page(
            request, "message", 200 if told["rows"] else 404, id=id, shown=None, rows=[], more=0, told=told
        )
    rows = [row | {"why": reasons.get((row["zone"], row["recipient"]), {})} for row in shown["recipients"]]
    more = max(0, shown["left"] - SHOWN)
    return desk.page(request, "message", id=id, shown=shown, rows=rows[:SHOWN], more=more, told=told)


async def why(desk: Desk, request: Request) -> Response:
    """Why something waits, and until when; of an address also what became of its mail."""
    what, wrong, found, told = request.query_params.get("what", "").strip(), "", None, None
    if what:
        try:
            found = await desk.ask(questions.explain, what=what)
            if "@" in what:
                told = await desk.ask(questions.trace, what=what, before=request.query_params.get("before", ""))
        except Wrong as error:
            wrong = str(error)
    return desk.page(request, "why", what=what, found=found, wrong=wrong, told=told)


async def find(desk: Desk, request: Request) -> Response:
    """Where what was typed into the search field is shown."""
    what = request.query_params.get("what", "").strip()
    there = f"{HOME}/message/{what}" if _ID.fullmatch(what) else f"{HOME}/why?{query(what=what)}"
    return RedirectResponse(there, 303)


async def doubt(desk: Desk, request: Request) -> Response:
    """Who was being sent to when something crashed."""
    after, rows = request.query_params.get("after", ""), list[questions.InDoubt]()
    with suppress(Wrong):  # no cursor of ours
        rows = await desk.ask(questions.in_doubt, limit=ROWS + 1, after=after)
    last = rows[ROWS - 1] if len(rows) > ROWS else None
    following = query(after=f"{last['id']} {last['recipient']}") if last else ""
    return desk.page(request, "doubt", rows=rows[:ROWS], following=following, paged=bool(after))


MOVING = ("counting", "running")


async def tasks(desk: Desk, request: Request) -> Response:
    after = request.query_params.get("after", "")
    rows = await desk.ask(questions.tasks, limit=ROWS + 1, after=after)
    following = query(after=rows[ROWS - 1]["id"]) if len(rows) > ROWS else ""
    return desk.page(request, "tasks", rows=rows[:ROWS], following=following, paged=bool(after),
                     moving=any(row["state"] in MOVING for row in rows))  # fmt: skip


async def task(desk: Desk, request: Request) -> Response:
    try:
        row = await desk.ask(questions.task_row, id=request.path_params["id"])
    except Wrong as error:
        raise NoPage(404, str(error)) from None
    return desk.page(request, "task", row=row, moving=row["state"] in MOVING)

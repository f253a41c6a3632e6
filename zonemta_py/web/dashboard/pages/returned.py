"""What came back about mail that was sent; of what nobody understood the message itself, as text, for an admin."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.journal.records.people import KINDS
from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk, NoPage
from zonemta_py.web.dashboard.words import Wrong, query

ROWS = 50
_FILTER = ("kind", "recipient", "campaign", "message")
_NUMBER_DIGITS_MAX = 18


async def every(desk: Desk, request: Request) -> Response:
    asked, wrong = request.query_params, ""
    where: dict[str, Any] = {name: asked.get(name, "").strip() for name in _FILTER}
    unread = asked.get("unread", "") == "1"
    found: questions.FeedbackFound = {"rows": [], "next": None}
    try:
        found = await desk.ask(
            questions.feedback, **where, unread=unread, after=_number(asked.get("after", "")), limit=ROWS
        )
    except Wrong as error:
        wrong = str(error)
    kept: dict[str, Any] = {**where, "unread": "1" if unread else ""}
    following = query(**kept, after=found["next"]) if found["next"] else ""
    return desk.page(request, "feedback", row=None, found=found, where=where, unread=unread, kinds=KINDS, wrong=wrong,
                     first=query(**kept), following=following, paged=bool(asked.get("after")))  # fmt: skip


async def one(desk: Desk, request: Request) -> Response:
    row = await desk.ask(questions.feedback_one, seq=_number(request.path_params["number"]))
    if row is None:
        raise NoPage(404, "nothing that came back has this number, or it has been forgotten")
    if request.state.session.holder.role != "admin":  # who sees no content of mail
        row["raw"] = ""
    return desk.page(request, "feedback", row=row)


def _number(text: str) -> int:
    """0 for what is none."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _NUMBER_DIGITS_MAX else 0

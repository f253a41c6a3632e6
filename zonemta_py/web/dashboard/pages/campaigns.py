"""Campaigns: how far each is, and when it will be through; addresses that get no mail; what came back, with the text of
what nobody understood, for an admin.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.journal.records.people import KINDS as FEEDBACK_KINDS
from zonemta_py.mail.reports.words import share
from zonemta_py.queue import questions
from zonemta_py.queue.suppression.entry import KINDS
from zonemta_py.reception.scope import EVERYTHING
from zonemta_py.web.dashboard.desk import Desk, NoPage
from zonemta_py.web.dashboard.words import Wrong, query
from zonemta_py.web.serving import report_page
from zonemta_py.zones.campaign_hours import words

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


async def campaigns(desk: Desk, request: Request) -> Response:
    after = request.query_params.get("after", "")
    rows = await desk.ask(questions.campaigns, limit=ROWS + 1, after=after)
    following = query(after=rows[ROWS - 1]["name"]) if len(rows) > ROWS else ""
    return desk.page(request, "campaigns", rows=rows[:ROWS], following=following, paged=bool(after))


async def campaign(desk: Desk, request: Request) -> Response:
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


async def suppressions(desk: Desk, request: Request) -> Response:
    asked, wrong = request.query_params, ""
    address, kind = asked.get("address", "").strip(), asked.get("kind", "")
    heard: questions.EvidenceOf = {"address": "", "entries": [], "heard": [], "standing": [], "guards": []}
    found: questions.SuppressionRows = {"rows": [], "next": None}
    try:
        if address:
            heard = await desk.ask(questions.evidence, address=address)
            found["rows"] = heard["entries"]
        else:
            found = await desk.ask(questions.suppressions, after=asked.get("after", ""), limit=ROWS, kind=kind or None)
    except Wrong as error:
        wrong = str(error)
    following = query(kind=kind, after=found["next"]) if found["next"] else ""
    guards = [] if address or asked.get("after") else await desk.ask(questions.guards)
    return desk.page(request, "suppressions", found=found, heard=heard, guards=guards, address=address, kind=kind,
                     kinds=KINDS, wrong=wrong,
                     following=following, paged=bool(asked.get("after")))  # fmt: skip


_FILTER = ("kind", "recipient", "campaign", "message")
_NUMBER_DIGITS_MAX = 18


async def feedback(desk: Desk, request: Request) -> Response:
    asked, wrong = request.query_params, ""
    where: dict[str, Any] = {name: asked.get(name, "").strip() for name in _FILTER}
    unread = asked.get("unread", "") == "1"
    found: questions.FeedbackFound = {"rows": [], "next": None}
    try:
        found = await desk.ask(
            questions.feedback, **where, unread=unread, after=asked.get("after", "") or 0, limit=ROWS
        )
    except Wrong as error:
        wrong = str(error)
    kept: dict[str, Any] = {**where, "unread": "1" if unread else ""}
    following = query(**kept, after=found["next"]) if found["next"] else ""
    return desk.page(request, "feedback", row=None, found=found, where=where, unread=unread, wrong=wrong,
                     kinds=FEEDBACK_KINDS, first=query(**kept), following=following,
                     paged=bool(asked.get("after")))  # fmt: skip


async def feedback_one(desk: Desk, request: Request) -> Response:
    row = await desk.ask(questions.feedback_one, seq=_number(request.path_params["number"]))
    if row is None:
        raise NoPage(404, "nothing that came back has this number, or it has been forgotten")
    if request.state.session.holder.role != "admin":  # who sees no content of mail
        row["raw"] = ""
    return desk.page(request, "feedback", row=row)


async def reports(desk: Desk, request: Request) -> Response:
    asked, wrong = request.query_params, ""
    days, domain = asked.get("days", "") or "7", asked.get("domain", "").strip().lower()
    found: questions.ReportsFound = {
        "days": 0, "whole": True, "dmarc": [], "sources": [], "tls": [], "tls_failures": [], "reputation": []
    }  # fmt: skip
    try:
        found = await desk.ask(questions.feedback_reports, days=_number(days), domain=domain)
    except Wrong as error:
        wrong = str(error)
    return desk.page(request, "reports", found=found, days=days, domain=domain, wrong=wrong, share_of=share)


def _number(text: str) -> int:
    """0 for what is none."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _NUMBER_DIGITS_MAX else 0

"""Addresses that get no mail."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.queue.suppression.entry import KINDS
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.words import Wrong, query

ROWS = 50


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

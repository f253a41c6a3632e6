"""GET /metrics: every counter, gauge and histogram, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from zonemta_py.monitoring import MEDIA_TYPE, exposition
from zonemta_py.queue import questions
from zonemta_py.web.authentication import request_context, visit

router = APIRouter()


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """For keys with the right metrics or read; with http.metrics = "open" also for this machine without a key."""
    here, holder = request_context(request), visit(request).holder
    if holder is not None:
        holder.check("metrics", "read")
        holder.check_whole()
    found = await here.queue.ask(questions.metrics, node=True)  # whoever collects them asks each node
    return Response(exposition(found), media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})

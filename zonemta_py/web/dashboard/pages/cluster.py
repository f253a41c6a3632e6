"""The nodes of a cluster, and which queues each serves."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk


async def cluster(desk: Desk, request: Request) -> Response:
    found = await desk.ask(questions.cluster)
    queues: dict[str, list[questions.ClusterQueue]] = {row["node"]: [] for row in found["nodes"]}
    for row in found["queues"]:
        queues.setdefault(row["node"], []).append(row)
    return desk.page(request, "cluster", found=found, queues=queues)

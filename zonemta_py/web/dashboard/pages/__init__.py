"""The pages, by their paths below /dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.pages import (
    campaigns,
    configuration,
    overview,
    people,
    queue,
    returned,
    standing,
    tasks,
    zones,
)

Handler = Callable[[Desk, Request], Awaitable[Response]]

PAGES: dict[str, Handler] = {
    "": overview.now,
    "/queue": queue.browse,
    "/message/{id}": queue.message,
    "/why": queue.why,
    "/find": queue.find,
    "/destinations": zones.destinations,
    "/zones": zones.zones,
    "/sources": standing.sources,
    "/campaigns": campaigns.every,
    "/campaigns/{name}": campaigns.one,
    "/campaigns/{name}/report": campaigns.report,
    "/suspensions": standing.suspensions,
    "/doubt": queue.doubt,
    "/suppressions": people.suppressions,
    "/feedback": returned.every,
    "/feedback/{number}": returned.one,
    "/tasks": tasks.every,
    "/tasks/{id}": tasks.one,
    "/configuration": configuration.configuration,
}

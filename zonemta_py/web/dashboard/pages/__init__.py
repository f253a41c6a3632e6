"""The pages, by their paths below /dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from zonemta_py.config import Config
from zonemta_py.web.dashboard.desk import Desk
from zonemta_py.web.dashboard.pages import campaigns, cluster, overview, queue, zones

Handler = Callable[[Desk, Request], Awaitable[Response]]

PAGES: dict[str, Handler] = {
    "": overview.now,
    "/queue": queue.browse,
    "/message/{id}": queue.message,
    "/why": queue.why,
    "/find": queue.find,
    "/destinations": zones.destinations,
    "/zones": zones.zones,
    "/sources": zones.sources,
    "/campaigns": campaigns.campaigns,
    "/campaigns/{name}": campaigns.campaign,
    "/campaigns/{name}/report": campaigns.report,
    "/suspensions": zones.suspensions,
    "/doubt": queue.doubt,
    "/suppressions": campaigns.suppressions,
    "/feedback": campaigns.feedback,
    "/feedback/{number}": campaigns.feedback_one,
    "/reports": campaigns.reports,
    "/tasks": queue.tasks,
    "/tasks/{id}": queue.task,
    "/configuration": zones.configuration,
}
_OF_CLUSTERS: dict[str, Handler] = {"/cluster": cluster.cluster}


def pages_of(config: Config) -> dict[str, Handler]:
    """Those that such an MTA has."""
    return PAGES | (_OF_CLUSTERS if config.cluster.enabled else {})

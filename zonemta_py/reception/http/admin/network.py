"""/v1/zones, /v1/sources, /v1/limits, /v1/lanes: what mail leaves through, and what holds it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from zonemta_py.config import Config, Zone
from zonemta_py.config.secret import hidden
from zonemta_py.reception.http.admin import rows
from zonemta_py.reception.http.admin.operation import ask, asked, every_standing, operation
from zonemta_py.reception.http.authentication import answer
from zonemta_py.reception.http.documents import models
from zonemta_py.reception.http.documents.problem import RequestProblem

router = APIRouter(prefix="/v1")
LEARNED = ("rate", "concurrency", "recipients", "pipelining", "no-tls")
OF_SOURCES = ("source", "rest")
_Zone = Annotated[models.By, Path(description="The zone's name.")]


@router.get("/zones", **operation("read", "All zones", list[rows.ZoneRow]))
async def zones(request: Request) -> Response:
    """Those of the configuration, with how much waits in each."""
    here, _ = asked(request)
    counts, stops = (await here.ask("size"))["zones"], _stops(await every_standing(here))
    return answer([_zone(here.config, zone, counts, stops) for zone in here.config.zones])


@router.get("/zones/{name}", **operation("read", "One zone, with its settings", rows.ZoneWithSettings, 404))
async def zone(request: Request, name: _Zone) -> Response:
    here, _ = asked(request)
    found = here.config.zone(name)
    if found is None:
        names = ", ".join(one.name for one in here.config.zones)
        raise RequestProblem("not-found", f"there is no zone {name[:80]!r}; there are {names}"[:1000])
    counts, stops = (await here.ask("size"))["zones"], _stops(await every_standing(here))
    return answer(_zone(here.config, found, counts, stops) | {"settings": shown(found)})


@router.get("/sources", **operation("read", "All source addresses", list[rows.SourceRow]))
async def sources(request: Request) -> Response:
    """The local addresses that mail is sent from: which zones use each, and whether it rests, is suspended or warms
    up."""
    here, _ = asked(request)
    config, standing = here.config, await every_standing(here)
    found: dict[str, dict[str, Any]] = {}
    for one in config.zones:
        for source in config.sources(one):
            row = found.setdefault(source.address, {"address": source.address, "zones": [], "settings": shown(source)})
            row["zones"].append(one.name)
    warming = await here.ask("warmup")
    return answer([
        row | {
            "standing": [s for s in standing if s["kind"] in OF_SOURCES and s["name"].split(" ")[0] == row["address"]],
            "warmups": [w for w in warming if w["source"] == row["address"]],
        }
        for row in found.values()
    ])  # fmt: skip


@router.get("/limits", **operation("read", "Limits, as configured and as learned", rows.LimitsDocument))
async def limits(request: Request) -> Response:
    """The limits of the configuration, and what was learned about destinations (`/v1/standing` has all that holds mail;
    it says how to lift each)."""
    here, _ = asked(request)
    learned = [row for row in await every_standing(here) if row["kind"] in LEARNED]
    return answer({"configured": [shown(one) for one in here.config.throttles], "learned": learned[: rows.MOST]})


@router.get("/lanes", **operation("read", "Flow queues in memory", rows.Lanes))
async def lanes(
    request: Request,
    zone: Annotated[models.By, Query(description="Only those of this zone.")] = "",
    limit: Annotated[int, Query(ge=1, le=rows.MOST, description="Maximum number of rows.")] = 100,
    after: Annotated[int, Query(ge=0, le=10**6, description="The last page's `next`.")] = 0,
) -> Response:
    """What waits for the same destination from the same source, of one tenant and campaign: how much, and why not
    now."""
    here, _ = asked(request)
    return answer(await ask(here, "not-found", "lanes", zone=zone or None, limit=limit, after=after))


def shown(section: BaseModel) -> dict[str, Any]:
    """A table of the configuration, without secrets."""
    return {key: hidden(key, value) for key, value in section.model_dump(mode="json").items()}


def _zone(config: Config, zone: Zone, counts: dict[str, Any], stops: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": zone.name, "default": zone is config.default_zone, "delivery": zone.delivery, "host": zone.host,
        "sources": [source.address for source in config.sources(zone)], "counts": counts.get(zone.name, {}),
        "suspended": stops.get(zone.name),
    }  # fmt: skip


def _stops(standing: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["name"]: row for row in standing if row["kind"] == "zone"}

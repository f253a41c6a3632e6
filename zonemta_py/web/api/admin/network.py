"""/v1/zones, /v1/sources, /v1/limits, /v1/lanes, /v1/tls: what mail leaves through, how, and what holds it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from zonemta_py.config import Config, Zone
from zonemta_py.config.secret import hidden
from zonemta_py.config.values import domain_rule
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies, rows
from zonemta_py.web.api.admin.operation import ask, asked, every_standing, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models
from zonemta_py.web.documents.problem import QUEUE_S, FieldError, RequestProblem, invalid

router = APIRouter(prefix="/v1")
LEARNED = ("rate", "concurrency", "recipients", "pipelining", "no-tls")
OF_SOURCES = ("source", "rest")
TLS_S = 20.0
"""For all look-ups together."""
_Zone = Annotated[models.By, Path(description="The zone's name.")]


@router.get("/zones", **operation("read", "All zones", list[rows.ZoneRow]))
async def zones(request: Request) -> Response:
    """Those of the configuration, with how much waits in each."""
    here, _ = asked(request)
    counts, stops = (await here.ask(questions.size))["zones"], _stops(await every_standing(here))
    return answer([_zone(here.config, zone, counts, stops) for zone in here.config.zones])


@router.get("/zones/{name}", **operation("read", "One zone, with its settings", rows.ZoneWithSettings, 404))
async def zone(request: Request, name: _Zone) -> Response:
    here, _ = asked(request)
    found = here.config.zone(name)
    if found is None:
        raise RequestProblem("not-found", f"there is no zone {name[:80]!r}; there are {_names(here.config)}")
    counts, stops = (await here.ask(questions.size))["zones"], _stops(await every_standing(here))
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
    warming = await here.ask(questions.warmup)
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


@router.get("/lanes", **operation("read", "Flow queues in memory", questions.Lanes))
async def lanes(
    request: Request,
    zone: Annotated[models.By, Query(description="Only those of this zone.")] = "",
    limit: bodies.Limit = 100,
    after: Annotated[models.By, Query(description="The last page's `next`; default: the first page.")] = "",
) -> Response:
    """What waits for the same destination from the same source, of one tenant and campaign: how much, and why not
    now."""
    here, _ = asked(request)
    return answer(await ask(here, "not-found", questions.lanes, zone=zone or None, limit=limit, after=after or 0))


@router.get("/tls", **operation("read", "Which TLS mail for a domain gets", rows.TlsDocument))
async def tls(
    request: Request,
    domain: Annotated[bodies.What, Query(description="A recipient domain.")],
    zone: Annotated[models.By, Query(description="As this zone sends; default: the default zone.")] = "",
) -> Response:
    """And why: the zone's settings or those of destinations, smart hosts, and what the domain publishes (MTA-STS,
    DANE). DNS and the policy's host are asked, no mail server is connected to."""
    here, _ = asked(request)
    sending = here.config.zone(zone) if zone else here.config.default_zone
    if sending is None:
        raise invalid([FieldError("query zone", f"there is no zone {zone!a}; use one of {_names(here.config)}")])
    name = canonical(domain)
    try:
        domain_rule(name.replace("*", " "))
    except ValueError:
        raise invalid([FieldError("query domain", f"{domain[:100]!a} is not a domain such as example.com")]) from None
    try:
        async with asyncio.timeout(TLS_S):
            return answer(await here.tls_terms(sending, name))
    except TimeoutError:
        sentence = f"DNS or the host of the policy of {name} has not answered for {TLS_S:g} s; try again"
        raise RequestProblem("unavailable", sentence, retry_s=QUEUE_S) from None


def _names(config: Config) -> str:
    return ", ".join(one.name for one in config.zones)[:1000]


def shown(section: BaseModel) -> dict[str, Any]:
    """A table of the configuration, without secrets."""
    return {key: hidden(key, value) for key, value in section.model_dump(mode="json").items()}


def _zone(config: Config, zone: Zone, counts: dict[str, Any], stops: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": zone.name, "default": zone is config.default_zone, "delivery": zone.delivery, "host": zone.host,
        "sources": [source.address for source in config.sources(zone)], "counts": counts.get(zone.name, {}),
        "suspended": stops.get(zone.name),
    }  # fmt: skip


def _stops(standing: list[questions.Standing]) -> dict[str, Any]:
    return {row["name"]: row for row in standing if row["kind"] == "zone"}

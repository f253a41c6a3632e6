"""Checks an operator's stop: one that could not have any effect is refused, with the name that was probably meant.

A destination is a site, or a provider of sites; with a smart host it is the smart host. The name of a domain whose mail
goes to a site (or smart host) of another name, which may serve other domains too, stops only the mail for that domain:
kind "domain". Tenants and campaigns are those of mail seen so far, and those in the configuration.

Failures: ValueError, one sentence with the names that exist.
"""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable
from itertools import islice

from zonemta_py.config import ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.config.values import domain_rule
from zonemta_py.queue.admin.browse import lanes
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused, is_sure, settle
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.flow import split_key
from zonemta_py.schedule.flow_queues import NO_SOURCE
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.time.pace import AT_ONCE, Pace
from zonemta_py.zones.site import Providers, Site

_SHOWN_MAX = 10
_ALIKE_MAX, _LOOKED_MAX = 500, 20_000
"""Names among which the one is looked for that was probably meant."""
_HASHED = re.compile(r"\+[0-9a-f]{8}$")
"""The name of a site with several hosts, as `lanes` shows it: such a name is not typed by mistake."""


async def stop(
    queue: QueueContext, kind: str, name: str, seconds: float | None, cause: str, tenants: tuple[str, ...] = ()
) -> int:  # fmt: skip
    """Sends nothing of it from now on; seconds None: until lifted. tenants: of a campaign, only their mail; empty: all.
    Returns how many flow queues in memory it stops."""
    if name and not is_sure():
        if kind == "destination":
            name = split_key(name.lower().rstrip("."))[0]
            kind = await _kind(queue, name)
        elif kind == "domain":
            name = name.lower().rstrip(".")
            _check_domain(name)
        elif kind == "source":
            await _check_source(queue, name)
        elif kind in ("tenant", "campaign"):
            await _check_flow(queue, kind, name)
    settle(kind=kind, name=name)
    schedule = queue.core.schedule
    admin_orders.stop(schedule, kind, name, seconds, cause, tenants)
    if kind == "domain":
        await _separate(schedule, name)
    if kind == "zone":
        return len(schedule.zones[name].flow_queues.by_key)
    if kind in ("tenant", "campaign"):
        zones = schedule.zones.values()
        return lanes.counted(flow for zone in zones for flow in zone.flow_queues.of_flow(kind, name, tenants))
    pace = Pace()
    found = await lanes.paths(schedule, (name,), pace)
    return sum([len(path.flow_queues) async for path in pace.each(found) if name in admin_orders.names(path)[kind]])


async def _separate(schedule: Schedule, domain: str) -> None:
    pace = Pace()
    for zone in [zone for zone in schedule.zones.values() if not zone.zone.pulled]:
        others = zone.separate(domain)
        for at in range(0, len(others), AT_ONCE):
            zone.take_apart(domain, others[at : at + AT_ONCE])
            await pace.turn()


# -- sources


async def _check_source(queue: QueueContext, name: str) -> None:
    """It is in the configuration, or named by a plugin for waiting mail."""
    config = queue.core.config
    known = {source.address for zone in config.zones for source in config.sources(zone)}
    known |= {source.address for pool in config.pools for source in pool.sources}
    if name in known:
        return
    zones = queue.core.schedule.zones.values()
    paths = [path for zone in zones for path in zone.flow_queues.paths.values()]
    known |= {path.source async for path in Pace().each(paths)} - {"", NO_SOURCE}
    if name not in known:
        there = f"there are {', '.join(sorted(known))}" if known else "none is configured; the system chooses one"
        raise Refused(f"there is no source {name!r}; {there}")


# -- destinations


async def _kind(queue: QueueContext, name: str) -> str:
    """Whether it is the name of a destination, or that of a domain whose mail goes to one.

    Raises ValueError if it is neither.
    """
    schedule = queue.core.schedule
    own = {zone.flow_queues.own.key for zone in schedule.zones.values() if zone.flow_queues.own is not None}
    site = schedule.sites.known(name)
    elsewhere = isinstance(site, Site) and site.key != name
    if _HASHED.search(name) or (name in own and not elsewhere):
        return "destination"
    waited_for, named = await _places(queue)  # the former may be domains whose site is not known yet
    named |= own
    if name in named and not elsewhere:
        return "destination"
    known = named | waited_for
    port = min((key for key in known if key.rpartition(":")[0] == name), default="")
    if port:
        raise Refused(f"there is no destination {name!r}; its name is {port!r}")
    if all(zone.flow_queues.own is not None for zone in schedule.zones.values()) and name not in known:
        if "." not in name or _port(name):
            raise Refused(f"there is no destination {name!r}; there are {_and(own)}, or give a recipient domain")
        _check_domain(name)
        return "domain"
    if not schedule.sites.asks or name in (providers := set(_providers(queue))):
        return "destination"
    return await _by_dns(queue, name, known | providers)


async def _places(queue: QueueContext) -> tuple[set[str], set[str]]:
    """Where mail goes that is in memory, and the sites and providers of which something is known."""
    there, found, pace, schedule = set[str](), set[str](), Pace(), queue.core.schedule
    async for path in pace.each([path for zone in schedule.zones.values() for path in zone.flow_queues.paths.values()]):
        there.add(path.site)
        found.add(path.provider)
    async for name in pace.each(schedule.sites.names()):
        found.add(name)
    return there, found - {""}


async def _by_dns(queue: QueueContext, name: str, known: set[str]) -> str:
    site = await admin_orders.look(queue.core.schedule, name)
    if isinstance(site, Site):
        return "destination" if site.key == name else "domain"
    if site.temporary:
        return "domain"  # wherever its mail will go
    if name in known:
        return "destination"
    raise Refused(f"there is no destination {name!r}{_meant(name, known)}: {site.reply.text}")


def _check_domain(name: str) -> None:
    try:
        domain_rule(name)
    except ValueError:
        name += "*"
    if "*" in name or _port(name):
        raise Refused(f"{name.rstrip('*')!r} is not a recipient domain such as example.com")


def _port(name: str) -> bool:
    """Whether it is a host with its port, to which no domain's name comes near; [IPv6:…] is a domain."""
    return ":" in name and not name.startswith("[")


def _providers(queue: QueueContext) -> list[str]:
    try:
        return Providers.load(queue.core.config.dns.providers or shipped("providers.toml")).names
    except ConfigError:
        return []


# -- tenants and campaigns


async def _check_flow(queue: QueueContext, kind: str, name: str) -> None:
    core = queue.core
    waiting = (core.counters.sizes.flows.tenants if kind == "tenant" else core.counters.sizes.flows.campaigns).by_name
    of_config = set(core.config.shares.tenants if kind == "tenant" else core.config.shares.campaigns)
    campaigns = core.campaigns.by_name
    if name in waiting or name in of_config or (kind == "campaign" and name in campaigns):
        return
    if any(one.endswith("*") and name.startswith(one[:-1]) for one in of_config):
        return
    known = of_config | set(waiting)
    known |= {campaign.tenant for campaign in campaigns.values()} if kind == "tenant" else set(campaigns)
    known |= {getattr(turn, kind) for zone in core.schedule.zones.values() for turn in zone.flow_queues.flows()}
    known.discard("")
    if name not in known:
        shown = f"; there are {_and(heapq.nsmallest(_SHOWN_MAX, known))}" if known else ""
        raise Refused(f"no mail of a {kind} {name!r} has come in{_meant(name, known) or shown}")


def _meant(name: str, known: Iterable[str]) -> str:
    """Of very many names only those are compared that are about as long."""
    alike = heapq.nsmallest(_ALIKE_MAX, islice(known, _LOOKED_MAX), key=lambda one: abs(len(one) - len(name)))
    close = difflib.get_close_matches(name, sorted(alike), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _and(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

"""Checks an operator's stop: one that could not have any effect is refused, with the name that was probably meant.

A destination is a site, or a provider of sites. With a smart host it is the smart host, whatever domain the mail is
for. Tenants and campaigns are those of mail seen so far, and those in the configuration.

Failures: ValueError, one sentence with the names that exist.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable

from zonemta_py.config import ConfigError
from zonemta_py.config.shipped import shipped
from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule import admin_orders
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.flow_queues import NO_SOURCE
from zonemta_py.zones.site import Providers, Site

_SHOWN_MAX = 10
_WALKED_AT_ONCE = 500
_HASHED = re.compile(r"\+[0-9a-f]{8}$")
"""The name of a site with several hosts, as `lanes` shows it: such a name is not typed by mistake."""


async def stop(queue: QueueContext, kind: str, name: str, seconds: float | None, cause: str) -> int:
    """Sends nothing of it from now on; seconds None: until lifted. Returns how many flow queues in memory it stops."""
    if name:
        if kind == "destination":
            name = name.lower().rstrip(".")
            await _check_destination(queue, name)
        elif kind == "source":
            _check_source(queue, name)
        elif kind in ("tenant", "campaign"):
            await _check_flow(queue, kind, name)
    return await admin_orders.stop(queue.core.schedule, kind, name, seconds, cause)


# -- sources


def _check_source(queue: QueueContext, name: str) -> None:
    known = _sources(queue)
    if name not in known:
        there = f"there are {', '.join(sorted(known))}" if known else "none is configured; the system chooses one"
        raise ValueError(f"there is no source {name!r}; {there}")


def _sources(queue: QueueContext) -> set[str]:
    """Source addresses from the configuration, or named by a plugin for waiting mail."""
    config, schedule = queue.core.config, queue.core.schedule
    known = {source.address for zone in config.zones for source in config.sources(zone)}
    known |= {source.address for pool in config.pools for source in pool.sources}
    return known | {
        flow_queue.path.source for flow_queue in schedule.flow_queues() if flow_queue.path.source not in ("", NO_SOURCE)
    }


# -- destinations


async def _check_destination(queue: QueueContext, name: str) -> None:
    schedule = queue.core.schedule
    own = {zone.flow_queues.own.key for zone in schedule.zones.values() if zone.flow_queues.own is not None}
    paths = [flow_queue.path for flow_queue in schedule.flow_queues()]
    known = own | schedule.sites.names | {place for path in paths for place in (path.site, path.provider) if place}
    site = schedule.sites.known(name)
    elsewhere = isinstance(site, Site) and site.key != name  # a name from before DNS had answered
    if (name in known and not elsewhere) or _HASHED.search(name):
        return
    named = next((key for key in sorted(known) if key.rpartition(":")[0] == name), "")
    if named:
        raise ValueError(f"there is no destination {name!r}; its name is {named!r}")
    if all(zone.flow_queues.own is not None for zone in schedule.zones.values()):
        raise ValueError(
            f"there is no destination {name!r}: all mail goes to {_and(own)}, whatever its domain; stop that"
        )
    if schedule.sites.asks:
        providers = set(_providers(queue))
        if name not in providers:
            await _ask_dns(queue, name, known | providers)


async def _ask_dns(queue: QueueContext, name: str, known: set[str]) -> None:
    site = await admin_orders.look(queue.core.schedule, name)
    if isinstance(site, Site):
        if site.key != name:
            raise ValueError(
                f"mail for {name} goes to {site.key}, which may serve other domains too: stop that destination"
            )
    elif not site.temporary:
        raise ValueError(f"there is no destination {name!r}{_meant(name, known)}: {site.reply.text}")


def _providers(queue: QueueContext) -> list[str]:
    try:
        return Providers.load(queue.core.config.dns.providers or shipped("providers.toml")).names
    except ConfigError:
        return []


# -- tenants and campaigns


async def _check_flow(queue: QueueContext, kind: str, name: str) -> None:
    core = queue.core
    known = {getattr(flow_queue.flow_id, kind) for flow_queue in core.schedule.flow_queues()}
    known |= set(core.config.shares.tenants if kind == "tenant" else core.config.shares.campaigns)
    campaigns = core.campaigns.by_name
    known |= {campaign.tenant for campaign in campaigns.values()} if kind == "tenant" else set(campaigns)
    if name in known or any(one.endswith("*") and name.startswith(one[:-1]) for one in known):
        return
    known |= await _waiting(queue, kind, name)
    known -= {""}
    if name not in known:
        shown = f"; there are {_and(sorted(known)[:_SHOWN_MAX])}" if known else ""
        raise ValueError(f"no mail of a {kind} {name!r} has come in{_meant(name, known) or shown}")


async def _waiting(queue: QueueContext, kind: str, name: str) -> set[str]:
    """Names of mail that waits in the store only; stops once the given name has been seen."""
    store, found, looked = queue.core.store, set[str](), 0
    for family in sorted(FAMILY):
        prefix = f"{family} ".encode()
        for _, value in store.scan(prefix, keys.end(prefix)):
            looked += 1
            if looked % _WALKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if value:
                found.add(getattr(FlowId.of(Note.of(value).flow), kind))
            if name in found:
                return found
    return found


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _and(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

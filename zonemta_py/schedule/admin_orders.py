"""An operator's orders about what is stopped, rests or was learned, and the list of all of it.

Stops and what was learned are `policy/state.py`'s, and survive a restart; that a destination cannot be reached is the
schedule's own, and is found out again after a restart. All are named alike here: a kind and a name, as `rows` gives
them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

from zonemta_py.config import ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.schedule.batch import EgressPath
from zonemta_py.schedule.flow import STOPPED as APART
from zonemta_py.schedule.flow import apart_of, split_key
from zonemta_py.schedule.policy.manners import KINDS as MANNERS
from zonemta_py.schedule.policy.standing import RESTING, Portions, Row, portions
from zonemta_py.schedule.policy.state import GUARD, LOST, NO_TLS
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.site import Providers, Site

STOPPED = ("destination", "domain", "tenant", "campaign", "zone", "source")
LIFTED = (*STOPPED, REROUTE, "rest", "resting", "rate", "concurrency", *MANNERS, NO_TLS, LOST, GUARD)


def stop(
    schedule: Schedule, kind: str, name: str, seconds: float | None, cause: str, tenants: tuple[str, ...] = ()
) -> None:  # fmt: skip
    """Stops it from now on; seconds None: until it is lifted. tenants: of a campaign, only their mail; empty: all.

    What is in memory of a domain has to be taken apart, too (`ZoneSchedule.separate`). Raises ValueError for a kind or
    name that cannot be stopped.
    """
    if kind not in STOPPED:
        raise InvalidValue(f"there is no {kind!r} to suspend; use {', '.join(STOPPED[:-1])} or {STOPPED[-1]}")
    if not name:
        raise InvalidValue(f"which {kind}? give its name")
    if kind == "zone" and name not in schedule.zones:
        raise InvalidValue(f"there is no zone {name!r}; there are {', '.join(schedule.zones)}")
    if kind in ("destination", "domain"):
        name = name.lower().rstrip(".")
    if seconds is not None and not seconds > 0:
        raise InvalidValue(f"a suspension of {seconds:g} seconds has no effect; give more than 0, or leave it out")
    if tenants and kind != "campaign":
        raise InvalidValue(f"a {kind} is suspended for all tenants; leave out tenants")
    schedule.policy.stop(kind, name, math.inf if seconds is None else seconds, cause, chosen=True, tenants=tenants)


def names(path: EgressPath) -> dict[str, tuple[str, ...]]:
    """What an egress path is called, by kind."""
    return {"destination": (path.site, path.provider), "domain": (path.stopped,), "source": (path.source,)}


async def look(schedule: Schedule, domain: str) -> Site | NoRoute:
    """What DNS says of a domain now."""
    found: asyncio.Future[Site | NoRoute] = asyncio.get_running_loop().create_future()
    schedule.sites.look(domain, lambda answer: None if found.done() else found.set_result(answer))
    return await found


def lift(schedule: Schedule, kind: str, name: str, cause: str) -> bool:
    """Undoes a stop, a rest or what was learned; what waited for it is tried again. False if there is none.

    Lifting the concurrency of a destination means that it can be reached: its rest ends too. name: as `rows` has it, or
    another that is printed of the same: the name of a flow queue; a domain's, where a destination of that name was
    stopped as a domain; of what rests or was learned, one word of its name. Raises ValueError for an unknown kind.
    """
    if kind not in LIFTED:
        raise InvalidValue(f"there is no {kind!r} to resume; use {', '.join(LIFTED[:-1])} or {LIFTED[-1]}")
    if kind == "resting":
        lifted = _end_rest(schedule, name, cause)
    else:
        each = [schedule.policy.lift(*one, cause) for one in _called(schedule, kind, name)]
        lifted = any(each)
        if lifted and kind == "concurrency":
            _end_rest(schedule, name, cause)
    schedule.lift()
    if lifted and kind == "source":
        schedule.source_health.look()
    return lifted


def _called(schedule: Schedule, kind: str, name: str) -> list[tuple[str, str]]:
    """Kinds and names of what is meant."""
    if kind in ("destination", "domain"):
        name = name.lower().rstrip(".")
        site, apart = split_key(name)[0], apart_of(name).removeprefix(APART)
        others = [("destination", site), ("domain", site), *([("domain", apart)] if apart else [])]
        meant = [(kind, name), *(others if kind == "destination" else reversed(others))]
        return [next((one for one in meant if one in schedule.policy.stops), meant[0])]
    if kind in (*STOPPED, REROUTE):
        return [(kind, name)]
    site = split_key(name)[0]
    rows = [row["name"] for part in schedule.policy.rows(site) for row in part if row["kind"] == kind]
    return [(kind, one) for one in ([name] if name in rows else rows)] or [(kind, name)]


def _end_rest(schedule: Schedule, name: str, cause: str) -> bool:
    """Ends the rest of the egress path of that name, or else of all to that site; False if none rests."""
    resting = list(_resting(schedule))
    site = split_key(name)[0]
    named = [one for one in resting if _path_name(*one) == name] or [one for one in resting if one[1].site == site]
    for zone, path in named:
        schedule.policy.ended_rest(_path_name(zone, path), cause)
        zone.up(path)
    return bool(named)


async def warm(schedule: Schedule, source: str, provider: str, step: int | None, cause: str) -> None:
    """Puts a source at a provider (or a site that is no provider's) on a step of its schedule; None: it is warm.

    step: 1 is the first day. Raises ValueError for an unknown source, provider or step.
    """
    warmups = schedule.policy.warmups
    plan = warmups.schedule_of(source)
    steps = len(plan.caps)
    if step is not None and not 1 <= step <= steps:
        raise InvalidValue(f"the warm-up {plan.name!r} of {source} has no step {step}; use 1 to {steps}, or warm")
    if not warmups.knows(source, provider):
        await _check_provider(schedule, provider)
    schedule.policy.set_warmup(source, provider, steps if step is None else step - 1, cause)
    schedule.lift()


async def _check_provider(schedule: Schedule, name: str) -> None:
    """A destination to which the source has sent nothing yet: one of the providers, or a site that mail goes to."""
    file = schedule.config.dns.providers or shipped("providers.toml")
    try:
        names = Providers.load(file).names
    except ConfigError as error:
        raise InvalidValue(str(error)) from None
    if name in names or any(name == (s.path.provider or s.path.site) for s in schedule.flow_queues()):
        return
    site = await look(schedule, name) if schedule.sites.asks and "." in name else None
    if not isinstance(site, Site):
        raise InvalidValue(
            f"there is no provider or site {name!r}; use one that `zonemta warmup` shows, or a name in {file}"
        )
    if (site.provider or site.key) != name:
        raise InvalidValue(f"what goes to {name} counts for {site.provider or site.key}: set the step there")


def rows(schedule: Schedule) -> Portions:
    """All of it: kind, name, cause, since_ms, until_ms (0: until it is lifted, or something happens), group (as
    `policy.standing` has them)."""
    yield from schedule.policy.rows()
    yield from portions(_resting(schedule), _resting_row)


def _resting_row(resting: tuple[ZoneSchedule, EgressPath]) -> Row:
    zone, path = resting
    until_ms = zone.ms_at(path.down_until) if path.down_until else 0
    return {"kind": "resting", "name": _path_name(zone, path), "cause": path.reason,
            "since_ms": path.down_since_ms, "until_ms": until_ms, "group": RESTING}  # fmt: skip


def _resting(schedule: Schedule) -> Iterator[tuple[ZoneSchedule, EgressPath]]:
    for zone in list(schedule.zones.values()):
        yield from ((zone, path) for path in list(zone.resting) if path.failures)


def _path_name(zone: ZoneSchedule, path: EgressPath) -> str:
    return f"{zone.zone.name} {path.place} {path.source}".strip()

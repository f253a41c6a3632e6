"""Why something waits, and until when: read from the scheduler's own state.

The answer: about, whole (why nothing at all is sent, as reasons), kind (message, recipient, zone, ip, campaign, tenant,
destination), rows, and how many rows `more` there are beside those of the first page; for a destination or zone also
`counts`, and what was `learned` about the former; for a recipient also its entries on the suppression list
(`suppressed`); and if a source of its pool cannot be used, which others have its mail, and what is rerouted
(`meanwhile`). A row is a
recipient, a flow queue (`reasons.row_of`) or a stop ("stopped"), and has `reasons`, the first being what holds it now
(`reasons.py`; for recipients also deferred, held, and finally deadline: what ends it at the latest). No reason: it goes
when its turn comes; a recipient's `before` is the number of recipients ahead of it in its flow queue (`counted` False:
at least that many), its `life` the time when it is given up, and `chosen` what plugins have chosen for it
(`plugin.arguments.Routing`), `notes` what they keep with it, if anything.

A walk over the store ends with ROWS_MAX rows, or when the time of a `Pace` is over: `next` is the cursor with which the
question goes on (`after`), `looked` how many keys were read.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from itertools import chain
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.reroute import ANY, REROUTE, parts_of
from zonemta_py.queue.admin.browse import lanes
from zonemta_py.queue.admin.browse.waiting import WaitingRows
from zonemta_py.queue.core import sizes
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.where import STATES, Where
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.policy.manners import KINDS as MANNERS
from zonemta_py.schedule.policy.standing import LEARNED, RESTING, SUSPENDED
from zonemta_py.schedule.policy.state import NO_TLS
from zonemta_py.schedule.reasons import whole
from zonemta_py.schedule.reroutes import places
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones import pull

Row = dict[str, Any]
ROWS_MAX = 200
_ID = re.compile(r"[0-9a-f]{16}")
_HOLDING = (SUSPENDED, RESTING)
_LIMITING = (*_HOLDING, LEARNED)


async def explain(queue: QueueContext, what: str, after: str = "") -> dict[str, Any]:
    """As `_explain`, with what stops the whole, and which sources of its pools cannot be used meanwhile."""
    answer = await _explain(queue, what, after) | {"whole": whole(queue.core.schedule)}
    meanwhile = _meanwhile(queue, answer) if queue.core.schedule.policy.unusable else []
    meanwhile += _rerouted(queue, answer)
    return answer | ({"meanwhile": meanwhile} if meanwhile else {})


def _meanwhile(queue: QueueContext, answer: dict[str, Any]) -> list[Row]:
    """Of the sources of the zones that it is about, or of itself, those that cannot be used: why, and what goes by
    which others."""
    config, policy = queue.core.config, queue.core.schedule.policy
    zones = {row["zone"] for row in answer["rows"] if "zone" in row}
    zones |= {answer["about"]} if answer["kind"] == "zone" else set()
    pools = [[one.address for one in config.sources(zone)] for zone in config.zones if zone.name in zones]
    if answer["kind"] == "ip":
        pools = [[one.address for one in pool.sources] for pool in config.pools]
        pools = [pool for pool in pools if answer["about"] in pool] or [[answer["about"]]]
    found = dict[str, Row]()
    for pool in pools:
        for source in [one for one in pool if one in policy.unusable]:
            others = [one for one in pool if not policy.stopped("source", one)]
            goes = f"its mail goes by {', '.join(others)} meanwhile" if others else "its mail waits for it"
            stop = policy.unusable.get(source)
            if stop is not None and (answer["kind"] != "ip" or source == answer["about"]):
                cause = f"source {source} rests, and {goes}: {stop.cause}"
                found[source] = {"kind": "source", "cause": cause, "since_ms": stop.since_ms, "until_ms": 0}
    return list(found.values())


def _rerouted(queue: QueueContext, answer: dict[str, Any]) -> list[Row]:
    """The reroutes that mail of the answer goes by, or would."""
    schedule = queue.core.schedule
    rows, about = answer["rows"], answer["about"].lower().rstrip(".")
    zones = {row["zone"] for row in rows if "zone" in row} | {answer["about"]}
    names = {about, about.rpartition("@")[2]} | {
        row[name] for row in rows for name in ("site", "provider") if row.get(name)
    }
    names |= {row["recipient"].rpartition("@")[2].lower() for row in rows if "recipient" in row}
    found = list[Row]()
    for bypass in list(schedule.reroutes.by_name.values()):
        zone, where = places(bypass)
        stop = schedule.policy.reroutes.get(bypass.name)
        if stop is None or (zone and rows and zone not in zones) or (ANY not in where and not where & names):
            continue
        if ANY in where and zone not in zones:
            continue
        cause = f"mail {_whose(bypass.name)} is rerouted to {bypass.to.text}: {bypass.why}"
        until_ms = stop.until_ms and stop.until_ms - queue.core.clock.apart_ms()
        found.append({"kind": REROUTE, "cause": cause, "since_ms": stop.since_ms, "until_ms": until_ms})
    for one in queue.core.config.zones:
        if (own := one.reroute) is not None and one.name in zones:
            cause = f"zone {one.name} reroutes recipients after {own.after_tries} tries: to {own.to}"
            found.append({"kind": REROUTE, "cause": cause, "since_ms": 0, "until_ms": 0})
    return found


def _whose(name: str) -> str:
    zone, destination = parts_of(name)
    of, towards = f"of zone {zone}" if zone else "", f"for {destination}" if destination else ""
    return f"{of} {towards}".strip()


async def _explain(queue: QueueContext, what: str, after: str) -> dict[str, Any]:
    """About a message id, a recipient, an IP address, a zone, a campaign or tenant, or a domain, site or provider.

    A message or recipient that is not in the queue has no rows. Raises ValueError for any other name of which nothing
    waits, is stopped or is configured.
    """
    what = what.strip()
    if not what:
        raise Refused(
            "there is no name to explain; give a message id, recipient, domain, campaign, tenant, IP address or zone"
        )
    await queue.core.disk.settled()
    pace = Pace()
    if _ID.fullmatch(what):
        return await _message(queue, what, after, pace)
    if "@" in what:
        return await _recipient(queue, what, after, pace)
    answer: dict[str, Any] | None
    if after:  # the walk has begun
        found = await _waiting(queue, what, after, pace)
        answer = found or _answer(what, "destination", [])  # all of it has gone
    else:
        answer = await _named(queue, what, pace)
    if answer is None:
        raise Refused(
            f"nothing called {what!r} is waiting or suspended; give a message id, recipient, domain, campaign, tenant, "
            "IP address or zone, or see what was delivered with `zonemta journal dump`"
        )
    return answer


def _answer(what: str, kind: str, rows: list[Row], **more: Any) -> dict[str, Any]:
    return {"about": what, "kind": kind, "rows": rows, "more": 0, "next": None, "looked": 0} | more


async def _message(queue: QueueContext, what: str, after: str, pace: Pace) -> dict[str, Any]:
    where = Where.of({"id": what, "state": list(STATES)})
    middle, found = f" {what} ".encode(), WaitingRows(queue, where, after, pace)
    rows = await found.find(lambda key, _: middle in key and keys.place(key).id == what, ROWS_MAX)
    answer = _answer(what, "message", rows, next=found.next, looked=found.walk.walked)
    if found.full and not after:
        with suppress(StoreError):
            answer["more"] = max(0, queue.core.messages.look(what).left - len(rows))
    return answer


async def _recipient(queue: QueueContext, what: str, after: str, pace: Pace) -> dict[str, Any]:
    local, _, domain = what.rpartition("@")
    last = f" {local}@{domain.lower()}".encode()
    where = Where.of({"domain": domain.lower() or "-", "state": list(STATES)})
    found = WaitingRows(queue, where, after, pace)
    rows = await found.find(lambda key, _: key.endswith(last), ROWS_MAX)
    listed = [entry.shown() for entry in queue.suppression.every(person(what))]
    return _answer(what, "recipient", rows, suppressed=listed, next=found.next, looked=found.walk.walked)


async def _named(queue: QueueContext, what: str, pace: Pace) -> dict[str, Any] | None:
    """A zone, an address of ours, a destination, campaign or tenant, a pull queue."""
    schedule = queue.core.schedule
    if what in schedule.zones:
        found = await lanes.of_flows(schedule, [schedule.zones[what]], pace, ROWS_MAX)
        rows, more = (found.rows, found.more) if found.rows else await _stops(queue, what, pace)
        counts = queue.core.counters.sizes.zones.get(what) or ()
        return _answer(what, "zone", rows, more=more, counts=dict(zip(sizes.NAMES, counts, strict=False)))
    answer = await _ip(queue, what, pace) or await _flow_queues(queue, what, pace)
    answer = answer or await _stopped(queue, what, pace, _HOLDING) or await _waiting(queue, what, "", pace)
    answer = answer or await _stopped(queue, what, pace)
    zone = schedule.zones.get(pull.zone_of(queue.core.config, what)) if answer is None else None
    if zone is not None:
        found = await lanes.of_flows(schedule, [zone], pace, ROWS_MAX)
        answer = _answer(what, "queue", found.rows, more=found.more)
    return answer or await _site(queue, what.lower(), pace)


async def _site(queue: QueueContext, what: str, pace: Pace) -> dict[str, Any] | None:
    """One that is known, of which nothing is in memory."""
    schedule = queue.core.schedule
    own = any(zone.flow_queues.own is not None and zone.flow_queues.own.key == what for zone in schedule.zones.values())
    async for name in pace.each(() if own else list(schedule.sites.names())):
        own = own or name == what
    return _answer(what, "destination", []) if own else None


# -- kinds of names


async def _ip(queue: QueueContext, what: str, pace: Pace) -> dict[str, Any] | None:
    """A source address; None if it is not one."""
    try:
        ipaddress.ip_address(what)
    except ValueError:
        return None
    schedule = queue.core.schedule
    found = await lanes.at(schedule, await lanes.paths(schedule, (what,), pace), pace, ROWS_MAX)
    stops, more = await _stops(queue, what, pace)
    rows = found.rows + stops
    known = any(source.address == what for pool in queue.core.config.pools for source in pool.sources)
    return _answer(what, "ip", rows, more=found.more + more) if rows or known else None


async def _flow_queues(queue: QueueContext, what: str, pace: Pace) -> dict[str, Any] | None:
    """A campaign, tenant, domain, site or provider with recipients in memory."""
    schedule, domain = queue.core.schedule, what.lower().rstrip(".")
    names = dict.fromkeys((domain, getattr(schedule.sites.known(domain), "key", domain)))
    for kind in ("campaign", "tenant"):
        found = await lanes.of_flows(schedule, list(schedule.zones.values()), pace, ROWS_MAX, kind=kind, name=what)
        if found.rows:
            return _answer(what, kind, found.rows, more=found.more, counts={}, learned=[])
    paths = await lanes.paths(schedule, names, pace)
    found = await lanes.at(schedule, paths, pace, ROWS_MAX)
    if not found.rows:
        return None
    learned = list(chain.from_iterable(schedule.policy.manners.rows(dict.fromkeys(path.site for path in paths))))
    counts = _counts(queue, domain)
    return _answer(what, "destination", found.rows, more=found.more, counts=counts, learned=learned)


def _counts(queue: QueueContext, domain: str) -> dict[str, int]:
    """Recipients at the domain, by state."""
    return dict(zip(sizes.NAMES, queue.core.counters.sizes.of_domain(domain), strict=True))


async def _stopped(
    queue: QueueContext, what: str, pace: Pace, groups: tuple[str, ...] = _LIMITING
) -> dict[str, Any] | None:
    """What was learned of it stands beside its mail, if any waits, and not in its place."""
    rows, more = await _stops(queue, what, pace, groups)
    learned = list(chain.from_iterable(queue.core.schedule.policy.manners.rows((what,))))
    if not rows and (not learned or groups is _HOLDING):
        return None
    return _answer(what, rows[0]["stopped"] if rows else "destination", rows, more=more, learned=learned)


async def _stops(
    queue: QueueContext, what: str, pace: Pace, groups: tuple[str, ...] = _LIMITING
) -> tuple[list[Row], int]:
    """The stops against it, even if none of its mail is in memory, and how many there are besides. What is only noted
    of it (a guard, damage) holds no mail."""
    rows, count = list[Row](), 0
    for portion in queue.core.schedule.policy.rows(what):
        for row in [row for row in portion if row["group"] in groups and row["kind"] not in (NO_TLS, *MANNERS)]:
            count += 1
            if len(rows) < ROWS_MAX:
                reason = {name: row[name] for name in ("kind", "cause", "since_ms", "until_ms")}
                rows.append({"stopped": row["kind"], "name": row["name"], "reasons": [reason]})
        await pace.turn()
    return rows, count - len(rows)


async def _waiting(queue: QueueContext, what: str, after: str, pace: Pace) -> dict[str, Any] | None:
    """A domain, campaign or tenant with nothing in memory: its mail waits for its time, or for room."""
    domain, flows = what.lower().rstrip("."), queue.core.counters.sizes.flows
    kinds = (
        ("destination", {"domain": domain}, queue.core.counters.sizes.of_domain(domain)),
        ("campaign", {"campaign": what}, flows.campaigns.of(what)),
        ("tenant", {"tenant": what}, flows.tenants.of(what)),
    )
    known = next((one for one in kinds if any(one[2])), None)
    if known is None:
        return None
    kind, where, counts = known
    last = f"@{domain}".encode()

    def meant(key: bytes, value: bytes) -> bool:
        if kind == "destination":
            return key.lower().endswith(last)
        return bool(value) and getattr(FlowId.of(Note.of(value).flow), kind) == what

    found = WaitingRows(queue, Where.of(where), after, pace)
    rows = await found.find(meant, ROWS_MAX)
    more = max(0, sizes.waiting(counts) - len(rows)) if not after and (found.full or not found.next) else 0
    return _answer(what, kind, rows, more=more, next=found.next, looked=found.walk.walked)

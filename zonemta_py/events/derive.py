"""From a journal record to its events: a pure function, so a replay gives what the live stream gave.

Promise: no record, whatever is in it, raises; one whose body does not fit its type gives no events. What older versions
did not write is missing from the data. A flow queue's name carries priority, tenant and campaign
(`schedule.flow.split_key`), so results have them too. Which event comes from what: `schema.TYPES`, docs/EVENTS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import unpack
from zonemta_py.events import policy
from zonemta_py.events.event import Event
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED, RELEASED
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.queue.suppression.from_evidence import BY as POLICY
from zonemta_py.schedule.flow import FlowId, split_key

Told = tuple[str, dict[str, Any]]
"""Type and data."""
_VERDICTS = {
    DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced", HELD: "held", RELEASED: "requeued",
    POSTPONED: "postponed",
}  # fmt: skip
_OVER, _LATE, _OURS = "5.4.7", "its delivery deadline has passed", "queue"
_MISFITS = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)
_FEEDBACK = ("complaint", "unsubscribe")
_SCOPES = {"campaign": "campaign", "tenant": "tenant", "zone": "zone", "campaigns": "tenant"}


def events_of(record: Record) -> list[Event]:
    """In the order in which they are told; `part` counts them."""
    tell = _TELLERS.get(record.type)
    if tell is None:
        return []
    try:
        body = unpack(record.body)
        told = list(_task(body, record.seq) if record.type == Type.TASK else tell(body))
    except _MISFITS:
        return []
    seq, ms = record.seq, record.ms
    return [Event(seq, part, kind, ms, data) for part, (kind, data) in enumerate(told)]


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """Without what is unknown."""
    return {name: value for name, value in data.items() if value is not None and value != ""}


def _who(message: str, zone: str, address: str) -> dict[str, Any]:
    data = {"message": message, "recipient": address, "domain": address.rpartition("@")[2].lower()}
    if zone:
        data["zone"] = zone
    return data


# -- mail


def _envelope(body: list[Any]) -> Iterator[Told]:
    message, metadata, rows = body[:3]
    known = _of_metadata(metadata)
    zones = list(dict.fromkeys(row[0] for row in rows))
    hold_ms = metadata.get("hold_until_ms") or None
    data = {"message": message, "recipients": len(rows), "zones": zones, **known}
    yield "accepted", data | ({"hold_until_ms": hold_ms} if hold_ms else {})
    shared: dict[str, Any] = {
        name: known[name] for name in ("sender", "size", "campaign", "tenant", "priority") if name in known
    }
    if hold_ms:
        shared["hold_until_ms"] = hold_ms
    for row in rows:
        yield "queued", _who(message, row[0], row[1]) | shared


def _of_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    get = metadata.get
    return _known({
        "sender": get("sender"), "size": get("size"), "subject": (get("headers") or {}).get("subject"),
        "campaign": get("campaign"), "tenant": get("tenant"), "priority": get("priority") or None,
        "origin": get("origin"), "user": get("user"), "protocol": get("protocol"),
    })  # fmt: skip


def _start(body: list[Any]) -> Iterator[Told]:
    lease, message, zone, destination, recipients, since_ms, provider, size = (*body, "", 0)[:8]
    way = _way(destination)
    data = way | _known({"provider": provider, "size": size or None, "lease": lease, "started_ms": since_ms or None})
    for who in recipients:
        yield "attempted", _who(message, zone, who if isinstance(who, str) else who[0]) | data


@lru_cache(1000)
def _way(destination: str) -> dict[str, Any]:
    """Site, source and flow of a flow queue's name. Not to be changed by its callers."""
    site, source, flow = split_key(destination)
    try:
        return _known({"site": site, "source": source}) | _flow(flow)
    except ValueError:
        return _known({"site": destination})


def _flow(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    flow = FlowId.of(text)
    return _known({"campaign": flow.campaign, "tenant": flow.tenant, "priority": flow.priority or None})


def _delivery(body: list[Any]) -> Iterator[Told]:
    lease, message, zone, destination, outcomes, trace = body[:6]
    remote, local, tls, started_ms, took_ms, source, site, provider = (*trace, *_NO_TRACE[len(trace) :])[:8]
    shared = _way(destination) | _known({
        "lease": lease or None, "remote": remote, "local": local, "tls": tls, "started_ms": started_ms or None,
        "took_ms": took_ms if started_ms else None, "source": source, "site": site, "provider": provider,
    })  # fmt: skip
    for outcome in outcomes:
        verdict, code, enhanced, text, stage, recipients, relayed, kind, rule = (*outcome, False, "", "")[:9]
        told = _verdict(verdict, code, enhanced, text, stage)
        if told is None:  # of a later version
            continue
        data = shared | _known({
            "code": code or None, "enhanced": enhanced, "reply": text, "stage": stage, "class": kind, "rule": rule,
            "relayed": True if relayed else None,
        })  # fmt: skip
        for who in recipients:
            if isinstance(who, str):
                yield told, _who(message, zone, who) | data
            else:
                address, _, due_ms, attempts = (*who, *_NO_WHO[len(who) :])[:4]
                until = "kept_until_ms" if verdict == BOUNCED else "due_ms"
                counted = _known({until: due_ms or None, "attempts": attempts or None})
                yield told, _who(message, zone, address) | data | counted


_NO_TRACE = ("", "", "", 0, 0, "", "", "")
_NO_WHO = (None, 0, 0, 0)


def _verdict(verdict: int, code: int, enhanced: str, text: str, stage: str) -> str | None:
    """A bounce because time is over keeps the last temporary reply, or has a reply of ours, which names the deadline
    behind any stage (`queue/lifecycle/settle.py`)."""
    if verdict == BOUNCED:
        over = enhanced == _OVER and (stage == _OURS or text.startswith(_LATE))
        return "expired" if over or 400 <= code < 500 else "bounced"
    return _VERDICTS.get(verdict)


def _finish(body: list[Any]) -> Iterator[Told]:
    message, campaign = (*body, "")[:2]
    yield "finished", {"message": message} | _known({"campaign": campaign})


def _in_doubt(body: list[Any]) -> Iterator[Told]:
    """What is held is told behind all that is in doubt, so that ids are what they were before that was told, too."""
    leases, rows = body[:2]
    held: dict[tuple[str, str, str], dict[str, Any]] = {}
    for message, zone, address, since_ms, action, destination in ((*row, "")[:6] for row in rows):
        data = _who(message, zone, address) | _way(destination) | _known({"started_ms": since_ms or None})
        yield "in_doubt", data | _known({"action": action})
        held.pop((message, zone, address), None)  # of several leases the last one counts
        if action == "hold":
            held[message, zone, address] = data
    for data in held.values():
        yield "held", data | {"reason": "in doubt"}
    if not rows:
        for lease in leases:
            yield "requeued", {"lease": lease, "reason": "its sender never received it"}


def _removed(body: list[Any]) -> Iterator[Told]:
    message, zone, recipients, reason = body[:4]
    where = (body[4] if len(body) > 4 else None) or {}
    if where.get("kept"):  # that it has bounced was told
        return
    data = _way(where.get("destination") or "") | _of_metadata(where.get("envelope") or {})
    data |= _known({name: where.get(name) for name in ("campaign", "tenant")})
    data |= _known({"reason": reason, "case": where.get("lost"), "task": where.get("task")})
    for address in recipients:
        yield "removed", _who(message, zone, address) | data


def _moved(body: list[Any]) -> Iterator[Told]:
    message, zone, recipients, due_ms, flow = (*body, *_NO_MOVED[len(body) :])[:5]
    data = _flow(flow) | _known({"due_ms": due_ms or None})
    for address in recipients:
        yield "released", _who(message, zone, address) | data


_NO_MOVED = (None, "", (), 0, "")


# -- tasks


def _task(body: list[Any], seq: int = 0) -> Iterator[Told]:
    """seq: of the record, which is the number of a task that it orders."""
    what, number, value = body[:3]
    if what in ("did", "undid"):
        yield from _done(number, value, what == "undid")
        return
    data = {"task": number or seq, "what": what}
    data |= _known({name: value.get(name) for name in ("verb", "by", "cause", "state")})
    count = value.get("undone" if value.get("state") == "undone" else "done", value.get("count"))
    yield "task", data | _known({"count": count})


_BECOMES = {"delete": "deleted", "purge": "deleted", "hold": "held", "release": "released"}


def _done(number: int, value: list[Any], undone: bool) -> Iterator[Told]:
    zone, rows, now_ms, verb, change = value[:5]
    kind = _BECOMES.get(verb, "requeued")
    if undone:
        kind = "held" if verb == "release" else "requeued"
    zone = change.get("zone", zone) if not undone else zone
    for row in rows:
        data = _who(row[0], zone, row[1]) | (_flow(row[4]) if len(row) > 4 else {}) | {"task": number}
        if len(row) > 5:  # what had been queued again has bounced, as before
            yield "bounced", data | {"kept_until_ms": row[5], "reason": f"{verb} by task {number} was undone"}
            continue
        if kind == "released":
            data["due_ms"] = now_ms + 1
        elif kind != "deleted":
            data["reason"] = f"{verb} by task {number}" + (" was undone" if undone else "")
        yield kind, data


# -- people


def _suppress(body: list[Any]) -> Iterator[Told]:
    """An entry that only repeats one (`again`) tells nothing new: the whole list is written again now and then."""
    for row in body:
        address, kind, since_ms, reason, evidence, by, campaign, scope, _, again = (*row, *_NO_ENTRY[len(row) :])[:10]
        if again:
            continue
        data = _person(address, scope or "all") | _known(
            {"kind": kind, "since_ms": since_ms or None, "reason": reason, "evidence": evidence, "by": by}
        )
        if campaign:
            data["campaign"] = campaign
        yield "suppressed", data
        if kind in _FEEDBACK and by not in (POLICY, "link"):  # of those the FEEDBACK record told
            yield "feedback", dict(data)


_NO_ENTRY = (None, None, 0, "", "", "", "", "all", (), False)


def _unsuppress(body: list[Any]) -> Iterator[Told]:
    addresses, by, scopes = (*body, None)[:3]
    for number, address in enumerate(addresses):
        yield "unsuppressed", _person(address, scopes[number] if scopes else "all") | _known({"by": by})


def _person(address: str, scope: str) -> dict[str, Any]:
    kind, _, name = scope.partition(":")
    if kind == "list":  # list:TENANT/NAME, or list:NAME of none
        kind, name = "tenant", name.rpartition("/")[0]
    about = {_SCOPES[kind]: name.rpartition("/")[2]} if name and kind in _SCOPES else {}
    if "/" in name:  # campaign:TENANT/NAME
        about["tenant"] = name.partition("/")[0]
    return {"recipient": address, "domain": address.rpartition("@")[2].lower(), "scope": scope, **about}


def _feedback(body: list[Any]) -> Iterator[Told]:
    record = FeedbackRecord.of(body)
    if record.again:
        return
    data: dict[str, Any] = {"kind": record.kind} | _known({
        "message": record.message, "zone": record.zone, "campaign": record.campaign, "tenant": record.tenant,
        "message_id": record.message_id, "code": record.code or None, "enhanced": record.enhanced,
        "reply": record.text, "class": record.reply_class, "rule": record.rule, "reporter": record.reporter,
        "form": record.form, "via": record.via, "genuine": record.genuine, "tied": record.tied, "scope": record.scope,
    })  # fmt: skip
    if record.recipient:
        data |= {"recipient": record.recipient, "domain": record.recipient.rpartition("@")[2].lower()}
    yield "feedback", data


def _lost(body: list[Any]) -> Iterator[Told]:
    yield "records_lost", {"first": body[0], "last": body[1]}


_TELLERS: dict[int, Callable[[Any], Iterator[Told]]] = {
    Type.ENVELOPE: _envelope,
    Type.START: _start,
    Type.DELIVERY: _delivery,
    Type.FINISH: _finish,
    Type.IN_DOUBT: _in_doubt,
    Type.REMOVED: _removed,
    Type.MOVED: _moved,
    Type.STANDING: policy.told,
    Type.SUPPRESS: _suppress,
    Type.UNSUPPRESS: _unsuppress,
    Type.LOST: _lost,
    Type.TASK: _task,
    Type.FEEDBACK: _feedback,
}

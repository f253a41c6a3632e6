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
from zonemta_py.events import policy
from zonemta_py.events.event import Event
from zonemta_py.events.schema import TYPES
from zonemta_py.journal.facts import (
    MISFITS,
    Accepted,
    Answered,
    Attempted,
    CameBack,
    Doubted,
    Ended,
    Fact,
    Lost,
    Moved,
    Opened,
    Removed,
    StateTaken,
    Stood,
    Suppressed,
    TakenBack,
    TakenOver,
    TaskDid,
    TaskOrdered,
    Unsuppressed,
    facts_of,
)
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, Who
from zonemta_py.journal.records.people import AGGREGATES
from zonemta_py.mail.metadata import told
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.queue.suppression.from_evidence import BY as POLICY
from zonemta_py.schedule.flow import FlowId, split_key

Told = tuple[str, dict[str, Any]]
"""Type and data."""
_OVER, _LATE, _OURS = "5.4.7", "its delivery deadline has passed", "queue"
_QUEUED = ("sender", "size", "campaign", "tenant", "priority")
_FEEDBACK = ("complaint", "unsubscribe")
_FAILING_MAX = 20
_SCOPES = {"campaign": "campaign", "tenant": "tenant", "zone": "zone", "campaigns": "tenant"}


def events_of(record: Record) -> list[Event]:
    """In the order in which they are told; `part` counts them."""
    try:
        facts = facts_of(record)
        all_told = [one for fact in facts for one in _TELLERS[fact.__class__](fact)]
        if record.type == Type.IN_DOUBT:
            all_told += _held(facts)
    except MISFITS:
        return []
    seq, ms = record.seq, record.ms
    return [Event(seq, part, kind, ms, data) for part, (kind, data) in enumerate(all_told)]


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """Without what is unknown."""
    return {name: value for name, value in data.items() if value is not None and value != ""}


def _to(fact: Any, address: str, data: dict[str, Any]) -> dict[str, Any]:
    """What is told of one recipient. fact: has an id, a zone, and what it is about."""
    domain = address.rpartition("@")[2].lower()
    if fact.about:
        data = data | told(fact.about, address)
    if fact.zone:
        return {"message": fact.id, "recipient": address, "domain": domain, "zone": fact.zone, **data}
    return {"message": fact.id, "recipient": address, "domain": domain, **data}


# -- mail


def _accepted(fact: Accepted) -> Iterator[Told]:
    known = _of_metadata(fact.metadata)
    hold_ms = fact.metadata.get("hold_until_ms")
    held = {"hold_until_ms": hold_ms} if hold_ms else {}
    about = fact.about if "meta" in fact.metadata or "chosen" in fact.metadata else None
    whole = {"message": fact.id, "recipients": len(fact.recipients), "zones": fact.zones, **known, **held}
    yield "accepted", whole | told(about)
    shared: dict[str, Any] = {name: known[name] for name in _QUEUED if name in known} | held
    for row in fact.recipients:
        address = row[1]
        domain = address.rpartition("@")[2].lower()
        own = shared | told(about, address) if about else shared
        yield "queued", {"message": fact.id, "recipient": address, "domain": domain, "zone": row[0], **own}


def _of_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    get = metadata.get
    return _known({
        "sender": get("sender"), "size": get("size"), "subject": (get("headers") or {}).get("subject"),
        "campaign": get("campaign"), "tenant": get("tenant"), "priority": get("priority") or None,
        "origin": get("origin"), "user": get("user"), "protocol": get("protocol"),
    })  # fmt: skip


def _attempted(fact: Attempted) -> Iterator[Told]:
    data = _way(fact.destination) | _known({
        "provider": fact.provider, "size": fact.size or None, "lease": fact.lease,
        "started_ms": fact.since_ms or None,
    })  # fmt: skip
    for address in fact.people:
        yield "attempted", _to(fact, address, data)


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


def _answered(fact: Answered) -> Iterator[Told]:
    kind = _bounce(fact) if fact.number == BOUNCED else fact.verdict
    if kind not in TYPES:  # of a later version
        return
    trace = fact.trace
    data = _way(fact.destination) | _known({
        "lease": fact.lease or None, "remote": trace.remote, "local": trace.local, "tls": trace.tls,
        "started_ms": trace.started_ms or None, "took_ms": trace.took_ms if trace.started_ms else None,
        "source": trace.source, "site": trace.site, "provider": trace.provider, "code": fact.code or None,
        "enhanced": fact.enhanced, "reply": fact.text, "stage": fact.stage, "class": fact.kind, "rule": fact.rule,
        "relayed": True if fact.relayed else None,
    })  # fmt: skip
    if fact.by:
        data |= _known(dict(zip(("plugin", "hook", "server_reply"), fact.by, strict=True)))
    until = "kept_until_ms" if fact.number == BOUNCED else "due_ms"
    for who in fact.recipients:
        if isinstance(who, str):
            yield kind, _to(fact, who, data)
        else:
            address, _, due_ms, attempts = Who.of(who)
            yield kind, _to(fact, address, data) | _known({until: due_ms or None, "attempts": attempts or None})


def _bounce(fact: Answered) -> str:
    """A bounce because time is over keeps the last temporary reply, or has a reply of ours, which names the deadline
    behind any stage (`queue/lifecycle/settle.py`)."""
    over = fact.enhanced == _OVER and (fact.stage == _OURS or fact.text.startswith(_LATE))
    return "expired" if over or 400 <= fact.code < 500 else "bounced"


def _ended(fact: Ended) -> Iterator[Told]:
    if not fact.moved:  # it goes on in another queue
        yield "finished", _known({"message": fact.id, "campaign": fact.campaign})


def _doubted(fact: Doubted) -> Iterator[Told]:
    yield "in_doubt", _of_doubt(fact) | _known({"action": fact.action})


def _of_doubt(fact: Doubted) -> dict[str, Any]:
    return _to(fact, fact.address, _way(fact.destination) | _known({"started_ms": fact.since_ms or None}))


def _held(facts: list[Any]) -> Iterator[Told]:
    """Behind all that is in doubt, so that ids are what they were before this was told, too. Of several leases of a
    recipient the last one counts."""
    last = {(fact.id, fact.zone, fact.address): fact for fact in reversed(facts) if fact.__class__ is Doubted}
    for fact in reversed(last.values()):
        if fact.action == "hold":
            yield "held", _of_doubt(fact) | {"reason": "in doubt"}


def _taken_back(fact: TakenBack) -> Iterator[Told]:
    yield "requeued", {"lease": fact.lease, "reason": "its sender never received it"}


def _removed(fact: Removed) -> Iterator[Told]:
    more = fact.more
    if more.get("kept"):  # that it has bounced was told
        return
    data = _way(more.get("destination") or "") | _of_metadata(fact.envelope or {})
    data |= _known({name: more.get(name) for name in ("campaign", "tenant")})
    data |= _known({"reason": fact.reason, "case": fact.case, "task": more.get("task")})
    if by := more.get("by"):
        data |= _known(dict(zip(("plugin", "hook"), by, strict=False)))
    for address in fact.recipients:
        yield "removed", _to(fact, address, data)


def _moved(fact: Moved) -> Iterator[Told]:
    data = _flow(fact.flow) | _known({"due_ms": fact.due_ms or None})
    for address in fact.recipients:
        yield "released", _to(fact, address, data)


# -- tasks


def _ordered(fact: TaskOrdered) -> Iterator[Told]:
    value = fact.value
    if value.get("by") == REROUTE:
        return
    data = {"task": fact.task, "what": fact.what}
    data |= _known({name: value.get(name) for name in ("verb", "by", "cause", "state")})
    count = value.get("undone" if value.get("state") == "undone" else "done", value.get("count"))
    yield "task", data | _known({"count": count})


_BECOMES = {"delete": "deleted", "purge": "deleted", "hold": "held", "release": "released"}


def _done(fact: TaskDid) -> Iterator[Told]:
    known: dict[str, Any] = {"zone": fact.now_in, **(_flow(fact.flow) if fact.flow else {})}
    if fact.verb == REROUTE:
        yield "requeued", _to(fact, fact.recipient, known) | {"reason": f"rerouted from zone {fact.zone}"}
        return
    data = _to(fact, fact.recipient, known | {"task": fact.task})
    reason = f"{fact.verb} by task {fact.task}" + (" was undone" if fact.undone else "")
    if fact.kept_until_ms is not None:  # what had been queued again has bounced, as before
        yield "bounced", data | {"kept_until_ms": fact.kept_until_ms, "reason": reason}
        return
    kind = _BECOMES.get(fact.verb, "requeued")
    if fact.undone:
        kind = "held" if fact.verb == "release" else "requeued"
    if kind == "released":
        data["due_ms"] = fact.now_ms + 1
    elif kind != "deleted":
        data["reason"] = reason
    yield kind, data


# -- people


def _suppressed(fact: Suppressed) -> Iterator[Told]:
    """An entry that only repeats one (`again`) tells nothing new: the whole list is written again now and then."""
    if fact.again:
        return
    data = _person(fact.address, fact.scope or "all") | _known({
        "kind": fact.kind, "since_ms": fact.since_ms or None, "reason": fact.reason, "evidence": fact.evidence,
        "by": fact.by, "campaign": fact.campaign,
    })  # fmt: skip
    yield "suppressed", data
    if fact.kind in _FEEDBACK and fact.by not in (POLICY, "link"):  # of those the FEEDBACK record told
        yield "feedback", dict(data)


def _unsuppressed(fact: Unsuppressed) -> Iterator[Told]:
    if fact.again:
        return
    yield "unsuppressed", _person(fact.recipient, fact.scope) | _known({"by": fact.by})


def _person(address: str, scope: str) -> dict[str, Any]:
    kind, _, name = scope.partition(":")
    if kind == "list":  # list:TENANT/NAME, or list:NAME of none
        kind, name = "tenant", name.rpartition("/")[0]
    about = {_SCOPES[kind]: name.rpartition("/")[2]} if name and kind in _SCOPES else {}
    if "/" in name:  # campaign:TENANT/NAME
        about["tenant"] = name.partition("/")[0]
    return {"recipient": address, "domain": address.rpartition("@")[2].lower(), "scope": scope, **about}


def _came_back(fact: CameBack) -> Iterator[Told]:
    if fact.again:
        return
    if fact.kind in AGGREGATES:
        yield fact.kind.replace("-", "_"), _of_report(fact.kind, fact, fact.report or {})
        return
    data: dict[str, Any] = {"kind": fact.kind} | _known({
        "message": fact.message, "zone": fact.zone, "campaign": fact.campaign, "tenant": fact.tenant,
        "message_id": fact.message_id, "code": fact.code or None, "enhanced": fact.enhanced, "reply": fact.text,
        "class": fact.reply_class, "rule": fact.rule, "reporter": fact.reporter, "form": fact.form, "via": fact.via,
        "genuine": fact.genuine, "tied": fact.tied, "scope": fact.scope,
    })  # fmt: skip
    if fact.recipient:
        data |= {"recipient": fact.recipient, "domain": fact.recipient.rpartition("@")[2].lower()}
    yield "feedback", data | told(fact.about, fact.recipient)


def _of_report(kind: str, fact: CameBack, said: dict[str, Any]) -> dict[str, Any]:
    about = _known({"text": fact.text, "reporter": fact.reporter, "via": fact.via, "genuine": fact.genuine})
    if kind == "reputation":
        names = ("provider", "name", "day", "reputation", "complaint_rate", "messages")
        return about | {"kind": said.get("what", "")} | {name: said[name] for name in names if name in said}
    about |= _known({"org": said.get("org"), "report": said.get("id"), "domain": said.get("domain")})
    about |= {"begin_ms": said.get("begin_s", 0) * 1000, "end_ms": said.get("end_s", 0) * 1000}
    numbers = ("messages", "passed", "ours", "ours_passed") if kind == "dmarc-report" else ("sessions", "failed")
    about |= {name: said.get(name, 0) for name in numbers}
    if kind == "dmarc-report":
        rows = [(row.get("ip", ""), row["count"]) for row in said.get("rows", ()) if row["ours"] and not row["passed"]]
        return about | _known({"failing": _most(rows) or None})
    rows = [(f"{one.get('kind', '')} {one.get('mx', '')}".strip(), one["count"]) for one in said.get("failures", ())]
    return about | _known({"failures": _most(rows) or None})


def _most(rows: list[tuple[str, int]]) -> dict[str, int]:
    sums = dict[str, int]()
    for name, number in rows:
        sums[name] = sums.get(name, 0) + number
    return dict(sorted(sums.items(), key=lambda one: -one[1])[:_FAILING_MAX])


def _lost(fact: Lost) -> Iterator[Told]:
    yield "records_lost", fact._asdict()


def _nothing(_: Fact) -> Iterator[Told]:
    return iter(())


_TELLERS: dict[type, Callable[[Any], Iterator[Told]]] = {
    Accepted: _accepted, Opened: _nothing, Attempted: _attempted, Answered: _answered, Ended: _ended,
    Doubted: _doubted, TakenBack: _taken_back, Removed: _removed, Moved: _moved, Stood: policy.told,
    Suppressed: _suppressed, Unsuppressed: _unsuppressed, Lost: _lost, TaskOrdered: _ordered, TaskDid: _done,
    CameBack: _came_back, TakenOver: _nothing, StateTaken: _nothing,
}  # fmt: skip

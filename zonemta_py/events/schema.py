"""The types of events and what their data hold, in one table; the JSON Schema is made from it.

`config/events.schema.json` is what `json_schema` returns (`python -m zonemta_py.reference --events`); docs/EVENTS.md
has the same table in words, and a test compares them. What is unknown is left out of an event, so few fields are
certain. Later versions add types and fields, and change none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zonemta_py.events.event import CUT, SCHEMA, SOURCE_PREFIX, TYPE_PREFIX

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_MS: dict[str, Any] = {"type": "integer", "minimum": 0}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_YES: dict[str, Any] = {"type": "boolean"}

FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "message": (_TEXT, "id of the message"),
    "recipient": (_TEXT, "address of the recipient"),
    "domain": (_TEXT, "domain of the recipient"),
    "zone": (_TEXT, "name of the zone"),
    "zones": (_TEXTS, "zones of all recipients of the message"),
    "recipients": (_NUMBER, "how many recipients the message has"),
    "sender": (_TEXT, "return path; missing if it is the null one"),
    "size": (_NUMBER, "bytes of the message"),
    "subject": (_TEXT, "Subject field of the message"),
    "campaign": (_TEXT, "name of the campaign"),
    "tenant": (_TEXT, "name of the tenant"),
    "priority": (_NUMBER, "MT-PRIORITY (RFC 6710), missing if 0 or not given"),
    "origin": (_TEXT, "IP address of the client"),
    "user": (_TEXT, "as whom the client logged in, or the name of its key"),
    "protocol": (_TEXT, "how the message came: ESMTP, ESMTPS, HTTP, LOCAL …"),
    "hold_until_ms": (_MS, "not sent before, UNIX ms"),
    "lease": (_NUMBER, "number of the lease, by which an attempt and its result belong together"),
    "site": (_TEXT, "group of destinations that limits count by, or the domain"),
    "source": (_TEXT, "local address it is sent from, or that is meant"),
    "provider": (_TEXT, "provider of the site, if it has one"),
    "remote": (_TEXT, "the server that answered: name[ip]:port"),
    "local": (_TEXT, "our address of that connection"),
    "tls": (_TEXT, "version and cipher; missing without TLS"),
    "started_ms": (_MS, "when the attempt began, UNIX ms"),
    "took_ms": (_NUMBER, "how long it took"),
    "code": (_NUMBER, "SMTP reply code"),
    "enhanced": (_TEXT, "enhanced status code (RFC 3463)"),
    "reply": (_TEXT, "text of the reply, 500 characters at most"),
    "stage": (_TEXT, "where in the dialogue: connect, rcpt, dot, queue …"),
    "class": (_TEXT, "class of the reply by our rules"),
    "rule": (_TEXT, "rule that matched the reply"),
    "attempts": (_NUMBER, "how often it was tried, with this time; missing at the first time"),
    "relayed": (_YES, "the server could not take over the wish for notifications"),
    "due_ms": (_MS, "tried again then, ms of the queue's steady time (UNIX ms, unless the clock was set)"),
    "kept_until_ms": (_MS, "a task can queue it again until then, steady time like due_ms; missing: it cannot"),
    "reason": (_TEXT, "why, in words"),
    "action": (_TEXT, "what is done: retry or hold"),
    "case": (_TEXT, "case in quarantine/ that holds what is left"),
    "kind": (_TEXT, "kind of what it is about: destination, campaign, hard-bounce, complaint …"),
    "name": (_TEXT, "name of what it is about"),
    "until_ms": (_MS, "ends then, ms of the queue's steady time; missing: until it is lifted"),
    "since_ms": (_MS, "since when, UNIX ms"),
    "cause": (_TEXT, "why, in words"),
    "rate": ({"type": "number"}, "messages per second; missing: unbounded"),
    "good_days": (_NUMBER, "days of the warm-up that count as done"),
    "window": ({"type": "number"}, "how many connections at once were learned"),
    "most": (_NUMBER, "recipients per message the site takes; 0: no pipelining"),
    "planned": (_NUMBER, "recipients the campaign is to have"),
    "winner": (_TEXT, "the campaign whose template was chosen"),
    "scope": (_TEXT, "which mail a suppression stops: all, campaigns, tenant:NAME …"),
    "evidence": (_TEXT, "where the reason can be looked up"),
    "by": (_TEXT, "who did it"),
    "task": (_NUMBER, "number of the task"),
    "what": (_TEXT, "what became of it: created, canceled, undone, ended"),
    "verb": (_TEXT, "what is done: delete, hold, release, flush, move, set …"),
    "state": (_TEXT, "how it has ended: undoable, done, canceled, undone"),
    "count": (_NUMBER, "to how many recipients it was done"),
    "changed": (_TEXTS, "names of the keys that changed, never their values"),
    "message_id": (_TEXT, "Message-ID of the original, as quoted"),
    "reporter": (_TEXT, "the host that says so"),
    "form": (_TEXT, "form of the report: rfc3464, arf …"),
    "via": (_TEXT, "how it came: smtp, http, link, mailto"),
    "genuine": (_TEXT, "what proves it: token, dkim, spf, key"),
    "tied": (_TEXT, "how the message was found: token, message-id, feedback-id, headers, given"),
    "first": (_NUMBER, "number of the first record"),
    "last": (_NUMBER, "number of the last record"),
    CUT: (_TEXTS, "names of texts that were cut to keep the event below 8 KB"),
}
"""Every field of any event's data: its JSON type, and what it is."""

_RECIPIENT = ("message", "recipient", "domain", "zone")
_FLOW = ("campaign", "tenant", "priority")
_PATH = ("site", "source", "provider")
_REPLY = ("code", "enhanced", "reply", "stage", "class", "rule")
_RESULT = (*_PATH, *_FLOW, "lease", *_REPLY, "remote", "local", "tls", "started_ms", "took_ms", "attempts")
_MESSAGE = ("sender", "size", "subject", "campaign", "tenant", "priority", "origin", "user", "protocol")
_ABOUT = ("kind", "name", "zone", "campaign", "tenant", "site", "source", "provider", "cause")


class EventType(NamedTuple):
    """certain: fields that every event of the type has; others: those it may have. records: journal records it comes
    from. what: one sentence."""

    records: str
    what: str
    certain: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


TYPES: dict[str, EventType] = {
    "accepted": EventType(
        "ENVELOPE", "A message was accepted: it is on stable storage.", ("message", "recipients"),
        ("zones", *_MESSAGE, "hold_until_ms"),
    ),
    "queued": EventType(
        "ENVELOPE", "A recipient of it waits for its first attempt.", ("message", "recipient"),
        ("domain", "zone", "sender", "size", *_FLOW, "hold_until_ms"),
    ),
    "attempted": EventType(
        "START", "A recipient was handed to a sender, which may try it now.", ("message", "recipient"),
        ("domain", "zone", *_PATH, *_FLOW, "size", "lease", "started_ms"),
    ),
    "delivered": EventType(
        "DELIVERY, verdict 1", "The receiving server has taken it.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed"),
    ),
    "deferred": EventType(
        "DELIVERY, verdict 2", "It was tried, and is tried again later.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "due_ms"),
    ),
    "bounced": EventType(
        "DELIVERY, verdict 3; TASK", "It was refused for good; or a task that had queued it again was undone.",
        ("message", "recipient"), ("domain", "zone", *_RESULT, "relayed", "kept_until_ms", "reason", "task"),
    ),
    "expired": EventType(
        "DELIVERY, verdict 3", "Its lifetime or its deadline is over: the code is that of the last temporary reply, or"
        " the enhanced code is our own 5.4.7.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "kept_until_ms"),
    ),
    "held": EventType(
        "DELIVERY, verdict 4; IN_DOUBT, action hold; TASK", "It is kept for an operator.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "reason", "task"),
    ),
    "requeued": EventType(
        "DELIVERY, verdict 5; IN_DOUBT without recipients; TASK", "It was not tried after all, and waits again: no"
        " attempt is counted; or a task let it wait in another way. Without a recipient: all of that lease.", (),
        (*_RECIPIENT, *_RESULT, "relayed", "reason", "task"),
    ),
    "postponed": EventType(
        "DELIVERY, verdict 6", "It was not tried: we chose to try it later.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "due_ms"),
    ),
    "in_doubt": EventType(
        "IN_DOUBT", "Its answer may have been lost with a process: it is tried again, and may come twice, or is held.",
        ("message", "recipient"), ("domain", "zone", *_PATH[:2], *_FLOW, "started_ms", "action"),
    ),
    "released": EventType(
        "MOVED; TASK", "An operator released it from being held.", ("message", "recipient"),
        ("domain", "zone", *_FLOW, "due_ms", "task"),
    ),
    "deleted": EventType(
        "TASK", "A task has deleted it, which can still be undone; then `requeued` follows, otherwise `removed`.",
        ("message", "recipient", "task"), ("domain", "zone", *_FLOW),
    ),
    "removed": EventType(
        "REMOVED", "It left the queue without a delivery or a bounce: dropped, suppressed, canceled, lost to damage.",
        ("message", "recipient", "reason"), ("domain", "zone", "site", "source", *_MESSAGE, "case", "task"),
    ),
    "task": EventType(
        "TASK", "What is done to many recipients at once was ordered, stopped, undone, or has come to its end.",
        ("task", "what"), ("verb", "by", "cause", "state", "count"),
    ),
    "finished": EventType("FINISH", "No recipient of the message is left.", ("message",), ("campaign",)),
    "suppressed": EventType(
        "SUPPRESS", "A person was added to the suppression list.", ("recipient", "kind"),
        ("domain", "since_ms", "reason", "evidence", "by", "campaign", "tenant", "zone", "scope"),
    ),
    "unsuppressed": EventType(
        "UNSUPPRESS", "A person was taken off it.", ("recipient",),
        ("domain", "by", "campaign", "tenant", "zone", "scope"),
    ),
    "feedback": EventType(
        "FEEDBACK; SUPPRESS, kind complaint or unsubscribe", "It came back about mail that was sent: a bounce, a"
        " complaint, an unsubscribe, an automatic reply; or somebody has told the suppression list of a complaint or an"
        " unsubscribe, then it follows `suppressed`. Without `genuine` nothing proves it, and nothing follows from it.",
        ("kind",),
        (*_RECIPIENT, "campaign", "tenant", "message_id", "code", "enhanced", "reply", "class", "rule", "reporter",
         "form", "via", "genuine", "tied", "scope", "since_ms", "reason", "evidence", "by"),
    ),
    "suspended": EventType(
        "STANDING stop", "Mail of that kind and name stands still: by an operator, a rule or a threshold.",
        ("kind", "name"), (*_ABOUT, "until_ms", "since_ms"),
    ),
    "resumed": EventType("STANDING lift", "It goes on.", ("kind", "name"), _ABOUT),
    "guard_raised": EventType(
        "STANDING stop, kind guard", "A provider says of very many people that they do not exist: nobody is suppressed"
        " for that.", ("kind", "name"), (*_ABOUT, "since_ms"),
    ),
    "guard_lifted": EventType(
        "STANDING lift, kind guard", "It is over, or an operator has released or dropped what was held back.",
        ("kind", "name"), _ABOUT,
    ),
    "rate_changed": EventType(
        "STANDING rate; lift of a rate", "The learned rate of a source at a provider has changed.", ("kind", "name"),
        (*_ABOUT, "rate"),
    ),
    "concurrency_changed": EventType(
        "STANDING concurrency; lift of it", "The learned number of connections has changed.", ("kind", "name"),
        (*_ABOUT, "window", "since_ms"),
    ),
    "manner_changed": EventType(
        "STANDING manner; lift of it", "How a site must be addressed was learned, or forgotten.", ("kind", "name"),
        (*_ABOUT, "most", "since_ms"),
    ),
    "warmup_changed": EventType(
        "STANDING warmup", "A day of a warm-up began, or an operator set its step.", ("kind", "name"),
        (*_ABOUT, "good_days"),
    ),
    "campaign_begun": EventType(
        "STANDING begin", "A campaign was made.", ("campaign",), ("tenant", "sender", "zone", "planned"),
    ),
    "campaign_canceled": EventType("STANDING cancel", "A campaign was canceled.", ("campaign",), ("cause",)),
    "campaign_completed": EventType(
        "STANDING complete", "All batches of a campaign have been handed in.", ("campaign",), ("cause",)
    ),
    "campaign_decided": EventType(
        "STANDING winner", "A variant's template was chosen for the rest of a campaign.", ("campaign", "winner"),
        ("cause",),
    ),
    "configuration_changed": EventType(
        "STANDING configuration", "The MTA was started with another configuration than before.", ("changed",)
    ),
    "clock_set": EventType("STANDING clock", "Somebody set the machine's clock.", (), ("cause",)),
    "orders_lost": EventType(
        "STANDING lost", "Damage may have destroyed orders or suppressions.", ("name",), ("cause", "since_ms")
    ),
    "policy_changed": EventType(
        "STANDING, anything else", "A change of policy that this version does not know.", ("reason", "kind", "name"),
        _ABOUT,
    ),
    "records_lost": EventType(
        "LOST, or damage that was met", "Journal records were lost to damage: what they told is missing.",
        ("first", "last"),
    ),
}  # fmt: skip
"""By name, without the prefix, in the order of a message's life."""


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of an event as JSON: a CloudEvent whose data fit its type."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "An event of zonemta-py",
        "description": "A CloudEvent 1.0 in JSON. Unknown types and fields may come with later versions: ignore them.",
        "type": "object",
        "required": ["specversion", "id", "source", "type", "time", "datacontenttype", "dataschema", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "pattern": "^[0-9a-f]+(\\.[0-9]+)?-[0-9]+-[0-9]+$", "description": (
                "Queue, number of the journal record, and part of it: the same in the live stream and in a replay."
            )},
            "source": {"type": "string", "pattern": f"^{SOURCE_PREFIX}"},
            "type": {"enum": [TYPE_PREFIX + name for name in TYPES]},
            "time": {"type": "string", "format": "date-time"},
            "subject": {"type": "string", "minLength": 1, "description": "Id of the message."},
            "datacontenttype": {"const": "application/json"},
            "dataschema": {"const": SCHEMA},
            "data": {"type": "object", "properties": {CUT: _field(CUT)}},
        },
        "allOf": [
            {
                "if": {"properties": {"type": {"const": TYPE_PREFIX + name}}},
                "then": {"properties": {"data": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in TYPES
        ],
        "$defs": {name: _definition(kind) for name, kind in TYPES.items()},
    }  # fmt: skip


def _definition(kind: EventType) -> dict[str, Any]:
    names = dict.fromkeys((*kind.certain, *kind.others))
    return {
        "description": f"{kind.what} From the journal's {kind.records}.",
        "required": list(kind.certain),
        "properties": {name: _field(name) for name in names},
    }


def _field(name: str) -> dict[str, Any]:
    form, what = FIELDS[name]
    return {**form, "description": what}

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
    "domain": (_TEXT, "domain of the recipient; of a report, the domain that it is about"),
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
    "user": (_TEXT, "login of the client, or the name of its key"),
    "protocol": (_TEXT, "how the message came: ESMTP, ESMTPS, HTTP, LOCAL …"),
    "hold_until_ms": (_MS, "not sent before this time, UNIX ms"),
    "lease": (_NUMBER, "number of the lease, which links an attempt and its result"),
    "site": (_TEXT, "group of destinations that limits count by, or the domain"),
    "source": (_TEXT, "local address it is or will be sent from"),
    "provider": (_TEXT, "provider of the site, if it has one"),
    "remote": (_TEXT, "the server that answered: name[ip]:port"),
    "local": (_TEXT, "local address of that connection"),
    "tls": (_TEXT, "version and cipher; missing without TLS"),
    "started_ms": (_MS, "when the attempt began, UNIX ms"),
    "took_ms": (_NUMBER, "how long it took"),
    "code": (_NUMBER, "SMTP reply code"),
    "enhanced": (_TEXT, "enhanced status code (RFC 3463)"),
    "reply": (_TEXT, "text of the reply, 500 characters at most"),
    "stage": (_TEXT, "where in the dialogue: connect, rcpt, dot, queue …"),
    "class": (_TEXT, "class of the reply by the rules"),
    "rule": (_TEXT, "rule that matched the reply"),
    "plugin": (_TEXT, "plugin whose verdict this is"),
    "hook": (_TEXT, "hook of the plugin in which it has decided"),
    "server_reply": (_TEXT, "what the server itself has said, if a plugin decided otherwise"),
    "attempts": (_NUMBER, "attempts so far, including this one; missing on the first"),
    "relayed": (_YES, "the server does not support DSN, so it cannot send the notifications requested"),
    "due_ms": (_MS, "next attempt, ms of the queue's steady time (UNIX ms, unless the clock was set)"),
    "kept_until_ms": (_MS, "a task can requeue it until then, steady time like due_ms; missing: it cannot"),
    "reason": (_TEXT, "why, in words"),
    "action": (_TEXT, "what is done: retry or hold"),
    "case": (_TEXT, "case in quarantine/ that holds the remains"),
    "kind": (_TEXT, "kind of object: destination, campaign, hard-bounce, complaint …"),
    "name": (_TEXT, "name of the object"),
    "until_ms": (_MS, "end, ms of the queue's steady time; missing: until it is lifted"),
    "since_ms": (_MS, "since when, UNIX ms"),
    "cause": (_TEXT, "why, in words"),
    "rate": ({"type": "number"}, "messages per second; missing: unbounded"),
    "good_days": (_NUMBER, "days of the warm-up that count as done"),
    "window": ({"type": "number"}, "learned number of concurrent connections"),
    "most": (_NUMBER, "recipients per message that the site accepts; 0: no pipelining"),
    "planned": (_NUMBER, "planned number of recipients of the campaign"),
    "winner": (_TEXT, "the campaign whose template was chosen"),
    "scope": (_TEXT, "which mail a suppression stops: all, campaigns, tenant:NAME …"),
    "evidence": (_TEXT, "where the reason is documented"),
    "by": (_TEXT, "who did it"),
    "task": (_NUMBER, "number of the task"),
    "what": (_TEXT, "what happened to it: created, canceled, undone, ended"),
    "verb": (_TEXT, "what it does: delete, hold, release, flush, move, set …"),
    "state": (_TEXT, "how it has ended: undoable, done, canceled, undone"),
    "count": (_NUMBER, "number of recipients changed"),
    "changed": (_TEXTS, "names of the keys that changed, never their values"),
    "message_id": (_TEXT, "Message-ID of the original, as quoted"),
    "reporter": (_TEXT, "the reporting host"),
    "form": (_TEXT, "form of the report: rfc3464, arf …"),
    "via": (_TEXT, "how it came: smtp, http, link, mailto"),
    "genuine": (_TEXT, "what proves it: token, dkim, spf, key"),
    "tied": (_TEXT, "how the message was found: token, message-id, feedback-id, headers, given"),
    "first": (_NUMBER, "number of the first record"),
    "last": (_NUMBER, "number of the last record"),
    "metadata": ({"type": "object"}, "values by name that the message came with, the recipient's own over them"),
    "headers": (
        {"type": "object", "additionalProperties": _TEXT},
        "header fields chosen by `metadata.headers`, by lower-case name",
    ),
    "org": (_TEXT, "who has made the report, by its own word"),
    "report": (_TEXT, "the report's own id"),
    "begin_ms": (_MS, "beginning of the time that the report is about, UNIX ms"),
    "end_ms": (_MS, "its end, UNIX ms"),
    "text": (_TEXT, "the report in a sentence"),
    "messages": (_NUMBER, "messages that the report tells of"),
    "passed": (_NUMBER, "of these, those that passed DMARC"),
    "ours": (_NUMBER, "messages from our own sources"),
    "ours_passed": (_NUMBER, "of these, those that passed DMARC"),
    "failing": (
        {"type": "object", "additionalProperties": _NUMBER},
        "our own sources that did not pass, with their messages; the twenty with most",
    ),
    "sessions": (_NUMBER, "sessions that the report tells of"),
    "failed": (_NUMBER, "sessions that failed"),
    "failures": (
        {"type": "object", "additionalProperties": _NUMBER},
        "result type and server, with the sessions that failed so; the twenty with most",
    ),
    "day": (_TEXT, "day that the row is about, as 2026-11-30"),
    "reputation": (_TEXT, "as the provider calls it: HIGH, LOW, BAD, GREEN, RED …"),
    "complaint_rate": ({"type": "number"}, "complaints per message, as a part of one"),
    CUT: (_TEXTS, "names of texts that were cut to keep the event below 8 KB"),
}
"""Every field of any event's data: its JSON type, and what it is."""

_TOLD = ("metadata", "headers")
_RECIPIENT = ("message", "recipient", "domain", "zone")
_FLOW = ("campaign", "tenant", "priority")
_PATH = ("site", "source", "provider")
_REPLY = ("code", "enhanced", "reply", "stage", "class", "rule")
_VERDICT = ("plugin", "hook", "server_reply")
_RESULT = (
    *_PATH,
    *_FLOW,
    "lease",
    *_REPLY,
    *_VERDICT,
    "remote",
    "local",
    "tls",
    "started_ms",
    "took_ms",
    "attempts",
    *_TOLD,
)
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
        ("zones", *_MESSAGE, "hold_until_ms", *_TOLD),
    ),
    "queued": EventType(
        "ENVELOPE", "One of its recipients waits for its first attempt.", ("message", "recipient"),
        ("domain", "zone", "sender", "size", *_FLOW, "hold_until_ms", *_TOLD),
    ),
    "attempted": EventType(
        "START", "A recipient was leased to a sender process for an attempt.", ("message", "recipient"),
        ("domain", "zone", *_PATH, *_FLOW, "size", "lease", "started_ms", *_TOLD),
    ),
    "delivered": EventType(
        "DELIVERY, verdict 1", "The receiving server has accepted it.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed"),
    ),
    "deferred": EventType(
        "DELIVERY, verdict 2", "An attempt failed temporarily; it is retried later.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "due_ms"),
    ),
    "bounced": EventType(
        "DELIVERY, verdict 3; TASK", "It was rejected permanently; or a task that had requeued it was undone.",
        ("message", "recipient"), ("domain", "zone", *_RESULT, "relayed", "kept_until_ms", "reason", "task"),
    ),
    "expired": EventType(
        "DELIVERY, verdict 3", "Its lifetime or its deadline has passed: the code is that of the last temporary reply,"
        " or the enhanced code is the MTA's own 5.4.7.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "kept_until_ms"),
    ),
    "held": EventType(
        "DELIVERY, verdict 4; IN_DOUBT, action hold; TASK", "It is kept for an operator.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "reason", "task"),
    ),
    "requeued": EventType(
        "DELIVERY, verdict 5; IN_DOUBT without recipients; TASK", "It was returned to the queue untried, without"
        " counting an attempt; or a task changed how it waits. Without a recipient: all of that lease.", (),
        (*_RECIPIENT, *_RESULT, "relayed", "reason", "task"),
    ),
    "postponed": EventType(
        "DELIVERY, verdict 6", "It was not tried: the MTA put it off by its own choice.", ("message", "recipient"),
        ("domain", "zone", *_RESULT, "relayed", "due_ms"),
    ),
    "in_doubt": EventType(
        "IN_DOUBT", "Its final reply may have been lost with a process: it is retried, and may come twice, or is held.",
        ("message", "recipient"), ("domain", "zone", *_PATH[:2], *_FLOW, "started_ms", "action", *_TOLD),
    ),
    "released": EventType(
        "MOVED; TASK", "An operator released it from hold.", ("message", "recipient"),
        ("domain", "zone", *_FLOW, "due_ms", "task", *_TOLD),
    ),
    "deleted": EventType(
        "TASK", "A task has deleted it; if that is undone, `requeued` follows, otherwise `removed`.",
        ("message", "recipient", "task"), ("domain", "zone", *_FLOW, *_TOLD),
    ),
    "removed": EventType(
        "REMOVED", "It left the queue without a delivery or a bounce: dropped, suppressed, canceled, lost to damage.",
        ("message", "recipient", "reason"),
        ("domain", "zone", "site", "source", *_MESSAGE, "case", "task", "plugin", "hook", *_TOLD),
    ),
    "task": EventType(
        "TASK", "A task, which changes many recipients at once, was ordered, stopped, undone, or has ended.",
        ("task", "what"), ("verb", "by", "cause", "state", "count"),
    ),
    "finished": EventType("FINISH", "No recipient of the message is left.", ("message",), ("campaign",)),
    "suppressed": EventType(
        "SUPPRESS", "A person was added to the suppression list.", ("recipient", "kind"),
        ("domain", "since_ms", "reason", "evidence", "by", "campaign", "tenant", "zone", "scope"),
    ),
    "unsuppressed": EventType(
        "UNSUPPRESS", "A person was removed from the suppression list.", ("recipient",),
        ("domain", "by", "campaign", "tenant", "zone", "scope"),
    ),
    "feedback": EventType(
        "FEEDBACK; SUPPRESS, kind complaint or unsubscribe", "Feedback about sent mail: a bounce, a complaint, an"
        " unsubscribe, an automatic reply; or a complaint or an unsubscribe was added to the suppression list, in which"
        " case it follows `suppressed`. Without `genuine` it is unproven and has no effect.",
        ("kind",),
        (*_RECIPIENT, "campaign", "tenant", "message_id", "code", "enhanced", "reply", "class", "rule", "reporter",
         "form", "via", "genuine", "tied", "scope", "since_ms", "reason", "evidence", "by", *_TOLD),
    ),
    "dmarc_report": EventType(
        "FEEDBACK, kind dmarc-report", "A receiver has reported how mail of a domain passed DMARC. Without `genuine`"
        " the mail had no valid signature of its author's domain.", ("domain", "messages"),
        ("org", "report", "begin_ms", "end_ms", "passed", "ours", "ours_passed", "failing", "text", "reporter", "via",
         "genuine"),
    ),
    "tls_report": EventType(
        "FEEDBACK, kind tls-report", "A sender has reported how TLS worked with our own mail servers.", ("sessions",),
        ("domain", "org", "report", "begin_ms", "end_ms", "failed", "failures", "text", "reporter", "via", "genuine"),
    ),
    "reputation": EventType(
        "FEEDBACK, kind reputation", "A provider's table, imported by an operator, tells the reputation of a domain or"
        " an address on a day.", ("provider", "kind", "name", "day"),
        ("reputation", "complaint_rate", "messages", "text", "via"),
    ),
    "suspended": EventType(
        "STANDING stop", "Mail of that kind and name was suspended by an operator, a rule or a threshold.",
        ("kind", "name"), (*_ABOUT, "until_ms", "since_ms"),
    ),
    "resumed": EventType("STANDING lift", "The suspension has ended.", ("kind", "name"), _ABOUT),
    "rerouted": EventType(
        "STANDING stop, kind reroute", "Mail of a zone, or for a destination, goes another way: the reason says where.",
        ("kind", "name"), (*_ABOUT, "until_ms", "since_ms", "reason"),
    ),
    "reroute_ended": EventType(
        "STANDING lift, kind reroute", "That reroute was removed; one with an end ends without an event.",
        ("kind", "name"), _ABOUT,
    ),
    "guard_raised": EventType(
        "STANDING stop, kind guard", "A provider refused very many recipients as unknown: none of them is suppressed"
        " for it.", ("kind", "name"), (*_ABOUT, "since_ms"),
    ),
    "guard_lifted": EventType(
        "STANDING lift, kind guard", "The guard has ended, or an operator has released or dropped the refusals.",
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
        "STANDING manner; lift of it", "A site's limitations in the dialogue were learned, or discarded.",
        ("kind", "name"),
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
        "STANDING complete", "All batches of a campaign have been submitted.", ("campaign",), ("cause",)
    ),
    "campaign_decided": EventType(
        "STANDING winner", "A variant's template was chosen for the rest of a campaign.", ("campaign", "winner"),
        ("cause",),
    ),
    "configuration_changed": EventType(
        "STANDING configuration", "The MTA was started with another configuration than before.", ("changed",)
    ),
    "clock_set": EventType("STANDING clock", "The machine's clock was set.", (), ("cause",)),
    "orders_lost": EventType(
        "STANDING lost", "Damage may have destroyed orders or suppressions.", ("name",), ("cause", "since_ms")
    ),
    "policy_changed": EventType(
        "STANDING, anything else", "A policy change unknown to this version.", ("reason", "kind", "name"),
        _ABOUT,
    ),
    "records_lost": EventType(
        "LOST, or damage that was met", "Journal records were lost to damage: their events are missing.",
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

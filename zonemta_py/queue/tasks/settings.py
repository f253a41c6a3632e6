"""What `set` changes of a recipient besides its priority, time and life, and of whom it cannot.

    source, host      how it is sent: its note names them, as a plugin's choice (`plugin.arguments.Routing`); "" undoes
                      a choice
    sender            its return path: MAIL FROM, and where its notices go, "<>" nobody; as given, without VERP or SRS
    header            {name: value} replaces the field of that name, null removes it; before it is signed
    campaign, tenant  of its flow: shares, limits, suspensions, filters; "" none

All stand in the note, so they are of the recipients that were meant and of no others of the message. Left as it is:
what a client will pull, for `source` and `host`; mail that its campaign counts or makes from a template, for
`campaign`, `tenant` and `header`; mail with the null sender, for `sender`.

Failures: `checked` raises ValueError, one sentence.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from zonemta_py.disk.notes import Note
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reroute import RerouteTarget
from zonemta_py.mail.schedule_fields import InvalidValue, name
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.questions.question import Refused
from zonemta_py.schedule.flow import FlowId

SETTINGS = ("source", "host", "sender", "header", "campaign", "tenant")
NULL = "<>"
FIELDS_MAX, VALUE_MAX = 20, 900
_OURS = ("received", "return-path", "dkim-signature", "mime-version", "bcc")
"""Fields that say what has happened, or what the body is; so do those that begin with Content- or ARC-."""


def checked(core: Core, given: dict[str, Any]) -> dict[str, Any]:
    """As tasks keep them. Raises Refused."""
    checks = {"source": _source, "host": _host, "sender": _sender, "header": _header}
    found = dict(given)
    for key in SETTINGS:
        if key in given:
            found[key] = checks.get(key, _named)(core, key, given[key])
    return found


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise Refused(f"{key} is {str(value)[:80]!r}; write a text")
    return value.strip()


def _source(core: Core, key: str, value: Any) -> str:
    text = _text(key, value)
    if not text:
        return ""
    known = sorted(core.config.source_addresses)
    try:
        text = str(ipaddress.ip_address(text))
    except ValueError:
        raise Refused(f"{text!r} is not an IP address to send from") from None
    if text not in known:
        there = f"there are {', '.join(known[:10])}" if known else "none is configured"
        raise Refused(f"{text} is no source of the configuration; {there}")
    return text


def _host(_: Core, key: str, value: Any) -> str:
    text = _text(key, value)
    try:
        return RerouteTarget.of(f"host {text}").text.removeprefix("host ") if text else ""
    except ValueError:
        raise Refused(f"{text!r} is not a host, or host:port, to send to") from None


def _sender(_: Core, key: str, value: Any) -> str:
    # Imported here, like the header's encoding: a start accepts mail before it loads what only orders need.
    from zonemta_py.mail.address import AddressRefused, parse_mailbox

    text = _text(key, value)
    if text == NULL:
        return NULL
    try:
        return parse_mailbox(text.removeprefix("<").removesuffix(">"))
    except AddressRefused as error:
        raise Refused(f"{text!r} cannot be a return path ({error}); give an address, or <> for nobody") from None


def _named(_: Core, key: str, value: Any) -> str:
    text = _text(key, value)
    try:
        return name(text) if text else ""
    except InvalidValue as error:
        raise Refused(f"{key}: {error}") from None


def _header(_: Core, key: str, value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict) or not 0 < len(value) <= FIELDS_MAX:
        raise Refused(f'header is {str(value)[:80]!r}; write {{"name of a field": "its value"}}, {FIELDS_MAX} at most')
    from email.header import Header

    found = dict[str, str | None]()
    for field, text in value.items():
        lowered = str(field).lower()
        if lowered in _OURS or lowered.startswith(("content-", "arc-")):
            raise Refused(f"the header field {field} cannot be set: it says what the body is, or what has happened")
        if text is not None and (not isinstance(text, str) or len(text) > VALUE_MAX):
            raise Refused(f"the value of {field} is longer than {VALUE_MAX} characters, or no text; shorten it")
        coded = text if text is None or text.isascii() else Header(text, "utf-8", maxlinelen=900).encode()
        try:
            Headers().add(str(field), coded or "x")
        except ValueError as error:
            raise Refused(str(error)) from None
        if coded is not None and ("\n" in coded or "\r" in coded):
            raise Refused(f"the value of {field} has more than one line; write one")
        found[str(field)] = coded
    return found


def unfit(core: Core, change: dict[str, Any], zone: str, note: Note, sender: str | None) -> bool:
    """Whether it cannot be done to a recipient. sender: of its message, None: not read (`needs_sender`)."""
    if ("source" in change or "host" in change) and core.schedule.pull_zone(zone) is not None:
        return True
    if ("campaign" in change or "tenant" in change) and note.tallied:
        return True
    return ("header" in change and note.values is not None) or ("sender" in change and sender == "")


def changed(change: dict[str, Any], note: Note, before: dict[str, Any]) -> Note:
    """The note with it; what it was before is put in `before`."""
    flow = {key: change[key] for key in ("campaign", "tenant") if key in change}
    if flow:
        before.setdefault("flow", note.flow)
        note = note._replace(flow=FlowId.of(note.flow)._replace(**flow).text())
    if not any(key in change for key in ("source", "host", "sender", "header")):
        return note
    before["routing"] = note.routing
    routing = dict(note.routing or {})
    if "source" in change:
        _put(routing, source=change["source"])
    if "host" in change:
        to = RerouteTarget.of(f"host {change['host']}") if change["host"] else None
        _put(routing, host=to.name if to else "", port=to.port if to else 0)
    if "sender" in change:
        _put(routing, sender=change["sender"], returns=change["sender"])
    if "header" in change:
        lowered = {field.lower() for field in change["header"]}
        kept = [one for one in routing.get("header", ()) if one[0].lower() not in lowered]
        routing["header"] = [*kept, *([field, text] for field, text in change["header"].items())]
    return note._replace(routing=routing or None)


def _put(routing: dict[str, Any], **values: Any) -> None:
    for key, value in values.items():
        if value:
            routing[key] = value
        else:
            routing.pop(key, None)

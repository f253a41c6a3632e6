"""Refuses mail that goes in a circle: by the number of its Received fields, by this server's own marks in it, and by
Delivered-To fields that name its recipients.

    [plugins]
    enabled = ["loop_breaker"]

    [plugins.options.loop_breaker]
    secret = "something long that nobody else knows"
    received = 25
    passes = 3

Each pass through this server, and all others with the same secret, leaves a field X-Loop-Mark with a signature of the
message's Message-ID, so that nobody else's mail can be made to look like a loop. A message with `passes` such marks is
refused with 554 5.4.6; so is one with more than `received` Received fields. A recipient that a Delivered-To field names
has had the message already: it alone bounces, unless it is the only one, when the message is refused. The plugin asks
nobody, so nothing can be down.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from zonemta_py.plugin import Envelope, Headers, PluginApi, Reject, Routing

NOTE = "loop_breaker"
"""In the notes of a recipient that has had the message."""
MARKS_READ_MAX = 100
"""Marks whose signature is computed, in one message."""

_NAME = re.compile(r"[!-9;-~]+")


class Options(BaseModel):
    """[plugins.options.loop_breaker]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    secret: SecretStr = Field(min_length=8)
    """Signs the marks; the same on all servers among which mail could go round."""
    field: str = Field("X-Loop-Mark", pattern=_NAME.pattern)
    """Name of the header field with a mark."""
    passes: int = Field(3, ge=1, le=100)
    """Marks that make it a loop; a mailing list or a forwarder may bring a message back once or twice."""
    received: int = Field(25, ge=1, le=1000)
    """Received fields above which it is a loop; limits.hops holds as well."""
    delivered_to: bool = True
    """Whether Delivered-To fields count."""


def setup(api: PluginApi, options: Options) -> None:
    """Keeps the options."""
    global _api, _options
    _api, _options = api, options


_api: PluginApi
_options: Options


async def message_headers(envelope: Envelope, headers: Headers) -> None:
    """Counts, judges and leaves the mark of this pass."""
    received = headers.count("Received")
    if received > _options.received:
        raise _loop("received", f"{received} Received fields")
    mark = _mark(headers.get("Message-ID"))
    passes = sum(
        hmac.compare_digest(mark, one) for one in headers.all(_options.field)[:MARKS_READ_MAX] if one.isascii()
    )
    if passes >= _options.passes:
        raise _loop("passes", f"it has been here {passes} times")
    if _options.delivered_to and "Delivered-To" in headers:
        _look_for_recipients(envelope, headers)
    headers.prepend(_options.field, mark)


async def queue_route(routing: Routing) -> None:
    """Bounces a recipient that has had the message."""
    if routing.notes.get(NOTE):
        raise _loop("delivered_to", "a Delivered-To field names this recipient")


def _look_for_recipients(envelope: Envelope, headers: Headers) -> None:
    had = {one.strip("<> ").lower() for one in headers.all("Delivered-To")}
    looping = [one for one in envelope.recipients if one.address.lower() in had]
    if looping and len(looping) == len(envelope.recipients):
        raise _loop("delivered_to", "a Delivered-To field names its recipient")
    for one in looping:
        one.notes[NOTE] = True


def _loop(kind: str, reason: str) -> Reject:
    _api.count("loops", label=kind)
    return Reject(554, f"5.4.6 The message is in a loop: {reason}")


def _mark(message_id: str) -> str:
    """Nobody without the secret can make it, and it is another one for each message."""
    key = _options.secret.get_secret_value().encode()
    return hmac.new(key, message_id.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:32]

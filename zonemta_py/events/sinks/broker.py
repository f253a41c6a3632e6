"""What the sinks at message brokers share: addresses filled in for each event, and words for what went wrong."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote, urlsplit

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready
from zonemta_py.logs.causes import cause

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
"""Structured mode: the body is the whole event, as on every other way."""
_SPECIAL = re.compile(r"[^A-Za-z0-9_-]")


class EventAddress:
    """A routing key, subject or stream with {type} and {zone}. In a value, all but A-Z a-z 0-9 _ - becomes _, since
    dots, stars and blanks mean something to brokers; an event without a zone has `none` there."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._zone = "{zone}" in template

    def of(self, ready: Ready) -> str:
        filled = self._template.replace("{type}", ready.type)
        if not self._zone:
            return filled
        zone = json.loads(ready.body).get("data", {}).get("zone")
        return filled.replace("{zone}", _SPECIAL.sub("_", zone) if zone else "none")


def host(settings: EventSink) -> str:
    return urlsplit(settings.url).hostname or ""


def port(settings: EventSink, usual: int) -> int:
    return urlsplit(settings.url).port or usual


def path(settings: EventSink) -> str:
    """Without its slash; "": none."""
    return unquote(urlsplit(settings.url).path[1:])


def encrypted(settings: EventSink) -> bool:
    return urlsplit(settings.url).scheme in ("amqps", "tls", "rediss")


def unreachable(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long to answer"
    return f"it cannot be reached: {cause(error)}"


def login_refused(settings: EventSink) -> str:
    who = f"user {settings.username!r}" if settings.username else "a client without username"
    return f"it refuses {who}: correct username and password, or what the server permits that user"

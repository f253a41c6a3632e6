"""Adds, replaces and removes header fields: X-Originating-IP for all mail unless told otherwise, and others by user,
sender and zone.

    [plugins]
    enabled = ["default_headers"]

    [[plugins.options.default_headers.fields]]
    name = "X-Originating-IP"
    value = "[{origin}]"
    users = ["*"]

    [[plugins.options.default_headers.fields]]
    name = "X-Sent-For"
    value = "{sender} by {zone}"
    zones = ["bulk"]

    [[plugins.options.default_headers.fields]]
    name = "X-Mailer"
    action = "remove"

All conditions of a field must hold. Fields are set when a message is sent, before it is signed, in mail of campaigns
too; one with {helo}, which only reception knows, is set there and stored with the message. Where something that a value
names is not known ({user} of mail without login), the field is not set, and with "replace" one that the client has
written is removed all the same. The plugin asks nobody, so nothing can be down.
"""

from __future__ import annotations

import fnmatch
import re
import string
from email.header import Header
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator

from zonemta_py.plugin import Delivery, Envelope, Headers, PluginApi

VALUE_CHARACTERS_MAX = 900
"""Of a value that is filled in."""

_RECEPTION = frozenset(("helo",))
_SENDING = frozenset(("zone", "recipient", "id"))
_BOTH = frozenset(("origin", "user", "sender"))
_NAME = re.compile(r"[!-9;-~]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class HeaderField(BaseModel):
    """What is done with one header field. Patterns know * (anything) and ? (one character), in upper or lower case."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str
    """Name of the header field."""
    value: str = ""
    """Text with {origin} (the client's IP address), {helo}, {user}, {sender}, {zone}, {recipient}, {id}."""
    action: Literal["replace", "missing", "add", "remove"] = "replace"
    """replace: one such field, this one. missing: only if there is none. add: beside those there. remove: none."""
    users: list[str] = []
    """Names of authenticated users, or of keys of the HTTP interface; "" is mail without one."""
    senders: list[str] = []
    """Domains of the return path; "" is the null sender's."""
    zones: list[str] = []
    """Sending zones."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header field such as X-Company")
        return name

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: str, info: ValidationInfo) -> str:
        known = sorted(_RECEPTION | _SENDING | _BOTH)
        try:
            parts = list(string.Formatter().parse(value))
        except ValueError as error:
            raise ValueError(f"{error}; write {{{{ for a brace") from None
        for _, word, shape, conversion in parts:
            if word is not None and (word not in known or shape or conversion):
                raise ValueError(f"{{{word}}} is not known; there are {', '.join(known)}")
        if _CONTROL.search(value):
            raise ValueError("has a control character or a line end in it")
        return value

    @model_validator(mode="after")
    def _check(self) -> HeaderField:
        if self.action == "remove" and self.value:
            raise ValueError("a field that is removed has no value")
        if self.action != "remove" and not self.value:
            raise ValueError(f'give {self.name} a value, or action = "remove"')
        if self.received and self.sent:
            early, late = " and ".join(self.received), " and ".join(self.sent)
            raise ValueError(f"{self.name} needs {early} of reception and {late} of sending; make two fields of it")
        return self

    @property
    def received(self) -> list[str]:
        """What it needs that only reception knows."""
        return sorted(self._words & _RECEPTION)

    @property
    def sent(self) -> list[str]:
        """What it needs that only sending knows."""
        return [*(["zones"] if self.zones else []), *sorted(self._words & _SENDING)]

    @property
    def _words(self) -> set[str]:
        return {word for _, word, _, _ in string.Formatter().parse(self.value) if word}

    def apply(self, headers: Headers, known: dict[str, str]) -> bool:
        """Changes the header section; whether all conditions hold. known: placeholder → text."""
        held = _match(self.users, known.get("user", "")) and _match(self.zones, known.get("zone", ""))
        if not held or not _match(self.senders, known["sender"].rpartition("@")[2]):
            return False
        if self.action == "remove":
            return headers.remove(self.name) > 0
        if self.action == "missing" and self.name in headers:
            return False
        if not all(known[word] for word in self._words):
            return self.action == "replace" and headers.remove(self.name) > 0
        value = _written(self.value.format_map(known))
        if self.action == "add":
            headers.add(self.name, value)
        else:
            headers.replace(self.name, value)
        return True


class Options(BaseModel):
    """[plugins.options.default_headers]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    fields: list[HeaderField] = [HeaderField(name="X-Originating-IP", value="[{origin}]")]
    """In their order."""


def setup(api: PluginApi, options: Options) -> None:
    """Parts the fields into those of reception and those of sending."""
    global _api, _received, _sent
    for field in options.fields:
        for zone in field.zones:
            if api.zones and not any(fnmatch.fnmatchcase(one.lower(), _literal(zone)) for one in api.zones):
                raise ValueError(f"{field.name}: there is no zone {zone!r}; there are {', '.join(sorted(api.zones))}")
    _api = api
    _received = [field for field in options.fields if field.received]
    _sent = [field for field in options.fields if not field.received]


_api: PluginApi
_received: list[HeaderField] = []
_sent: list[HeaderField] = []


async def message_headers(envelope: Envelope, headers: Headers) -> None:
    """Fields that need what is known at reception."""
    if _received:
        known = {
            "origin": envelope.origin, "helo": envelope.origin_name, "user": envelope.user or "",
            "sender": envelope.sender,
        }  # fmt: skip
        for field in _received:
            if field.apply(headers, known):
                _api.count("set", label=field.name)


async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """All others, for one recipient."""
    if _sent:
        recipient = delivery.recipients[0].address if delivery.recipients else ""
        known = {
            "origin": delivery.origin, "user": delivery.user or "", "sender": delivery.sender, "zone": delivery.zone,
            "recipient": recipient, "id": delivery.id,
        }  # fmt: skip
        for field in _sent:
            if field.apply(headers, known):
                _api.count("set", label=field.name)


def _match(patterns: list[str], value: str) -> bool:
    """Whether one of the patterns does; no patterns: whatever it is."""
    return not patterns or any(fnmatch.fnmatchcase(value.lower(), _literal(one)) for one in patterns)


def _literal(pattern: str) -> str:
    """fnmatch knows sets of characters in brackets too; here a bracket is one."""
    return pattern.lower().replace("[", "[[]")


def _written(value: str) -> str:
    """As it may stand in a header section: without control characters, and encoded if it is not ASCII (RFC 2047)."""
    text = _CONTROL.sub(" ", value)[:VALUE_CHARACTERS_MAX]
    return text if text.isascii() else Header(text, "utf-8").encode(linesep="\r\n")

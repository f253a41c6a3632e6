"""`api.inject`: mail that a plugin hands in, with the checks that mail of a listener has.

Failures: ValueError and TypeError for arguments that can never be right; InjectionRefused for mail that is not taken.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from email.message import Message
from typing import Any

from zonemta_py.mail import metadata as meta
from zonemta_py.mail import notes as kept_notes
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import StoredMessage

KEY_MAX = 200
PROTOCOL = "PLUGIN"
"""`Envelope.protocol` of what plugins hand in; its user is `plugin:NAME`."""
CLIENT = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
Content = bytes | str | Message | AsyncIterable[bytes]


class InjectionRefused(Exception):
    """The message is not taken. reply: what a client would hear; 4xx: try again later, with the same key."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply

    @property
    def temporary(self) -> bool:
        return self.reply.code < 500


@dataclass(slots=True)
class Injection:
    """What a plugin wants to be sent. blocks: of the message, as they come. key: "" for none."""

    plugin: str
    envelope: Envelope
    blocks: AsyncIterator[bytes]
    key: str = ""


Inject = Callable[[Injection], Awaitable[StoredMessage]]


def injection(
    plugin: str, message: Content, recipients: Iterable[str | Recipient], sender: str = "", key: str = "", *,
    zone: str = "", campaign: str = "", tenant: str = "", account: str = "", priority: int | None = None,
    hold_until: float | datetime | None = None, notes: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Injection:  # fmt: skip
    """As `PluginApi.inject`. Raises ValueError, TypeError."""
    if isinstance(recipients, (str, bytes)) or not isinstance(recipients, Iterable):
        raise TypeError(f"recipients must be a list of addresses, not {type(recipients).__name__}")
    people = {person.address: person for person in map(_person, recipients)}
    if not people:
        raise ValueError("a message needs recipients; give at least one address")
    chosen = {"sender": sender, "key": key, "zone": zone, "campaign": campaign, "tenant": tenant, "account": account}
    for name, value in chosen.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a text, not {type(value).__name__}")
        if name in ("campaign", "tenant") and value and not _NAME.fullmatch(value):
            raise ValueError(f"{name} {value[:80]!a} is not a name; use up to 63 letters, digits, dots and -")
    if len(key) > KEY_MAX or not key.isprintable():
        raise ValueError(f"key {key[:100]!a} is not a text of up to {KEY_MAX} letters")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > 9):
        raise ValueError(f"priority {priority!r:.100} is not a whole number from -9 to 9")
    if notes and not kept_notes.fit(notes, kept_notes.MESSAGE_BYTES_MAX):
        raise ValueError(f"notes must be a dict that JSON knows, of up to {kept_notes.MESSAGE_BYTES_MAX:,} bytes")
    if metadata and (wrong := meta.fault(metadata, meta.MESSAGE_BYTES_MAX)):
        raise ValueError(f"metadata {wrong}")
    sender = _address(sender) if sender else ""
    envelope = Envelope(
        sender, [*people.values()], user=f"plugin:{plugin}", protocol=PROTOCOL, origin=CLIENT,
        sending_zone=zone or None, campaign=campaign or None, tenant=tenant or None, account=account,
        priority=priority, hold_until_ms=_moment_ms(hold_until), notes=json.loads(json.dumps(notes or {})),
        meta=json.loads(json.dumps(metadata or {})),
        smtputf8=not (sender + "".join(people)).isascii(),
    )  # fmt: skip
    return Injection(plugin, envelope, _blocks(message), key)


def _person(one: str | Recipient) -> Recipient:
    if isinstance(one, Recipient):
        one.address = _address(one.address)
        return one
    return Recipient(_address(one))


def _address(given: str) -> str:
    """The domain in lower case, and in A-labels unless the name itself is international (RFC 6531)."""
    from zonemta_py.mail.address import AddressRefused, parse_mailbox  # a start accepts mail before it needs a parser

    if not isinstance(given, str):
        raise TypeError(f"an address must be a text, not {type(given).__name__}")
    try:
        found = parse_mailbox(given)
    except AddressRefused:
        raise ValueError(f"{given[:100]!a} is not an email address; write name@domain") from None
    local, _, domain = found.rpartition("@")
    return f"{local}@{canonical(domain)}" if local.isascii() and not domain.isascii() else found


def _moment_ms(moment: float | datetime | None) -> int:
    if moment is None:
        return 0
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError("hold_until has no time zone; use datetime.now(timezone.utc), for example")
        moment = moment.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, (int, float)) or not math.isfinite(moment):
        raise TypeError(f"hold_until must be UNIX seconds or a datetime, not {moment!r:.100}")
    return max(0, int(moment * 1000)) if moment > time.time() else 0


def _blocks(message: Content) -> AsyncIterator[bytes]:
    if isinstance(message, Message):
        message = bytes(message)
    if isinstance(message, str):
        message = message.encode()
    if isinstance(message, (bytes, bytearray, memoryview)):
        return _cut(bytes(message))
    if isinstance(message, AsyncIterable):
        return _checked(message)
    if inspect.isawaitable(message):
        raise TypeError("the message is a coroutine; await it first")
    raise TypeError(f"a message must be bytes, str, EmailMessage or an async iterator, not {type(message).__name__}")


async def _cut(whole: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(whole), CHUNK_BYTES):
        yield whole[at : at + CHUNK_BYTES]


async def _checked(blocks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for block in blocks:
        if not isinstance(block, bytes):
            raise TypeError(f"the message's iterator gave {type(block).__name__}, not bytes")
        yield block

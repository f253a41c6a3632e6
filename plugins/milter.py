"""Shows mail to milters (Sendmail's and Postfix's filters: opendkim, opendmarc, clamav-milter …) as it is stored, and
does what they say.

    [plugins]
    enabled = ["attachment_policy", "milter"]

    [[plugins.options.milter.filters]]
    name = "opendkim"
    socket = "unix:/run/opendkim/opendkim.sock"
    failing = "closed"

    [[plugins.options.milter.filters]]
    name = "clamav"
    socket = "inet:127.0.0.1:7357"
    timeout_s = 2

    [[plugins.options.attachment_policy.rules]]
    extensions = ["exe"]

Version 6 of the protocol, one connection for each message and filter; all filters see the same message, with the header
section as the plugins before this one left it (enable it last) and the body as it is stored. Their steps for
connection, HELO, sender and recipients come when the message does: a filter that refuses a sender refuses the message,
one that refuses a recipient lets that one bounce, or refuses the message if no other is left.

Obeyed: accept, reject, tempfail, discard, reply codes, skip; header fields added, inserted, changed and removed (when
the message is sent, before our own signatures); sender, recipients; quarantine (held until `zonemta queue release`).
A body cannot be replaced, for it is on disk already when a filter wants that: it is not offered, and a filter that
insists cannot be used. A block of 64 KB is in memory. Mail of campaigns is made only when it is sent, and not shown.

When a filter is down, slower than `timeout_s` or does not speak the protocol, mail is deferred with 451
(`failing = "closed"`), or goes on without that filter, which is counted and logged (`failing = "open"`). The timeout_s
of all filters together must be below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zonemta_py.plugin import (
    Delivery,
    Drop,
    Envelope,
    Headers,
    Hold,
    PluginApi,
    Recipient,
    Reject,
    Routing,
    Session,
    Stream,
)

NOTE = "milter"
"""In the notes of a message: what is to be done when it is sent; of a recipient: why a filter has refused it."""
PACKET_BYTES_MAX = 65_535
"""Of a header field or a piece of the body."""
ANSWER_BYTES_MAX = 262_144
CHANGES_MAX, CHANGES_BYTES_MAX = 50, 5_000
"""Of all filters, for one message: they are among its notes until it is sent."""

_VERSION, _VERSION_WITH_DATA = 6, 4
_ADD, _CHANGE_BODY, _ADD_RECIPIENT, _REMOVE_RECIPIENT, _CHANGE, _QUARANTINE, _CHANGE_SENDER, _ADD_WITH_PARAMETERS = (
    1 << bit for bit in range(8)
)
_ACTIONS = _ADD | _ADD_RECIPIENT | _REMOVE_RECIPIENT | _CHANGE | _QUARANTINE | _CHANGE_SENDER | _ADD_WITH_PARAMETERS
_NOT_WANTED = {b"C": 0x1, b"H": 0x2, b"M": 0x4, b"R": 0x8, b"B": 0x10, b"L": 0x20, b"N": 0x40, b"T": 0x200}
"""By command: the filter does not want to hear it."""
_NOT_ANSWERED = {
    b"C": 0x1000, b"H": 0x2000, b"M": 0x4000, b"R": 0x8000, b"T": 0x10000, b"N": 0x40000, b"B": 0x80000, b"L": 0x80,
}  # fmt: skip
"""By command: the filter hears it and does not answer."""
_NO_UNKNOWN, _SKIP, _LEADING_SPACE = 0x100, 0x400, 0x100000
_PROTOCOL = sum(_NOT_WANTED.values()) | sum(_NOT_ANSWERED.values()) | _NO_UNKNOWN | _SKIP | _LEADING_SPACE

_NAME = re.compile(r"[!-9;-~]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_ADDRESS = re.compile(r"[^\s<>\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+")
_REPLY = re.compile(r"([45]\d\d)[ -](.*)", re.DOTALL)
_SOCKET = re.compile(r"(?:unix|local):(?P<path>/.+)|inet6?:(?:(?P<host>.+):(?P<port>\d+)|(?P<port2>\d+)@(?P<host2>.+))")


class MilterServer(BaseModel):
    """One filter."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str = Field(min_length=1)
    """For logs and counters."""
    socket: str
    """unix:/path, inet:host:port or inet:port@host."""
    timeout_s: float = Field(2, gt=0)
    """For everything between two pieces of the message, and after its end."""
    failing: Literal["open", "closed"] = "closed"
    """open: mail goes on without the filter; closed: it is deferred."""

    @field_validator("socket")
    @classmethod
    def _check_socket(cls, value: str) -> str:
        if not _SOCKET.fullmatch(value):
            raise ValueError("write unix:/path, inet:host:port or inet:port@host")
        return value


class Options(BaseModel):
    """[plugins.options.milter]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    filters: list[MilterServer] = Field(min_length=1)
    """In this order their changes are made, and the first that refuses decides."""
    hostname: str = socket.gethostname()
    """What filters hear as the name of this server (macro j)."""


class MilterFailed(Exception):
    """A filter cannot be asked, or does not keep to the protocol. One sentence."""


_api: PluginApi
_options: Options


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without the filters."""
    global _api, _options
    _api, _options = api, options
    together = sum(one.timeout_s for one in options.filters)
    if together >= api.timeout_s:
        raise ValueError(
            f"timeout_s of all filters is {together:g} together; it must be below plugins.timeout_s, which is "
            f"{api.timeout_s:g}"
        )


async def smtp_data(envelope: Envelope, session: Session) -> None:
    """Only here the session is known."""
    envelope.scratch[NOTE] = {"id": session.id, "port": session.client_port, "tls": session.tls}


async def api_mail(envelope: Envelope, session: Session) -> None:
    """The same by HTTP; a batch of a campaign is not shown."""
    if not envelope.merged:
        envelope.scratch[NOTE] = {"id": session.id, "port": session.client_port, "tls": session.tls}


async def message_headers(envelope: Envelope, headers: Headers) -> None:
    """The header section, for `message_store`: message_rewrite may change it yet."""
    envelope.scratch[NOTE] = {**envelope.scratch.get(NOTE, {}), "headers": headers}


async def message_store(envelope: Envelope, stream: Stream) -> None:
    """Shows the message to each filter, piece by piece, and collects what they say."""
    first = await anext(stream, b"")  # from here on the header section is there as it is stored
    found = envelope.scratch.pop(NOTE, {})
    filters = [_Dialogue(server, envelope) for server in _options.filters]
    try:
        for one in filters:
            await one.step(one.begin(found))
        if first:
            for one in filters:
                await one.step(one.body(first))
            async for block in stream:
                for one in filters:
                    await one.step(one.body(block))
        for one in filters:
            await one.step(one.end())
    finally:
        for one in filters:
            one.close()
    _conclude(envelope, [one for one in filters if not one.failed])


async def queue_route(routing: Routing) -> None:
    """Bounces a recipient that a filter has refused."""
    if refused := routing.notes.get(NOTE):
        raise Reject(refused[0], refused[1])


async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """Holds what is in quarantine, once; else makes the changes."""
    note = delivery.notes.get(NOTE, {})
    if note.get("hold") and not any(delivery.attempts):
        raise Hold(note["hold"])
    for change in note.get("changes", ()):
        _change(headers, *change)


class _Dialogue:
    """With one filter about one message. failed: it is out, and the mail goes on without it. over: it has decided."""

    def __init__(self, server: MilterServer, envelope: Envelope) -> None:
        self.server, self.failed, self.over = server, False, False
        self.changes: list[list[Any]] = []
        self.refused: dict[str, list[Any]] = {}
        self.sender: str | None = None
        self.added: list[str] = []
        self.removed: list[str] = []
        self.hold = ""
        self._envelope = envelope
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._protocol = 0
        self._skips = False

    async def step(self, work: Any) -> None:
        """Does a part of it within the time limit. Raises verdicts, MilterFailed."""
        if self.failed or self.over:
            work.close()
            return
        server = self.server
        try:
            async with asyncio.timeout(server.timeout_s):
                await work
        except (MilterFailed, OSError, EOFError, TimeoutError, struct.error) as error:
            said = (
                f"it does not answer within {server.timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            )
            remedy = "" if isinstance(error, MilterFailed) else "; start it, or correct its socket"
            sentence = f"milter {server.name} at {server.socket}: {said}{remedy}"
            if server.failing == "closed":
                raise MilterFailed(f'{sentence}, or let mail pass meanwhile by failing = "open"') from error
            _api.count("passed_unseen", label=server.name)
            _api.log.warning("%s; a message passes without it", sentence)
            self.failed = True

    async def begin(self, found: dict[str, Any]) -> None:
        """Connection, HELO, sender, recipients, header fields."""
        envelope = self._envelope
        await self._connect()
        await self._negotiate()
        origin, id = envelope.origin, str(found.get("id", ""))
        self._macros(b"C", {"j": _options.hostname, "{daemon_name}": "zonemta", "v": "zonemta"})
        await self._say(b"C", _client(origin, int(found.get("port", 0))))
        self._macros(b"H", {"{tls_version}": str(found.get("tls", "")).partition(" ")[0]})
        await self._say(b"H", _words(envelope.origin_name))
        self._macros(b"M", {"i": id, "{auth_authen}": envelope.user or "", "{mail_addr}": envelope.sender})
        await self._say(b"M", _words(f"<{envelope.sender}>"))
        for recipient in envelope.recipients:
            self._macros(b"R", {"{rcpt_addr}": recipient.address})
            await self._say(b"R", _words(f"<{recipient.address}>"), recipient.address)
        if self.refused and len(self.refused) == len(envelope.recipients):
            code, text = next(iter(self.refused.values()))
            raise Reject(code, text)
        await self._say(b"T", b"")
        for field in found["headers"].fields if "headers" in found else ():
            name, _, value = field.replace(b"\r\n", b"\n").partition(b":")
            if not self._protocol & _LEADING_SPACE:
                value = value.removeprefix(b" ")
            await self._say(b"L", b"%s\0%s\0" % (name.rstrip(), value[: PACKET_BYTES_MAX - len(name) - 2]))
        await self._say(b"N", b"")
        self._macros(b"E", {"i": id})

    async def body(self, block: bytes) -> None:
        for start in range(0, len(block), PACKET_BYTES_MAX):
            if not self._skips and not self.over:
                await self._say(b"B", block[start : start + PACKET_BYTES_MAX])

    async def end(self) -> None:
        """After the last byte: the filter's changes, and its last word."""
        self._send(b"E", b"")
        while not self.over:
            kind, data = await self._answer()
            self.over = kind in b"ca"
            if not self.over and not self._note(kind, data):
                self._judge(kind, data)

    def close(self) -> None:
        if self._writer is not None:
            with suppress(OSError):
                self._send(b"Q", b"")
            self._writer.close()

    async def _connect(self) -> None:
        where = _SOCKET.fullmatch(self.server.socket)
        assert where is not None
        if where["path"]:
            self._reader, self._writer = await asyncio.open_unix_connection(where["path"])
        else:
            host, port = where["host"] or where["host2"], where["port"] or where["port2"]
            self._reader, self._writer = await asyncio.open_connection(host.strip("[]"), int(port))

    async def _negotiate(self) -> None:
        self._send(b"O", struct.pack("!III", _VERSION, _ACTIONS, _PROTOCOL))
        try:
            kind, data = await self._answer()
        except EOFError:
            raise MilterFailed("it hangs up when it hears what may be changed (not the body of a message)") from None
        if kind != b"O" or len(data) < 12:
            raise MilterFailed(f"it does not speak the milter protocol; it answers {kind + data[:40]!r}")
        version, actions, self._protocol = struct.unpack_from("!III", data)
        if actions & ~_ACTIONS:
            what = "replace bodies" if actions & _CHANGE_BODY else f"what nobody can give it ({actions:#x})"
            raise MilterFailed(f"it wants to {what}; configure it not to")
        if self._protocol & ~_PROTOCOL:
            raise MilterFailed(f"it asks for steps that were not offered ({self._protocol:#x})")
        if version < _VERSION_WITH_DATA:
            self._protocol |= _NOT_WANTED[b"T"]

    def _send(self, command: bytes, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(struct.pack("!I", len(data) + 1) + command + data)

    def _macros(self, command: bytes, values: dict[str, str]) -> None:
        if not self.over and not self._protocol & _NOT_WANTED.get(command, 0):
            said = b"".join(_words(name) + _words(value) for name, value in values.items() if value)
            self._send(b"D", command + said)

    async def _say(self, command: bytes, data: bytes, recipient: str = "") -> None:
        """One step, as far as the filter wants it, and its answer."""
        if self.over or self._protocol & _NOT_WANTED[command]:
            return
        self._send(command, data)
        assert self._writer is not None
        await self._writer.drain()
        if self._protocol & _NOT_ANSWERED[command]:
            return
        kind, data = await self._answer()
        if kind == b"c":
            return
        if kind == b"a":
            self.over = True
        elif kind == b"s" and command == b"B":
            self._skips = True
        elif recipient and kind in b"rty":
            refusal = _refusal(kind, data, self.server.name)
            self.refused[recipient] = [refusal.reply.code, f"{refusal.reply.enhanced} {refusal.reply.text}"]
        else:
            self._judge(kind, data)

    async def _answer(self) -> tuple[bytes, bytes]:
        """Raises EOFError, OSError, MilterFailed."""
        while True:
            (length,) = struct.unpack("!I", await self._read(4))
            if not 1 <= length <= ANSWER_BYTES_MAX:
                raise MilterFailed(f"it does not speak the milter protocol; it sends {length} bytes at once")
            packet = await self._read(length)
            if packet[:1] != b"p":  # it is still working, and says so
                return packet[:1], packet[1:]

    async def _read(self, length: int) -> bytes:
        try:
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise EOFError("it has hung up in the middle of a message") from None

    def _judge(self, kind: bytes, data: bytes) -> None:
        """Raises the verdict that it says."""
        _api.count("refused" if kind != b"d" else "discarded", label=self.server.name)
        if kind == b"d":
            raise Drop(f"milter {self.server.name} says discard")
        if kind in b"rtyf":
            raise _refusal(kind, data, self.server.name)
        raise MilterFailed(f"it answers {kind + data[:40]!r}, which has no meaning here")

    def _note(self, kind: bytes, data: bytes) -> bool:
        """What is to be changed; False: that is not what it says."""
        if kind in b"him":
            index, data = (struct.unpack_from("!I", data)[0], data[4:]) if kind in b"im" else (0, data)
            name, value = _texts(data, 2)
            if not _NAME.fullmatch(name):
                raise MilterFailed(f"it sets a header field named {name[:40]!r}")
            self.changes.append([kind.decode(), index, name, _folded(value)])
        elif kind in b"+2":
            self.added.append(_address(_texts(data, 1)[0]))
        elif kind == b"-":
            self.removed.append(_address(_texts(data, 1)[0]))
        elif kind == b"e":
            self.sender = _address(_texts(data, 1)[0], empty=True)
        elif kind == b"q":
            self.hold = f"milter {self.server.name}: {_CONTROL.sub(' ', _texts(data, 1)[0])}"[:200]
        else:
            return False
        if len(self.changes) > CHANGES_MAX or len(self.added) > CHANGES_MAX:
            raise MilterFailed(f"it makes more than {CHANGES_MAX} changes")
        return True


def _conclude(envelope: Envelope, filters: list[_Dialogue]) -> None:
    """Raises verdicts; else the envelope has what the filters want, and what is to be done later."""
    changes = [change for one in filters for change in one.changes]
    if sum(len(change[2]) + len(change[3]) for change in changes) > CHANGES_BYTES_MAX:
        raise MilterFailed(f"the filters add more than {CHANGES_BYTES_MAX} bytes of header fields")
    removed = {address.lower() for one in filters for address in one.removed}
    recipients = [one for one in envelope.recipients if one.address.lower() not in removed]
    there = {one.address.lower() for one in recipients}
    added = dict.fromkeys(address for one in filters for address in one.added if address.lower() not in there)
    recipients += (Recipient(address) for address in added)
    if not recipients:
        raise Drop("milters have removed all recipients")
    if removed or added:
        envelope.recipients = recipients
    for one in filters:
        envelope.sender = envelope.sender if one.sender is None else one.sender
        if one.changes or one.hold:
            _api.count("held" if one.hold else "changed", label=one.server.name)
    refused = {address: why for one in filters for address, why in one.refused.items()}
    if refused and all(one.address in refused for one in recipients):
        code, text = next(iter(refused.values()))
        raise Reject(code, text)
    for recipient in envelope.recipients:
        if recipient.address in refused:
            recipient.notes[NOTE] = refused[recipient.address]
    note = {"changes": changes, "hold": next((one.hold for one in filters if one.hold), "")}
    if any(note.values()):
        envelope.notes[NOTE] = {name: value for name, value in note.items() if value}


def _change(headers: Headers, kind: str, index: int, name: str, value: str) -> None:
    """kind: h adds at the end; i inserts before the field with that index, 0 and 1 mean the top; m changes the
    index-th field of that name, or removes it if there is no value. Our own Received, which no filter saw, does not
    count."""
    if kind == "h":
        headers.add(name, value)
    elif kind == "i":
        field = f"{name}: {value}".encode("utf-8", "surrogateescape")
        place = 0 if index <= 1 else min(index, len(headers.fields))
        headers.fields.insert(place, field)
        headers.names.insert(place, name.lower().encode())
    else:
        wanted = name.lower().encode()
        places = [place for place, one in enumerate(headers.names) if one == wanted]
        number = max(index, 1) + (wanted == b"received") - 1
        if number < len(places):
            place = places[number]
            if value:
                headers.fields[place] = f"{name}: {value}".encode("utf-8", "surrogateescape")
            else:
                del headers.fields[place], headers.names[place]
        elif value:
            headers.add(name, value)


def _refusal(kind: bytes, data: bytes, name: str) -> Reject:
    said = data.rstrip(b"\0").decode("utf-8", "replace")
    found = _REPLY.fullmatch(said) if kind == b"y" else None
    if found:
        text = " ".join(line[4:] if line[:3] == found[1] else line for line in said.splitlines())
        return Reject(int(found[1]), text)
    if kind in b"tf":
        return Reject(451, "4.7.1 Try again later")
    return Reject(550, f"5.7.1 Refused by {name}")


def _client(origin: str, port: int) -> bytes:
    """The client as the protocol says it: name, family, port, address."""
    if not origin or origin.startswith("/"):
        return b"localhost\0U"
    family = b"6" if ":" in origin else b"4"
    address = f"IPv6:{origin}" if family == b"6" else origin
    return _words(f"[{origin}]") + family + struct.pack("!H", port & 0xFFFF) + _words(address)


def _words(text: str) -> bytes:
    return _CONTROL.sub(" ", text).encode("utf-8", "surrogateescape") + b"\0"


def _texts(data: bytes, count: int) -> list[str]:
    """The first texts of a packet, each of which ends with a zero byte."""
    parts = data.split(b"\0")[:count]
    return [one.decode("utf-8", "replace") for one in (*parts, *[b""] * (count - len(parts)))]


def _folded(value: str) -> str:
    """With the line ends of a header field; a filter may write plain line feeds."""
    first, *others = value.replace("\0", "").replace("\r\n", "\n").replace("\r", " ").removeprefix(" ").split("\n")
    return "\r\n".join((first, *(one if one[0] in " \t" else f"\t{one}" for one in others if one.strip())))


def _address(text: str, empty: bool = False) -> str:
    """Without angle brackets. Raises MilterFailed."""
    address = text.strip().removeprefix("<").removesuffix(">")
    if not _ADDRESS.fullmatch(address) and not (empty and not address):
        raise MilterFailed(f"it sets an address that is none: {text[:80]!r}")
    return address

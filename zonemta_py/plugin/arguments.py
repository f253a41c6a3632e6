"""Arguments of hooks: plain mutable records; to change mail, assign to a field.

Envelope, Headers, Reply, Recipient, Delivery and Result belong to lower layers and are passed as they are.
"""

from __future__ import annotations

import difflib
import re
import socket as sockets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from zonemta_py.mail.addresses.senders import ANYBODY, Senders
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Delivery, Outcome, Result

Stream = AsyncIterator[bytes]
"""Blocks of bytes, none empty, in order; read it once."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the MTA. role: "queue", "receiver", "sender", "http", "links" or "pull"; for plugins with an `event`
    also "events", and "replay" for `zonemta events replay`, which runs no tasks. number: of receivers and senders from
    1 up; of a queue its own number, 0 for the first."""

    role: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.role}-{self.number}" if self.number else self.role

    @classmethod
    def named(cls, name: str) -> Process:
        """name: "receiver-1", "queue"."""
        role, _, number = name.partition("-")
        return cls(role, int(number or 0))


@dataclass(slots=True)
class Session:
    """One client's connection. id: unique in logs. listener: its name. client, server: IP addresses. client_port: the
    client's. helo: what HELO or EHLO named.

    user: "" until authenticated. tls: "" or "TLSv1.3 TLS_AES_256_GCM_SHA384". protocol: "SMTP", "ESMTP", "ESMTPS" …
    (RFC 3848). senders: whom the client may send as. account: the
    configuration's, "" for none. notes: what plugins keep while the connection lives; anything.
    """

    id: str = ""
    listener: str = ""
    client: str = ""
    client_port: int = 0
    server: str = ""
    helo: str = ""
    user: str = ""
    tls: str = ""
    protocol: str = ""
    senders: Senders = ANYBODY
    account: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Address:
    """Of MAIL or RCPT. address: without angle brackets, "" for the null sender. parameters: upper-case name → value.
    notes: they go on as those of the message (MAIL), or of the recipient (RCPT)."""

    address: str
    parameters: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Auth:
    """What a client authenticates with. username, password: as it gave them. method: "PLAIN" or "LOGIN"."""

    username: str
    password: str
    method: str = "PLAIN"

    def __repr__(self) -> str:  # a password must not reach a log through an error message
        return f"Auth(username={self.username!r}, method={self.method!r})"


CommandHandler = Callable[[str, Session], Awaitable[Reply]]
"""Answers one SMTP command. Arguments: what follows the command word, and the session."""


@dataclass(slots=True)
class Server:
    """A listener about to open. listener: its name. ehlo_keywords: lines added to EHLO. commands: upper-case word →
    handler."""

    listener: str = ""
    ehlo_keywords: list[str] = field(default_factory=list)
    commands: dict[str, CommandHandler] = field(default_factory=dict)


@dataclass(slots=True)
class Sni:
    """A TLS handshake. listener: its name. context: the TLS context to use; None keeps the listener's own."""

    listener: str = ""
    context: ssl.SSLContext | None = None


@dataclass(slots=True)
class Info:
    """A message about to be committed. session: the client's. size: bytes as stored. headers: as stored; what is
    changed in them is kept beside the message (`mail.edits`) and holds wherever it is sent or shown. unread: why
    parts of it were not offered to message_rewrite, as its MIME structure is beyond bounds; "": all were, or no
    plugin has that hook."""

    session: Session | None = None
    size: int = 0
    headers: Headers | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that was committed. id: in the queue. suppressed: recipients left out; accepted: all others, also those
    that queue_route has dropped. repeated: an earlier request with the same idempotency key had stored it."""

    id: str
    accepted: int = 1
    suppressed: int = 0
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused, and by whom. stage: "RCPT", "DATA" or "message" (after the dot, or by HTTP). reply: what the
    client hears; 250 where a plugin drops the message. recipient: of a RCPT; the transaction goes on. Else "", and the
    message is refused. plugin, hook: who refused; "" for the server itself."""

    stage: str
    reply: Reply
    recipient: str = ""
    plugin: str = ""
    hook: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a client's connection ended. why: "quit", "closed" (by us), or "gone" (the client closed it, or it broke).
    reply: our last word: 221 to QUIT, 421 and others where we closed; None if there was none.

    messages, recipients: that were accepted; recipients: of these messages. refused: replies with 4xx or 5xx.
    seconds: from its beginning on.
    """

    why: str
    reply: Reply | None
    messages: int
    recipients: int
    refused: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Deferral:
    """A recipient that is put off. reply: why, the server's or ours. kind: the class of the reply, "" if none is known.
    attempts: so far. first_ms: UNIX time of the first one; next_ms: before which it is not tried again. remote: the
    server's "name[ip]:port", "" if there was none."""

    reply: Reply
    attempts: int
    first_ms: int
    next_ms: int
    kind: str = ""
    remote: str = ""


@dataclass(slots=True)
class NextTry:
    """When a recipient that is put off is tried again. wait_s: seconds from now, as the zone's schedule or a plugin of
    the sender has it; set another. At least a second; its lifetime's end and the hours in which it may be sent hold.

    reply: why it is put off, the server's or ours. attempts: so far. first_ms: UNIX time of the first one. kind: the
    class of the reply, "" if none is known. remote: the server's "name[ip]:port", "" if there was none.
    """

    wait_s: float
    reply: Reply
    attempts: int
    first_ms: int
    kind: str = ""
    remote: str = ""


@dataclass(slots=True)
class Node:
    """A leaf of the MIME tree (RFC 2046): everything that is not a multipart.

    content_type: lower case, "text/plain" if none was said. charset, filename: decoded, "" if none. encoding: the
    Content-Transfer-Encoding in lower case, "7bit" if none. path: indices from the root, () for a message that is not a
    multipart. parents: content types of the multiparts around it, outermost first.
    headers: the part's own fields (the message's for the root); changed before the hook returns they go out changed.
    words: of a campaign's template, what stands for its fields in this text ("zq0z" for {{ name }}); None: it is a
    message's part, as it came.
    """

    content_type: str
    charset: str
    encoding: str
    filename: str
    headers: Headers
    path: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()
    words: re.Pattern[str] | None = None


WITH_HOST = ("port", "protocol")
"""Fields of `Routing` that mean nothing without its host."""


@dataclass(slots=True)
class Routing:
    """Where one recipient's mail goes. recipient: not to be changed. zone: one that the configuration has.

    host "": as the zone has it, a host of its own or MX lookup. port: of `host`. auth: (username, password),
    for each of a zone's `hosts` too, and never for MX hosts.

    protocol: of `host`, "smtp" or "lmtp"; "" as the zone has it. tls: "" for the zone's setting, else "none",
    "opportunistic", "required" or "implicit". source: local IP, "" for the zone's. pool: name of a configured pool that
    takes the place of the zone's source addresses; `source` goes before.

    priority: -9 to 9, each step doubles its share of the zone (RFC 6710); left as it is, that of the message, or of the
    zone, counts. delay_s: seconds before the first attempt. notes: of this recipient.

    dkim: "" for the configuration's choice, by the author's domain; "SELECTOR._domainkey.DOMAIN" of one of its keys,
    which signs alone; "none": no signature. sts: False ignores what the recipient's domain publishes about TLS
    (MTA-STS, DANE); True looks for an MTA-STS policy even where the configuration does not; None: as configured.

    sender: address for MAIL, "<>" for the null one; "" for the envelope's, where notices go in any case, and which
    stays if it is the null one. srs, verp: False leaves that rewriting out, True does it where it would not be: for a
    `sender` of the plugin's, by SRS for own domains; None: as configured, and neither for such a `sender`.
    """

    recipient: str
    zone: str
    host: str = ""
    port: int = 25
    auth: tuple[str, str] | None = None
    tls: str = ""
    source: str = ""
    priority: int = 0
    delay_s: float = 0
    notes: dict[str, Any] = field(default_factory=dict)
    protocol: str = ""
    pool: str = ""
    dkim: str = ""
    sender: str = ""
    srs: bool | None = None
    verp: bool | None = None
    sts: bool | None = None
    _by: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Field → the plugin that has set it last, of WITH_HOST."""


@dataclass(slots=True)
class ConnectOptions:
    """How a connection is about to be made. host, port: of the server. addresses: IPs to try in order, empty until they
    are looked up. source: local IP address, "" for any.

    tls: "none", "opportunistic", "required" or "implicit". hostname: the name for EHLO. socket: a connected,
    non-blocking socket (a proxy's, say) to use instead of connecting.
    """

    host: str
    port: int = 25
    addresses: list[str] = field(default_factory=list)
    source: str = ""
    tls: str = "opportunistic"
    hostname: str = ""
    socket: sockets.socket | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to a remote server, greeted and ready for MAIL; only read by plugins.

    host: the server's name. address, port: where it is connected to; local: our IP address. tls: "" or
    "TLSv1.3 TLS_AES_256_GCM_SHA384". capabilities: keywords of its EHLO, in capitals.
    """

    host: str
    address: str
    port: int
    local: str
    tls: str
    capabilities: frozenset[str]
    _command: Callable[[str], Awaitable[Reply]] = field(repr=False)

    async def command(self, line: str) -> Reply:
        """Sends one line (without line end) and returns the reply; raises OSError if the connection is lost."""
        return await self._command(line)


@dataclass(slots=True)
class Attempts:
    """UNIX times in ms of attempts; 0 where there was none. first_ms: the first. last_ms: the last. previous_ms: the
    one before it, after the second attempt only; later it is 0.
    """

    first_ms: int
    previous_ms: int
    last_ms: int


@dataclass(slots=True)
class Bounce:
    """A notification about to be queued (RFC 3464). id, zone: of the message that failed.

    sender: who gets it (not to be changed). recipients: who did not get the message; remove some to not report
    them. reply: why the first of them failed; a replacement applies to all of them. notes: of the message; recipients
    have their own.
    """

    id: str
    sender: str
    recipients: list[Recipient]
    reply: Reply
    zone: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Notice:
    """How a notification is put. text: paragraphs of plain text that it begins with, a blank line between them, at most
    2,000 characters; the server's own follow. sender: address in its From. zone: that it is sent by.

    Empty: as configured. Who gets it is the sender of the message; its own envelope sender is the null one.
    """

    text: str = ""
    sender: str = ""
    zone: str = ""


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Address, Attempts, Auth, Bounce, ConnectOptions, Deferral, Delivery, Ending, Envelope, Headers, Info, Node),
        *(
            Outcome,
            Refusal,
            NextTry,
            Notice,
            StoredMessage,
            Process,
            Recipient,
            Reply,
            Result,
            Routing,
            Server,
            Session,
            Sni,
        ),
    )
}
_UNKNOWN = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
"""Read from the text: the AttributeError of an assignment has no `obj` in Python 3.11."""


def there_is(error: BaseException) -> str:
    """For the log: ", did you mean 'x'? it has …" if an argument lacks the name that a plugin has read or set; else
    ""."""
    found = _UNKNOWN.fullmatch(str(error)) if isinstance(error, AttributeError) else None
    if found is None or found[1] not in _KINDS:
        return ""
    kind = _KINDS[found[1]]
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else _public(kind)
    near = difflib.get_close_matches(found[2], names, 1, 0.5)
    return f"{f', did you mean {near[0]!r}?' if near else ';'} it has {', '.join(names)}"


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]

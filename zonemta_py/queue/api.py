"""The queue's interfaces: `Submission` for reception, `Dispatch` for delivery, `Admin` for operators.

They are the same whether the queue is in this process (`queue.queue.LocalQueue`) or behind the unix socket
(`wire.client.RemoteQueue`); one conformance suite tests both.

Failures: whatever the queue cannot accept now is a `QueueRefusal` with the SMTP reply to give, also if the queue
process has died (451). Nothing is acknowledged before it is on stable storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records.mail import BOUNCED as BOUNCED
from zonemta_py.journal.records.mail import DEFERRED as DEFERRED
from zonemta_py.journal.records.mail import DELIVERED as DELIVERED
from zonemta_py.journal.records.mail import DOUBTFUL as DOUBTFUL
from zonemta_py.journal.records.mail import HELD as HELD
from zonemta_py.journal.records.mail import POSTPONED as POSTPONED
from zonemta_py.journal.records.mail import RELEASED as RELEASED
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.notes import NoteChanges
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.zones.admittance import Admittance

EVERYBODY = "*"
"""Instead of a campaign's tenant: it is an operator's, for whatever mail there is."""
UNREADABLE = Reply(451, "4.3.0", "the disk does not give the message's body; repair it, then release the message")
OTHER_TEMPLATE = Reply(451, "4.3.0", "the campaign has another template than the one this message came for")


def template_name(template: bytes) -> str:
    """The name of a template's content: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(template).hexdigest()[:16]


class QueueRefusal(Exception):
    """The queue did not accept it. `reply` is for the client: 451 4.3.0 (error), 452 4.3.1 (no space) …"""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


class QueueFault(QueueRefusal):
    """A fault of the queue's own, whatever it was asked; its log has the traceback."""

    def __init__(self, sentence: str) -> None:
        super().__init__(Reply(451, "4.3.0", sentence))


class Supervising(Protocol):
    """What has started this process."""

    async def ask(self, question: str, **arguments: Any) -> Any:
        """Its answer. Raises ValueError with one sentence."""


ORDERS_NOTE = "orders"
"""The file in the folder of one of several queues with the number of the last order that it has carried out."""


class Membership(Protocol):
    """This queue's part in a set of several (`queues/member.py`)."""

    number: int
    """Of the last order that it has carried out."""

    async def carry_out(
        self, number: int, question: str, arguments: dict[str, Any], sure: bool, repeated: bool
    ) -> list[Any]:
        """As of `questions.order`."""

    async def share(self, until: float, messages: list[Any], wait_s: float) -> list[Any]:
        """As of `questions.share`."""

    async def give(self, to: int, zone: str, there: list[str], here: list[str] | None, most: int) -> questions.Gave:
        """As of `questions.give`."""

    async def away(self, where: dict[str, list[Any]]) -> questions.AwayZones:
        """As of `questions.away`."""

    async def take(
        self, giver: int, number: int, order: int, apart_ms: int, messages: list[list[Any]],
        campaigns: list[list[Any]], tasks: list[bytes],
    ) -> list[Any]:  # fmt: skip
        """As of `questions.take`."""

    async def take_body(self, id: str, at: int, data: bytes) -> None:
        """As of `questions.take_body`."""

    def used(self, ids: list[list[str]]) -> list[float]:
        """As of `questions.shared`."""

    def refusal(self, envelope: Envelope) -> Reply | None:
        """Why another queue has to take it; None: this one may."""

    def configure(self, config: Config) -> None:
        """Another configuration from now on."""

    async def learn(self, origin: int, lessons: list[list[Any]]) -> None:
        """As of `questions.learn`."""

    def turn(self) -> None:
        """The schedule has had its turn: what it lacks of shared limits is asked for."""

    def may_lease(self) -> bool:
        """Whether it knows all orders that have been answered."""

    def decide(self, campaign: str) -> None:
        """By what this queue knows of a campaign, its bounds may be passed, its template is to be chosen, or its time
        is over: that is decided by the figures of all. It is said again as long as it is so."""

    def lesson(self, kind: str, row: list[Any]) -> list[Operation]:
        """What keeps, in the batch that it follows from, something that the other queues are to learn too: "heard", a
        `Statement`; "held", a guard that has gone up; "counted", figures of guards; "took", that somebody has got mail;
        "stand", a `StandingRecord`. Nothing while it is taught itself."""

    def is_telling(self, kind: str) -> bool:
        """Whether there is something of that kind which not all queues have learnt."""


class Retired(Exception):
    """The queue leases nothing more to this process: another one, with a newer configuration, has taken its place."""


class Unanswered(QueueRefusal):
    """It is unknown whether the message is stored, so the client must not be told that it is not."""


class Receipt(NamedTuple):
    """suppressed: recipients left out; accepted: all others, also those that a plugin has dropped. repeated: an earlier
    request with the same key got this receipt, and nothing has been stored now."""

    id: str
    accepted: int
    suppressed: int
    repeated: bool = False


Done = Callable[[Receipt | Reply], None]
"""Called when a message is accepted, or with the reason why it is not."""


class Incoming(Protocol):
    """A message of more than one chunk that is being received."""

    async def write(self, chunk: bytes) -> None:
        """Adds one chunk of exactly CHUNK_BYTES; waits while the queue is behind. Raises QueueRefusal."""

    async def accept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        """Returns once the whole message is on stable storage. Raises QueueRefusal."""

    def abort(self) -> None:
        """Discards the message: the client is gone, or was refused. May be called after `accept` has failed, and
        twice."""


class Submission(Protocol):
    """The interface for reception."""

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        """Accepts a message whose body is complete; returns once it is stable. Raises QueueRefusal.

        Recipients on the suppression list are left out. `envelope.request`: the same key with the same digest is
        answered with the first receipt, and nothing is stored; with another digest it is refused (554).
        """

    def begin(self, client: str = "", envelope: Envelope | None = None) -> Incoming:
        """Starts a message of several chunks. client: the submitting IP address, whose share is limited. envelope: as
        far as it is known, by which one of several queues is chosen."""


@dataclass(slots=True)
class Feedback:
    """What came back about a message, later and by another way than its delivery.

    kind: one of `records.people.KINDS`. recipient: "" unknown. message: our id of it, 16 hex digits, "" if that is
    unknown; message_id, feedback_id: those fields of the original, as quoted. campaign, tenant, zone: of the
    message, if the reporter knows them; the queue fills in what it knows. code: 0 unknown; enhanced, text: of the reply
    that a bounce quotes. reporter: the host that says so. form: of the report. via: "smtp", "http", "link", "mailto".
    genuine: what proves it: "token", "dkim", "spf", "key"; "" nothing, so it is shown, but neither counts nor
    suppresses. scope: of the entry that follows, "" the usual one. name: what makes it the same twice; "": made
    of the rest. raw: what nobody understood, kept for an operator. mark: the hash that a VERP path has in the
    recipient's place. original: a few header fields of the original, lower-case names. quoted: the report tells a code
    or status; else its reader has made up the code, and one such report is never enough to suppress. report: what a
    report on our mail as a whole says (`mail.reports`).
    """

    kind: str
    recipient: str = ""
    message: str = ""
    message_id: str = ""
    campaign: str = ""
    tenant: str = ""
    zone: str = ""
    code: int = 0
    enhanced: str = ""
    text: str = ""
    reporter: str = ""
    form: str = ""
    via: str = ""
    genuine: str = ""
    scope: str = ""
    name: str = ""
    raw: bytes = b""
    mark: str = ""
    feedback_id: str = ""
    original: dict[str, str] = field(default_factory=dict)
    quoted: bool = True
    report: dict[str, Any] = field(default_factory=dict)


class Reception(Submission, Protocol):
    """The same, with the sessions over which mail comes, and what comes back about mail that was sent."""

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        """Returns once all of it is on stable storage; for each row, False: it was known already, and is not counted
        again. Asking twice is harmless. Raises QueueRefusal, ValueError (no such kind, or nothing that says what it is
        about)."""

    async def enter(self, session: str, account: str) -> None:
        """A session of an account that has a quota of them begins, or gets that account. Raises QueueRefusal."""

    def leave(self, session: str) -> None:
        """It has ended. Harmless twice, and for one that was refused."""


async def accept_whole(submission: Submission, envelope: Envelope, body: bytes) -> Receipt:
    """Submits a complete body of several chunks. Raises QueueRefusal."""
    incoming = submission.begin(envelope.origin, envelope)
    last = (len(body) - 1) // CHUNK_BYTES * CHUNK_BYTES
    try:
        for at in range(0, last, CHUNK_BYTES):
            await incoming.write(body[at : at + CHUNK_BYTES])
        return await incoming.accept(envelope, body[last:])
    except BaseException:
        incoming.abort()
        raise


LINES_UNKNOWN, LINES_FIT, LINES_LONG = 0, 1, 2
"""As in `Envelope.lines`."""


@dataclass(slots=True)
class Delivery:
    """A lease: one message, one destination, up to 100 recipients, and the permission to deliver them now.

    lease: number of the lease, unique in the life of the queue process. id: of the message. zone: its name. sender:
    return path, "" for the null one. recipients: those that it is for. size: bytes of the message as stored.
    destination: lower-case domain (MX lookup) or "host:port" if the zone or a plugin names the host. host, port: the
    named host, "" means MX lookup of `destination`. source: local IP to bind, "" means any. chunks: how many chunks the
    body has; body: the whole body if it is one chunk, else None (fetch chunks 1…chunks with `Dispatch.chunk`).
    attempts: earlier attempts, per recipient. routing: what `queue_route` plugins chose for these recipients, by name
    (`plugin.arguments.Routing`).

    ret, envid, smtputf8, priority, require_tls, tls_optional, unsubscribe, unsubscribe_scope, track: see `Envelope`.
    campaign, tenant: as there, "" for none. eightbit: its body is 8BITMIME.

    hosts: [[MX host, [address …]] …] in the order to try, found by the queue; empty if `host` is named. secure: they
    are DNSSEC-validated. site, provider: the group of destinations that limits count by ("" if none). may_connect: a
    new connection may be opened; if False, only an idle one may be used, and without one the recipients are RELEASED,
    stage "limit". messages_per_connection: most messages over one connection, 0: the zone's. idle_s: how long it may be
    idle, None: as the zone says. hashes: SHA-256 of the body by canonicalization, computed at reception.

    values: None, or the message is merged: it has no body (chunks 0), and each recipient's message is made from the
    template of `campaign` with the recipient's values, in the recipients' order, named by `columns`. With several
    recipients, their messages follow one another over one connection. columns: names of the values. template: a hash of
    that template's content, so that a cached template is the right one. received_ms: UNIX time for the Date field.

    stepwise: the site needs one command at a time. counted: limits count the lease as one message, so what does not go
    with the first transaction is released. unsigned: see `Envelope`. tables: names of the [[destinations]] tables whose
    settings hold for it, instead of the zone's.

    connection: None, or a limit on connections counts the lease's: 0, or the name of the idle one that it is to go on
    over; that is used, or closed before another is opened. A connection's name is the lease that opened it.
    list_name, list_title: of the list that it is of (`mail.list_id`), "" none. lines: what is known of the lines of the
    body: LINES_FIT, LINES_LONG or LINES_UNKNOWN.

    about: what plugins of a sender may want to know of the envelope, by the name there; empty where there are none.
    edits: what has to be changed in the header section (`mail.edits`). skip: an MX host that a reroute passes over, ""
    none.
    """

    lease: int
    id: str
    zone: str
    destination: str
    sender: str
    recipients: list[Recipient]
    size: int
    chunks: int
    body: bytes | None = None
    host: str = ""
    port: int = 25
    source: str = ""
    ret: str | None = None
    envid: str | None = None
    smtputf8: bool = False
    eightbit: bool = False
    attempts: list[int] = field(default_factory=list)
    routing: dict[str, Any] = field(default_factory=dict)
    hosts: list[list[Any]] = field(default_factory=list)
    secure: bool = False
    site: str = ""
    provider: str = ""
    tenant: str = ""
    campaign: str = ""
    priority: int = 0
    may_connect: bool = True
    require_tls: bool = False
    tls_optional: bool = False
    messages_per_connection: int = 0
    idle_s: float | None = None
    hashes: dict[str, bytes] = field(default_factory=dict)
    unsubscribe: bool = False
    unsubscribe_scope: str = ""
    track: str = ""
    columns: list[str] = field(default_factory=list)
    values: list[list[str]] | None = None
    template: str = ""
    received_ms: int = 0
    stepwise: bool = False
    counted: bool = False
    unsigned: bool = False
    tables: list[str] = field(default_factory=list)
    connection: int | None = None
    list_name: str = ""
    lines: int = 0
    list_title: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    edits: list[Any] | None = None
    skip: str = ""

    @property
    def notes(self) -> dict[str, Any]:
        """What plugins keep with the message (`mail.notes`); the recipients have their own."""
        found: dict[str, Any] = self.about.setdefault("notes", {})
        return found

    @notes.setter
    def notes(self, notes: dict[str, Any]) -> None:
        self.about["notes"] = notes

    @property
    def meta(self) -> dict[str, Any]:
        """What whoever handed in the message wants to get back (`mail.metadata`), not to be changed; the recipients
        have their own."""
        return self.about.get("meta") or {}

    @property
    def user(self) -> str:
        """Who has submitted the message; "": nobody had to say who he is."""
        return self.about.get("user") or ""

    @property
    def origin(self) -> str:
        """The IP address that it came from."""
        return self.about.get("origin") or ""

    @property
    def account(self) -> str:
        """The account of whoever has submitted it, "" none."""
        return self.about.get("account") or ""

    @property
    def headers(self) -> dict[str, str]:
        """Of the message's header, the fields that are kept with its envelope (`PluginApi.keep_headers`)."""
        return self.about.get("headers") or {}


ABOUT = ("user", "origin", "account", "headers", "notes", "meta")
"""Fields of an envelope that are in `Delivery.about`, where it has them."""


def about(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Of a message's metadata, for `Delivery.about`."""
    return {name: metadata[name] for name in ABOUT if metadata.get(name)}


@dataclass(slots=True)
class Outcome:
    """The same verdict for some recipients of a delivery.

    verdict: of `Verdict`. reply: the server's, or a sentence of ours. recipients: indices into `Delivery.recipients`.
    stage: "connect", "banner", "ehlo", "tls", "tls-policy", "auth",
    "mail", "rcpt", "data", "body", "dot", "dns", "plugin", "proxy", "source", "limit", "queue", "pull". delay_s: None
    for the retry schedule, else seconds until the next try. relayed: NOTIFY could not be passed on, since the server
    does not offer DSN (RFC 3461 5.2.2). kind: the class of a reply that is our own sentence; "": a server's, which the
    rules judge. by: of a plugin's verdict: [its name, the hook, the server's own reply, "" if it has said nothing].
    rest_s: for how long a plugin lets the whole site rest.
    """

    verdict: int
    reply: Reply
    stage: str
    recipients: list[int]
    delay_s: float | None = None
    relayed: bool = False
    kind: str = ""
    by: list[str] | None = None
    rest_s: float = 0.0


@dataclass(slots=True)
class Result:
    """What became of a delivery. lease: of the delivery. outcomes: every recipient index is in exactly one, of this or
    of an earlier part.

    down_s: not None if the destination as a whole could not be reached (connect, banner, EHLO, TLS failures, 421): the
    scheduler rests it for that many seconds; 0 lets the queue choose. remote: the server's "name[ip]:port"; local: our
    address; tls: "" or "TLSv1.3 TLS_AES_256_GCM_SHA384". started_ms: UNIX ms of the delivery's start; took_ms: time
    until its final reply. opened: a new connection was opened for it. kept: its connection is still open for the next
    one. security: TLS results, for the record and for reports: a short list of plain values.

    more: it is a part; other recipients of the lease are still in progress, so the lease continues.

    recipients_max: the server turned out to accept only so many recipients per message (0: nothing was learned).
    stalled: a group of commands was not answered before our timeout. manner: why, in words.

    connection: where a limit counts it, the name of the connection that is still open, idle (kept) or being closed; it
    counts until `Dispatch.closed`. 0: none is.

    chosen: it failed by what was chosen for these recipients alone (login, TLS, source, host), so it says nothing of
    the destination that other mail goes to.

    notes: what plugins have changed of the notes of the message and its recipients; None: nothing.
    """

    lease: int
    outcomes: list[Outcome]
    down_s: float | None = None
    remote: str = ""
    local: str = ""
    tls: str = ""
    started_ms: int = 0
    took_ms: int = 0
    opened: bool = False
    security: list[Any] = field(default_factory=list)
    kept: bool = False
    more: bool = False
    recipients_max: int = 0
    stalled: bool = False
    manner: str = ""
    connection: int = 0
    chosen: bool = False
    notes: NoteChanges | None = None


OpenConnection: TypeAlias = tuple[int, int, str, str, str, str, str, str]
"""Its name; the lease that goes over it, 0: none; zone, source, site, provider, tenant and campaign of the last one."""


class Dispatch(Protocol):
    """The interface for sender processes."""

    async def lease(self, most: int) -> list[Delivery]:
        """Waits until something may be delivered; returns 1…most deliveries, oldest first."""

    async def settle(self, result: Result) -> None:
        """Returns once the result is on stable storage. Raises QueueRefusal if the queue is gone (the caller should
        exit)."""

    def settle_part(self, result: Result) -> None:
        """Hands over a result with `more`, without waiting; the `settle` that ends the lease covers it too."""

    async def place(self, lease: int, site: str, provider: str) -> Admittance:
        """Whether a lease may go to a site that the queue did not know of: a domain's own, as the last resort of smart
        hosts. Raises QueueRefusal."""

    def closed(self, connection: int) -> None:
        """A connection that a result or `left_open` has named is no longer open."""

    def left_open(self, connections: list[OpenConnection]) -> None:
        """Those that this process has open and no result has named, as it is about to close them: it takes no more
        leases."""

    async def chunk(self, message_id: str, number: int) -> bytes:
        """Chunk 1…chunks of a leased message. Raises QueueRefusal if it cannot be read."""

    async def template(self, campaign: str) -> bytes:
        """A campaign's template (`merge.source.Source.pack`). Raises QueueRefusal if it is gone or cannot be read."""


class Pull(Protocol):
    """The interface for those who take messages from pull zones: what they take is leased to them.

    queue: its name; the queue finds the zone (`zones/pull.py`). A message is pushed by `Submission`, with
    `Envelope(protocol="PULL", sending_zone=NAME, recipients=[NAME@queue])`; that makes the queue if there is none. The
    highest priority goes first, and within one the oldest.

    A lease without `reserve_s` lasts as long as this object's connection to the queue; with it, for so many seconds,
    whatever becomes of the connection; neither survives a restart of the queue. What ends without `ack` or `nack` is in
    doubt, and back in its place. lease, message_id: `Delivery.lease` and `Delivery.id`. remote: who takes it, for
    `explain` and the journal. All raise QueueRefusal if the queue is gone.
    """

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = ""
    ) -> list[Delivery]:
        """Leases up to `most` messages (100 at most); none if none comes within `wait_s`. Being canceled gives back
        what was not returned."""

    async def extend(self, lease: int, message_id: str, reserve_s: float) -> bool:
        """It is reserved for so many seconds from now on; False: it is no longer leased."""

    async def ack(self, lease: int, message_id: str, remote: str = "") -> bool:
        """It has been taken, and is gone; returns once that is on stable storage. False: it was no longer leased."""

    async def nack(self, lease: int, message_id: str, delay_s: float = 0, remote: str = "") -> bool:
        """It has not been taken, and waits again, for `delay_s` at least. False: it was no longer leased."""

    async def abandon(self, lease: int, message_id: str) -> bool:
        """Its client is gone, and may have taken it: it is in doubt, and waits again. False: as of `ack`."""

    async def chunk(self, message_id: str, number: int) -> bytes:
        """As `Dispatch.chunk`."""

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        """What would be leased next; `Delivery.lease` is 0. Raises QueueRefusal if it cannot be read."""


class Admin(Protocol):
    """The interface for the command line and the console; rows are plain dicts, ready for JSON."""

    async def ask(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A:
        """One of `queue/questions/`. Raises ValueError with one sentence, QueueRefusal; QueueFault."""
        raise NotImplementedError

"""Every hook, declared once: name, arguments, process, the verdicts it accepts, and what its failure means.

The functions below are never called; plugins define functions of the same name. Each declaration says when the hook
runs and what a plugin may change; `@hook` says the rest: in which process, which verdicts may be raised, and with
`failing="pass"` that work continues when a plugin fails there (the failure is logged and counted), because stopping
would harm unrelated mail. Everywhere else a failure is `PluginFailed`, 451 4.3.0.

Names and order are ZoneMTA's. Plugins are called in configured order; the first verdict ends the round.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from zonemta_py.plugin.arguments import (
    Address,
    Attempts,
    Auth,
    Bounce,
    CommandHandler,
    Connection,
    ConnectOptions,
    Deferral,
    Ending,
    Info,
    NextTry,
    Node,
    Notice,
    Process,
    Refusal,
    Routing,
    Server,
    Session,
    Sni,
    StoredMessage,
    Stream,
)
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Reject, Verdict

if TYPE_CHECKING:
    from zonemta_py.mail.envelope import Envelope
    from zonemta_py.mail.headers import Headers
    from zonemta_py.mail.reply import Reply
    from zonemta_py.plugin.api import PluginApi
    from zonemta_py.plugin.event_batches import MailEvent
    from zonemta_py.queue.api import Delivery, Result

__all__ = [
    "HOOKS",
    "Address",
    "Attempts",
    "Auth",
    "Bounce",
    "CommandHandler",
    "ConnectOptions",
    "Connection",
    "Deferral",
    "Ending",
    "Hook",
    "Info",
    "NextTry",
    "Node",
    "Notice",
    "Process",
    "Refusal",
    "Routing",
    "Server",
    "Session",
    "Sni",
    "StoredMessage",
    "Stream",
]  # fmt: skip

Where = Literal["receiver", "queue", "sender", "events", "any"]
Failing = Literal["raise", "pass"]


@dataclass(frozen=True, slots=True)
class Hook:
    """arguments, offered: their names, in order and as a set.

    waits: False where the caller cannot wait, so the hook must finish without awaiting anything that is not ready.
    streams: the hook is driven by `plugin.streams`, block by block, and not by `Host.call`.
    """

    name: str
    arguments: tuple[str, ...]
    offered: frozenset[str]
    process: Where
    verdicts: tuple[type[Verdict], ...]
    failing: Failing
    waits: bool
    streams: bool


HOOKS: dict[str, Hook] = {}
"""Name → hook, in the order mail meets them."""

_Declared = TypeVar("_Declared", bound=Callable[..., Any])


def hook(
    process: Where, *verdicts: type[Verdict], failing: Failing = "raise", waits: bool = True
) -> Callable[[_Declared], _Declared]:
    """Enters a declaration into HOOKS."""

    def enter(function: _Declared) -> _Declared:
        name, arguments = function.__name__, tuple(inspect.signature(function).parameters)
        HOOKS[name] = Hook(
            name, arguments, frozenset(arguments), process, verdicts, failing, waits, "stream" in arguments
        )
        return function

    return enter


@hook("any", failing="pass")
async def start(api: PluginApi, process: Process) -> None:
    """A process with plugins has begun (each receiver, each sender, each queue, those of HTTP): connections and tasks
    begin here.

    It returns within the time limit; what goes on for longer is a task (`api.task`). The process waits for it before it
    takes mail, as long as that limit. If it fails, it is called again after a pause, meanwhile hooks are called.
    """


@hook("receiver", failing="pass")
async def smtp_init(server: Server) -> None:
    """Before a listener opens: add EHLO keywords and SMTP commands."""


@hook("receiver", Reject, Defer)
async def smtp_connect(session: Session) -> None:
    """A client has connected, before the banner. Raising sends the reply instead of the banner and closes the
    connection."""


@hook("receiver", failing="pass", waits=False)
async def smtp_sni(server_name: str, data: Sni) -> None:
    """During the TLS handshake: set data.context to present another certificate. Must not wait.

    A failure leaves the listener's own certificate.
    """


@hook("receiver", Reject, Defer)
async def smtp_auth(auth: Auth, session: Session) -> None:
    """AUTH has sent its credentials: set session.user to accept them. Doing nothing leaves it to [users]."""


@hook("receiver", Reject, Defer)
async def smtp_mail_from(address: Address, session: Session) -> None:
    """MAIL was given and is well-formed: change address.address, or raise to refuse the sender."""


@hook("receiver", Reject, Defer)
async def smtp_rcpt_to(address: Address, session: Session) -> None:
    """RCPT was given and may be relayed: change address.address, or raise to refuse this recipient only."""


@hook("receiver", Reject, Defer)
async def smtp_data(envelope: Envelope, session: Session) -> None:
    """DATA was given, before 354: change the envelope, or raise to refuse the message before its body comes."""


@hook("receiver", Reject, Defer)
async def api_mail(envelope: Envelope, session: Session) -> None:
    """The same as smtp_data for a message or a batch handed in by HTTP; session.user is the key's name.

    Of a batch the recipients have values; each one's message is made only when it is sent. Content hooks have seen
    the campaign's template, once, when it came; message_headers is called for each message.
    """


@hook("receiver", Reject, Defer, Drop)
async def message_analyze(envelope: Envelope, stream: Stream) -> None:
    """Runs while the message arrives; stream: the whole message as received, header section first.

    Not reading to the end is fine. Verdicts take effect after the last byte, before the message is committed. The
    time limit counts only while the plugin is waited for. Data for later hooks goes into envelope.notes, or,
    while the message is received, into envelope.scratch.
    """


@hook("receiver", Reject, Defer, Drop)
async def message_rewrite(envelope: Envelope, node: Node, stream: Stream) -> AsyncIterator[bytes] | None:
    """A leaf of the MIME tree begins; stream: its body as on the wire, still in its transfer encoding.

    Return None to let it pass byte by byte as it is, or an async iterator (call an async generator that reads
    `stream`) whose bytes take its place; `decoded` and `encoded` handle the transfer encoding. Changes to
    node.headers hold if made before returning. The stream flows only after the hook has returned. Written as an async
    generator the hook claims every node. Plugins form a chain: each reads what the one before it wrote.
    """
    return None


@hook("receiver", Reject, Defer, Drop)
async def message_headers(envelope: Envelope, headers: Headers) -> None:
    """The header section is complete, the body still to come: change headers; what is left is stored."""


@hook("receiver", Reject, Defer, Drop)
async def message_store(envelope: Envelope, stream: Stream) -> None:
    """Runs while the body is stored; stream: the body (after the blank line) as stored, after all rewriting."""


@hook("receiver", Reject, Defer, Drop)
async def message_queue(envelope: Envelope, info: Info) -> None:
    """Everything but the commit is done: change the envelope (recipients, sending_zone, campaign …) or stop the
    message."""


@hook("queue", Reject, Defer, Drop, Hold)
async def queue_route(envelope: Envelope, routing: Routing) -> None:
    """For each recipient, once, after the rules have chosen routing.zone: change any field but recipient.

    Verdicts are about this recipient: Reject bounces it, Defer delays it, Drop removes it (accepted, and removed at
    once, with plugin and reason), Hold keeps it for an operator, once: released, it goes. Runs in the queue process,
    which serves everyone: never block here, and answer from memory where you can.
    """


@hook("receiver", failing="pass")
async def message_stored(envelope: Envelope, session: Session, stored: StoredMessage) -> None:
    """The message, or a batch by HTTP, was committed: its id is known, and the client hears so after this.

    Nothing that happens here changes that answer.
    """


@hook("receiver", failing="pass")
async def message_refused(envelope: Envelope, session: Session, refusal: Refusal) -> None:
    """A recipient was refused at RCPT, or the message at any later stage, by whomever: for information.

    What was taken for it at RCPT (a quota) is given back here, or in smtp_reset.
    """


@hook("receiver", failing="pass")
async def smtp_reset(envelope: Envelope, session: Session, why: str) -> None:
    """A transaction that MAIL had begun is given up without a message: why is "RSET", "EHLO", "STARTTLS", "gone" (the
    connection ended) or "fault" (of ours, with 451).

    envelope.recipients are those that were accepted so far. The reply to RSET and EHLO goes out after this.
    """


@hook("receiver", failing="pass")
async def smtp_end(session: Session, ending: Ending) -> None:
    """A client's connection is over, whoever ended it: for information, once for each of smtp_connect."""


@hook("sender", Reject, Defer, Hold)
async def sender_fetch(delivery: Delivery) -> None:
    """A sender was given a delivery, before anything else. Defer skips it, Hold keeps it for an operator.

    Here delivery.sender, recipients and source may be changed, for this attempt: later hooks cannot change its source,
    and those about a connection none of them.
    """


@hook("sender", Reject, Defer, Hold)
async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """Last change of the header section, before signing, once for each recipient: `delivery` has only that one.

    Recipients whose fields come out equal share one message, so common fields cost nothing; a field that names one of
    them goes to that one only. A verdict is about this recipient. The stored message stays as it is.
    It is called before a connection is looked for: what later hooks learn is not there yet.
    """


@hook("sender", Reject, Defer, Hold)
async def sender_connecting(delivery: Delivery, options: ConnectOptions) -> None:
    """A connection is needed, before any look-up: change host, port, source, tls, hostname; addresses is empty yet."""


@hook("sender", Reject, Defer, Hold)
async def sender_connect(delivery: Delivery, options: ConnectOptions) -> None:
    """The addresses are known, before connecting: reorder or replace them, or set options.socket."""


@hook("sender", Reject, Defer, Hold)
async def sender_tls_error(delivery: Delivery, options: ConnectOptions, error: Exception) -> None:
    """TLS failed: options.tls says what the next try does ("none", "opportunistic", "required"); change it."""


@hook("sender", Reject, Defer, Hold)
async def sender_connected(delivery: Delivery, connection: Connection) -> None:
    """A new connection has been greeted (EHLO, TLS, AUTH done), before it is used the first time."""


@hook("sender", Reject, Defer, Hold)
async def sender_connection(delivery: Delivery, connection: Connection) -> None:
    """Before MAIL of every delivery, on new and reused connections: say more with connection.command()."""


@hook("sender", failing="pass")
async def sender_delivered(delivery: Delivery, result: Result) -> None:
    """The server has accepted at least one recipient and the result is on stable storage: for information."""


@hook("sender", Reject, Defer, Hold, failing="pass")
async def sender_response_error(delivery: Delivery, connection: Connection, reply: Reply) -> None:
    """The server refused: raise to replace what that means for us. If a plugin fails, the server's reply stands."""


@hook("queue", failing="pass")
async def queue_retry(delivery: Delivery, retry: NextTry) -> None:
    """A recipient was put off, and is about to be written down with the time of its next try: change retry.wait_s.

    If a plugin fails, the zone's schedule holds. Runs in the queue process: answer from memory where you can.
    """


@hook("queue", failing="pass")
async def queue_deferred(delivery: Delivery, deferral: Deferral) -> None:
    """A recipient was put off, and that is on stable storage, with the time of its next try: for information."""


@hook("queue", Drop, failing="pass")
async def queue_delayed(delivery: Delivery, attempts: Attempts, notice: Notice) -> None:
    """A notice of delay is due: Drop stops it; change how it is put. If a plugin fails, the notice is sent."""


@hook("queue", Drop, failing="pass")
async def queue_bounce(bounce: Bounce, notice: Notice) -> None:
    """A notification of failure is about to be queued: change recipients, reply or how it is put, or Drop it.

    If a plugin fails, it is sent.
    """


@hook("queue", failing="pass")
async def queue_release(zone: str, delivery: Delivery) -> None:
    """A message's last recipient has ended, whatever its end, and the message leaves the queue: for information."""


@hook("events", Reject, Defer)
async def event(batch: list[MailEvent]) -> None:
    """What has happened to mail, in order, for a sink of kind plugin in [[event_sinks]]: when it returns, all of it has
    arrived.

    Defer, a failure, or the end of the process: the batch comes again, with the same ids, however long that takes.
    Reject: none of it will ever be taken, and it goes to the sink's dead letters; one.reject(reason) does that for one
    event. It has the sink's timeout_s, and may have batch_events events. Runs in the process of the event feed, and in
    that of `zonemta events replay`.
    """


@hook("any", Drop, failing="pass", waits=False)
async def log_entry(entry: dict[str, Any]) -> None:
    """A line is about to be logged: change the dict in place, or Drop it. Must not wait. A failure leaves it as is.

    Every line has level, logger and message; those about mail (logger "mail") also what docs/OPERATING.md lists.
    """


@hook("any", failing="pass")
async def stop(api: PluginApi, process: Process) -> None:
    """The process has ended what it had begun, or has another configuration: close what `start` has opened.

    It has two seconds. Tasks have ended by then, and no other hook is called after it. A process that is killed calls
    nothing.
    """

"""The SMTP commands (RFC 5321 4.1): plain functions of a connection and the command's argument.

Each returns the reply as bytes, or None if the reply comes later: then the connection has something to wait for.
Every reply has an enhanced status code (RFC 2034), but for those to HELO and EHLO and the 3xx ones, which have none.

RCPT of what comes back: addresses of ours are taken from everybody, other ones only from who may relay. A forwarded
sender (SRS) is reversed for the null return path only. Whoever has got one of our forwarded messages has read the
address, so with any sender allowed it would be a relay to one person, for whoever wants to write to them unseen, as
long as the address is valid; and a message that has a sender can go to where it came from without us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from zonemta_py.logs.privacy import UserName
from zonemta_py.mail.address import AddressRefused, MailCommand, parse_mail, parse_rcpt
from zonemta_py.mail.addresses.ours import NotOurs, Ours
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.lines import TOO_LARGE
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import InvalidValue, ScheduleParameters
from zonemta_py.plugin.arguments import Address, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.feedback.returns import TOO_MUCH, Returns
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.permission import refusal
from zonemta_py.reception.receiver import tell_refused
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.replies import reply_bytes
from zonemta_py.reception.smtp.transaction import CameBack, MailTransaction

if TYPE_CHECKING:
    from zonemta_py.reception.smtp.transaction import MailTransaction

_SENDER_OK = b"250 2.1.0 Sender OK\r\n"
_RECIPIENT_OK = b"250 2.1.5 Recipient OK\r\n"
_GO_AHEAD = b"354 End data with <CR><LF>.<CR><LF>\r\n"
_HELO_MAX = 255


class SessionFace(Protocol):
    """The part of a connection that commands may use."""

    session: Session
    transaction: MailTransaction | None
    extended: bool
    may_relay: bool
    revoked: Reply | None
    telling: asyncio.Task[None] | None

    @property
    def site(self) -> ListenerSettings: ...

    def greeted(self, name: str, extended: bool) -> None: ...
    def set_protocol(self, smtputf8: bool) -> None: ...
    def reset(self, why: str) -> None: ...
    def note_refused(self, reply: Reply, recipient: str) -> None: ...
    async def told(self, reply: bytes | None) -> bytes | None: ...
    def progressed(self) -> None: ...
    def opening(self) -> str: ...
    def next_transaction_id(self) -> str: ...
    def refuse(self, reply: Reply) -> bytes: ...
    async def refuse_late(self, reply: Reply, seconds: float) -> bytes: ...
    def hang_up(self, reply: Reply) -> None: ...
    def wait_for(self, job: Coroutine[Any, Any, bytes | None]) -> bytes | None: ...
    async def start_tls(self) -> None: ...
    async def authenticate(self, words: list[str]) -> bytes | None: ...


Command: TypeAlias = Callable[[SessionFace, str], bytes | None]


def helo(connection: SessionFace, argument: str) -> bytes | None:
    name = _greeted(argument)
    if not name:
        return connection.refuse(Reply(501, "5.5.4", "Say HELO and your host name"))
    connection.greeted(name, extended=False)
    return _once_told(connection, b"250 " + connection.site.hostname.encode() + b"\r\n")


def ehlo(connection: SessionFace, argument: str) -> bytes | None:
    name = _greeted(argument)
    if not name:
        return connection.refuse(Reply(501, "5.5.4", "Say EHLO and your host name"))
    connection.greeted(name, extended=True)
    return _once_told(
        connection, connection.site.greeting(bool(connection.session.tls), bool(connection.session.user))
    )  # fmt: skip


def _once_told(connection: SessionFace, reply: bytes) -> bytes | None:
    """What a plugin gives back at the end of a transaction is there for the next one."""
    return reply if connection.telling is None else connection.wait_for(connection.told(reply))


def _greeted(argument: str) -> str:
    name = argument.strip().partition(" ")[0]
    return name if name.isprintable() and len(name) <= _HELO_MAX else ""


def mail(connection: SessionFace, argument: str) -> bytes | None:
    if argument[:5].upper() != "FROM:":
        return connection.refuse(Reply(501, "5.5.4", "Say MAIL FROM:<address>"))
    if not connection.session.helo:
        return connection.refuse(replies.NO_GREETING)
    if connection.transaction is not None:
        return connection.refuse(replies.NESTED)
    if connection.revoked is not None:
        return _revoked(connection, connection.revoked)
    if connection.site.listener.require_tls and not connection.session.tls:
        return connection.refuse(replies.NEED_TLS)
    try:
        command = parse_mail(argument[5:])
    except AddressRefused as refused:
        return connection.refuse(refused.reply)
    if command.parameters and not connection.extended:
        return connection.refuse(replies.NO_PARAMETERS_HELO)
    if command.size > connection.site.limits.message_bytes:
        return connection.refuse(TOO_LARGE)
    if connection.may_relay and not connection.session.senders.may(command.address):
        return _not_you(connection, command.address)
    unkept = command.schedule and _unkept(connection, command.schedule)
    if unkept:
        return connection.refuse(unkept)
    if connection.site.host.listens("smtp_mail_from"):
        return connection.wait_for(_ask_mail(connection, command))
    return _open(connection, command)


def _revoked(connection: SessionFace, reply: Reply) -> bytes | None:
    if reply.code != 421:
        return connection.refuse(reply)
    connection.hang_up(reply)
    return None


def _not_you(connection: SessionFace, address: str) -> bytes:
    session = connection.session
    message = "listener %s, client %s, user %r: may not send as <%.80s>"
    connection.site.notes.warn(
        "senders", session.client, message, session.listener, session.client, UserName(session.user), address
    )
    return connection.refuse(refusal(address))


def _unkept(connection: SessionFace, schedule: ScheduleParameters) -> Reply | None:
    """That it may not relay is not looked at here: such a client gets no further than RCPT anyway."""
    account = connection.site.accounts.by_name.get(connection.session.account)
    if (schedule.priority or 0) > 0 and account is not None and not account.trust_headers:
        return Reply(550, "5.7.1", f"account {account.name!r} may not raise priorities; leave out MT-PRIORITY")
    if schedule.require_tls and not connection.session.tls:
        return replies.REQUIRETLS_IN_CLEAR
    try:
        now_ms = connection.site.clock_ms()
        schedule.settle(now_ms, connection.site.limits.hold_days)
        schedule.clock_ahead_ms = connection.site.ahead_ms(now_ms)
    except InvalidValue as invalid:
        return Reply(501, "5.5.4", str(invalid))
    return None


def _open(connection: SessionFace, command: MailCommand) -> bytes:
    if command.smtputf8 or connection.session.protocol.startswith("UTF8"):
        connection.set_protocol(command.smtputf8)
    stranger = not connection.may_relay
    connection.transaction = MailTransaction(connection.site, connection.session, command, stranger)
    return _SENDER_OK


async def _ask_mail(connection: SessionFace, command: MailCommand) -> bytes:
    address = Address(command.address, command.parameters)
    try:
        await connection.site.host.call("smtp_mail_from", address=address, session=connection.session)
    except Verdict as verdict:
        return connection.refuse(verdict.reply)
    command.address = address.address
    reply = _open(connection, command)
    if address.notes and connection.transaction is not None:
        connection.transaction.envelope.notes = address.notes
    return reply


def rcpt(connection: SessionFace, argument: str) -> bytes | None:
    transaction, site = connection.transaction, connection.site
    if argument[:3].upper() != "TO:":
        return connection.refuse(Reply(501, "5.5.4", "Say RCPT TO:<address>"))
    if transaction is None:
        return connection.refuse(replies.NO_MAIL)
    if connection.revoked is not None:
        return _revoked(connection, connection.revoked)
    if transaction.rcpts >= site.limits.recipients:
        return reply_bytes(replies.TOO_MANY_RECIPIENTS)  # not the client's error: it sends the rest later
    if site.returns is not None:
        found = look(site.returns, transaction, argument[3:], connection.may_relay)
        if found is not None:
            return _came_back(connection, transaction, found)
    if not connection.may_relay:
        return _no_relay(connection, transaction, argument[3:].strip())
    try:
        recipient, parameters = parse_rcpt(argument[3:], transaction.envelope.smtputf8)
    except AddressRefused as refused:
        connection.note_refused(refused.reply, argument[3:].strip())
        return connection.refuse(refused.reply)
    if parameters and not connection.extended:
        return connection.refuse(replies.NO_PARAMETERS_HELO)
    if recipient.address == "postmaster":
        recipient.address = f"postmaster@{site.hostname.lower()}"
    if site.host.listens("smtp_rcpt_to"):
        return connection.wait_for(_ask_rcpt(connection, transaction, recipient, parameters))
    return _keep(connection, transaction, recipient)


def _came_back(connection: SessionFace, transaction: MailTransaction, found: Ours | Reply) -> bytes | None:
    """An address of ours, or the reply to one that is refused."""
    if isinstance(found, Reply):
        connection.note_refused(found, "")
        return reply_bytes(found) if found in LATER else connection.refuse(found)
    if found.forward:
        transaction.envelope.smtputf8 |= not found.forward.isascii()
        recipient = Recipient(found.forward)
        if connection.site.host.listens("smtp_rcpt_to"):
            return connection.wait_for(_ask_rcpt(connection, transaction, recipient, {}))
        return _keep(connection, transaction, recipient)
    assert transaction.back is not None
    transaction.back.ours.setdefault(found.address.lower(), found)
    transaction.rcpts += 1
    if not connection.may_relay:
        connection.progressed()
    return _RECIPIENT_OK


def _keep(connection: SessionFace, transaction: MailTransaction, recipient: Recipient) -> bytes:
    transaction.rcpts += 1
    transaction.recipients.setdefault(recipient.address, recipient)
    if not connection.may_relay:
        connection.progressed()
    return _RECIPIENT_OK


def _no_relay(connection: SessionFace, transaction: MailTransaction, recipient: str) -> bytes | None:
    """A client that keeps trying waits longer and longer for its refusal."""
    client, site = connection.session.client, connection.site
    message = "listener %s, client %s: relaying refused, from <%.80s> to %.80s"
    site.notes.warn("relay", client, message, site.listener.name, client, transaction.envelope.sender, recipient)
    connection.note_refused(replies.NO_RELAY, recipient)
    wait_s = site.login.fail(client)
    if wait_s:
        return connection.wait_for(connection.refuse_late(replies.NO_RELAY, wait_s))
    return connection.refuse(replies.NO_RELAY)


async def _ask_rcpt(
    connection: SessionFace, transaction: MailTransaction, recipient: Recipient, parameters: dict[str, str]
) -> bytes:
    address = Address(recipient.address, parameters)
    try:
        await connection.site.host.call("smtp_rcpt_to", address=address, session=connection.session)
    except Verdict as verdict:
        host = connection.site.host
        if host.listens("message_refused"):
            await tell_refused(host, connection.session, transaction.seal(), "RCPT", verdict, recipient.address)
        return connection.refuse(verdict.reply)
    recipient.address, recipient.notes = address.address, address.notes
    return _keep(connection, transaction, recipient)


def data(connection: SessionFace, argument: str) -> bytes | None:
    transaction = connection.transaction
    if argument:
        return connection.refuse(Reply(501, "5.5.4", "DATA takes no argument"))
    if transaction is None:
        return connection.refuse(replies.NO_MAIL)
    if connection.revoked is not None:
        return _revoked(connection, connection.revoked)
    if not transaction.rcpts:
        return connection.refuse(replies.NO_RCPT)
    transaction.seal()
    if transaction.recipients and connection.site.host.listens("smtp_data"):
        return connection.wait_for(_ask_data(connection, transaction))
    return _begin(connection, transaction)


def _begin(connection: SessionFace, transaction: MailTransaction) -> bytes:
    transaction.begin(connection.opening(), connection.next_transaction_id())
    return _GO_AHEAD


async def _ask_data(connection: SessionFace, transaction: MailTransaction) -> bytes:
    try:
        await connection.site.host.call("smtp_data", envelope=transaction.envelope, session=connection.session)
    except Verdict as verdict:
        connection.reset("")
        if connection.site.host.listens("message_refused"):
            await tell_refused(connection.site.host, connection.session, transaction.envelope, "DATA", verdict)
        return connection.refuse(verdict.reply)
    return _begin(connection, transaction)


def rset(connection: SessionFace, argument: str) -> bytes | None:
    if argument:
        return connection.refuse(Reply(501, "5.5.4", "RSET takes no argument"))
    connection.reset("RSET")
    return _once_told(connection, b"250 2.0.0 OK\r\n")


def noop(connection: SessionFace, argument: str) -> bytes | None:
    return b"250 2.0.0 OK\r\n"


def help_(connection: SessionFace, argument: str) -> bytes | None:
    return b"214 2.0.0 EHLO HELO MAIL RCPT DATA RSET NOOP VRFY STARTTLS AUTH QUIT, see RFC 5321\r\n"


def vrfy(connection: SessionFace, argument: str) -> bytes | None:
    if not argument:
        return connection.refuse(Reply(501, "5.5.4", "Say VRFY and an address"))
    return b"252 2.1.5 Cannot verify it, but will try to deliver to it\r\n"


def expn(connection: SessionFace, argument: str) -> bytes | None:
    return connection.refuse(Reply(502, replies.BAD_SEQUENCE, "There are no lists here"))


def quit_(connection: SessionFace, argument: str) -> bytes | None:
    connection.hang_up(Reply(221, "2.0.0", "Bye"))
    return None


def starttls(connection: SessionFace, argument: str) -> bytes | None:
    if argument:
        return connection.refuse(Reply(501, "5.5.4", "STARTTLS takes no argument"))
    if connection.site.listener.tls != "starttls":
        return connection.refuse(Reply(502, replies.BAD_SEQUENCE, "STARTTLS is not offered here"))
    if connection.session.tls:
        return connection.refuse(Reply(503, replies.BAD_SEQUENCE, "TLS is already active"))
    return connection.wait_for(connection.start_tls())


def auth(connection: SessionFace, argument: str) -> bytes | None:
    if not connection.site.listener.auth or not connection.extended:
        return connection.refuse(Reply(502, replies.BAD_SEQUENCE, "AUTH is not offered here"))
    if not connection.session.tls:
        return connection.refuse(Reply(538, "5.7.11", "Say STARTTLS first: passwords must not travel in the clear"))
    if connection.session.user or connection.transaction is not None:
        return connection.refuse(Reply(503, replies.BAD_SEQUENCE, "Authentication is done once, and before MAIL"))
    words = argument.split()
    if len(words) not in (1, 2):
        return connection.refuse(Reply(501, "5.5.4", "Say AUTH PLAIN or AUTH LOGIN"))
    words[0] = words[0].upper()
    if words[0] not in ("PLAIN", "LOGIN"):
        return connection.refuse(Reply(504, "5.5.4", "Only AUTH PLAIN and AUTH LOGIN are known here"))
    return connection.wait_for(connection.authenticate(words))


def not_smtp(connection: SessionFace, argument: str) -> bytes | None:
    """A web browser that was tricked into posting here: its body must never be taken for commands."""
    connection.hang_up(Reply(421, "4.7.0", "This is an SMTP server"))
    return None


COMMANDS: dict[bytes, Command] = {
    b"HELO": helo, b"EHLO": ehlo, b"MAIL": mail, b"RCPT": rcpt, b"DATA": data, b"RSET": rset, b"NOOP": noop,
    b"HELP": help_, b"VRFY": vrfy, b"EXPN": expn, b"QUIT": quit_, b"STARTTLS": starttls, b"AUTH": auth,
    b"GET": not_smtp, b"POST": not_smtp, b"PUT": not_smtp, b"HEAD": not_smtp, b"OPTIONS": not_smtp,
    b"CONNECT": not_smtp,
}  # fmt: skip


RECIPIENTS_MAX = 100
"""Addresses of ours in a stranger's transaction; more get 452 (RFC 5321 4.5.3.1.8)."""
NOBODY = Reply(550, "5.1.1", "There is no such address here")
NOT_NULL = Reply(550, "5.7.1", "Only bounces are forwarded from here: mail with the null sender <>")
LATER = frozenset((TOO_MUCH, replies.TOO_MANY_RECIPIENTS))
"""Not the client's error: it comes again."""


def look(returns: Returns, transaction: MailTransaction, text: str, may_relay: bool) -> Ours | Reply | None:
    """What follows "RCPT TO:": an address of ours, the reply to one that is refused, or None: it is not for us."""
    try:
        recipient, _ = parse_rcpt(text, transaction.envelope.smtputf8)
        ours = _find(returns, recipient.address, may_relay)
    except AddressRefused as refused:
        return None if may_relay else refused.reply
    except NotOurs as why:
        return Reply(550, "5.1.1", f"No mail is taken at this address: {why}")
    except QueueRefusal as refusal:
        return refusal.reply
    if ours is None:
        return NOBODY if not may_relay and returns.domains.holds(recipient.address) else None
    if ours.forward and transaction.envelope.sender:
        return NOT_NULL
    if transaction.rcpts >= RECIPIENTS_MAX and not may_relay:
        return replies.TOO_MANY_RECIPIENTS
    if transaction.back is None:
        client = transaction.envelope.origin or ""
        if not may_relay and not returns.enter(client):
            return TOO_MUCH
        transaction.back = CameBack(returns, client, not may_relay)
    return ours


def _find(returns: Returns, address: str, may_relay: bool) -> Ours | None:
    """Raises NotOurs. This host's own postmaster is everybody's (RFC 5321 4.5.1); what a client that may relay sends
    there goes on by mail, as it always did."""
    if address.lower() in returns.postmasters:
        return None if may_relay else Ours("postmaster", address)
    return returns.find(address)

"""The SMTP commands (RFC 5321 4.1): plain functions of a door and the command's argument.

Each returns the reply as bytes, or None if the reply comes later: then it has given the door something to wait for.
Every reply has an enhanced status code (RFC 2034), but for those to HELO and EHLO and the 3xx ones, which have none.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from zonemta_py.mail.address import AddressRefused, MailCommand, parse_mail, parse_rcpt
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.lines import TOO_LARGE
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import InvalidValue, ScheduleParameters
from zonemta_py.plugin.arguments import Address, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.permission import refusal
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.replies import reply_bytes
from zonemta_py.reception.smtp.transaction import MailTransaction

_SENDER_OK = b"250 2.1.0 Sender OK\r\n"
_RECIPIENT_OK = b"250 2.1.5 Recipient OK\r\n"
_GO_AHEAD = b"354 End data with <CR><LF>.<CR><LF>\r\n"
_HELO_MAX = 255


class SessionFace(Protocol):
    """What a command may know of the connection it came over, and do to it."""

    session: Session
    transaction: MailTransaction | None
    extended: bool
    may_relay: bool

    @property
    def site(self) -> ListenerSettings: ...

    def greeted(self, name: str, extended: bool) -> None: ...
    def set_protocol(self, smtputf8: bool) -> None: ...
    def reset(self) -> None: ...
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


def helo(door: SessionFace, argument: str) -> bytes | None:
    name = _greeted(argument)
    if not name:
        return door.refuse(Reply(501, "5.5.4", "Say HELO and your host name"))
    door.greeted(name, extended=False)
    return b"250 " + door.site.hostname.encode() + b"\r\n"


def ehlo(door: SessionFace, argument: str) -> bytes | None:
    name = _greeted(argument)
    if not name:
        return door.refuse(Reply(501, "5.5.4", "Say EHLO and your host name"))
    door.greeted(name, extended=True)
    return door.site.greeting(bool(door.session.tls), bool(door.session.user))


def _greeted(argument: str) -> str:
    name = argument.strip().partition(" ")[0]
    return name if name.isprintable() and len(name) <= _HELO_MAX else ""


def mail(door: SessionFace, argument: str) -> bytes | None:
    if argument[:5].upper() != "FROM:":
        return door.refuse(Reply(501, "5.5.4", "Say MAIL FROM:<address>"))
    if not door.session.helo:
        return door.refuse(replies.NO_GREETING)
    if door.transaction is not None:
        return door.refuse(replies.NESTED)
    if door.site.listener.require_tls and not door.session.tls:
        return door.refuse(replies.NEED_TLS)
    try:
        command = parse_mail(argument[5:])
    except AddressRefused as refused:
        return door.refuse(refused.reply)
    if command.parameters and not door.extended:
        return door.refuse(replies.NO_PARAMETERS_HELO)
    if command.size > door.site.limits.message_bytes:
        return door.refuse(TOO_LARGE)
    if door.may_relay and not door.session.senders.may(command.address):
        return _not_you(door, command.address)
    unkept = command.wishes and _unkept(door, command.wishes)
    if unkept:
        return door.refuse(unkept)
    if door.site.host.listens("smtp_mail_from"):
        return door.wait_for(_ask_mail(door, command))
    return _open(door, command)


def _not_you(door: SessionFace, address: str) -> bytes:
    session = door.session
    message = "listener %s, client %s, user %r: may not send as <%.80s>"
    door.site.notes.warn("senders", session.client, message, session.listener, session.client, session.user, address)
    return door.refuse(refusal(address))


def _unkept(door: SessionFace, wishes: ScheduleParameters) -> Reply | None:
    """Nobody is asked here whether he may wish for something: who may not relay gets no further than RCPT anyway."""
    if wishes.require_tls and not door.session.tls:
        return replies.REQUIRETLS_IN_CLEAR
    try:
        now_ms = door.site.clock_ms()
        wishes.settle(now_ms, door.site.limits.hold_days)
        wishes.clock_ahead_ms = door.site.ahead_ms(now_ms)
    except InvalidValue as unclear:
        return Reply(501, "5.5.4", str(unclear))
    return None


def _open(door: SessionFace, command: MailCommand) -> bytes:
    door.set_protocol(command.smtputf8)
    door.transaction = MailTransaction(door.site, door.session, command)
    return _SENDER_OK


async def _ask_mail(door: SessionFace, command: MailCommand) -> bytes:
    address = Address(command.address, command.parameters)
    try:
        await door.site.host.call("smtp_mail_from", address=address, session=door.session)
    except Verdict as verdict:
        return door.refuse(verdict.reply)
    command.address = address.address
    return _open(door, command)


def rcpt(door: SessionFace, argument: str) -> bytes | None:
    transaction = door.transaction
    if argument[:3].upper() != "TO:":
        return door.refuse(Reply(501, "5.5.4", "Say RCPT TO:<address>"))
    if transaction is None:
        return door.refuse(replies.NO_MAIL)
    if not door.may_relay:
        return _no_relay(door, transaction, argument[3:].strip())
    if transaction.rcpts >= door.site.limits.recipients:
        return reply_bytes(replies.TOO_MANY_RECIPIENTS)  # no error of the client: it sends the rest later
    try:
        recipient, parameters = parse_rcpt(argument[3:], transaction.envelope.smtputf8)
    except AddressRefused as refused:
        return door.refuse(refused.reply)
    if parameters and not door.extended:
        return door.refuse(replies.NO_PARAMETERS_HELO)
    if recipient.address == "postmaster":
        recipient.address = f"postmaster@{door.site.hostname.lower()}"
    if door.site.host.listens("smtp_rcpt_to"):
        return door.wait_for(_ask_rcpt(door, transaction, recipient, parameters))
    return _keep(door, transaction, recipient)


def _keep(door: SessionFace, transaction: MailTransaction, recipient: Recipient) -> bytes:
    transaction.rcpts += 1
    transaction.recipients.setdefault(recipient.address, recipient)
    door.progressed()
    return _RECIPIENT_OK


def _no_relay(door: SessionFace, transaction: MailTransaction, recipient: str) -> bytes | None:
    """Whoever tries it again and again hears of it later and later."""
    client, site = door.session.client, door.site
    message = "listener %s, client %s: relaying refused, from <%.80s> to %.80s"
    site.notes.warn("relay", client, message, site.listener.name, client, transaction.envelope.sender, recipient)
    wait_s = site.login.fail(client)
    if wait_s:
        return door.wait_for(door.refuse_late(replies.NO_RELAY, wait_s))
    return door.refuse(replies.NO_RELAY)


async def _ask_rcpt(
    door: SessionFace, transaction: MailTransaction, recipient: Recipient, parameters: dict[str, str]
) -> bytes:
    address = Address(recipient.address, parameters)
    try:
        await door.site.host.call("smtp_rcpt_to", address=address, session=door.session)
    except Verdict as verdict:
        return door.refuse(verdict.reply)
    recipient.address = address.address
    return _keep(door, transaction, recipient)


def data(door: SessionFace, argument: str) -> bytes | None:
    transaction = door.transaction
    if argument:
        return door.refuse(Reply(501, "5.5.4", "DATA takes no argument"))
    if transaction is None:
        return door.refuse(replies.NO_MAIL)
    if not transaction.recipients:
        return door.refuse(replies.NO_RCPT)
    transaction.seal()
    if door.site.host.listens("smtp_data"):
        return door.wait_for(_ask_data(door, transaction))
    return _begin(door, transaction)


def _begin(door: SessionFace, transaction: MailTransaction) -> bytes:
    transaction.begin(door.opening(), door.next_transaction_id())
    return _GO_AHEAD


async def _ask_data(door: SessionFace, transaction: MailTransaction) -> bytes:
    try:
        await door.site.host.call("smtp_data", envelope=transaction.envelope, session=door.session)
    except Verdict as verdict:
        door.reset()
        return door.refuse(verdict.reply)
    return _begin(door, transaction)


def rset(door: SessionFace, argument: str) -> bytes | None:
    if argument:
        return door.refuse(Reply(501, "5.5.4", "RSET takes no argument"))
    door.reset()
    return b"250 2.0.0 OK\r\n"


def noop(door: SessionFace, argument: str) -> bytes | None:
    return b"250 2.0.0 OK\r\n"


def help_(door: SessionFace, argument: str) -> bytes | None:
    return b"214 2.0.0 EHLO HELO MAIL RCPT DATA RSET NOOP VRFY STARTTLS AUTH QUIT, see RFC 5321\r\n"


def vrfy(door: SessionFace, argument: str) -> bytes | None:
    if not argument:
        return door.refuse(Reply(501, "5.5.4", "Say VRFY and an address"))
    return b"252 2.1.5 Cannot verify it, but will try to deliver to it\r\n"


def expn(door: SessionFace, argument: str) -> bytes | None:
    return door.refuse(Reply(502, replies.BAD_SEQUENCE, "There are no lists here"))


def quit_(door: SessionFace, argument: str) -> bytes | None:
    door.hang_up(Reply(221, "2.0.0", "Bye"))
    return None


def starttls(door: SessionFace, argument: str) -> bytes | None:
    if argument:
        return door.refuse(Reply(501, "5.5.4", "STARTTLS takes no argument"))
    if door.site.listener.tls != "starttls":
        return door.refuse(Reply(502, replies.BAD_SEQUENCE, "STARTTLS is not offered here"))
    if door.session.tls:
        return door.refuse(Reply(503, replies.BAD_SEQUENCE, "TLS is already active"))
    return door.wait_for(door.start_tls())


def auth(door: SessionFace, argument: str) -> bytes | None:
    if not door.site.listener.auth or not door.extended:
        return door.refuse(Reply(502, replies.BAD_SEQUENCE, "AUTH is not offered here"))
    if not door.session.tls:
        return door.refuse(Reply(538, "5.7.11", "Say STARTTLS first: passwords must not travel in the clear"))
    if door.session.user or door.transaction is not None:
        return door.refuse(Reply(503, replies.BAD_SEQUENCE, "Authentication is done once, and before MAIL"))
    words = argument.split()
    if len(words) not in (1, 2):
        return door.refuse(Reply(501, "5.5.4", "Say AUTH PLAIN or AUTH LOGIN"))
    words[0] = words[0].upper()
    if words[0] not in ("PLAIN", "LOGIN"):
        return door.refuse(Reply(504, "5.5.4", "Only AUTH PLAIN and AUTH LOGIN are known here"))
    return door.wait_for(door.authenticate(words))


def not_smtp(door: SessionFace, argument: str) -> bytes | None:
    """A web browser that was talked into posting here: its body must never be taken for commands."""
    door.hang_up(Reply(421, "4.7.0", "This is an SMTP server"))
    return None


COMMANDS: dict[bytes, Command] = {
    b"HELO": helo, b"EHLO": ehlo, b"MAIL": mail, b"RCPT": rcpt, b"DATA": data, b"RSET": rset, b"NOOP": noop,
    b"HELP": help_, b"VRFY": vrfy, b"EXPN": expn, b"QUIT": quit_, b"STARTTLS": starttls, b"AUTH": auth,
    b"GET": not_smtp, b"POST": not_smtp, b"PUT": not_smtp, b"HEAD": not_smtp, b"OPTIONS": not_smtp,
    b"CONNECT": not_smtp,
}  # fmt: skip

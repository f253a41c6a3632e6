"""One client's SMTP connection (RFC 5321, 2920, 3207, 4954).

Line by line through a stream, in a task per connection, would cost more than everything else we do with a message. Here
commands and DATA are cut out of the blocks as they arrive, by plain functions; a task runs only while something has to
be waited for (queue, plugins, TLS, passwords), and the client's bytes wait meanwhile.

Promises: replies keep the order of the commands, and those to one packet go out in one write. Nothing that waits is
cancelled because the client hung up. Bytes that came before a TLS handshake are discarded.

Failures: a bug met in what is waited for is logged with its traceback and answered 451 4.3.0; one met elsewhere is
logged by the loop and ends the connection. Either way the transaction is given up. A failed login is logged, counted,
and answered later the more of them came from that client or for that user (`login`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Any

from zonemta_py.logs.causes import from_outside
from zonemta_py.logs.privacy import UserName
from zonemta_py.mail.limits import COMMAND_BYTES_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.trace import Trace, protocol
from zonemta_py.metrics.report import count
from zonemta_py.plugin.arguments import Auth, Ending, Refusal, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueRefusal, Unanswered
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import plain_ip
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import TooBusy
from zonemta_py.reception.receiver import tell_refused
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.authentication import Unusable, credentials
from zonemta_py.reception.smtp.commands import COMMANDS
from zonemta_py.reception.smtp.pace import ClientPace
from zonemta_py.reception.smtp.proxy import Origin
from zonemta_py.reception.smtp.replies import reply_bytes
from zonemta_py.reception.smtp.revision import Revision
from zonemta_py.reception.smtp.transaction import MailTransaction

log = logging.getLogger(__name__)

_HELD_BYTES_MAX = 65_536
"""Bytes read ahead while waiting for something; then the client has to wait too."""
_BODY_HELD_BYTES_MAX = 262_144
"""The same during DATA, which only clients reach that may relay or bring back what is ours."""
_COMMANDS_FREE, _COMMANDS_MAX = 8, 64
"""Commands of one packet that are always processed, and the most at once if there is time: all clients share it."""
_UNREAD_BYTES_MAX = 65_536
"""Replies that the client has not read; beyond that we stop reading its commands."""
_ENDLESS_BYTES_MAX = 65_536
"""Of a command line, or of one in a login, that does not end."""
_LOGIN_BYTES_MAX = 12_288 + 1
"""Of a line in a login: RFC 4954 4, and a CR."""
_UNREAD_S_MAX = 60.0
"""Time for a client to read the replies it has asked for."""
_LEAVING_S_MAX = 10.0
"""Time to send what is left after we have closed."""
HANDSHAKE_S_MAX = 30.0


class ServerSession(asyncio.Protocol):
    """One connection. Its state says what the client has to do next; `connection_limits` calls `cut_off_if_late` every
    few seconds."""

    def __init__(self, site: ListenerSettings, origin: Origin | None = None) -> None:
        """origin: the real client, where a PROXY header named it."""
        self.site, self.loop, self._origin = site, site.loop, origin
        self.session = Session(id=site.next_id(), listener=site.listener.name)
        self.transport: Any = None
        self._pace = ClientPace(site.limits.timeout_s, site.limits.least_bytes_s, site.loop.time())
        self._login_by = self._leave_by = self._read_by = 0.0
        self.transaction: MailTransaction | None = None
        self.extended = self.may_relay = self._admitted = False
        self.revoked: Reply | None = None
        self._password = ""  # digest of the one it has logged in with, unless a plugin has let it in
        self._out: list[bytes] = []
        self._held = b""
        self._task: asyncio.Task[None] | None = None
        self._line: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._overlong = 0  # bytes of a line that is too long and has not ended
        self._paused = self._choked = self._resting = False  # choked: the client does not read its replies
        self._closing = self._lost = self._eof = self._counted = False
        self._idle_commands = self._errors = self._transactions = self._messages = self._recipients = 0
        self._began = 0.0
        self._last: Reply | None = None
        self.telling: asyncio.Task[None] | None = None
        self._opening = ""

    # --- the connection

    def admit(self, peer: tuple[str, int], own: str) -> bool:
        """Takes a place for the client, or returns False if there is none. Called before a TLS handshake that comes
        first, so that half a handshake counts; else when the connection is made."""
        session, site, origin = self.session, self.site, self._origin
        if origin is not None:
            peer, own = (origin.client, origin.client_port), origin.server
        session.client, session.client_port, session.server = plain_ip(peer[0]), peer[1], plain_ip(own)
        # A proxy that connects for itself, or for an unnamed client, must not lend that client its own rights.
        self.may_relay = (origin is None or origin.named) and site.may_relay(session.client)
        session.senders = site.permissions.network(session.client)
        session.account = site.accounts.of(session.client)
        self._login_by = self.loop.time() + site.limits.login_s
        self._admitted = site.gate.enter(self, session.client, not self.may_relay)
        count("zonemta_smtp_sessions_total", (site.listener.name,))
        if not self._admitted:
            site.notes.warn("connections", session.client, "client %s: too many connections", session.client)
        return self._admitted

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        site = self.site
        if not self._admitted:
            peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            if not self.admit(peer[:2] if peer else ("", 0), own[0] if own else ""):
                self.hang_up(replies.TOO_MANY_CONNECTIONS)
                return
        if site.listener.tls == "implicit":
            self._under_tls(transport)
        self._pace.ask(now := self.loop.time())
        self._began = now
        if self.counts or site.host.listens("smtp_connect"):
            self.wait_for(self.welcome())
        else:
            transport.write(site.banner)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self.site.gate.leave(self, self.session.client)
        self.leave_account()
        self._wake_line()
        self._wake_gone()
        if self._task is None:
            self.reset("gone")
            self._over()

    def eof_received(self) -> bool | None:
        """A client that only stops sending still gets the replies it waits for; under TLS there is no such half."""
        self._eof = True
        return self._task is not None and not self.session.tls and self._line is None

    # --- bytes in

    def data_received(self, block: bytes) -> None:
        if self._task is None and not self._choked and not self._resting:
            self._advance(self._held + block if self._held else block)
            return
        self._held += block
        if self._line is not None:
            self._wake_line()
            return
        self._wait_if_full()

    def _wait_if_full(self) -> None:
        """Stops reading from the client for the time being."""
        body = self.transaction is not None and self.transaction.decoder is not None
        most = _BODY_HELD_BYTES_MAX if body else _HELD_BYTES_MAX
        if (self._choked or len(self._held) > most) and not self._paused and not self._closing:
            self._paused = True
            self.transport.pause_reading()

    def _advance(self, block: bytes) -> None:
        """Processes a block until it is used up, something has to be waited for, or other connections have their
        turn."""
        at, commands = 0, 0
        while self._task is None and not self._closing:
            transaction = self.transaction
            if transaction is not None and transaction.decoder is not None:
                if at == len(block):
                    break
                block, at = self._take_body(transaction, block[at:] if at else block), 0
                continue
            end = block.find(b"\n", at)
            if end < 0:
                break
            if commands == _COMMANDS_MAX or (commands >= _COMMANDS_FREE and self.site.turns.spent()):
                self._rest()
                break
            self._command(block[at:end])
            at = end + 1
            commands += 1
        self._held = block[at:]
        if commands:
            self._pace.late_at = self.loop.time() + self._pace.timeout_s  # as `ask`
        if self._resting:
            self._wait_if_full()
        elif len(self._held) > COMMAND_BYTES_MAX and self._task is None and not self._closing:
            self._forget_line()
        if len(self._out) == 1 and not self._lost and not self._closing:
            self.transport.write(self._out.pop())
        elif self._out:
            self._flush()

    def _rest(self) -> None:
        """A client that packs thousands of commands into one packet waits for the others, and until it reads its
        replies."""
        self._resting = True
        self.site.turns.wait(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._task is None and not self._choked and not self._lost:
            self._resume()

    def _forget_line(self) -> None:
        self._overlong += len(self._held)
        self._held = b""
        if self._overlong > _ENDLESS_BYTES_MAX:
            self.hang_up(replies.ENDLESS_LINE)

    def _take_body(self, transaction: MailTransaction, block: bytes) -> bytes:
        """Returns what follows the end of DATA, if it has come."""
        self._pace.receive(len(block), self.loop.time())
        busy = transaction.take(block)
        decoder = transaction.decoder
        assert decoder is not None
        if transaction.endless:
            self.hang_up(replies.ENDLESS)
            return b""
        if decoder.done:
            self.wait_for(self._commit(transaction))
            return decoder.rest
        if busy:
            self.wait_for(transaction.pump())
        return b""

    def _command(self, line: bytes) -> None:
        self._idle_commands += 1
        if self._idle_commands > self.site.limits.commands_per_connection and self._idle():
            self.hang_up(replies.TOO_MANY_COMMANDS)
            return
        if line.endswith(b"\r"):
            line = line[:-1]
        if self._overlong or len(line) > COMMAND_BYTES_MAX:
            self._overlong = 0
            self._out.append(self.refuse(replies.LINE_TOO_LONG))
            return
        word, _, argument = line.partition(b" ")
        command = COMMANDS.get(word) or COMMANDS.get(word.upper())
        try:
            text = argument.decode()
        except UnicodeDecodeError:
            command, text = None, "\0"
        if "\r" in text or "\0" in text:
            reply: bytes | None = self.refuse(replies.NOT_UTF8)
        elif command is not None:
            reply = command(self, text)
        else:
            reply = self._unknown(word, text)
        if reply is not None:
            self._out.append(reply)

    def _idle(self) -> bool:
        """Whether there were too many commands, not counting a recipient that was accepted, if the message follows."""
        accepted = self.transaction.rcpts if self.transaction is not None else 0
        return self._idle_commands - accepted > self.site.limits.commands_per_connection

    def _unknown(self, word: bytes, argument: str) -> bytes | None:
        handler = self.site.server.commands.get(word.upper().decode("ascii", "replace"))
        if handler is None:
            return self.refuse(replies.UNKNOWN)

        async def ask() -> bytes:
            return reply_bytes(await handler(argument, self.session))

        return self.wait_for(ask())

    # --- replies out

    def refuse(self, reply: Reply) -> bytes:
        """The reply's bytes; counts it as an error of the client. 421 says that we close, whoever says it."""
        self._errors += 1
        if reply.code == 421 and not self._closing:
            self.hang_up(reply)
            return b""
        count("zonemta_smtp_refusals_total", (self.site.listener.name, str(reply.code)))
        if self._errors > self.site.limits.errors_per_connection and not self._closing:
            self._out.append(reply_bytes(reply))
            self.hang_up(replies.TOO_MANY_ERRORS)
            return b""
        return reply_bytes(reply)

    async def refuse_late(self, reply: Reply, seconds: float) -> bytes:
        """Delays the refusal of a client that tries too much."""
        await self._pause(seconds)
        return self.refuse(reply)

    def hang_up(self, reply: Reply) -> None:
        """Says why and closes, after what has been written is sent."""
        if not reply.positive:
            count("zonemta_smtp_refusals_total", (self.site.listener.name, str(reply.code)))
        self._out.append(reply_bytes(reply))
        self._flush()
        self._closing, self._last = True, reply
        self._leave_by = self.loop.time() + _LEAVING_S_MAX
        self.transport.close()

    def _flush(self) -> None:
        if not self._lost and not self._closing:
            self.transport.write(b"".join(self._out))
        self._out.clear()

    # --- waiting

    def wait_for(self, job: Coroutine[Any, Any, bytes | None]) -> bytes | None:
        """Runs job to its end, then sends the reply it returns and continues with the client. Returns no reply yet."""
        self._pace.stop(self.loop.time())
        self._task = self.loop.create_task(self._work(job))
        return None

    async def _work(self, job: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            reply = await job
        except (ConnectionError, ssl.SSLError) as error:
            session = self.session
            self.site.notes.line(
                logging.INFO, "lost", session.client, "session %s, client %s: connection lost (%s)", session.id,
                session.client, error,
            )  # fmt: skip
            reply = None
            self.transport.abort()
        except (Exception, asyncio.CancelledError) as error:
            if from_outside(error):
                raise
            log.exception("session %s, client %s: a command failed", self.session.id, self.session.client)
            self.reset("fault")
            reply = reply_bytes(replies.OWN_FAULT)
        self._task = None
        if self._lost:
            self.reset("gone")
            self._over()
            return
        if reply:
            self._out.append(reply)
        self._resume()

    def _resume(self) -> None:
        if self.transaction is not None and self.transaction.decoder is not None:
            self._pace.go_on(self.loop.time())
        else:
            self._pace.ask(self.loop.time())
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        self._advance(self._held)
        if self._eof and self._task is None:
            self.transport.close()

    async def _commit(self, transaction: MailTransaction) -> bytes:
        try:
            reply = await transaction.commit()
        except Unanswered as error:  # 451 might be false, and the client would send again what is stored
            self.transaction = None
            raise ConnectionAbortedError(f"hung up without an answer: {error.reply.text}") from None
        self.transaction = None
        positive, host = reply.positive, self.site.host
        if (not positive or transaction.why is not None) and host.listens("message_refused"):
            await tell_refused(host, self.session, transaction.envelope, "message", transaction.why or reply)
        if not positive:
            return self.refuse(reply)
        self._messages += 1
        self._recipients += transaction.rcpts
        self._idle_commands = 0  # a client that submits mail may stay as long as it likes
        return reply_bytes(reply)

    # --- state of the session

    def greeted(self, name: str, extended: bool) -> None:
        self.reset("EHLO")
        self.session.helo, self.extended, self._opening = name, extended, ""
        self.set_protocol(False)

    def progressed(self) -> None:
        """A recipient was accepted from a client that may not relay: it has time for the message."""
        self._login_by = self.loop.time() + self.site.limits.timeout_s

    def set_protocol(self, smtputf8: bool) -> None:
        """Names the dialogue for trace fields (RFC 3848)."""
        session = self.session
        name = protocol(self.extended, bool(session.tls), bool(session.user), smtputf8)
        if name != session.protocol:
            session.protocol, self._opening = name, ""

    def leave(self) -> None:
        """The process is to end: closes, unless a message is in progress."""
        if self.transaction is None and self._task is None and not self._closing:
            self.hang_up(replies.STOPPING)

    def reset(self, why: str) -> None:
        """Drops the transaction; its recipients count as idle commands. why: as of `smtp_reset`; "": it has been told
        otherwise."""
        transaction = self.transaction
        if transaction is not None:
            transaction.abort()
            self.transaction = None
            if why and self.site.host.listens("smtp_reset"):
                self._tell("smtp_reset", envelope=transaction.seal(), session=self.session, why=why)

    # --- what plugins are told

    def _tell(self, hook: str, **arguments: Any) -> None:
        """In order, while the session goes on, or is over."""
        before = self.telling

        async def tell() -> None:
            if before is not None:
                await before
            await self.site.host.call(hook, **arguments)

        self.telling = self.loop.create_task(tell())
        self.site.telling.add(self.telling)
        self.telling.add_done_callback(self.site.telling.discard)

    async def told(self, reply: bytes | None) -> bytes | None:
        """The reply, once plugins have heard what it is about."""
        telling, self.telling = self.telling, None
        if telling is not None:
            await telling
        return reply

    def note_refused(self, reply: Reply, recipient: str) -> None:
        """A recipient that the server itself refuses."""
        if self.transaction is not None and self.site.host.listens("message_refused"):
            refusal = Refusal("RCPT", reply, recipient)
            self._tell("message_refused", envelope=self.transaction.seal(), session=self.session, refusal=refusal)

    def _over(self) -> None:
        """Plugins hear once how the connection ended."""
        if self._began and self.site.host.listens("smtp_end"):
            last, seconds = self._last, self.loop.time() - self._began
            self._began = 0.0
            why = "gone" if last is None else "quit" if last.code == 221 else "closed"
            ending = Ending(why, last, self._messages, self._recipients, self._errors, seconds)
            self._tell("smtp_end", session=self.session, ending=ending)

    def opening(self) -> str:
        """The Received field up to its id; the same for all messages until the session changes."""
        if not self._opening:
            session = self.session
            trace = Trace(session.helo, session.client, self.site.hostname, session.protocol, session.tls)
            self._opening = trace.opening()
        return self._opening

    def next_transaction_id(self) -> str:
        self._transactions += 1
        return f"{self.session.id}.{self._transactions:x}"

    # --- entering, and leaving, the account

    async def welcome(self) -> bytes | None:
        """The banner, where something has to be waited for."""
        try:
            if (refusal := await self.enter()) is not None:
                self.hang_up(refusal)
                return None
            if self.site.host.listens("smtp_connect"):
                await self.site.host.call("smtp_connect", session=self.session)
        except Verdict as verdict:
            self.hang_up(verdict.reply)
            return None
        return self.site.banner

    @property
    def counts(self) -> bool:
        """Whether its account has a quota of sessions."""
        account = self.session.account
        return bool(account) and self.site.accounts.by_name[account].sessions > 0

    async def enter(self) -> Reply | None:
        """Counts it in, and out where it was before; why it must end."""
        if not self.counts:
            self.leave_account()
            return None
        self._counted = True
        try:
            await self.site.submission.enter(self.session.id, self.session.account)
        except QueueRefusal as refused:
            return Reply(421, refused.reply.enhanced, refused.reply.text)
        finally:
            if self._lost:  # while it waited
                self._counted = True
                self.leave_account()
        return None

    def revise(self, revision: Revision) -> None:
        """It goes on only with what it is given there."""
        session = self.session
        if not self.may_relay or self.revoked is not None:
            return
        if session.user:
            self.revoked = revision.user(session, self._password)
        else:
            self.revoked = revision.network(session.listener, session.client)

    def leave_account(self) -> None:
        """Counts it out; harmless twice."""
        if self._counted:
            self._counted = False
            self.site.submission.leave(self.session.id)

    # --- STARTTLS

    async def start_tls(self) -> None:
        self._out.append(b"220 2.0.0 Ready to start TLS\r\n")
        self._flush()
        self._held = b""  # sent before the handshake, so possibly by an attacker (RFC 3207 5)
        timeout_s = min(HANDSHAKE_S_MAX, self.site.limits.timeout_s)
        assert self.site.tls is not None
        try:
            transport = await self.loop.start_tls(
                self.transport, self, self.site.tls, server_side=True, ssl_handshake_timeout=timeout_s
            )
            if transport is None:
                raise ConnectionResetError("client gone in the handshake")
        except OSError as error:
            # The loop does not tell us of a connection that breaks during the handshake; its place must become free.
            self.connection_lost(error)
            raise ConnectionAbortedError(f"no TLS: {error.strerror or error}") from None
        self.transport = transport
        self._under_tls(transport)
        self.reset("STARTTLS")
        self.session.helo, self.extended, self._opening = "", False, ""

    def _under_tls(self, transport: Any) -> None:
        transport.set_write_buffer_limits(_UNREAD_BYTES_MAX)  # else half a megabyte
        self.session.tls = tls.described(transport.get_extra_info("ssl_object"))

    # --- AUTH

    async def authenticate(self, words: list[str]) -> bytes | None:
        """words: ["PLAIN" or "LOGIN"], and maybe an initial response."""
        login = ""
        try:
            login, password = (part.decode() for part in await credentials(self._answer, *words))
            accepted = await self._accepts(login, password, words[0])
        except Unusable as unusable:
            return self.refuse(unusable.reply)
        except UnicodeDecodeError:
            accepted = False
        except TooBusy:
            self._note_login("login of %.80r refused: too many attempts", login)
            return self.refuse(replies.LOGINS_BUSY)
        except Verdict as verdict:
            self.session.user = ""
            return self.refuse(verdict.reply)
        if not accepted:
            self._note_login("login of %.80r refused: wrong name or password", login)
            await self._pause(self.site.login.fail(self.session.client, login))
            return self.refuse(replies.BAD_LOGIN)
        self.may_relay = True
        self.session.senders = self.site.permissions.user(self.session.user)
        self.session.account = self.site.accounts.of(self.session.client, user=self.session.user)
        if (refusal := await self.enter()) is not None:
            self.hang_up(refusal)
            return None
        self.site.gate.know(self)
        self.set_protocol(False)
        return b"235 2.7.0 Authenticated\r\n"

    async def _accepts(self, login: str, password: str, method: str) -> bool:
        """Plugins first, then [users]. Raises Verdict, TooBusy."""
        session = self.session
        if self.site.host.listens("smtp_auth"):
            await self.site.host.call("smtp_auth", auth=Auth(login, password, method), session=session)
        if not session.user and await self.site.login.check(login, password, session.client):
            session.user, self._password = login, self.site.login.digest_of(login)
        return bool(session.user)

    def _note_login(self, what: str, login: str) -> None:
        count("zonemta_auth_failures_total", (self.site.listener.name,))
        client = self.session.client
        message = "listener %s, client %s: " + what
        self.site.notes.warn("login", client, message, self.site.listener.name, client, UserName(login))

    async def _answer(self, challenge: bytes) -> bytes:
        self._out.append(b"334 " + challenge + b"\r\n")
        self._flush()
        return await self._next_line()

    async def _next_line(self) -> bytes:
        """The client's next line. Raises Unusable for one that is too long, ConnectionResetError."""
        forgotten = 0
        while b"\n" not in self._held:
            if forgotten or len(self._held) > _LOGIN_BYTES_MAX:
                forgotten += len(self._held)
                self._held = b""
            if self._lost or forgotten > _ENDLESS_BYTES_MAX:
                raise ConnectionResetError("AUTH line without end, or client gone")
            self._line = self.loop.create_future()
            self._pace.ask(self.loop.time())
            try:
                await self._line
            finally:
                self._line = None
        line, _, self._held = self._held.partition(b"\n")
        if forgotten or len(line) > _LOGIN_BYTES_MAX:
            raise Unusable(replies.LOGIN_TOO_LONG)
        return line

    def _wake_line(self) -> None:
        if self._line is not None and not self._line.done():
            self._line.set_result(None)

    async def _pause(self, seconds: float) -> None:
        """Waits, unless the client goes."""
        if seconds <= 0 or self._lost:
            return
        self._gone = self.loop.create_future()
        try:
            await asyncio.wait((self._gone,), timeout=seconds)
        finally:
            self._gone = None

    def _wake_gone(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    # --- clients that are too slow

    def pause_writing(self) -> None:
        """The client does not read its replies: then we do not read its commands."""
        self._choked = True
        self._wait_if_full()
        self._read_by = self.loop.time() + min(_UNREAD_S_MAX, self.site.limits.timeout_s)

    def resume_writing(self) -> None:
        self._choked = False
        if self._task is None:
            self._resume()

    def cut_off_if_late(self, now: float) -> None:
        if self.transport is None:  # a handshake has a limit of its own
            return
        if self._closing:
            if now > self._leave_by:
                self.transport.abort()
        elif self._choked:
            if now > self._read_by:
                self._cut_off("does not read its replies")
        elif self._task is not None and self._line is None:
            return
        elif now > self._pace.late_at:
            self._too_slow()
        elif not self.may_relay and now > self._login_by:
            self._note("slow", "has not authenticated in time")
            self.hang_up(replies.NO_LOGIN)

    def _too_slow(self) -> None:
        begun = self.transaction is not None and self.transaction.decoder is not None
        if begun or self._held:
            self._note("slow", "is too slow")
        self.hang_up(replies.TOO_SLOW if begun else replies.SILENT)

    def _cut_off(self, why: str) -> None:
        self._note("slow", why)
        self.transport.abort()

    def _note(self, kind: str, what: str) -> None:
        client = self.session.client
        self.site.notes.warn(kind, client, "session %s, client %s: %s, cut off", self.session.id, client, what)

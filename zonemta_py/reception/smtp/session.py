"""One client's SMTP connection (RFC 5321, 2920, 3207, 4954).

Line by line through a stream, in a task per connection, would cost more than everything else we do with a message. Here
commands and DATA are cut out of the blocks as they arrive, by plain functions; a task runs only while something has to
be waited for (queue, plugins, TLS, passwords), and the client's bytes wait meanwhile.

Promises: replies keep the order of the commands, and those to one packet go out in one write. Nothing that waits is
cancelled because the client hung up. Bytes that came before a TLS handshake are discarded.

Failures: a bug met in what is waited for is logged with its traceback and answered 451 4.3.0; one met elsewhere is
logged by the loop and ends the connection. Either way the transaction is given up.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Any

from zonemta_py.logs.causes import from_outside
from zonemta_py.mail.limits import COMMAND_BYTES_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.trace import Trace, protocol
from zonemta_py.metrics.report import count
from zonemta_py.plugin.arguments import Session
from zonemta_py.queue.api import Unanswered
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import plain_ip
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.authentication import Authentication
from zonemta_py.reception.smtp.commands import COMMANDS
from zonemta_py.reception.smtp.membership import Membership
from zonemta_py.reception.smtp.pace import ClientPace
from zonemta_py.reception.smtp.patience import Patience
from zonemta_py.reception.smtp.proxy import Origin
from zonemta_py.reception.smtp.replies import reply_bytes
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
"""Of a command line that does not end."""
HANDSHAKE_S_MAX = 30.0


class ServerSession(Patience, Membership, Authentication):
    """origin: the real client, where a PROXY header named it."""

    def __init__(self, site: ListenerSettings, origin: Origin | None = None) -> None:
        self.site, self.loop, self._origin = site, site.loop, origin
        self.session = Session(id=site.next_id(), listener=site.listener.name)
        self.transport: Any = None
        self._pace = ClientPace(site.limits.timeout_s, site.limits.least_bytes_s, site.loop.time())
        self._login_by = self._leave_by = self._read_by = 0.0
        self.transaction: MailTransaction | None = None
        self.extended = self.may_relay = self._admitted = False
        self.revoked: Reply | None = None
        self._password = ""
        self._out: list[bytes] = []
        self._held = b""
        self._task: asyncio.Task[None] | None = None
        self._line: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._overlong = 0  # bytes of a line that is too long and has not ended
        self._paused = self._choked = self._resting = False
        self._closing = self._lost = self._eof = False
        self._idle_commands = self._errors = self._transactions = 0
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
        self._pace.ask(self.loop.time())
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
            self.reset()

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
            self._pace.ask(self.loop.time())
        if self._resting:
            self._wait_if_full()
        elif len(self._held) > COMMAND_BYTES_MAX and self._task is None and not self._closing:
            self._forget_line()
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
        if self._idle_commands > self.site.limits.commands_per_connection:
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

    def _unknown(self, word: bytes, argument: str) -> bytes | None:
        handler = self.site.server.commands.get(word.upper().decode("ascii", "replace"))
        if handler is None:
            return self.refuse(replies.UNKNOWN)

        async def ask() -> bytes:
            return reply_bytes(await handler(argument, self.session))

        return self.wait_for(ask())

    # --- replies out

    def refuse(self, reply: Reply) -> bytes:
        """The reply's bytes; counts it as an error of the client."""
        self._errors += 1
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

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        if not self._lost and not self._closing:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

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
            self.reset()
            reply = reply_bytes(replies.OWN_FAULT)
        self._task = None
        if self._lost:
            self.reset()
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
        self._idle_commands += transaction.rcpts
        if reply.positive:
            self._idle_commands = 0  # a client that submits mail may stay as long as it likes
        return reply_bytes(reply) if reply.positive else self.refuse(reply)

    # --- state of the session

    def greeted(self, name: str, extended: bool) -> None:
        self.reset()
        self.session.helo, self.extended, self._opening = name, extended, ""
        self.set_protocol(False)

    def progressed(self) -> None:
        """A recipient was accepted: that is not idle, if the message follows; who may not relay has time for that."""
        self._idle_commands -= 1
        if not self.may_relay:
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

    def reset(self) -> None:
        """Drops the transaction; its recipients count as idle commands."""
        if self.transaction is not None:
            self._idle_commands += self.transaction.rcpts
            self.transaction.abort()
            self.transaction = None

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

    # --- STARTTLS and AUTH

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
        self.reset()
        self.session.helo, self.extended, self._opening = "", False, ""

    def _under_tls(self, transport: Any) -> None:
        transport.set_write_buffer_limits(_UNREAD_BYTES_MAX)  # else half a megabyte
        self.session.tls = tls.described(transport.get_extra_info("ssl_object"))

"""One client's SMTP connection: aiosmtpd's protocol class, with its reader replaced (RFC 5321, 2920, 3207, 4954).

aiosmtpd reads line by line through a StreamReader, in a task per connection; that costs more than all else we do with a
message. Here commands and DATA are cut out of the blocks as they arrive, by plain functions; a task runs only while
something has to be waited for (queue, plugins, TLS, passwords), and the client's bytes wait meanwhile. Kept from
aiosmtpd: the AUTH challenges and mechanisms.

Promises: replies keep the order of the commands, and those to one packet go out in one write. Nothing that waits is
cancelled because the client hung up. Bytes that came before a TLS handshake are forgotten.

Failures: a bug met in what is waited for is logged with its traceback and answered 451 4.3.0; one met elsewhere is
logged by the loop and ends the connection. Either way the transaction is given up.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from zonemta_py.mail.limits import COMMAND_BYTES_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.trace import Trace, protocol
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.reception import replies, tls
from zonemta_py.reception.commands import COMMANDS
from zonemta_py.reception.gate import plain_ip
from zonemta_py.reception.proxy import Origin
from zonemta_py.reception.replies import reply_bytes
from zonemta_py.reception.site import Site
from zonemta_py.reception.transaction import Transaction

log = logging.getLogger(__name__)

_HELD_BYTES_MAX = 262_144
"""Read ahead while something is waited for; then the client has to wait too."""
_AUTH_LINE_BYTES_MAX = 12_288
"""RFC 4954 4."""
_HANDSHAKE_S_MAX = 60.0


class _Client(Session):
    """The session as aiosmtpd's methods expect it."""

    __slots__ = ()

    @property
    def peer(self) -> tuple[str, int]:
        return self.client, self.client_port


class Door(SMTP):
    """origin: who is really connected, where a PROXY header said so."""

    session: _Client  # type: ignore[assignment]  # ours takes the place of aiosmtpd's
    _reader: Any

    def __init__(self, site: Site, origin: Origin | None = None) -> None:
        # The constructors of the base classes are left out on purpose: they look through all methods, make a stream and
        # ask for the host's name, once per connection; nothing that is inherited here needs what they set up.
        self.site, self.loop, self._origin = site, site.loop, origin
        self.session = _Client(id=site.next_id(), listener=site.listener.name)
        self.transport: Any = None
        self.transaction: Transaction | None = None
        self.extended = False
        self.may_relay = False
        self._out: list[bytes] = []
        self._held = b""
        self._task: asyncio.Task[None] | None = None
        self._line: asyncio.Future[None] | None = None
        self._overlong = self._paused = self._choked = False
        self._closing = self._lost = self._eof = False
        self._commands = self._errors = self._transactions = 0
        self._opening = ""
        self._heard = 0.0
        self._reader = self  # for the inherited challenge_auth, which calls readline()

    # --- the connection

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        session, site = self.session, self.site
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if self._origin is not None:
            session.client, session.client_port = plain_ip(self._origin.client), self._origin.client_port
            session.server = plain_ip(self._origin.server)
        elif peer and own:
            session.client, session.client_port, session.server = plain_ip(peer[0]), peer[1], plain_ip(own[0])
        if site.tls is not None:
            session.tls = tls.described(transport.get_extra_info("ssl_object"))
        self._heard = self.loop.time()
        if not site.gate.enter(self, session.client):
            self.hang_up(replies.TOO_MANY_CONNECTIONS)
            return
        self.may_relay = site.may_relay(session.client)
        if site.host.listens("smtp_connect"):
            self.wait_for(self._ask_connect())
        else:
            transport.write(site.banner)

    async def _ask_connect(self) -> bytes | None:
        try:
            await self.site.host.call("smtp_connect", session=self.session)
        except Verdict as verdict:
            self.hang_up(verdict.reply)
            return None
        return self.site.banner

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self.site.gate.leave(self, self.session.client)
        if self._line is not None and not self._line.done():
            self._line.set_exception(ConnectionResetError("client gone"))
        if self._task is None:
            self.reset()

    def eof_received(self) -> bool | None:
        """A client that only stops sending still gets the replies it waits for; under TLS there is no such half."""
        self._eof = True
        return self._task is not None and not self.session.tls and self._line is None

    def pause_writing(self) -> None:
        """The client does not read its replies: then we do not read its commands."""
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False
        if self._task is None:
            self._resume()

    def cut_off_if_silent(self, silent_since: float) -> None:
        if self._heard >= silent_since or (self._task is not None and self._line is None):
            return
        if self._closing:
            self.transport.abort()
        else:
            self.hang_up(replies.SILENT)

    def hang_up(self, reply: Reply) -> None:
        """Says why and closes, after what has been written is sent."""
        self._out.append(reply_bytes(reply))
        self._flush()
        self._closing = True
        self.transport.close()

    # --- bytes in

    def data_received(self, block: bytes) -> None:
        self._heard = self.loop.time()
        if self._task is None and not self._choked:
            self._advance(self._held + block if self._held else block)
            return
        self._held += block
        if self._line is not None:
            self._wake_line()
        elif len(self._held) > _HELD_BYTES_MAX and not self._paused and not self._closing:
            self._paused = True
            self.transport.pause_reading()

    def _advance(self, block: bytes) -> None:
        """Works off a block until it is used up or something has to be waited for."""
        at = 0
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
            self._command(block[at:end])
            at = end + 1
        rest = block[at:]
        if len(rest) > COMMAND_BYTES_MAX and self._task is None and not self._closing:
            rest, self._overlong = b"", True
        self._held = rest
        self._flush()

    def _take_body(self, transaction: Transaction, block: bytes) -> bytes:
        """Returns what follows the end of DATA, if it has come."""
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
            self.wait_for(self._pump(transaction))
        return b""

    def _command(self, line: bytes) -> None:
        self._commands += 1
        if self._commands > self.site.limits.commands_per_connection:
            self.hang_up(replies.TOO_MANY_COMMANDS)
            return
        if line.endswith(b"\r"):
            line = line[:-1]
        if self._overlong or len(line) > COMMAND_BYTES_MAX:
            self._overlong = False
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
        if self._errors > self.site.limits.errors_per_connection and not self._closing:
            self._out.append(reply_bytes(reply))
            self.hang_up(replies.TOO_MANY_ERRORS)
            return b""
        return reply_bytes(reply)

    async def push(self, status: str | bytes) -> None:
        """For the inherited AUTH methods."""
        line = status.encode() if isinstance(status, str) else status
        self._out.append(line + b"\r\n")
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        if not self._lost and not self._closing:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    # --- waiting

    def wait_for(self, job: Coroutine[Any, Any, bytes | None]) -> bytes | None:
        """Runs job to its end, then sends the reply it returns and goes on with the client. Returns no reply yet."""
        self._task = self.loop.create_task(self._work(job))
        return None

    async def _work(self, job: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            reply = await job
        except (ConnectionError, ssl.SSLError) as error:
            log.info("session %s, client %s: connection lost (%s)", self.session.id, self.session.client, error)
            reply = None
            self.transport.abort()
        except Exception:
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
        self._heard = self.loop.time()
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        self._advance(self._held)
        if self._eof and self._task is None:
            self.transport.close()

    async def _pump(self, transaction: Transaction) -> None:
        await transaction.pump()

    async def _commit(self, transaction: Transaction) -> bytes:
        reply = await transaction.commit()
        self.transaction = None
        return reply_bytes(reply) if reply.positive else self.refuse(reply)

    # --- state of the session

    def greeted(self, name: str, extended: bool) -> None:
        self.reset()
        self.session.helo, self.extended, self._opening = name, extended, ""
        self.set_protocol(False)

    def set_protocol(self, smtputf8: bool) -> None:
        """Names the dialogue for trace fields (RFC 3848)."""
        session = self.session
        name = protocol(self.extended, bool(session.tls), bool(session.user), smtputf8)
        if name != session.protocol:
            session.protocol, self._opening = name, ""

    def reset(self) -> None:
        """Forgets the transaction."""
        if self.transaction is not None:
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
        self._held = b""  # sent before the handshake, so nobody knows by whom (RFC 3207 5)
        timeout_s = min(_HANDSHAKE_S_MAX, self.site.limits.timeout_s)
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
            raise ConnectionAbortedError(f"no TLS: {error}") from None
        self.transport = transport
        self.reset()
        self.session.tls = tls.described(transport.get_extra_info("ssl_object"))
        self.session.helo, self.extended, self._opening = "", False, ""

    async def readline(self) -> bytes:
        """The client's next line, for the inherited challenge_auth. Raises ConnectionResetError."""
        self._line = self.loop.create_future()
        self._wake_line()
        try:
            await self._line
        finally:
            self._line = None
        line, _, self._held = self._held.partition(b"\n")
        return line

    def _wake_line(self) -> None:
        if self._line is None or self._line.done():
            return
        if b"\n" in self._held:
            self._line.set_result(None)
        elif len(self._held) > _AUTH_LINE_BYTES_MAX or self._lost:
            self._line.set_exception(ConnectionResetError("AUTH line too long, or client gone"))

    def _authenticate(self, mechanism: str, auth_data: LoginPassword) -> AuthResult:
        """Called by the inherited mechanisms with the credentials; they are judged later, where we may wait."""
        return AuthResult(success=True, auth_data=auth_data)

    async def authenticate(self, words: list[str]) -> bytes | None:
        """words: ["PLAIN" or "LOGIN"], and maybe an initial response."""
        mechanism = self.auth_PLAIN if words[0] == "PLAIN" else self.auth_LOGIN
        result = await mechanism(self, words)
        if not result.success:
            self.refuse(replies.BAD_LOGIN)  # counted; what was wrong has been said already
            return None
        try:
            login, password = (part.decode() for part in result.auth_data or ())
            accepted = await self._accepts(login, password, words[0])
        except UnicodeDecodeError:
            accepted = False
        except Verdict as verdict:
            self.session.user = ""
            return self.refuse(verdict.reply)
        if not accepted:
            return self.refuse(replies.BAD_LOGIN)
        self.may_relay = True
        self.set_protocol(False)
        return b"235 2.7.0 Authenticated\r\n"

    async def _accepts(self, login: str, password: str, method: str) -> bool:
        """Plugins first, then [users]. Raises Verdict."""
        session = self.session
        if self.site.host.listens("smtp_auth"):
            await self.site.host.call("smtp_auth", auth=Auth(login, password, method), session=session)
        if not session.user and await self.site.login.check(login, password):
            session.user = login
        return bool(session.user)

"""AUTH PLAIN and LOGIN (RFC 4954): aiosmtpd's challenges, our judgement of what they bring.

Failures: a wrong login is logged, counted, and answered the later the more of them came from that client or for that
user (`login`); a client that leaves in the middle ends the connection.
"""

from __future__ import annotations

import asyncio

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import TooBusy
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.pace import ClientPace

_LINE_BYTES_MAX = 12_288
"""RFC 4954 4."""


class Client(Session):
    """The session as aiosmtpd's methods expect it."""

    __slots__ = ()

    @property
    def peer(self) -> tuple[str, int]:
        return self.client, self.client_port


class Authentication(SMTP):
    """The part of a connection that finds out who the client is."""

    site: ListenerSettings
    session: Session  # type: ignore[assignment]  # ours takes the place of aiosmtpd's
    may_relay: bool
    _pace: ClientPace
    _held: bytes
    _lost: bool
    _line: asyncio.Future[None] | None
    _gone: asyncio.Future[None] | None
    _out: list[bytes]

    def refuse(self, reply: Reply) -> bytes:
        raise NotImplementedError

    def set_protocol(self, smtputf8: bool) -> None:
        raise NotImplementedError

    def _flush(self) -> None:
        raise NotImplementedError

    @property
    def _reader(self) -> Authentication:  # type: ignore[override]
        """For the inherited challenge_auth, which calls readline(). Kept nowhere: a connection that refers to itself
        stays, with its TLS buffers, until the garbage collector comes by."""
        return self

    async def push(self, status: str | bytes) -> None:
        """For the inherited AUTH methods."""
        line = status.encode() if isinstance(status, str) else status
        self._out.append(line + b"\r\n")
        self._flush()

    async def readline(self) -> bytes:
        """The client's next line, for the inherited challenge_auth. Raises ConnectionResetError."""
        self._line = self.loop.create_future()
        self._pace.ask(self.loop.time())
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
        elif len(self._held) > _LINE_BYTES_MAX or self._lost:
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
        login = ""
        try:
            login, password = (part.decode() for part in result.auth_data or ())
            accepted = await self._accepts(login, password, words[0])
        except UnicodeDecodeError:
            accepted = False
        except TooBusy:
            self._note_login("login of %.80r refused, too many are tried", login)
            return self.refuse(replies.LOGINS_BUSY)
        except Verdict as verdict:
            self.session.user = ""
            return self.refuse(verdict.reply)
        if not accepted:
            self._note_login("login of %.80r refused, name or password is wrong", login)
            await self._pause(self.site.login.fail(self.session.client, login))
            return self.refuse(replies.BAD_LOGIN)
        self.may_relay = True
        self.session.senders = self.site.permissions.user(self.session.user)
        self.site.gate.know(self)  # type: ignore[arg-type]  # a ServerSession
        self.set_protocol(False)
        return b"235 2.7.0 Authenticated\r\n"

    async def _accepts(self, login: str, password: str, method: str) -> bool:
        """Plugins first, then [users]. Raises Verdict, TooBusy."""
        session = self.session
        if self.site.host.listens("smtp_auth"):
            await self.site.host.call("smtp_auth", auth=Auth(login, password, method), session=session)
        if not session.user and await self.site.login.check(login, password, session.client):
            session.user = login
        return bool(session.user)

    def _note_login(self, what: str, login: str) -> None:
        client = self.session.client
        message = "listener %s, client %s: " + what
        self.site.notes.warn("login", client, message, self.site.listener.name, client, login)

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

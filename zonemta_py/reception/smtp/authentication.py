"""AUTH PLAIN and LOGIN (RFC 4954, 4616): reading the credentials, and checking them.

Failures: an invalid answer to a challenge is refused and counted (`*` cancels); a failed login is logged, counted, and
answered later the more of them came from that client or for that user (`login`); a client that leaves in the
middle ends the connection.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode

from zonemta_py.logs.persons import UserName
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import TooBusy
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.pace import ClientPace

_LINE_BYTES_MAX = 12_288 + 1
"""RFC 4954 4, and a CR."""
_ENDLESS_BYTES_MAX = 65_536
_USER, _PASSWORD = b"Username:", b"Password:"
"""What LOGIN asks for. Several clients compare the words, and stop at those of draft-murchison-sasl-login."""


class _Unusable(Exception):
    """The client's answer contains no credentials."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Authentication(asyncio.Protocol):
    """The part of a connection that authenticates the client."""

    site: ListenerSettings
    session: Session
    loop: asyncio.AbstractEventLoop
    may_relay: bool
    _password: str
    _pace: ClientPace
    _held: bytes
    _lost: bool
    _line: asyncio.Future[None] | None
    _gone: asyncio.Future[None] | None
    _out: list[bytes]

    def refuse(self, reply: Reply) -> bytes:
        raise NotImplementedError

    def hang_up(self, reply: Reply) -> None:
        raise NotImplementedError

    async def enter(self) -> Reply | None:
        raise NotImplementedError

    def set_protocol(self, smtputf8: bool) -> None:
        raise NotImplementedError

    def cut_off_if_late(self, now: float) -> None:
        raise NotImplementedError

    def _flush(self) -> None:
        raise NotImplementedError

    # --- credentials

    async def _credentials(self, mechanism: str, initial: str | None = None) -> tuple[bytes, bytes]:
        """User name and password. Raises _Unusable, ConnectionResetError."""
        if mechanism == "LOGIN":
            return await self._response(_USER, initial), await self._response(_PASSWORD)
        parts = (await self._response(b"", initial)).split(b"\0")
        if len(parts) != 3:
            raise _Unusable(replies.NOT_PLAIN)
        return parts[1], parts[2]  # the authorization identity, which comes first, must be the user here

    async def _response(self, challenge: bytes, initial: str | None = None) -> bytes:
        """The answer to a challenge, which is not made where the client has answered it with the command."""
        if initial is not None:
            line = b"" if initial == "=" else initial.encode()
        else:
            self._out.append(b"334 " + b64encode(challenge) + b"\r\n")
            self._flush()
            line = (await self._next_line()).strip()
            if line == b"*":
                raise _Unusable(replies.LOGIN_CANCELLED)
        try:
            return b64decode(line, validate=True)
        except binascii.Error:
            raise _Unusable(replies.NOT_BASE64) from None

    async def _next_line(self) -> bytes:
        """The client's next line. Raises _Unusable for one that is too long, ConnectionResetError."""
        forgotten = 0
        while b"\n" not in self._held:
            if forgotten or len(self._held) > _LINE_BYTES_MAX:
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
        if forgotten or len(line) > _LINE_BYTES_MAX:
            raise _Unusable(replies.LOGIN_TOO_LONG)
        return line

    def _wake_line(self) -> None:
        if self._line is not None and not self._line.done():
            self._line.set_result(None)

    # --- checking them

    async def authenticate(self, words: list[str]) -> bytes | None:
        """words: ["PLAIN" or "LOGIN"], and maybe an initial response."""
        login = ""
        try:
            login, password = (part.decode() for part in await self._credentials(*words))
            accepted = await self._accepts(login, password, words[0])
        except _Unusable as unusable:
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

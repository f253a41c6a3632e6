"""Disconnects a client that does not send, read, authenticate or disconnect in time.

The connection's state says what the client has to do next; `connection_limits` checks every few seconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.plugin.arguments import Session
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.pace import ClientPace
from zonemta_py.reception.smtp.replies import reply_bytes
from zonemta_py.reception.smtp.transaction import MailTransaction

_UNREAD_S_MAX = 60.0
"""Time for a client to read the replies it has asked for."""
_LEAVING_S_MAX = 10.0
"""Time to send what is left after we have closed."""


class Patience:
    """The part of a connection that ends it. _choked: the client does not read its replies."""

    site: ListenerSettings
    session: Session
    transport: Any
    transaction: MailTransaction | None
    loop: asyncio.AbstractEventLoop
    may_relay: bool
    _pace: ClientPace
    _task: asyncio.Task[None] | None
    _line: asyncio.Future[None] | None
    _out: list[bytes]
    _held: bytes
    _choked: bool
    _closing: bool
    _login_by: float
    _read_by: float
    _leave_by: float

    def _resume(self) -> None:
        raise NotImplementedError

    def _wait_if_full(self) -> None:
        raise NotImplementedError

    def _flush(self) -> None:
        raise NotImplementedError

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

    def hang_up(self, reply: Reply) -> None:
        """Says why and closes, after what has been written is sent."""
        if not reply.positive:
            count("zonemta_smtp_refusals_total", (self.site.listener.name, str(reply.code)))
        self._out.append(reply_bytes(reply))
        self._flush()
        self._closing = True
        self._leave_by = self.loop.time() + _LEAVING_S_MAX
        self.transport.close()

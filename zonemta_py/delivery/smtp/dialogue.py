"""The SMTP dialogue after the greeting: bytes out with backpressure, replies in, one deadline for all waits.

It takes over the transport from aiosmtplib (`session.py`), because that library reads one reply per command; here any
number of replies is parsed from one buffer, as pipelining needs (RFC 2920).

Promises: after a failure nothing more is written, above all no final dot. The first failure stays (`broken`). Replies
that were complete before it are still returned, but never one that came before the command it would answer: see `begin`
and `early`. Failures are classes of `mail.classify`: ConnectionLost, ReplyTimeout, ReplyGarbled; the caller adds the
stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Callable
from functools import lru_cache
from typing import cast

from zonemta_py.mail.classify import ConnectionLost, DeliveryError, ReplyGarbled, ReplyTimeout
from zonemta_py.mail.limits import CHUNK_BYTES, REPLY_BYTES_MAX
from zonemta_py.mail.reply import Reply, decoded

QUIT_S = 1.0
"""How long a server may take to close after QUIT, before we do."""
_HALF = Reply(0)
_TLS_OVERHEAD_BYTES = 1024
_LINE = re.compile(rb"([2-5]\d\d)(?:([ \t-])(.*?))?\r?", re.DOTALL)
"""A line of a reply; some servers put a tab behind the code."""
HEARD_MAX = 200


class Dialogue(asyncio.Protocol):
    """broken: None, or the class of the failure that ended it. on_end: called once when it is over. on_closed: called
    once when the connection is closed too. counted: a limit counts it until then: QUIT waits for the server, QUIT_S at
    most.

    heard: the beginning of what was no reply. astray: there were more replies than commands, so it is unknown which
    belongs to which. overtaken: the reply to the end of a message came while part of the message was still in our
    buffer (see `end`). sending: a message is being sent, which the server may refuse before its end.
    """

    __slots__ = (
        "_behind", "_buffer", "_deadline", "_idle", "_lines", "_lines_bytes", "_loop", "_paused", "_replies", "_timer",
        "_waiter", "_wanted", "_watching", "astray", "broken", "closed", "counted", "heard", "on_closed", "on_end",
        "overtaken", "sending", "transport",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self._loop = transport, loop
        self.broken: type[DeliveryError] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.closed = self.counted = False
        self.heard = ""
        self._watching: list[asyncio.Future[None]] = []
        self._buffer = b""
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._replies: list[Reply] = []
        self._wanted = 0
        self._behind = -1
        self.astray = self.overtaken = self.sending = False
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self._idle = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        if transport.is_closing():
            self.broken = ConnectionLost
        transport.set_protocol(self)
        # The next chunk is fetched while at most one waits to be sent: never more than two in memory.
        transport.set_write_buffer_limits(high=2 * CHUNK_BYTES - 1, low=CHUNK_BYTES)

    # called by sessions

    def write(self, data: bytes, more: bytes = b"") -> None:
        """Writes both, without concatenating them; does nothing if broken."""
        if self.broken is not None:
            return
        if more:
            self.transport.writelines((data, more))
        else:
            self.transport.write(data)

    def end(self, data: bytes, more: bytes = b"", behind: int = 0) -> None:
        """As `write`: the rest of a message and its end, including `behind` bytes of commands that follow the end.

        A reply that comes before the end has left this process is no answer to it, whatever it says (`overtaken`).
        """
        if self.broken is not None:
            return
        self.transport.writelines((data, more) if more else (data,))
        if self.broken is None and self.transport.get_write_buffer_size():
            self._behind = behind + _TLS_OVERHEAD_BYTES if behind else 0

    @property
    def in_step(self) -> bool:
        """Whether every reply so far has been asked for and read."""
        return not (self._replies or self._buffer or self._lines or self.astray)

    @property
    def early(self) -> Reply | None:
        """An unsolicited reply, read while no command is open; a partial line counts as a reply with code 0."""
        if self._replies:
            return self._replies[0]
        return _HALF if (self._buffer or self._lines) and self.broken is None else None

    def begin(self) -> None:
        """Called before the first command of a group: an unsolicited reply means that replies and commands are out of
        step."""
        self._idle = False
        if self._replies or self._buffer or self._lines:
            self.out_of_step()

    def out_of_step(self) -> None:
        """Fails the dialogue and discards all replies, since they cannot be assigned to commands."""
        self.astray = True
        self._fail(ReplyGarbled)
        self._replies = []

    async def replies(self, count: int, timeout_s: float) -> list[Reply]:
        """The next `count` replies; fewer if it broke (then see `broken`). timeout_s: for all of them together."""
        if len(self._replies) < count and self.broken is None:
            self._wanted = count
            self._arm(timeout_s)
            while len(self._replies) < count and self.broken is None:
                self._waiter = self._loop.create_future()
                await self._waiter
            self._deadline = 0.0
        taken, self._replies = self._replies[:count], self._replies[count:]
        return taken

    async def drained(self, timeout_s: float) -> bool:
        """Waits until the server has taken enough; False if it has replied early, or the dialogue broke."""
        if self._paused and self.broken is None and not self._replies:
            self._wanted = 1  # an early reply ends the wait too
            self._arm(timeout_s)
            while self._paused and self.broken is None and not self._replies:
                self._waiter = self._loop.create_future()
                await self._waiter
            self._deadline = 0.0
        return self.broken is None and self.early is None

    def rest(self, idle_s: float) -> None:
        """Marks it idle: any byte from the server, or the end of idle_s, closes the connection."""
        self._idle = True
        self._arm(idle_s)
        if self._replies or self._buffer or self._lines:
            self._fail(ReplyGarbled)

    def quit(self) -> None:
        """QUIT. Its reply is waited for (RFC 5321 4.1.1.10) only where it counts when the connection is closed."""
        if self.broken is None:
            self.transport.write(b"QUIT\r\n")
            self._end(ConnectionLost)
            if not (self.counted or self._watching):
                self.transport.close()
            else:
                self._timer = self._loop.call_later(QUIT_S, self._cut)

    async def leave(self) -> None:
        """QUIT; returns when the connection is closed."""
        if not self.closed:
            self._watching.append(self._loop.create_future())
            self.quit()
            await asyncio.wait(self._watching[-1:], timeout=2 * QUIT_S)

    async def gone(self) -> None:
        """Returns when a connection that is being closed is."""
        if not self.closed:
            self._watching.append(self._loop.create_future())
            await asyncio.wait(self._watching[-1:], timeout=2 * QUIT_S)

    def abort(self) -> None:
        """Cuts the connection, discarding unsent bytes."""
        self._fail(ConnectionLost)

    # called by the transport

    def data_received(self, data: bytes) -> None:
        if self.broken is not None:
            if self.counted and self.transport.get_extra_info("ssl_object") is None:
                self.transport.close()  # that was the reply to QUIT
            return
        if self._idle:
            self._fail(ConnectionLost)
            return
        lines = (self._buffer + data if self._buffer else data).split(b"\n")
        self._buffer = lines.pop()
        for line in lines:
            reply = _single(line) if not self._lines else None
            if reply is None:
                reply = self._gather(line)
            if reply is not None:
                if self._behind >= 0 and not self._replies:
                    self.overtaken = self.transport.get_write_buffer_size() > self._behind
                    self._behind = -1
                self._replies.append(reply)
            elif self.broken is not None:
                return
        if self._lines_bytes + len(self._buffer) > REPLY_BYTES_MAX:
            self._fail(ReplyGarbled)
        if len(self._replies) >= self._wanted:
            self._wake()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self.sending and self.broken is None and not self._replies:
            self._hear_refusal()
        self._end(ConnectionLost)
        self._over()

    # internals

    def _over(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed = True
        for waiter in self._watching:
            if not waiter.done():
                waiter.set_result(None)
        self._watching = []
        if self.on_closed is not None:
            told, self.on_closed = self.on_closed, None
            told()

    def _cut(self) -> None:
        """Nothing is waited for any more."""
        if not (self.counted or self._watching):
            self.transport.abort()
        elif shut(self.transport):
            self._over()

    def _hear_refusal(self) -> None:
        """After a failed write the transport reads no more, and would miss the reply of a server that refuses a message
        halfway and hangs up: reads it from the socket. Not under TLS, where only the transport can decrypt it."""
        plain = self.transport.get_extra_info("socket")
        if plain is None or self.transport.get_extra_info("ssl_object") is not None:
            return
        with contextlib.suppress(OSError):  # there was no reply
            self.data_received(os.read(plain.fileno(), REPLY_BYTES_MAX))
        if self._replies and self._replies[0].code < 400:  # a positive reply to a message that was not sent whole
            self._replies = []

    def _gather(self, line: bytes) -> Reply | None:
        """Adds one line of a multi-line reply; returns the reply with its last line.

        All lines should have one code (RFC 5321 4.2.1). Where they have not, the last one is what the server has come
        to: it says "250-taken for", and then that it could not store it.
        """
        found = _LINE.fullmatch(line)
        if found is None:
            self.heard = decoded(line[:HEARD_MAX]).strip()
            self._fail(ReplyGarbled)
            return None
        self._lines.append(line)
        self._lines_bytes += len(line)
        if found[2] == b"-":
            if self._lines_bytes > REPLY_BYTES_MAX:
                self._fail(ReplyGarbled)
            return None
        texts = [decoded(part[4:]) for part in self._lines]
        self._lines, self._lines_bytes = [], 0
        return Reply.from_lines(int(found[1]), texts)

    def _arm(self, timeout_s: float) -> None:
        """Sets the deadline. A timer that fires early enough is kept: most deadlines never come."""
        at = self._loop.time() + timeout_s
        self._deadline = at
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._deadline or self.broken is not None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._ring)
        elif self._idle:
            self.quit()
        else:
            self._fail(ReplyTimeout)

    def _fail(self, kind: type[DeliveryError]) -> None:
        if self.broken is None:
            self._end(kind)
            self._cut()

    def _end(self, kind: type[DeliveryError]) -> None:
        if self.broken is not None:
            return
        self.broken = kind
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()
        if self.on_end is not None:
            self.on_end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def shut(transport: asyncio.BaseTransport) -> bool:
    """Cuts a connection; True: it is closed when this returns. Else it is being closed already."""
    if transport.is_closing():
        return False
    plain = transport.get_extra_info("socket")
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(plain.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)  # the transport itself would do it in its own time
    cast(asyncio.Transport, transport).abort()
    return True


@lru_cache(maxsize=512)
def _single(line: bytes) -> Reply | None:
    """A single-line reply; None for anything else. Cached, as servers repeat themselves."""
    found = _LINE.fullmatch(line) if len(line) <= 512 else None
    if found is None or found[2] == b"-":
        return None
    return Reply.from_lines(int(found[1]), [decoded(found[3] or b"")])

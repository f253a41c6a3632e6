"""One connection as a stream in both directions, with bounded buffers; and what TCP can say about its end.

A clean end from us is a promise, and must not come from a process that is killed: the kernel would send the same FIN.
So SO_LINGER is set to 0 until we end it ourselves, and whatever else ends the connection is a reset for the client.
The client's clean end is the end of its message; a reset, or time that runs out, is `Cut`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

from zonemta_py.reception.connection_limits import ConnectionLimits, plain_ip
from zonemta_py.reception.tcp import is_closed, unacknowledged, was_reset

IN_BYTES_MAX = 256 * 1024
"""Bytes of a client that wait here; then it is not read from."""
OUT_BYTES_MAX = 256 * 1024
GOODBYE_S = 5.0
"""How long a client that has everything may take to close its side."""
_REST_BYTES_MAX = 1 << 20
"""What a client may still send after its command, unread by anybody."""
_ERROR_S = 2.0
_PAUSE_S, _PAUSE_MAX_S = 0.001, 0.05
_AT_ONCE, _ORDERLY = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)


class Cut(Exception):
    """The client is gone, or was too slow."""


class PullConnection(asyncio.Protocol):
    """session: what is done with it. peer: the client's IP address. idle: nothing has been begun that would be cut off:
    no command has come, or it waits for a message. verb: of its command, once that has come."""

    def __init__(
        self, gate: ConnectionLimits, session: Callable[[PullConnection], Coroutine[Any, Any, None]],
        context: ssl.SSLContext | None, least_bytes_s: float,
    ) -> None:  # fmt: skip
        self._gate, self._session, self._least = gate, session, least_bytes_s
        self._loop = asyncio.get_running_loop()
        self._tls = TlsLayer(context) if context is not None else None
        self._in = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._held = self._full = self._ended = self._lost = self._goes = self._dying = self._finished = False
        self._since, self._waited_s, self._moved, self._moved_before = 0.0, 0.0, 0, 0
        self._rest = 0
        self.peer, self.verb, self.idle = "", "", True

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.set_write_buffer_limits(OUT_BYTES_MAX)
        self.peer = plain_ip((transport.get_extra_info("peername") or ("",))[0])
        if not self._gate.enter(self, self.peer):
            if self._tls is None:
                self._transport.write(b"error: too many connections; try again later\n")
            self._goes = True
            self._loop.call_later(_PAUSE_MAX_S, self._transport.abort)
            return
        self._task = self._loop.create_task(self._session(self))

    def data_received(self, data: bytes) -> None:
        self._moved += len(data)
        if self._goes:  # we have said all that there is to say
            self._rest += len(data)
            if self._rest > _REST_BYTES_MAX:
                self._transport.abort()
            return
        if self._tls is not None:
            data = self._opened(self._tls, data)
        self._in += data
        if len(self._in) > IN_BYTES_MAX:
            self._held = True
            self._transport.pause_reading()
        self._wake()

    def _opened(self, tls: TlsLayer, data: bytes) -> bytes:
        try:
            plain = tls.feed(data)
        except TlsLayerFailed as failed:
            self._no_tls(failed)
            return b""
        self._ended = self._ended or tls.ended
        if reply := tls.pending():
            self._transport.write(reply)
        return plain

    def _no_tls(self, failed: TlsLayerFailed) -> None:
        if failed.plain:
            self._transport.write(b"error: this port speaks TLS; connect with ncat --ssl\n")
        self._lost = self._goes = self._dying = True
        self._loop.call_later(_PAUSE_MAX_S, self._transport.abort)  # when that line has left

    def eof_received(self) -> bool:
        self._ended = True
        if self._tls is not None and not self._goes:
            try:
                self._tls.finish()
            except TlsLayerFailed as failed:
                self._no_tls(failed)
        self._wake()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._gate.leave(self, self.peer)
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    def cut_off_if_late(self, now: float) -> None:
        """Only time in which we wait for the client counts: in each `timeout_s` of it enough bytes have to move."""
        if self._waiter is None or self._lost:
            return
        waited_s = self._waited_s + now - self._since
        if waited_s < self._gate.timeout_s:
            return
        kept = self._transport.get_write_buffer_size() + unacknowledged(self._socket)
        if self._moved - kept - self._moved_before < self._least * waited_s:
            self.abort()
        self._waited_s, self._since, self._moved_before = 0.0, now, self._moved - kept

    def leave(self) -> None:
        """The server is to end."""
        if self.idle:
            self.abort()

    # -- for the session

    @property
    def ended(self) -> bool:
        """The client has said that it sends nothing more."""
        return self._ended

    def watch(self) -> None:
        """Has the kernel find out whether the client is still there while nothing is said."""
        for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 3)):
            self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def gone(self) -> bool:
        """Whether TCP knows that nobody is there."""
        return self._lost or is_closed(self._socket)

    async def read(self) -> bytes:
        """What has come, b"" at the end. Raises Cut."""
        while not self._in or self._lost:
            if self._lost:
                raise Cut
            if self._ended:
                return b""
            await self._wait()
        data, self._in = bytes(self._in), bytearray()
        self._resume()
        return data

    async def has_more(self) -> bool:
        """Whether bytes have come that nobody has read. Those that are still on their way cannot be known."""
        await asyncio.sleep(0)  # the loop looks at the socket
        return bool(self._in)

    async def line(self, most: int) -> tuple[bytes, bool]:
        """The next line without its end, and whether it had one; at most `most` bytes, which then has none."""
        searched = 0
        while (at := self._in.find(b"\n", searched)) < 0 and len(self._in) <= most and not self._ended:
            if self._lost:
                raise Cut
            searched = len(self._in)
            await self._wait()
        if self._lost:
            raise Cut
        whole = 0 <= at <= most
        end = at if whole else min(most + 1, len(self._in))
        line = bytes(self._in[:end])
        del self._in[: end + whole]
        self._resume()
        return line.removesuffix(b"\r"), whole

    async def write(self, data: bytes) -> None:
        """Raises Cut."""
        if not self._lost:
            self._send(data)
        while self._full and not self._lost:
            await self._wait()
        if self._lost:
            raise Cut

    async def end(self) -> None:
        """Says that this was all, and returns once the client's TCP has everything. Raises Cut.

        What a client that has not ended its side does next is waited for: if it dies without having read all, its
        kernel says so. One that has ended it, or stays, is taken at its kernel's word.
        """
        await self._arrived()
        self._goes = True
        self._in.clear()
        if self._tls is not None:
            self._transport.write(self._tls.farewell())
            await self._arrived()
        ended = self._ended
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY)
        self._finished = True
        self._transport.write_eof()
        await self._arrived()
        self._resume()
        if not ended:
            await self._until_closed(GOODBYE_S)

    async def refuse(self, sentence: str) -> None:
        """Answers `error: …` and resets the connection, for a clean end means yes. After `end` it is too late."""
        if self._finished:
            self.close()
            return
        try:
            self._goes = True
            self._resume()
            self._send(f"error: {sentence}\n".encode())
            async with asyncio.timeout(_ERROR_S):
                await self._arrived()
                await self._until_closed(_PAUSE_MAX_S)
        except (Cut, TimeoutError):
            pass
        self.abort()

    def close(self) -> None:
        """After `end`."""
        self._transport.close()

    def abort(self) -> None:
        """The client sees a reset."""
        self._lost = True
        if not self._dying:
            self._transport.abort()
        self._wake()

    # -- within

    def _send(self, data: bytes) -> None:
        try:
            self._transport.write(self._tls.seal(data) if self._tls is not None else data)
        except TlsLayerFailed:
            raise Cut from None
        self._moved += len(data)

    def _resume(self) -> None:
        if self._held and not self._lost:
            self._held = False
            self._transport.resume_reading()

    async def _arrived(self) -> None:
        """The client's kernel has acknowledged all that was written. Raises Cut."""
        pause_s = 0.0
        while not self._lost and (self._transport.get_write_buffer_size() or unacknowledged(self._socket)):
            if self._was_reset():
                raise Cut
            await self._wait(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2 or _PAUSE_S)
        if self._lost or self._was_reset():
            raise Cut

    def _was_reset(self) -> bool:
        """Looked up, as nobody reads from a client that has ended its side. Once both have, it is closed anyway."""
        if self._transport.is_closing() or was_reset(self._socket):
            return True
        return not self._finished and is_closed(self._socket)

    async def _until_closed(self, most_s: float) -> None:
        """The client has closed its side, or so many seconds are over. Raises Cut for a reset."""
        until = self._loop.time() + most_s
        while not self._ended and not self._lost and (left_s := until - self._loop.time()) > 0:
            await self._wait(left_s)
        if self._lost:
            raise Cut

    async def _wait(self, most_s: float | None = None) -> None:
        """Until the loop has news, or so many seconds."""
        self._waiter = self._loop.create_future()
        self._since = self._loop.time()
        timer = None if most_s is None else self._loop.call_later(most_s, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._waited_s += self._loop.time() - self._since
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_READ_BYTES = 64 * 1024
_PLAIN = frozenset(range(0x20, 0x7F)) | {0x09, 0x0A, 0x0D}


class TlsLayerFailed(Exception):
    """The client does not speak TLS, or not with us. plain: it sent text, so an answer in text will be understood."""

    def __init__(self, reason: str, plain: bool) -> None:
        super().__init__(reason)
        self.plain = plain


class TlsLayer:
    """TLS for a connection whose client may end its side first, as `ncat --ssl` does at the end of its input.

    asyncio's own TLS closes both sides then, and the answer would be lost; so bytes go through a MemoryBIO here. The
    end of a client's bytes is a close_notify or the end of TCP, whichever comes first: ncat sends no close_notify.

    ended: the client has said that it sends nothing more.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._greeted = self.ended = False
        self._first = b""

    def feed(self, data: bytes) -> bytes:
        """What the client's bytes say. Raises TlsLayerFailed."""
        self._in.write(data)
        self._first = self._first or data[:20]
        found = bytearray()
        try:
            if not self._greeted:
                self._tls.do_handshake()
                self._greeted = True
            while block := self._tls.read(_READ_BYTES):
                found += block
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            plain = not self._greeted and _PLAIN.issuperset(self._first)
            raise TlsLayerFailed(error.reason or str(error), plain) from None
        return bytes(found)

    def finish(self) -> None:
        """The end of TCP. Raises TlsLayerFailed if it comes before a handshake was complete."""
        self.ended = True
        if not self._greeted:
            raise TlsLayerFailed("no handshake", _PLAIN.issuperset(self._first))

    def seal(self, data: bytes) -> bytes:
        """The bytes to send for it. Raises TlsLayerFailed."""
        try:
            if data:
                self._tls.write(data)
        except ssl.SSLError as error:
            raise TlsLayerFailed(error.reason or str(error), plain=False) from None
        return self.pending()

    def farewell(self) -> bytes:
        """The bytes that say that nothing more follows."""
        with suppress(ssl.SSLError):  # the client's own farewell is not waited for
            self._tls.unwrap()
        return self.pending()

    def pending(self) -> bytes:
        """What the handshake has to say."""
        return self._out.read()

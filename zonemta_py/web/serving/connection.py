"""uvicorn's server and its h11 protocol as every HTTP listener here has them.

That protocol bounds header sections and chunks; added are: connections are counted, and closed when they are silent or
too slow (`connection_limits`, `RequestPace`); expensive work takes turns (`Parser`); input that is not HTTP at all gets
a problem document too. uvicorn's signal handling is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from ssl import SSLContext
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from zonemta_py.reception.connection_limits import ConnectionLimits, Turns, plain_ip
from zonemta_py.reception.retirement import Retirement
from zonemta_py.reception.tcp import has_now
from zonemta_py.web.documents.problem import BUSY_S, MEDIA_TYPE, RequestProblem

LITTLE_BYTES = 2 * 1024
_LITTLE_EVENTS = 8
"""Events of an ordinary request, which need no turn."""
_EVENTS_MAX = 64
"""Events per turn, so that the next connection's turn comes soon."""


class Parser(h11.Connection):
    """Stops when the time that all connections share is used up, where h11 goes from event to event as long as it has
    bytes: many small chunks, or a long header section, cost as much as large mail. The client is then not read from
    until its turn comes, so that buffered data are bounded.

    more: it stopped although there may be more events.
    """

    def __init__(self, turns: Turns, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, head_bytes_max)
        self._turns, self._free, self._left, self.more = turns, 0, 0, False

    def begin(self, at_least: int) -> None:
        """At least that many events are returned, and more if few bytes wait."""
        self._free, self._left, self.more = at_least, _EVENTS_MAX, False
        if len(self.trailing_data[0]) <= LITTLE_BYTES:
            self._free = _LITTLE_EVENTS

    def next_event(self) -> Any:
        self._left -= 1
        if self._free > 0:
            self._free -= 1
        elif self._left < 0 or self._turns.spent():
            self.more = True
            return h11.NEED_DATA
        return super().next_event()


class TurnTaking(FlowControl):
    """held: paused by us, whatever the request wants."""

    held = False

    def pause_reading(self) -> None:
        if self.held:
            self.read_paused = True
        else:
            super().pause_reading()

    def resume_reading(self) -> None:
        if self.held:
            self.read_paused = False
        else:
            super().resume_reading()

    def hold(self) -> None:
        self.held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.held = False
        if not self.read_paused:
            self._transport.resume_reading()


KEEP_ALIVE_S = 75
HEAD_BYTES_MAX = 64 * 1024
_SLOW = RequestProblem("slow", "the request comes too slowly; send it again over a faster connection")
_NO_HTTP = RequestProblem("malformed", "this is not HTTP/1.1; send a request according to RFC 9112")
_CROWDED = RequestProblem("unavailable", "too many connections; reuse yours, or try again later", retry_s=BUSY_S)


def settings(app: ASGIApp, connections: type[HttpConnection], context: SSLContext | None) -> uvicorn.Config:
    """Of a server for that application. context: None for plain HTTP."""
    return uvicorn.Config(
        app, http=connections, ws="none", lifespan="off",
        log_config=None, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, backlog=1024, ssl_context_factory=(lambda *_: context) if context is not
        None else None,
    )  # fmt: skip


class HttpServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals keep their default effect: the process ends."""
        yield

    async def until_end(
        self, bound: socket.socket, connections: type[HttpConnection], retirement: Retirement,
        ends: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Serves on a listening socket until this process is to end, and those that are open have ended. ends: called
        then, for what does not end by itself."""
        bound.setblocking(False)
        serving = asyncio.ensure_future(self.serve([bound]))
        ending = asyncio.ensure_future(retirement.begins())
        try:
            await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
            self.accept_no_more(connections)
            await retirement.look()  # what has just been accepted is not among the connections yet
            while self.server_state.connections and not (retirement.hurried or serving.done()):
                await retirement.look()
            ends()
            self.should_exit = True
            await serving
        finally:
            serving.cancel()
            ending.cancel()

    def accept_no_more(self, connections: type[HttpConnection]) -> None:
        """Others accept; those that are open end with their next response."""
        connections.last = True
        for one in self.servers:
            one.close()


class HttpConnection(H11Protocol):
    """waits: for its turn. gate: the limits for all connections of this listener; `behind` sets it. last: each
    response is its connection's last, and says so."""

    gate: ConnectionLimits
    last = False
    conn: Parser
    flow: TurnTaking

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.conn = Parser(self.gate.turns, HEAD_BYTES_MAX)
        self.flow = TurnTaking(transport)
        self.app_state = {**self.app_state, "transport": transport}
        self.waits = self.had_all = False
        self.heard = self.loop.time()
        self.pace = RequestPace(self.heard, HEAD_S, WINDOW_S, LEAST_BYTES_S)
        self.peer = plain_ip(self.client[0]) if self.client else ""
        self.refused = not self.gate.enter_or_replace(self, self.peer)
        if self.refused:
            write(transport, _CROWDED)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.leave(self, self.peer)
        self.refused = True
        super().connection_lost(exc)

    def eof_received(self) -> None:
        self.had_all = has_now(self.transport)  # see `has_all`
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        self.pace.heard(len(data), self.heard)
        if not self.refused:
            super().data_received(data)

    def handle_events(self, at_least: int = 0) -> None:
        """Also called when a response is complete, to process pipelined requests."""
        if self.waits:
            return
        self.conn.begin(at_least)
        before = self.cycle
        super().handle_events()
        if self.last and self.cycle is not None and self.cycle is not before:
            self.cycle.keep_alive = False
            scope = self.cycle.scope
            scope["headers"] = [*scope["headers"], (b"connection", b"close")]  # as if it had been asked for
        if self.conn.more and not self.transport.is_closing():
            self.waits = True
            self.flow.hold()
            self.gate.turns.wait(self._go_on)

    def _go_on(self) -> None:
        self.waits = False
        if self.refused or self.transport.is_closing():
            return
        self.handle_events(at_least=1)
        if not self.waits and not self.transport.is_closing():
            self.flow.release()

    def on_response_complete(self) -> None:
        self.pace.idle()
        super().on_response_complete()

    def cut_off_if_late(self, now: float) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            late = self.pace.late_with_head(now)
        elif cycle.more_body:
            late = self.pace.late_with_body(cycle, not (self.flow.read_paused or self.waits), now)
        else:
            return  # we send the response ourselves
        if late and not (cycle is not None and cycle.response_started):
            self.refused = True
            write(self.transport, _SLOW)
        elif late or self.heard < now - self.gate.timeout_s:
            self._end()

    def give_way(self) -> bool:
        """Nothing is asked: no request has come whole, and none is being answered."""
        if self.waits or (self.cycle is not None and not self.cycle.response_complete):
            return False
        self._end()
        return True

    def _end(self) -> None:
        self.refused = True
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called for input that cannot be parsed; once a response has begun, no other can be sent."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            write(self.transport, _NO_HTTP)
        else:
            self.transport.close()


def behind(gate: ConnectionLimits) -> type[HttpConnection]:
    """uvicorn creates its connections from a class, without passing anything else to them."""
    return type("Connection", (HttpConnection,), {"gate": gate})


def write(transport: Any, problem: RequestProblem) -> None:
    """Writes a complete response and closes."""
    body = problem.document("")
    fields = {
        "content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close", **problem.headers
    }  # fmt: skip
    lines = [f"HTTP/1.1 {problem.status} {problem.slug}", *(f"{name}: {value}" for name, value in fields.items())]
    transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    transport.close()


HEAD_S = 20.0
"""From a request's first byte to the end of its header section."""
WINDOW_S = 20.0
LEAST_BYTES_S = 500
"""Minimum rate of a body, over each WINDOW_S in which the server was ready to read."""


class RequestPace:
    """How slow a client may be: a time limit for the head of a request, a minimum rate for its body. Times are the
    loop's.

    least_bytes_s, head_s, window_s: shorter in tests."""

    __slots__ = ("_bytes", "_head_s", "_least", "_since", "_window_s", "_within")

    def __init__(self, now: float, head_s: float, window_s: float, least_bytes_s: float) -> None:
        self._head_s, self._window_s, self._least = head_s, window_s, least_bytes_s
        self._since: float | None = now
        self._bytes = 0
        self._within: object = None

    def heard(self, size: int, now: float) -> None:
        self._bytes += size
        if self._since is None:
            self._since = now

    def idle(self) -> None:
        """Between requests, and while a response is being made: no time limit applies."""
        self._since, self._within, self._bytes = None, None, 0

    def late_with_head(self, now: float) -> bool:
        return self._since is not None and now - self._since > self._head_s

    def late_with_body(self, body: object, ready: bool, now: float) -> bool:
        """body: identifies the current body. ready: the server is reading; otherwise it is the slow one."""
        if body is not self._within or self._since is None or not ready:
            self._within, self._since, self._bytes = body, now, 0
            return False
        took_s = now - self._since
        if took_s < self._window_s:
            return False
        late = self._bytes < self._least * took_s
        self._since, self._bytes = now, 0
        return late

"""Sockets of queues on other nodes: what a process here writes to one comes out at the queue's own socket there.

So receivers, HTTP and named queues speak with a far queue as with one of this machine (`wire/client.py`), where a name
belongs to one queue of the whole cluster. `Tunnels` serves a socket for each far queue and carries its bytes over NATS,
in numbered pieces, with at most WINDOW_BYTES on their way. Whatever is lost there ends the connection at both ends, as
the death of the queue's process does; who speaks then asks what has become of what he sent.

Nobody notices by itself that a message was lost which was the last one: so each node tells those with whom it has
connections, every ROUND_S, which ones, and how many pieces it has sent through each. What only one side knows, and what
has not come though it was sent, is closed; and all that leads to a node which says nothing for QUIET_MOST rounds.

A message: [kind, id, …]: OPEN, id, node, queue; DATA, id, number, bytes; ACK, id, bytes taken so far; CLOSE, id;
ENDS, "", node, pieces sent by id; RESET, "", node: that node's agent is another process now.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from zonemta_py.cluster.nats import Nats
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.queues.layout import far_folder
from zonemta_py.wire import SOCKET

log = logging.getLogger(__name__)

OPEN, DATA, ACK, CLOSE, ENDS, RESET = "open", "data", "ack", "close", "ends", "reset"
ROUND_S, QUIET_MOST = 1.0, 5
PIECE_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024
ACK_BYTES = 512 * 1024
EVERYBODY, FAR = "-", ">"


def subject_of(cluster: str, node: str) -> str:
    """EVERYBODY is no node's name."""
    return f"zonemta.{cluster}.tunnel.{node}"


class End(asyncio.Protocol):
    """One end of a connection that leads to another node."""

    def __init__(
        self, tunnels: Tunnels, id: str, node: str, opens: int | None = None, waiting: _Waiting | None = None
    ) -> None:
        """node: where the other end is. opens: the queue that is wanted there; None: it has opened this one. waiting:
        what has come for it meanwhile."""
        self.node, self._tunnels, self._id, self._opens, self._waiting = node, tunnels, id, opens, waiting
        self.other = id.removesuffix(FAR) if id.endswith(FAR) else id + FAR
        """The other end's id: both may be on one node, as the queue has come here."""
        self._transport: asyncio.Transport | None = None
        self.sent = self.heard = 0
        """Pieces."""
        self.missed = 0
        """How often in turn the other node has not named it: it may not have heard of it yet."""
        self._out = self._taken = self._said = 0
        """Bytes: not taken by the other end yet; taken here; and said to be."""
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._tunnels.ends[self._id] = self
        if self._opens is not None:
            self._tunnels.tell(self.node, [OPEN, self.other, self._tunnels.node, self._opens])
        waiting, self._waiting = self._waiting, None
        for piece in waiting.pieces if waiting is not None else ():  # now: the next one comes to this end
            self.came(*piece)
        if waiting is not None and waiting.closed:
            self.close(tell=False)

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            self._tunnels.tell(self.node, [DATA, self.other, self.sent, data[at : at + PIECE_BYTES]])
            self.sent += 1
        self._out += len(data)
        if self._out > WINDOW_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._tunnels.ends.pop(self._id, None) is not None:
            self._tunnels.tell(self.node, [CLOSE, self.other])

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._acknowledge()

    def came(self, number: int, data: bytes) -> None:
        """A piece from the other end."""
        if number != self.heard:  # one is missing
            self.close()
            return
        self.heard += 1
        if self._transport is not None:
            self._transport.write(data)
        self._taken += len(data)
        if not self._full:
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self._taken - self._said >= ACK_BYTES:
            self._out_told()

    def _out_told(self) -> None:
        self._tunnels.tell(self.node, [ACK, self.other, self._taken - self._said])
        self._said = self._taken

    def taken(self, size: int) -> None:
        """So many bytes have come out at the other end."""
        self._out -= size
        if self._out <= WINDOW_BYTES and self._transport is not None:
            self._transport.resume_reading()

    def close(self, tell: bool = True) -> None:
        if self._tunnels.ends.pop(self._id, None) is not None and tell:
            self._tunnels.tell(self.node, [CLOSE, self.other])
        if self._transport is not None:
            self._transport.abort()


class Tunnels:
    """Of this node. folder: the MTA's. owner: the node of a queue, "" unknown. socket: of a queue that is here."""

    def __init__(
        self, nats: Nats, cluster: str, node: str, folder: Path, owner: Callable[[int], str],
        socket: Callable[[int], Path],
    ) -> None:  # fmt: skip
        self.node, self._nats, self._cluster, self._folder = node, nats, cluster, folder
        self._owner, self._socket = owner, socket
        self.ends: dict[str, End] = {}
        self._servers: dict[int, asyncio.AbstractServer] = {}
        self._secret, self._numbers = token_hex(6), count()
        self._out: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._tasks = set[asyncio.Task[Any]]()
        self._quiet = dict[str, int]()
        """Rounds in which a node has said nothing, of nodes to which connections lead."""

    async def start(self) -> None:
        """Raises OSError."""
        await self._nats.listen(subject_of(self._cluster, self.node), self._came)
        await self._nats.listen(subject_of(self._cluster, EVERYBODY), self._came)
        self._keep(self._send())
        self._keep(self._watch())
        self._keep(self._compare())
        self.tell(EVERYBODY, [RESET, "", self.node])

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def serve(self, numbers: set[int]) -> None:
        """A socket for each of these queues, and none for others. Raises OSError."""
        for number in self._servers.keys() - numbers:
            self._servers.pop(number).close()
            (far_folder(self._folder, number) / SOCKET).unlink(missing_ok=True)
        for number in numbers - self._servers.keys():
            path = far_folder(self._folder, number) / SOCKET
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                make = self._maker(number)
                self._servers[number] = await asyncio.get_running_loop().create_unix_server(make, str(path))
            finally:
                os.umask(before)

    def _maker(self, number: int) -> Callable[[], asyncio.Protocol]:
        def make() -> asyncio.Protocol:
            owner = self._owner(number)
            if not owner:
                return _Closed()
            return End(self, f"{self._secret}{next(self._numbers):x}", owner, number)

        return make

    # -- to and from other nodes

    def tell(self, node: str, message: list[Any]) -> None:
        self._out.put_nowait((node, pack(message)))

    async def _send(self) -> None:
        while True:
            node, data = await self._out.get()
            await self._nats.tell(subject_of(self._cluster, node), data)

    async def _watch(self) -> None:
        """What was on its way over a connection to NATS that is gone may be lost."""
        connections = self._nats.connections
        while True:
            await asyncio.sleep(0.1)
            if self._nats.connections != connections or not self._nats.is_connected:
                connections = self._nats.connections
                for end in [*self.ends.values()]:
                    end.close()

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            nodes = dict[str, dict[str, int]]()
            for end in self.ends.values():
                nodes.setdefault(end.node, {})[end.other] = end.sent
            for node in self._quiet.keys() - nodes.keys():
                del self._quiet[node]
            for node, sent in nodes.items():
                self._quiet[node] = self._quiet.get(node, 0) + 1
                if self._quiet[node] <= QUIET_MOST:
                    self.tell(node, [ENDS, "", self.node, sent])
                else:
                    self.lost(node)

    def _has(self, node: str, sent: dict[str, int]) -> None:
        """What that node has said of its ends here. sent: pieces, by id."""
        mine = [(id, end) for id, end in self.ends.items() if end.node == node]
        for id, end in mine:
            end.missed = 0 if id in sent else end.missed + 1
            if end.missed > 1 or sent.get(id, 0) > end.heard:
                end.close()
        if mine:
            self._quiet[node] = 0
        elif sent:
            self.tell(node, [ENDS, "", self.node, {}])

    def _came(self, data: bytes) -> None:
        kind, id, *rest = unpack(data)
        end = self.ends.get(id)
        if kind == OPEN:
            waiting = _Waiting(rest[0], id.removesuffix(FAR))
            self.ends[id] = cast(End, waiting)  # pieces may come before the queue's socket is connected
            self._keep(self._opened(waiting, id, *rest))
        elif kind == RESET and rest[0] != self.node:
            self.lost(rest[0])
        elif kind == ENDS:
            self._has(*rest)
        elif end is None:
            pass
        elif kind == DATA:
            end.came(*rest)
        elif kind == ACK:
            end.taken(*rest)
        elif kind == CLOSE:
            end.close(tell=False)

    def lost(self, node: str) -> None:
        """It is dead, or its agent is another process."""
        for end in [end for end in self.ends.values() if end.node == node]:
            end.close(tell=False)

    async def _opened(self, waiting: _Waiting, id: str, node: str, number: int) -> None:
        end = End(self, id, node, waiting=waiting)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: end, str(self._socket(number)))
        except OSError:
            self.ends.pop(id, None)
            self.tell(node, [CLOSE, end.other])
            return


class _Waiting:
    """Pieces for an end that is being opened. node: where the other one is."""

    def __init__(self, node: str, other: str) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.closed, self.node, self.other, self.sent, self.missed = False, node, other, 0, 0

    @property
    def heard(self) -> int:
        return len(self.pieces)

    def came(self, number: int, data: bytes) -> None:
        self.pieces.append((number, data))

    def taken(self, size: int) -> None:
        pass

    def close(self, tell: bool = True) -> None:
        self.closed = True


class _Closed(asyncio.Protocol):
    """For a queue that no node has now."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        with suppress(Exception):
            cast(asyncio.Transport, transport).abort()

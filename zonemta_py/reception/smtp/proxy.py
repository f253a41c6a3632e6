"""PROXY protocol, version 1 and 2: the header that a load balancer sends before the client's first byte.

The header is read from the bare socket, exactly to its last byte, before TLS or SMTP see anything of the connection.
Only networks that the listener names may send it, and every connection to that listener must.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

_V1_BYTES_MAX = 107
_READ_MAX = 65_535


@dataclass(slots=True, frozen=True)
class Origin:
    """The real peers. client, server: IP addresses. named: the header said so; else they are the proxy's."""

    client: str
    client_port: int
    server: str
    named: bool = True


class _Reader:
    """What the parser wants to read from, on a non-blocking socket; never takes a byte too many."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    async def read(self, n: int = _READ_MAX) -> bytes:
        return await self._loop.sock_recv(self._connection, n)

    async def readexactly(self, n: int) -> bytes:
        whole = b""
        while len(whole) < n:
            piece = await self.read(n - len(whole))
            if not piece:
                raise asyncio.IncompleteReadError(whole, n)
            whole += piece
        return whole

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """Only for the one short line of version 1, hence byte by byte."""
        line = b""
        while not line.endswith(separator):
            if len(line) > _V1_BYTES_MAX:
                raise asyncio.LimitOverrunError("no end of line", len(line))
            line += await self.readexactly(1)
        return line


async def read_origin(connection: socket.socket, timeout_s: float) -> Origin | None:
    """Reads the header; None if there is none, or none that can be read, in time.

    A header without addresses (LOCAL of version 2, UNKNOWN) leaves the connection's own addresses, and their
    rights are not the client's.
    """
    from aiosmtpd.proxy_protocol import AF, V2_CMD, get_proxy  # here: most listeners have no proxy

    try:
        data = await asyncio.wait_for(get_proxy(_Reader(connection)), timeout_s)
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return None
    if not data.valid:
        return None
    peer, own = connection.getpeername(), connection.getsockname()
    if data.command == V2_CMD.LOCAL or data.family not in (AF.INET, AF.INET6):
        return Origin(peer[0], peer[1], own[0], named=False)
    return Origin(str(data.src_addr), data.src_port or 0, str(data.dst_addr))

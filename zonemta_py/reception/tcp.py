"""What this machine's TCP knows about the other end of a connection."""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import termios
from typing import Any

_CLOSED = 7  # TCP_CLOSE in the kernel's tcp_states.h
_PAUSE_S, _PAUSE_MAX_S = 0.001, 0.05


def unacknowledged(connection: socket.socket) -> int:
    """Bytes that are kept here until the client's kernel has them, the end of the stream counted as one."""
    number = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, number)  # SIOCOUTQ: the same number
    return number[0]


def is_closed(connection: socket.socket) -> bool:
    """Whether a reset has come, or both sides have ended and have been acknowledged."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED


def was_reset(connection: socket.socket) -> bool:
    """Whether a reset has come that nobody has been told of. What is written after it counts as acknowledged."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def has_now(transport: Any) -> bool:
    """Whether the client's kernel has all that was written, and there has been no reset."""
    connection = transport.get_extra_info("socket")
    if transport.get_write_buffer_size() or unacknowledged(connection):
        return False
    return not (is_closed(connection) or was_reset(connection))


async def has_all(transport: Any, most_s: float) -> bool:
    """Waits until the client's kernel has all that was written; False if it is gone, or that takes too long.

    A client that has all may close at once. So the transport's protocol notes `had_all` when the client's end comes.
    """
    if transport.is_closing():
        return False
    loop, protocol = asyncio.get_running_loop(), transport.get_protocol()
    until, pause_s = loop.time() + most_s, 0.0
    while loop.time() < until:
        if transport.is_closing():
            return bool(protocol.had_all)
        if has_now(transport):
            return True
        await asyncio.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, pause_s * 2 or _PAUSE_S)
    return False

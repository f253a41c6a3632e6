"""Two ends, in two processes, that send each other Python objects: a socket pair and pickle, in frames with a length.

The standard library's `multiprocessing.Pipe` does the same, and costs ten milliseconds of each start to import.
Failures: EOFError once the other end is closed, OSError.
"""

from __future__ import annotations

import pickle
import select
import signal
import socket
from typing import Any

ASKED = signal.SIGUSR2
"""To the supervisor, from the queue: a question is in the pipe. Not SIGHUP, which operators send: of two signals of the
same kind that wait the kernel keeps one."""
_LENGTH = 8


class Pipe:
    """One end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def closed(self) -> bool:
        """This end."""
        return self._connection.fileno() < 0

    def close(self) -> None:
        self._connection.close()

    def send(self, message: Any) -> None:
        data = pickle.dumps(message)
        self._connection.sendall(len(data).to_bytes(_LENGTH) + data)

    def recv(self) -> Any:
        """Waits for the next message. Only from a process of our own: what it says is taken for true."""
        return pickle.loads(self._exactly(int.from_bytes(self._exactly(_LENGTH))))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._connection.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def poll(self, seconds: float) -> bool:
        """Whether there is a message, or the end, within that time."""
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))


def pair() -> tuple[Pipe, Pipe]:
    """Both ends."""
    one, other = socket.socketpair()
    return Pipe(one), Pipe(other)

"""Standard error of a server: neither a full disk nor a reader that has stopped reading is a reason to stop.

Whole lines are written, those of several processes never mixed. What cannot be written now waits in memory, up to
WAITING_BYTES_MAX, and is tried again with what comes next; then lines are dropped, counted, and their number is said
once there is room again. Promise: writing never waits, and raises nothing, but for EIO: a terminal that has gone, which
ends what runs in it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import stat
import threading
from collections.abc import Callable
from typing import TextIO

WAITING_BYTES_MAX = 4 * 1024 * 1024
_PIECE_BYTES = 4096
"""What a pipe takes as a whole or not at all (PIPE_BUF)."""
_WAITS = (errno.EAGAIN, errno.EINTR)


class LogStream(io.TextIOBase):
    """stream: what standard error was. shape: what becomes of a line that is printed, "" by default: nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._write, self._piece = _writer(stream)
        self.shape: Callable[[str], bytes] | None = None
        self.dropped = 0
        """Lines that were lost."""
        self._fresh()
        os.register_at_fork(after_in_child=self._fresh)

    def _fresh(self) -> None:
        """A child writes what is its own."""
        self._lock = threading.Lock()
        self._waiting, self._printed = bytearray(), ""
        self._untold = 0

    # -- what is printed

    def write(self, text: str, /) -> int:
        whole, newline, rest = (self._printed + text).rpartition("\n")
        self._printed = rest
        if newline and self.shape is None:
            self.put(f"{whole}\n".encode(errors="backslashreplace"))
        elif newline and self.shape is not None:
            self.put(b"".join(map(self.shape, whole.split("\n"))))
        return len(text)

    def flush(self) -> None:
        """What waits is tried again."""
        if self._waiting:
            self.put(b"")

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    # -- what is logged

    def put(self, lines: bytes) -> bool:
        """Whole lines. False: some wait for their reader."""
        with self._lock:
            if len(self._waiting) + len(lines) > WAITING_BYTES_MAX:
                lost = lines.count(b"\n")
                self.dropped, self._untold = self.dropped + lost, self._untold + lost
            else:
                self._waiting += lines
            self._send()
            if self._untold and not self._waiting:
                said = f"zonemta: {self._untold} log lines were lost: standard error was not read"
                self._waiting += self.shape(said) if self.shape else f"{said}\n".encode()
                self._untold = 0
                self._send()
            return not self._waiting

    def _send(self) -> None:
        waiting = self._waiting
        while waiting:
            end = len(waiting)
            if end > self._piece:
                end = waiting.rfind(b"\n", 0, self._piece) + 1 or waiting.find(b"\n") + 1 or end
            try:
                written = self._write(bytes(waiting[:end]))
            except OSError as error:
                if error.errno == errno.EIO:
                    raise
                if error.errno not in _WAITS:  # a full disk, a reader that has gone
                    lost = waiting.count(b"\n")
                    self.dropped += lost
                    waiting.clear()
                return
            del waiting[:written]


def _writer(stream: TextIO) -> tuple[Callable[[bytes], int], int]:
    """Writes to what is behind the stream without waiting, whoever else has it open: (bytes) → how many were taken; and
    how many bytes may be given at once."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError, AttributeError):  # no file, in a test
        return lambda data: _through(stream, data), WAITING_BYTES_MAX
    if stat.S_ISREG(mode):
        return lambda data: os.write(number, data), WAITING_BYTES_MAX
    if stat.S_ISSOCK(mode):
        try:
            journal = socket.socket(fileno=os.dup(number))
        except OSError:
            return lambda data: os.write(number, data), _PIECE_BYTES
        return lambda data: journal.send(data, socket.MSG_DONTWAIT), _PIECE_BYTES
    with contextlib.suppress(OSError):  # a description of our own: others who have the same one shall find it unchanged
        number = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return lambda data: os.write(number, data), _PIECE_BYTES


def _through(stream: TextIO, data: bytes) -> int:
    stream.write(data.decode(errors="replace"))
    stream.flush()
    return len(data)

"""The bytes of DATA, from the 354 to the final dot, without I/O (RFC 5321 4.5.2).

Only CRLF . CRLF ends the message; a leading dot of a line is removed; a bare CR or LF is a byte like any other, so
that nothing can be smuggled past the end. One search for CRLF-dot over each block finds both the end and the stuffing.
"""

from __future__ import annotations

from collections.abc import Callable

_UNDECIDED = (b"", b"\r")


class SinkBody:
    """size: bytes of the message so far, dots unstuffed. take: gets the message piece by piece, if anyone wants it."""

    __slots__ = ("_held", "_take", "size")

    def __init__(self, take: Callable[[bytes], object] | None = None) -> None:
        # The CRLF of the DATA command counts as the start of a line, but is no part of the message.
        self._held = b"\r\n"
        self.size = -2
        self._take = take

    def feed(self, data: bytes, start: int = 0) -> int:
        """Takes data[start:]; returns the index after CRLF . CRLF, or -1 where more is needed."""
        held = self._held
        block = held + data[start:] if held or start else data
        done = search = 0
        while (line := block.find(b"\r\n.", search)) >= 0:
            behind = line + 3
            two = block[behind : behind + 2]
            if two == b"\r\n":
                self._emit(block, done, line + 2)
                return behind + 2 - len(held) + start
            if two in _UNDECIDED:
                break
            self._emit(block, done, line + 2)
            done = search = behind
        keep = line if line >= 0 else len(block) - _open_end(block)
        self._emit(block, done, keep)
        self._held = block[keep:]
        return -1

    def _emit(self, block: bytes, start: int, end: int) -> None:
        if self._take is not None and end > start:
            self._take(block[start - min(self.size, 0) : end])
        self.size += end - start


def _open_end(block: bytes) -> int:
    """How many bytes at the end may belong to CRLF-dot."""
    if block.endswith(b"\r\n"):
        return 2
    return 1 if block.endswith(b"\r") else 0

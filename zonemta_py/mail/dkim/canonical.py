"""The canonical forms of header fields and bodies that DKIM signs (RFC 6376 3.4), "simple" and "relaxed".

Bodies go through `BodyHash` block by block: cut anywhere, the hash is that of the whole. What cannot be decided yet
(white space that may end a line, empty lines that may end the body) is kept as two bytes and a number, however long.

A body is what follows the empty line after the header section. One that does not end in CRLF is taken as if it did,
since that is how it travels (RFC 5321 4.1.1.4). CR and LF that stand alone are bytes like any other.
"""

from __future__ import annotations

import hashlib
from typing import Literal

Form = Literal["relaxed", "simple"]

_EMPTY_LINES_AT_ONCE = 16_384


class BodyHash:
    """SHA-256 of a body in one canonical form: `add` its blocks, then `digest`, once."""

    __slots__ = ("_any", "_empty_lines", "_hash", "_held", "_relaxed")

    def __init__(self, form: Form) -> None:
        self._relaxed = form == "relaxed"
        self._hash = hashlib.sha256()
        self._held = b""  # of "", " ", "\r", " \r"
        self._empty_lines = 0  # CRLFs not hashed yet: at the end of the body all but the first are left out
        self._any = False

    def add(self, block: bytes) -> None:
        block = self._held + block if self._held else block
        if self._relaxed:
            block = _one_space(block)
        end = len(block) - block.endswith(b"\r")
        if self._relaxed and block.endswith(b" ", 0, end):
            end -= 1
        self._held = block[end:]
        self._take(block[:end] if self._held else block)

    def _take(self, block: bytes) -> None:
        """Bytes that are certain; CRLFs at their end are counted."""
        kept = len(block.rstrip(b"\r\n"))
        if kept == len(block):
            empty_lines = 0
        else:
            kept, empty_lines = _ending(block, kept)
        if kept:
            self._flush_lines()
            self._hash.update(memoryview(block)[:kept])
            self._any = True
        self._empty_lines += empty_lines

    def _flush_lines(self) -> None:
        while self._empty_lines:
            lines = min(self._empty_lines, _EMPTY_LINES_AT_ONCE)
            self._hash.update(b"\r\n" * lines)
            self._empty_lines -= lines

    def digest(self) -> bytes:
        """The 32 bytes of bh=."""
        if self._held.endswith(b"\r"):
            self._take(self._held)
        if self._any or not self._relaxed:
            self._hash.update(b"\r\n")
        return self._hash.digest()


def _one_space(block: bytes) -> bytes:
    """White space within lines reduced, and removed at their ends."""
    if b"\t" in block:
        block = block.replace(b"\t", b" ")
    if b" " not in block:  # base64: one byte is looked for twenty times as fast as two
        return block
    while b"  " in block:  # each pass halves them: faster than a regular expression
        block = block.replace(b"  ", b" ")
    if b" \r\n" in block:
        block = block.replace(b" \r\n", b"\r\n")
    return block


def _ending(block: bytes, kept: int) -> tuple[int, int]:
    """Where the CRLFs that end the block begin, and how many they are; all from `kept` on is CR or LF."""
    tail = block[kept:]
    if len(tail) % 2 == 0 and tail == b"\r\n" * (len(tail) // 2):
        return kept, len(tail) // 2
    count = 0
    while tail.endswith(b"\r\n", 0, len(tail) - 2 * count):
        count += 1
    return len(block) - 2 * count, count


def field(form: Form, raw: bytes) -> bytes:
    """A header field without its last CRLF, in canonical form (still without)."""
    return raw if form == "simple" else fields(form, [raw])[:-2]


def fields(form: Form, raw: list[bytes]) -> bytes:
    """Header fields without their last CRLFs, in canonical form, each with it. The work is done on all at once."""
    if form == "simple":
        return b"".join([one + b"\r\n" for one in raw])
    parts: list[bytes] = []
    for one in raw:
        name, _, value = one.partition(b":")
        parts += (name.rstrip(b" \t").lower(), b":", value.lstrip(b" \t\r\n"), b"\r\n")
    joined = b"".join(parts)
    if b"\t" in joined:
        joined = joined.replace(b"\t", b" ")
    joined = joined.replace(b"\r\n ", b" ")
    while b"  " in joined:
        joined = joined.replace(b"  ", b" ")
    return joined.replace(b" \r\n", b"\r\n")

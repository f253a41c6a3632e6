"""Content-Transfer-Encoding decoded and encoded while a body streams (RFC 2045 6.7, 6.8), in bounded memory.

For `message_rewrite`: `encoded(node.encoding, _changed(decoded(node.encoding, stream)))`. 7bit, 8bit, binary and
unknown encodings pass as they are. Damaged base64 or quoted-printable never raises: what can be decoded is.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import AsyncIterator

from zonemta_py.plugin.arguments import Stream

_LINE_BYTES_HELD_MAX = 65_536
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")
_NOT_PRINTABLE = re.compile(rb"[^\t !-<>-~]")
_BASE64_LINE_BYTES = 57
"""Gives lines of 76 characters."""
_QUOTED_CHARACTERS = 75
"""Leaves room for the = of a soft line break."""


def decoded(encoding: str, stream: Stream) -> AsyncIterator[bytes]:
    """The content itself. encoding: `node.encoding`. Raises TypeError at once for anything else."""
    _check("decoded", encoding, stream)
    return {"base64": _from_base64, "quoted-printable": _from_quoted_printable}.get(encoding, _as_it_is)(stream)


def encoded(encoding: str, stream: Stream) -> AsyncIterator[bytes]:
    """The content as it goes on the wire, lines ended by CRLF. Raises TypeError at once for what is not an encoding."""
    _check("encoded", encoding, stream)
    return {"base64": _to_base64, "quoted-printable": _to_quoted_printable}.get(encoding, _as_it_is)(stream)


def _check(name: str, encoding: object, stream: object) -> None:
    """Checked here, where the plugin calls, and not when the first block is read, in another line."""
    if not isinstance(encoding, str) or not hasattr(stream, "__aiter__"):
        given = f"{type(encoding).__name__}, {type(stream).__name__}"
        raise TypeError(f"write {name}(node.encoding, stream): it was given ({given})")


async def _as_it_is(stream: Stream) -> AsyncIterator[bytes]:
    async for block in stream:
        yield block


async def _from_base64(stream: Stream) -> AsyncIterator[bytes]:
    held = b""
    async for block in stream:
        held += _NOT_BASE64.sub(b"", block)
        whole = len(held) & ~3
        if whole:
            yield binascii.a2b_base64(held[:whole])
            held = held[whole:]
    if len(held) > 1:  # one character alone holds no whole byte
        yield binascii.a2b_base64(held + b"=" * (4 - len(held)))


async def _to_base64(stream: Stream) -> AsyncIterator[bytes]:
    held = b""
    async for block in stream:
        held += block
        whole = len(held) - len(held) % _BASE64_LINE_BYTES
        if whole:
            yield _base64_lines(held[:whole])
            held = held[whole:]
    if held:
        yield _base64_lines(held)


def _base64_lines(content: bytes) -> bytes:
    starts = range(0, len(content), _BASE64_LINE_BYTES)
    lines = (binascii.b2a_base64(content[i : i + _BASE64_LINE_BYTES], newline=False) for i in starts)
    return b"\r\n".join(lines) + b"\r\n"


async def _from_quoted_printable(stream: Stream) -> AsyncIterator[bytes]:
    async for lines in _whole_lines(stream):
        yield binascii.a2b_qp(lines)


async def _to_quoted_printable(stream: Stream) -> AsyncIterator[bytes]:
    """Not binascii's b2a_qp, whose lines grow beyond 76 characters before a blank."""
    open_line = False
    async for lines in _whole_lines(stream):
        if open_line:
            yield b"=\r\n"
        *whole, rest = lines.split(b"\n")
        yield b"".join(_quoted(line.removesuffix(b"\r")) + b"\r\n" for line in whole) + _quoted(rest)
        open_line = bool(rest)


def _quoted(line: bytes) -> bytes:
    """One line without its end, in pieces of 75 characters at most so that a = has room after each."""
    safe = _NOT_PRINTABLE.sub(lambda found: b"=%02X" % found[0][0], line)
    if safe.endswith((b" ", b"\t")):
        safe = safe[:-1] + b"=%02X" % safe[-1]
    pieces, start = [], 0
    while len(safe) - start > _QUOTED_CHARACTERS:
        end = start + _QUOTED_CHARACTERS
        escape = safe.rfind(b"=", end - 2, end)
        end = escape if escape >= 0 else end
        pieces.append(safe[start:end])
        start = end
    return b"=\r\n".join((*pieces, safe[start:]))


async def _whole_lines(stream: Stream) -> AsyncIterator[bytes]:
    """Blocks cut after line ends; a longer line is cut where no escape (=XX) or line end (CRLF) is split."""
    held = b""
    async for block in stream:
        held += block
        cut = held.rfind(b"\n") + 1
        if not cut and len(held) > _LINE_BYTES_HELD_MAX:
            cut = _safe_cut(held)
        if cut:
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


def _safe_cut(line: bytes) -> int:
    cut = len(line) - 3
    escape = line.rfind(b"=", cut - 2, cut)
    return escape if escape >= 0 else cut

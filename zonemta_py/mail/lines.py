"""Line ends and dots of DATA, in both directions, block by block (RFC 5321 2.3.8, 4.5.2).

`Decoder` takes what a client sends after 354 and gives the message; `Stuffer` takes a message and gives what goes out.
Blocks may be cut anywhere: the result is that of the whole. The work is done by bytes methods on whole blocks.

Promise: only CRLF "." CRLF ends DATA, whatever other line ends surround it, so that no second message can be
smuggled in after a fake end (bare LF, bare CR). What breaks a limit or a policy is read to its true end, then refused.
"""

from __future__ import annotations

import re
from io import IncrementalNewlineDecoder

from zonemta_py.mail.reply import Reply

END = b"\r\n.\r\n"
LINE_OCTETS_MAX = 998
"""Longest line that may be sent, its CRLF not counted (RFC 5321 4.5.3.1.6)."""
_LF_DOTS = re.compile(rb"(?<!\r)\n\.\.")
"""Clients that end lines in bare LF double the dots behind those too (Python's smtplib does, given bytes). Where bare
LF is made a line end, one dot of two is removed; a single one stays, since it was not stuffed."""
_OPEN_ENDS = (END[:4], END[:3], END[:2], b"\n.", b"\n", b"\r")

TOO_LARGE = Reply(552, "5.3.4", "Message is larger than the limit announced with SIZE")
LINE_TOO_LONG = Reply(554, "5.6.0", "Message has a line longer than this server takes")
BARE_LINE_END = Reply(554, "5.6.0", "Message has a CR or LF that stands alone; lines must end in CRLF (RFC 5321 2.3.8)")
NUL_BYTE = Reply(554, "5.6.0", "Message has a NUL byte (RFC 5322 4)")


class Decoder:
    """State of one DATA: feed blocks until `done`; then `rest` is what followed the end (the next commands).

    refusal: None, or the reply for the first violation; from it on `feed` gives b"" but still finds the end.
    size: bytes given out so far. eightbit: whether one of them was not ASCII. long: whether a line is too long to be
    sent as it is.
    message_bytes, line_bytes: limits (a line's CRLF not counted).
    """

    __slots__ = (
        "_carry", "_line", "_line_bytes", "_message_bytes", "_normalise", "_nul", "_skip", "done", "eightbit",
        "long", "refusal", "rest", "size",
    )  # fmt: skip

    def __init__(self, message_bytes: int, line_bytes: int, normalise: bool = True, refuse_nul: bool = True) -> None:
        self._message_bytes, self._line_bytes = message_bytes, line_bytes
        self._normalise, self._nul = normalise, refuse_nul
        self._carry = b"\r\n"  # DATA begins as if after a line end: a first line "." is the end
        self._skip = 2  # of which nothing is given out
        self._line = 0  # bytes of the line that is still open
        self.size = 0
        self.eightbit = self.long = False
        self.done = False
        self.rest = b""
        self.refusal: Reply | None = None

    def feed(self, block: bytes) -> bytes:
        """Gives the decoded bytes that are certain by now."""
        block = self._carry + block
        # A single byte is looked for a hundred times as fast as three, and much large mail (base64) has no dot at all.
        end = dot = block.find(b"\r\n.") if b"." in block else -1
        if dot >= 0 and not block.startswith(END, dot):
            end = block.find(END, dot)
        if end >= 0:
            self.rest = block[end + 5 :]
            self.done = True
            self._carry = b""
            content = block[: end + 2]
        else:
            held = _undecided(block)
            self._carry = block[len(block) - held :]
            content = block[: len(block) - held]
        if not content or self.refusal is not None:
            return b""
        if dot != end:
            content = content.replace(b"\r\n.", b"\r\n")
        return self._decode(content)

    def _decode(self, content: bytes) -> bytes:
        if self._skip:
            content = content[self._skip :]
            self._skip = 0
            if not content:
                return b""
        if not paired(content):
            if not self._normalise:
                return self._refuse(BARE_LINE_END)
            content = self._undoubled(content)
            content = crlf(content)
        if self._nul and b"\0" in content:
            return self._refuse(NUL_BYTE)
        self.eightbit = self.eightbit or not content.isascii()
        self.size += len(content)
        if self.size > self._message_bytes:
            return self._refuse(TOO_LARGE)
        if self._line + len(content) > self._line_bytes and self._longest(content) > self._line_bytes:
            return self._refuse(LINE_TOO_LONG)
        self.long = self.long or has_long_line(content, self._line)
        last = content.rfind(b"\n")
        self._line = self._line + len(content) if last < 0 else len(content) - last - 1
        return content

    def _undoubled(self, content: bytes) -> bytes:
        return _LF_DOTS.sub(b"\n.", content)

    def _longest(self, content: bytes) -> int:
        lines = content.split(b"\r\n")
        return max(self._line + len(lines[0]), *map(len, lines))

    def _refuse(self, reply: Reply) -> bytes:
        self.refusal = reply
        return b""


class Undotted(Decoder):
    """The same for a message that comes as it is, without dots or an end of its own (HTTP): call `finish` at its
    end."""

    __slots__ = ()

    def __init__(self, message_bytes: int, line_bytes: int, normalise: bool = True, refuse_nul: bool = True) -> None:
        super().__init__(message_bytes, line_bytes, normalise, refuse_nul)
        self._carry, self._skip = b"", 0

    def feed(self, block: bytes) -> bytes:
        if self.refusal is not None:
            return b""
        block = self._carry + block
        self._carry = b"\r" if block.endswith(b"\r") else b""
        content = block[:-1] if self._carry else block
        return self._decode(content) if content else b""

    def finish(self) -> bytes:
        """What was held back, and the end of the last line if it has none."""
        self.done = True
        if self.refusal is not None:
            return b""
        if self._carry:
            return self._decode(b"\r" if self._normalise is False else b"\r\n")
        return self._decode(b"\r\n") if self._line else b""

    def _undoubled(self, content: bytes) -> bytes:
        return content


def crlf(content: bytes) -> bytes:
    """Every line end made CRLF."""
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")


def has_long_line(content: bytes, before: int = 0) -> bool:
    """Whether a line of it is longer than LINE_OCTETS_MAX. before: bytes of its first line that came earlier.

    Only every thousandth byte or so is looked at.
    """
    at, size, widest = 0, len(content), LINE_OCTETS_MAX + 2
    if before:
        at = content.find(b"\n") + 1
        if before + (at or size) > (widest if at else LINE_OCTETS_MAX):
            return True
        if not at:
            return False
    while size - at > LINE_OCTETS_MAX:
        end = content.rfind(b"\n", at, at + widest)
        if end < 0:
            return True
        at = end + 1
    return False


def paired(content: bytes) -> bool:
    """Whether every CR is followed by LF, and every LF follows a CR.

    The decoder of text files keeps note of the kinds of line ends it has met, in one pass in C: three times as fast as
    counting CR, LF and CRLF.
    """
    decoder = IncrementalNewlineDecoder(None, translate=False)
    decoder.decode(content.decode("latin-1"), True)
    return decoder.newlines in (None, "\r\n")


def _undecided(block: bytes) -> int:
    """How many of the last bytes are ambiguous until more comes."""
    for end in _OPEN_ENDS:
        if block.endswith(end):
            return len(end)
    return 0


class Stuffer:
    """Dot-stuffs a message whose lines end in CRLF, chunk by chunk; `end` gives what comes after the last one."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\r\n"

    def stuff(self, chunk: bytes) -> bytes:
        """The chunk with a dot put before every dot that begins a line."""
        if not chunk:
            return b""
        # Searched for from the end: CPython skips far more that way where there are many line ends.
        # As in `Decoder`: much large mail has no dot at all.
        dotted = b"." in chunk and chunk.rfind(b"\r\n.") >= 0
        stuffed = chunk.replace(b"\r\n.", b"\r\n..") if dotted else chunk
        if chunk[0] == 0x2E and self._tail == b"\r\n":
            stuffed = b"." + stuffed
        elif self._tail[-1:] == b"\r" and chunk.startswith(b"\n."):
            stuffed = b"\n.." + stuffed[2:]
        self._tail = chunk[-2:] if len(chunk) > 1 else (self._tail + chunk)[-2:]
        return stuffed

    def end(self) -> bytes:
        """The end of DATA: the last CRLF is not doubled if the message ended in one (RFC 5321 4.1.1.4)."""
        return b".\r\n" if self._tail == b"\r\n" else END

"""Finds the leaves of a MIME tree in a streaming body (RFC 2045, RFC 2046). Bytes in, events out, nothing lost.

All input comes out in the events' `raw` bytes, in order, unchanged, however it was cut into blocks: a missing
end boundary, a part without a header section, garbage. What is too deep, too long or too many (limits below) stays raw
and is not offered as a node; message/rfc822 is a leaf. Held back is a delimiter line or one header section at most.

Downside: a boundary belongs to the innermost level that uses it, so of two nested multiparts with the same boundary the
outer one never ends; the bytes pass unchanged all the same.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from email.message import Message
from email.utils import unquote
from typing import NamedTuple

from zonemta_py.mail.charsets import text_of
from zonemta_py.mail.headers import Headers, decode, split
from zonemta_py.plugin.arguments import Node

DEPTH_MAX = 20
"""Multiparts inside one another."""

NODES_MAX = 1_000
"""Leaves offered in one message; a message of a million parts is an attack."""

PART_HEADER_BYTES_MAX = 65_536
"""Header section of a part; a part with a longer one is not offered."""

DELIMITER_BYTES_MAX = 1_000
"""Delimiter line; RFC 2046 allows 74, and padding."""

BOUNDARY_BYTES_MAX = 200
"""RFC 2046 allows 70; a multipart with a longer one is not followed."""

MISSES_MAX = 100_000
"""Lines that begin like a delimiter and are not one; after that many the parts are no longer separated."""

_BREAK = re.compile(r"[\r\n]")
_TYPE = re.compile(r"[!#$%&'*+.^_`{|}~0-9a-z-]+/[!#$%&'*+.^_`{|}~0-9a-z-]+")
_FIELD_CHARACTERS_MAX = 4_096
"""Bytes of a Content-… field that are parsed: the email package takes quadratic time for hostile ones."""

_PARAMETERS_MAX = 64
"""Looked at of them: two thousand would keep a parser that goes back and forth between them busy."""

_COMMENT_PIECES = re.compile(r'\\.|[()"]|[^\\()"]+|\\', re.DOTALL)
_SLASH = re.compile(r"\s*/\s*")
_PLAIN_ENCODINGS = frozenset(("7bit", "8bit", "binary"))
_LINE_END = re.compile(rb"\r?\n")
_CONTENT_FIELD = re.compile(rb"^content-[!-9;-~]+[ \t]*:", re.IGNORECASE | re.MULTILINE)
_BOUNDARY = re.compile(r";\s*boundary(?:\*0?\*?)?\s*=")


class Begin(NamedTuple):
    """A leaf begins. raw: its header section as it came, b"" for the root, whose fields are the message's.

    rest: what follows the fields in raw, to be sent after node.headers if they were changed.
    """

    node: Node
    raw: bytes
    rest: bytes


class MimeBody(NamedTuple):
    """Bytes of the leaf that began last."""

    raw: bytes


class End(NamedTuple):
    """That leaf is over."""


class Other(NamedTuple):
    """Bytes that belong to no leaf: delimiters, preambles, epilogues, headers of multiparts."""

    raw: bytes


Event = Begin | MimeBody | End | Other


@dataclass(slots=True)
class _Level:
    """A multipart we are inside of. parents: its own content type is the last one."""

    boundary: bytes
    path: tuple[int, ...]
    parents: tuple[str, ...]
    parts: int = 0


class _Delimiter(NamedTuple):
    """Held bytes start…end are a delimiter line, with the line end before it. level: index of whose it is."""

    start: int
    end: int
    level: int
    closing: bool


class Splitter:
    """Of the body of one message. Take all events of a call before the next call."""

    def __init__(self, headers: Headers) -> None:
        """headers: the message's; the root's Content-Type is read when `begin` is called."""
        self._root = headers
        self._levels: list[_Level] = []
        self._held = bytearray()
        self._line_start = True  # the line end before the held bytes is spoken for
        self._in_header = False
        self._checked = 0  # in a part's header section: length of the lines that are known to be no delimiters
        self._in_leaf = False
        self._nodes = 0
        self.unread = ""
        """Why parts have not been told apart; "": all have."""
        self._misses = 0  # lines that began like a delimiter and were none

    def begin(self) -> Iterator[Event]:
        """Before the first block: a root that is not a multipart begins here."""
        yield from self._part(self._root, b"", b"", (), ())

    def feed(self, block: bytes) -> Iterator[Event]:
        """block: body bytes after the header section's empty line, any number."""
        if not self._levels:
            if block:
                yield self._content(block)
            return
        self._held += block
        yield from self._work(final=False)

    def finish(self) -> Iterator[Event]:
        """The message has ended."""
        yield from self._work(final=True)
        if self._in_leaf:
            self._in_leaf = False
            yield End()

    def _work(self, final: bool) -> Iterator[Event]:
        going = True
        while going and self._held and self._levels:
            step = self._header_step if self._in_header else self._body_step
            going = yield from step(final)
        if self._held and (final or not self._levels):
            yield self._content(self._take(len(self._held)))

    def _body_step(self, final: bool) -> Generator[Event, None, bool]:
        """Content up to the next delimiter, and the delimiter. Returns whether there was one."""
        found = self._find(final)
        start = found.start if isinstance(found, _Delimiter) else found
        if start:
            yield self._content(self._take(start))
            self._line_start = False
        if not isinstance(found, _Delimiter):
            return False
        yield from self._cross(found, found.end - start)
        return True

    def _header_step(self, final: bool) -> Generator[Event, None, bool]:
        """One line of a part's header section. Returns whether there is more to do."""
        end = self._held.find(b"\n", self._checked) + 1
        if (not end and len(self._held) > PART_HEADER_BYTES_MAX) or self._checked > PART_HEADER_BYTES_MAX:
            self._in_header, self._line_start = False, True
            self.unread = f"a part's header section has more than {PART_HEADER_BYTES_MAX:,} bytes"
            yield Other(self._take(self._checked))
            return True
        if not end:
            return False
        line = bytes(self._held[self._checked : end])
        if line in (b"\r\n", b"\n"):
            yield from self._part_begins(self._take(end))
            return True
        delimiter = self._delimiter(self._checked, end) if line.startswith(b"--") else None
        if delimiter is None:
            self._checked = end
            return True
        yield Other(self._take(self._checked))
        yield from self._cross(delimiter, len(line))
        return True

    def _find(self, final: bool) -> _Delimiter | int:
        """The next delimiter, or how many of the held bytes are certainly not one."""
        for dashes in self._candidates():
            end = self._held.find(b"\n", dashes) + 1
            if end or final:
                found = self._delimiter(dashes, end or len(self._held))
                if found:
                    return found
                self._misses += 1
        return len(self._held) if final else self._harmless()

    def _candidates(self) -> Iterator[int]:
        """Where lines begin like a delimiter of ours, in order; found at the speed of bytes.find."""
        if self._line_start and self._held.startswith(b"--"):
            yield 0
        yield from heapq.merge(*(self._occurrences(b"\n--" + level.boundary) for level in self._levels))

    def _occurrences(self, wanted: bytes) -> Iterator[int]:
        at = self._held.find(wanted)
        while at >= 0 and self._misses < MISSES_MAX:
            yield at + 1
            at = self._held.find(wanted, at + 1)

    def _delimiter(self, dashes: int, end: int) -> _Delimiter | None:
        """Whether the line from `dashes` to `end` is one of ours."""
        if end - dashes > DELIMITER_BYTES_MAX:
            return None
        word = bytes(self._held[dashes + 2 : end]).rstrip(b" \t\r\n")
        for level in range(len(self._levels) - 1, -1, -1):
            boundary = self._levels[level].boundary
            if word.startswith(boundary) and word[len(boundary) :] in (b"", b"--"):
                return _Delimiter(self._line_end_before(dashes), end, level, len(word) > len(boundary))
        return None

    def _line_end_before(self, at: int) -> int:
        if at and self._held[at - 1] == 10:
            at -= 1
            if at and self._held[at - 1] == 13:
                at -= 1
        return at

    def _harmless(self) -> int:
        """Keeps back an unfinished line that may become a delimiter, and the line end before it."""
        held = self._held
        line = held.rfind(b"\n") + 1
        begins_so = b"--".startswith(held[line : line + 2]) and (line or self._line_start)
        if begins_so and len(held) - line <= DELIMITER_BYTES_MAX:
            return self._line_end_before(line)
        return len(held) - held.endswith(b"\r")

    def _cross(self, delimiter: _Delimiter, length: int) -> Iterator[Event]:
        """Goes from one part to the next, or out of a multipart; the delimiter line is the first of the held bytes."""
        if self._in_leaf:
            self._in_leaf = False
            yield End()
        yield Other(self._take(length))
        self._line_start = True
        self._in_header = not delimiter.closing
        self._checked = 0
        del self._levels[delimiter.level + (not delimiter.closing) :]
        if not delimiter.closing:
            self._levels[-1].parts += 1
        if self._nodes >= NODES_MAX:
            if not delimiter.closing:
                self.unread = f"it has more than {NODES_MAX:,} parts"
            self._levels.clear()
            self._in_header = False

    def _part_begins(self, raw: bytes) -> Iterator[Event]:
        self._in_header = False
        level = self._levels[-1]
        lines = _LINE_END.sub(b"\r\n", raw)
        headers, end = split(lines)
        if _CONTENT_FIELD.search(lines, end):
            self.unread = "a part's header section has a line that is no field, and fields after it"
        yield from self._part(headers, raw, lines[end:], (*level.path, level.parts - 1), level.parents)

    def _part(
        self, headers: Headers, raw: bytes, rest: bytes, path: tuple[int, ...], parents: tuple[str, ...]
    ) -> Iterator[Event]:
        """A header section is complete: what follows is a multipart, a leaf, or not understood."""
        self._line_start = True
        node, boundary = describe(headers, path, parents)
        if _is_ambiguous(headers, node):
            self.unread = "its Content-Type can be read in two ways, and so it may have other parts"
        if not node.content_type.startswith("multipart/"):
            self._nodes += 1
            self._in_leaf = True
            yield Begin(node, raw, rest)
            return
        fits = 0 < len(boundary) <= BOUNDARY_BYTES_MAX and len(self._levels) < DEPTH_MAX
        if fits and node.encoding in _PLAIN_ENCODINGS:
            self._levels.append(_Level(boundary, path, (*parents, node.content_type)))
        elif len(self._levels) >= DEPTH_MAX:
            self.unread = f"its parts are nested more than {DEPTH_MAX} deep"
        else:
            self.unread = "a multipart has no boundary that can be used, or is encoded itself"
        if raw:
            yield Other(raw)

    def _content(self, raw: bytes) -> MimeBody | Other:
        return MimeBody(raw) if self._in_leaf else Other(raw)

    def _take(self, length: int) -> bytes:
        with memoryview(self._held) as held:
            raw = bytes(held[:length])
        del self._held[:length]
        return raw


def describe(headers: Headers, path: tuple[int, ...], parents: tuple[str, ...]) -> tuple[Node, bytes]:
    """The node these fields describe, and the boundary of a multipart, b"" if there is none. Never raises."""
    message, kind = Message(), Message()
    for name in ("Content-Type", "Content-Disposition"):
        value = _parsed(headers.get(name))
        if value:
            message[name] = value
    if "Content-Type" in message:
        kind["Content-Type"] = _uncommented(message["Content-Type"])
    in_digest = bool(parents) and parents[-1] == "multipart/digest"
    kind.set_default_type("message/rfc822" if in_digest else "text/plain")
    encoding = headers.get("Content-Transfer-Encoding", "7bit").partition(";")[0].strip().lower()
    node = Node(
        content_type=_content_type(kind),
        charset=_parameter(message, "charset").lower(),
        encoding=encoding or "7bit",
        filename=decode(_parameter(message, "filename")),
        headers=headers,
        path=path,
        parents=parents,
    )
    codec = "utf-8" if _is_utf8(headers.get("Content-Type")) else "latin-1"
    return node, _parameter(kind, "boundary").encode(codec, "replace")


def _parsed(value: str) -> str:
    """As much of a field as the email package can be given."""
    return ";".join(_readable(value[:_FIELD_CHARACTERS_MAX]).split(";", _PARAMETERS_MAX)[:_PARAMETERS_MAX])


def _uncommented(value: str) -> str:
    """Of Content-Type, without comments, and without spaces in its type (RFC 2045, section 5.1)."""
    if "(" in value:
        kept, depth, quoted = list[str](), 0, False
        for piece in _COMMENT_PIECES.findall(value):
            if piece == '"' and not depth:
                quoted = not quoted
            elif not quoted and piece in "()":
                depth = max(depth + (1 if piece == "(" else -1), 0)
                continue
            if not depth:
                kept.append(piece)
        value = "".join(kept)
    kind, mark, rest = value.partition(";")
    return f"{_SLASH.sub('/', kind.strip())}{mark}{rest}"


def _is_ambiguous(headers: Headers, node: Node) -> bool:
    """Whether another program may see a multipart where we see none, or see its parts begin elsewhere."""
    kinds = [_uncommented(_parsed(value)).lower() for value in headers.all("Content-Type")]
    if not any(kind.startswith("multipart") for kind in kinds):
        return False
    return len(kinds) > 1 or not node.content_type.startswith("multipart/") or len(_BOUNDARY.findall(kinds[0])) > 1


def _content_type(message: Message) -> str:
    """Type and subtype; where they are not both tokens the default (RFC 2045, sections 5.1 and 5.2)."""
    found = message.get_content_type()
    return found if _TYPE.fullmatch(found) else message.get_default_type()


def _is_utf8(value: str) -> bool:
    """Headers gives bytes that are not UTF-8 as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _readable(value: str) -> str:
    """The email package fails on surrogates; Latin-1 carries the same bytes."""
    return value if _is_utf8(value) else value.encode("utf-8", "surrogateescape").decode("latin-1")


def _parameter(message: Message, name: str) -> str:
    """Of Content-Type (or, for a file name, Content-Disposition); "" if it is missing or cannot be read.

    RFC 2231 lets line ends into it: a boundary that has one bounds nothing, elsewhere they are spaces.
    """
    try:
        if name == "filename":
            found = message.get_param("filename", None, "content-disposition") or message.get_param("name", "")
        else:
            found = message.get_param(name, "")
    except (ValueError, LookupError, TypeError):  # the email package gives up on some hostile parameters
        return ""
    value = _plain(found or "")
    if name == "boundary":
        value = value.rstrip()
        return "" if _BREAK.search(value) else value
    if name == "charset" and not value.isascii():
        return ""
    return _BREAK.sub(" ", value.strip())


def _plain(found: str | tuple[str | None, str | None, str]) -> str:
    """What the email package gives for a parameter: text, or one in a character set of its own (RFC 2231)."""
    if isinstance(found, str):
        return unquote(found)
    charset, _, coded = found
    return text_of(coded.encode("raw-unicode-escape"), charset or "ascii")

"""Header section: split from the body, read and changed field by field without touching the rest (RFC 5322 2.2).

Fields are kept as the raw bytes that came, folds and all; only what is added, replaced or removed changes. Text is
UTF-8 (RFC 6532); bytes that are not survive a round trip as surrogates. Lines end in CRLF everywhere.

A header section ends at the first empty line, or before the first line that is neither a field nor the continuation of
one. A message without an empty line may thus be all header, or, if it does not begin with a field, all body.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header

from zonemta_py.mail.charsets import text_of
from zonemta_py.mail.fields import one_line
from zonemta_py.mail.limits import HEADER_FIELDS_MAX

_FIELD_END = re.compile(rb"\r\n(?![ \t])")
_NAME = re.compile(rb"([\x21-\x39\x3b-\x7e]+)[ \t]*:")
_FOLD = re.compile(r"\r\n(?=[ \t])")
_ENCODED_GAP = re.compile(r"(\?=)\s+(=\?)")
CODED_CHARACTERS_MAX = 8_192
"""Most characters of a value to decode: the email package takes quadratic time, and longer ones are not read."""


class Headers:
    """Ordered raw fields, without their last CRLF. Names are compared without regard to case. names: of the fields, in
    lower case."""

    __slots__ = ("fields", "names")

    def __init__(self, fields: list[bytes] | None = None) -> None:
        self.fields: list[bytes] = fields if fields is not None else []
        self.names: list[bytes] = [name_of(field) for field in self.fields]

    @classmethod
    def parse(cls, section: bytes) -> Headers:
        """Takes a header section, or a whole message; what follows the section is ignored."""
        return split(section)[0]

    def build(self) -> bytes:
        """The fields, each with its CRLF; the empty line that ends a header section is not part of it."""
        return b"\r\n".join(self.fields) + b"\r\n" if self.fields else b""

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(name as written, unfolded value) of each field."""
        for field in self.fields:
            yield field.partition(b":")[0].rstrip().decode(), _value(field)

    def __contains__(self, name: str) -> bool:
        return name.lower().encode() in self.names

    def get(self, name: str, default: str = "") -> str:
        """Unfolded value of the first such field; encoded words stay as they are (see `decoded`)."""
        wanted = name.lower().encode()
        return _value(self.fields[self.names.index(wanted)]) if wanted in self.names else default

    def all(self, name: str) -> list[str]:
        """Unfolded values of all such fields, top to bottom."""
        wanted = name.lower().encode()
        return [_value(field) for field, own in zip(self.fields, self.names, strict=True) if own == wanted]

    def count(self, name: str) -> int:
        """How many such fields there are."""
        return self.names.count(name.lower().encode())

    def decoded(self, name: str, characters_max: int = 200) -> str:
        """First such value, readable: encoded words decoded (RFC 2047), white space and length bounded."""
        wanted = name.lower().encode()
        if wanted not in self.names:
            return ""
        return _readable(self.fields[self.names.index(wanted)])[:characters_max]

    def chosen(self, names: dict[bytes, str], characters_max: int = 200) -> dict[str, str]:
        """`decoded` of each of these fields that is here. names: in lower case, and as they are to be called;
        the order of the result is theirs."""
        found: dict[bytes, str] = {}
        for name, field in zip(self.names, self.fields, strict=True):
            if name in names and name not in found:
                found[name] = _readable(field)[:characters_max]
        return {called: found[name] for name, called in names.items() if name in found}

    def add(self, name: str, value: str) -> None:
        """Puts a field at the end. Raises ValueError if name or value cannot stand in a header section."""
        self._insert(len(self.fields), name, value)

    def append(self, field: bytes) -> None:
        """Puts a raw field, without its last CRLF, at the end."""
        self.fields.append(field)
        self.names.append(name_of(field))

    def prepend(self, name: str, value: str) -> None:
        """Puts a field at the top, where trace fields go. Raises ValueError as `add` does."""
        self._insert(0, name, value)

    def replace(self, name: str, value: str) -> None:
        """Puts the field in the place of the first such one, or at the end; removes the others."""
        wanted = name.lower().encode()
        field = _field(name, value)
        place = self.names.index(wanted) if wanted in self.names else len(self.fields)
        self.remove(name)
        self.fields.insert(place, field)
        self.names.insert(place, wanted)

    def remove(self, name: str) -> int:
        """Takes all such fields out; returns how many there were."""
        wanted = name.lower().encode()
        kept = [index for index, own in enumerate(self.names) if own != wanted]
        removed = len(self.fields) - len(kept)
        self.fields = [self.fields[index] for index in kept]
        self.names = [self.names[index] for index in kept]
        return removed

    def remove_like(self, start: bytes) -> None:
        """Takes out all fields whose lower-case name begins so."""
        kept = [index for index, own in enumerate(self.names) if not own.startswith(start)]
        self.fields = [self.fields[index] for index in kept]
        self.names = [self.names[index] for index in kept]

    def _insert(self, place: int, name: str, value: str) -> None:
        self.fields.insert(place, _field(name, value))
        self.names.insert(place, name.lower().encode())


def split(message: bytes) -> tuple[Headers, int]:
    """Returns the header section and the offset of what follows its fields: the empty line, or a body that has none.

    message: whole, or at least its header section up to and with the empty line; its lines end in CRLF. What follows
    HEADER_FIELDS_MAX fields is one more, in one piece.
    """
    end = 0 if message.startswith(b"\r\n") else message.find(b"\r\n\r\n") + 2
    if end == 1:  # no empty line
        end = len(message)
    fields = _FIELD_END.split(message[:end], HEADER_FIELDS_MAX)
    if fields[-1] == b"":
        fields.pop()
    elif len(fields) > HEADER_FIELDS_MAX:
        fields[-1] = fields[-1].removesuffix(b"\r\n")
    headers = Headers.__new__(Headers)
    names: list[bytes] = []
    for index, field in enumerate(fields):
        found = _NAME.match(field)
        if found is None:
            end = sum(map(len, fields[:index])) + 2 * index
            del fields[index:]
            break
        names.append(found[1].lower())
    headers.fields, headers.names = fields, names
    return headers, end


def name_of(field: bytes) -> bytes:
    """Lower-case name of a raw field, b"" if it is none."""
    found = _NAME.match(field)
    return found[1].lower() if found else b""


def decode(value: str) -> str:
    """Decodes RFC 2047 words in an unfolded value; what cannot be decoded stays. The result is one clean line.

    Costs a few milliseconds at most: only the first CODED_CHARACTERS_MAX characters of a value with such words are
    decoded and returned.
    """
    if "=?" in value:
        value = value[:CODED_CHARACTERS_MAX]
        try:
            parts = decode_header(_ENCODED_GAP.sub(r"\1 \2", value))
            value = "".join(_decode_part(part, charset) for part, charset in parts)
        except (HeaderParseError, Base64Error, ValueError):
            pass  # a broken encoded word is shown as it came
    if value.isprintable():
        return value
    return one_line(value.encode("utf-8", "replace").decode())


def _decode_part(part: bytes | str, charset: str | None) -> str:
    return part if isinstance(part, str) else text_of(part, charset or "ascii")


def _value(field: bytes) -> str:
    text = field.partition(b":")[2].decode("utf-8", "surrogateescape")
    return (_FOLD.sub("", text) if "\r" in text else text).strip(" \t")


def _readable(field: bytes) -> str:
    """Its value, unfolded and decoded; of a long one only as much as `decode` looks at."""
    text = field[: 4 * CODED_CHARACTERS_MAX].partition(b":")[2].decode("utf-8", "surrogateescape")
    if "\r" in text:
        text = _FOLD.sub("", text)
    text = text.strip(" \t")
    return text if text.isprintable() and "=?" not in text else decode(text)


def _field(name: str, value: str) -> bytes:
    raw_name = name.encode("ascii", "replace")
    if not re.fullmatch(rb"[\x21-\x39\x3b-\x7e]+", raw_name):
        raise ValueError(f"{name!r} is not the name of a header field")
    if re.search(r"[\r\n\x00]", _FOLD.sub("", value)):
        raise ValueError(f"the value of {name} has line ends that are not folds (CRLF and a space), or NUL")
    return raw_name + b": " + value.encode("utf-8", "surrogateescape")

"""The content of a report as it is attached: XML or JSON, plain, in gzip or in a zip archive, whatever it is called.

Anybody can send one, so that bounds come before the work: how much is unpacked, how many rows and tags that has, how
many members an archive lists. It is unpacked in pieces and twice: once to count, and, if that is within the bounds,
once to be read. What is not is refused in at most 50 ms and 16 MB of memory (`scripts/trials/reports`).

Failures: ReportRefused, one sentence.
"""

from __future__ import annotations

import codecs
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Literal, NamedTuple

UNPACKED_BYTES_MAX = 8_000_000
"""Of XML: twenty thousand rows or so. A receiver splits what is larger (RFC 7489 7.2.1.1)."""
JSON_BYTES_MAX = 1_000_000
ROWS_MAX = 10_000
TAGS_MAX = 600_000
VALUES_MAX = 50_000
"""Commas, colons and brackets of JSON: each may be an object in memory."""
MEMBERS_MAX = 10
DIRECTORY_BYTES_MAX = 16_384
PIECE_BYTES = 65_536
_ROOT = re.compile(rb"<(?:[\w.-]{1,40}:)?feedback[\s>/]")
_REPORT_KEY = re.compile(rb'"(?:report-id|organization-name|policies)"')
_END = struct.Struct("<4s4H2LH")
"""The record at the end of an archive: signature, disks, members here and in all, the directory's size and place."""
_END_MARK, _END_64_MARK, _MEMBER_MARK, _GZIP_MARK = b"PK\x05\x06", b"PK\x06\x07", b"PK\x03\x04", b"\x1f\x8b"
_PACKED = (_MEMBER_MARK, b"PK\x05\x06", _GZIP_MARK, b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd")
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
Pieces = Callable[[], Iterator[bytes]]


class ReportRefused(ValueError):
    """One sentence: why it is not read."""


class Unpacked(NamedTuple):
    """form: what it is. pieces: its content, UTF-8 or what XML says, without a byte order mark; anew with each call."""

    form: Literal["xml", "json"]
    pieces: Pieces


def unpack(content: bytes) -> Unpacked | None:
    """None: it is no report, and does not seem to be meant as one. Raises ReportRefused."""
    packed = content.startswith(_PACKED)
    pieces = _pieces(content) if packed else lambda: _slices(content)
    first = next(pieces(), b"")
    if packed and first.startswith(_PACKED):
        raise ReportRefused("it is an archive within an archive")
    pieces, beginning = _plain(pieces, first)
    if beginning[:1] == b"<" and (packed or _ROOT.search(beginning)):
        _check_xml(pieces)
        return Unpacked("xml", pieces)
    if beginning[:1] in (b"{", b"[") and (packed or _REPORT_KEY.search(beginning)):
        _check_json(pieces)
        return Unpacked("json", pieces)
    if packed:
        raise ReportRefused("what is packed in it is neither XML nor JSON")
    return None


def _slices(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), PIECE_BYTES):
        yield content[at : at + PIECE_BYTES]


def _pieces(content: bytes) -> Pieces:
    if content.startswith(_GZIP_MARK):
        return lambda: _bounded(_gunzipped(content))
    if content.startswith(b"PK"):
        _check_archive(content)
        return lambda: _bounded(_member(content))
    raise ReportRefused("it is packed, but neither as gzip nor as zip")


def _bounded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > UNPACKED_BYTES_MAX:
            raise ReportRefused(f"unpacked it has more than {UNPACKED_BYTES_MAX // 1_000_000} MB")
        yield piece


def _gunzipped(content: bytes) -> Iterator[bytes]:
    """Several streams, one behind the other, are one (RFC 1952 2.2)."""
    try:
        while content.startswith(_GZIP_MARK):
            stream = zlib.decompressobj(wbits=31)
            while not stream.eof:
                piece = stream.decompress(content, PIECE_BYTES)
                content = stream.unconsumed_tail
                if piece:
                    yield piece
                elif not content and not stream.eof:
                    raise ReportRefused("it is cut off: its gzip has no end")
            content = stream.unused_data
    except zlib.error:
        raise ReportRefused("its gzip is damaged") from None


def _check_archive(content: bytes) -> None:
    """Before the library reads the directory, all of it. Raises ReportRefused."""
    at = content.rfind(_END_MARK, max(0, len(content) - 65_557))
    if at < 0 or at + _END.size > len(content):
        raise ReportRefused("it is cut off: its zip archive has no directory")
    _, _, _, here, members, size, _, _ = _END.unpack_from(content, at)
    if max(here, members) > MEMBERS_MAX or size > DIRECTORY_BYTES_MAX:
        raise ReportRefused(f"its zip archive has more than {MEMBERS_MAX} members")
    if content[max(0, at - 20) : at].startswith(_END_64_MARK):
        raise ReportRefused("its zip archive is made for more than 4 GB")


def _member(content: bytes) -> Iterator[bytes]:
    """The first file in it."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile  # only where one has come

    try:
        with ZipFile(BytesIO(content)) as archive:
            files = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX")]
            if not files:
                raise ReportRefused("its zip archive is empty")
            if files[0].flag_bits & 1:
                raise ReportRefused("its zip archive is encrypted")
            if files[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ReportRefused("its zip archive is packed in an unusual way; only deflate is read")
            with archive.open(files[0]) as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
    except (BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, struct.error) as error:
        if isinstance(error, ReportRefused):
            raise
        raise ReportRefused("its zip archive is damaged") from None


def _plain(pieces: Pieces, first: bytes) -> tuple[Pieces, bytes]:
    """Without what comes before the first character; UTF-16 as UTF-8. And how that begins."""
    codec = _UTF_16.get(first[:2])
    if codec is None and first[:4] in (b"<\0?\0", b"<\0f\0"):
        codec = "utf-16-le"
    if codec is None:
        return lambda: _stripped(pieces()), first.removeprefix(codecs.BOM_UTF8).lstrip()
    decoder = codecs.getincrementaldecoder(codec)
    said = decoder("replace").decode(first).lstrip("\ufeff").lstrip().encode()

    def recoded() -> Iterator[bytes]:
        decode = decoder("replace").decode
        return _stripped(decode(piece).encode() for piece in pieces())

    return recoded, said


def _stripped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    begun = False
    for piece in pieces:
        if not begun:
            piece = piece.removeprefix(codecs.BOM_UTF8).lstrip()
            begun = bool(piece)
        if piece:
            yield piece


def _check_xml(pieces: Pieces) -> None:
    """Raises ReportRefused. A parser keeps a tag until its end, and looks for that again with each piece."""
    rows = tags = 0
    for piece in pieces():
        if len(piece) == PIECE_BYTES and b">" not in piece:
            raise ReportRefused(f"its XML has {PIECE_BYTES // 1024} KB without a tag")
        tags += piece.count(b"<")
        rows += piece.count(b"record>") + 2 * piece.count(b"record/>")
        if rows > 2 * ROWS_MAX:  # each has an end as well
            raise ReportRefused(f"it has more than {ROWS_MAX:,} rows")
        if tags > TAGS_MAX:
            raise ReportRefused(f"its XML has more than {TAGS_MAX:,} tags")


def _check_json(pieces: Pieces) -> None:
    """Raises ReportRefused."""
    size = values = 0
    for piece in pieces():
        size += len(piece)
        values += sum(piece.count(one) for one in (b",", b"[", b"{", b":"))
        if size > JSON_BYTES_MAX or values > VALUES_MAX:
            raise ReportRefused(f"its JSON has more than {JSON_BYTES_MAX // 1_000_000} MB or {VALUES_MAX:,} values")

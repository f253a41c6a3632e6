"""Whether a list of local files is well-formed. Checked before Spark, which would guess where the operator must decide.

Text has to be UTF-8 (`copies` makes it so of UTF-16), all CSV files of a folder have to have the same separator and
header, in which no name stands twice, a quoted field has to end on its line unless line breaks in fields are expected,
JSON has to have its objects on lines of their own. Raises PlanRefused with file, line and remedy.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from zonemta_py.mail.addresses.written import SPACES
from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source.dialect import SEPARATORS, dialect_of, name_it, opened

_BLOCK_BYTES = 1 << 24
_SAVE = "save the list as UTF-8"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_HEAD_BYTES_MAX = 1 << 24
_QUOTED = {separator: re.compile(rb'(?:^|%b)"' % re.escape(separator).encode()) for separator in SEPARATORS}


def check(files: Sequence[Path], kind: str, multiline: bool) -> None:
    """files: those of the list. kind: as `read.kind_of` says. Raises PlanRefused, OSError."""
    begins(files, kind, multiline)
    if kind in ("csv", "json"):
        for file in files:
            _text(file, quotes=kind == "csv" and not multiline, remedy=name_it if kind == "csv" else lambda _: _SAVE)


def begins(files: Sequence[Path], kind: str, multiline: bool, encoding: str = "") -> None:
    """The part of `check` that takes no time: names of files and their first lines. encoding: as of
    `dialect_of`. Raises PlanRefused, OSError."""
    for file in files:
        if file.name[0] in "_.":
            raise PlanRefused(f"{file}: Spark skips files whose names begin with {file.name[0]}; rename it")
        if file.suffix != ".gz" and file.suffix.lower() == ".gz":
            raise PlanRefused(f"{file}: Spark decompresses only files named .gz in lower case; rename it")
        if kind == "json":
            _objects(file)
    if kind == "csv":
        _same_header(files, multiline, encoding)


def _text(file: Path, quotes: bool, remedy: Callable[[bytes], str]) -> None:
    decoder, line, rest = codecs.getincrementaldecoder("utf-8")(), 1, b""
    quoted = _QUOTED[dialect_of(file).separator]
    with _open(file) as content:
        for block in _blocks(content):
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = line + block.count(b"\n", 0, error.start)
                start = block.rfind(b"\n", 0, error.start) + 1
                bad = block[start : block.find(b"\n", error.start) % (len(block) + 1)]
                raise PlanRefused(f"{file}: line {at} is not UTF-8; {remedy(bad)}") from None
            if quotes and b'"' in (whole := rest + (block or b"\n")):
                _ended_quotes(file, whole, line, quoted)
            rest = block[block.rfind(b"\n") + 1 :] if b"\n" in block else rest + block
            line += block.count(b"\n")


def _ended_quotes(file: Path, text: bytes, line: int, quoted: re.Pattern[bytes]) -> None:
    """Of the lines that end in this text: a field that begins with a quote ends with one."""
    found = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(found == 10)
    odd = (np.cumsum(found == 34, dtype=np.uint8)[ends] & 1).astype(np.int8)
    for place in np.flatnonzero(np.diff(odd, prepend=0)):
        start = int(ends[place - 1]) + 1 if place else 0
        if quoted.search(text[start : int(ends[place])]):
            raise PlanRefused(
                f"{file}: line {line + int(place)} has a quote that is not closed on it; give --multiline if fields "
                "have line breaks, otherwise correct the quote"
            )


def _objects(file: Path) -> None:
    """The first line is a whole value; an array that ends on it is a list too, to Spark."""
    with _open(file) as content:
        line = b""
        while not line.strip(b"\xef\xbb\xbf \t\r\n") and (more := content.readline(_HEAD_BYTES_MAX)):
            line = more
    text = line.strip(b"\xef\xbb\xbf \t\r\n")
    if text == b"{" or (text.startswith(b"[") and not text.endswith(b"]")):
        raise PlanRefused(
            f"{file}: its JSON values span lines; write one object per line, as `jq -c '.[]' {file.name}` does"
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _same_header(files: Sequence[Path], multiline: bool, encoding: str) -> None:
    first: tuple[Path, list[str]] | None = None
    for file in files:
        names = _header(file, multiline, encoding)
        if first is None:
            first = file, names
            _each_once(file, names)
        elif (form := dialect_of(file, encoding)).separator != dialect_of(first[0], encoding).separator:
            raise PlanRefused(
                f"{file}: it is written in {form}, {first[0].name} in {dialect_of(first[0], encoding)}; "
                "save all files the same way"
            )
        elif names != first[1]:
            raise PlanRefused(
                f"{file}: its columns are {', '.join(names)}, but those of {first[0].name} are {', '.join(first[1])}; "
                "give all files the same header, in the same order"
            )


def _header(file: Path, multiline: bool, encoding: str = "") -> list[str]:
    form = dialect_of(file, encoding)
    with _unpacking(file), opened(file, form, "surrogateescape") as content:
        head = "\n"
        while not head.strip("\r\n") and (more := content.readline(_HEAD_BYTES_MAX)):
            head = more
        head += content.read(_HEAD_BYTES_MAX) if multiline else ""
    try:
        row = next(csv.reader(io.StringIO(head, newline=""), delimiter=form.separator), [])
        names = [name.strip(SPACES) for name in row]
        "".join(names).encode()
    except UnicodeEncodeError:
        raise PlanRefused(f"{file}: line 1 is not UTF-8; {name_it(_bytes(head))}") from None
    except csv.Error as error:
        raise PlanRefused(f"{file}: its header is not valid CSV ({error}); correct its quotes") from None
    return names


def plain_header(files: Sequence[Path], multiline: bool) -> list[str]:
    """The columns of CSV files, if there is nothing to know about them that only their reader does; else none."""
    if not files:
        return []
    names = _header(files[0], multiline)
    return names if all(_PLAIN.fullmatch(name) for name in names) else []


def _each_once(file: Path, names: Sequence[str]) -> None:
    """To Spark, case does not distinguish names."""
    seen: dict[str, str] = {}
    for name in filter(None, names):
        if (other := seen.setdefault(name.lower(), name)) is not name:
            same = f"the column {name!r} twice" if other == name else f"the columns {other!r} and {name!r}"
            raise PlanRefused(f"{file}: its header has {same}; rename or remove one of them")


@contextmanager
def _open(file: Path) -> Iterator[IO[bytes]]:
    """Raises PlanRefused for what is packed and damaged."""
    with file.open("rb") as content:
        if file.suffix != ".gz":
            yield content
            return
        with _unpacking(file), gzip.open(content) as unpacked:
            yield unpacked  # type: ignore[misc]


@contextmanager
def _unpacking(file: Path) -> Iterator[None]:
    """Raises PlanRefused."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PlanRefused(f"{file}: it cannot be decompressed ({error}); compress it again") from None


def _blocks(content: IO[bytes]) -> Iterator[bytes]:
    """The content, and an empty block at its end."""
    while block := content.read(_BLOCK_BYTES):
        yield block
    yield b""

"""Is a list of local files what it seems? Looked at before Spark is, which would guess where a person must decide.

Text has to be UTF-8, all CSV files of a folder have to have the same header, a quoted field has to end on its line
unless line breaks in fields are expected. Raises PlanRefused with file, line and remedy.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from zonemta_py.pipeline.prepare.settings import PlanRefused

_BLOCK_BYTES = 1 << 24
_QUOTED = re.compile(rb'(?:^|,)"')


def check(files: Sequence[Path], kind: str, multiline: bool) -> None:
    """files: those of the list. kind: as `read.kind_of` says. Raises PlanRefused, OSError."""
    for file in files:
        if file.name[0] in "_.":
            raise PlanRefused(f"{file}: Spark passes over names that begin with {file.name[0]}; give it another name")
    if kind in ("csv", "json"):
        for file in files:
            _text(file, quotes=kind == "csv" and not multiline)
    if kind == "csv":
        _same_header(files)


def _text(file: Path, quotes: bool) -> None:
    decoder, line, rest = codecs.getincrementaldecoder("utf-8")(), 1, b""
    with _open(file) as content:
        for block in _blocks(content):
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = line + block.count(b"\n", 0, error.start)
                raise PlanRefused(f"{file}: line {at} is not UTF-8; save the list as UTF-8") from None
            if quotes and b'"' in (whole := rest + (block or b"\n")):
                _ended_quotes(file, whole, line)
            rest = block[block.rfind(b"\n") + 1 :] if b"\n" in block else rest + block
            line += block.count(b"\n")


def _ended_quotes(file: Path, text: bytes, line: int) -> None:
    """Of the lines that end in this text: a field that begins with a quote ends with one."""
    found = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(found == 10)
    odd = (np.cumsum(found == 34, dtype=np.uint8)[ends] & 1).astype(np.int8)
    for place in np.flatnonzero(np.diff(odd, prepend=0)):
        start = int(ends[place - 1]) + 1 if place else 0
        if _QUOTED.search(text[start : int(ends[place])]):
            raise PlanRefused(
                f"{file}: line {line + int(place)} has a quote that does not end on it; give --multiline if fields "
                "have line breaks, else mend the quote"
            )


def _same_header(files: Sequence[Path]) -> None:
    first: tuple[Path, list[str]] | None = None
    for file in files:
        with _open(file) as content:
            line = content.readline().decode("utf-8-sig")
        names = next(csv.reader([line]), [])
        if first is None:
            first = file, names
        elif names != first[1]:
            raise PlanRefused(
                f"{file}: its columns are {', '.join(names)}, but those of {first[0].name} are {', '.join(first[1])}; "
                "give all files the same header, in the same order"
            )


def _open(file: Path) -> IO[bytes]:
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def _blocks(content: IO[bytes]) -> Iterator[bytes]:
    """The content, and an empty block at its end."""
    while block := content.read(_BLOCK_BYTES):
        yield block
    yield b""

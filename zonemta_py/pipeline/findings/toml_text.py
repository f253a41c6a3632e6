"""Where the tables of a TOML text stand, so that one can be changed and all else stays as it is, comments too.

Libraries that write TOML back cannot be used: they gather the tables of an array, and so move what is between them.
A header is one only where the text before it is whole, so nothing in a string or in brackets over several lines is
taken for one. Pure.
"""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def tables(text: str) -> list[tuple[int, int]]:
    """Where each header stands, and the next one or the text's end. Each such part is TOML by itself."""
    starts, begin = list[int](), 0
    for found in _HEADER.finditer(text):
        if _is_whole(text[begin : found.start()]):
            begin = found.start()
            starts.append(begin)
    return list(pairwise([*starts, len(text)]))


def own_end(text: str, start: int, end: int) -> int:
    """After the table's last line that is neither blank nor a comment: those belong to what follows."""
    lines = text[start:end].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + sum(map(len, lines))


def _is_whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True

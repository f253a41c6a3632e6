"""Bodies as people send them, made from a seed: letters that compress as letters do, attachments that do not.

smtp-source's own body is one letter repeated, which flatters whoever compresses.

- "letter": words, a third of them in HTML; level 1 of Zstandard keeps 46 % of 5 KB of it, and 41 % of 64 KB.
- "mixed": a letter, then a picture: half of the bytes words, half base64 of random bytes.
- "base64": an attachment; nothing but base64 of random bytes.
"""

from __future__ import annotations

import base64
import random
from functools import lru_cache
from itertools import accumulate

KINDS = ("letter", "mixed", "base64")
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_WORDS = 4_000
PIECE = 256 * 1024
"""Longer letters repeat themselves; nobody compresses over such a distance."""


@lru_cache(maxsize=8)
def body(kind: str, size: int) -> bytes:
    """About so many bytes, lines ending in CRLF, no line beginning with a dot. Raises KeyError for another kind."""
    words = {"letter": size, "mixed": size // 2, "base64": 0}[kind]
    chance = random.Random(size)
    letter = _letter(chance, min(words, PIECE)) * (-(-words // PIECE))
    return letter + (_attachment(chance, size - words) if size > words else b"")


def _letter(chance: random.Random, size: int) -> bytes:
    vocabulary = ["".join(chance.choices(_LETTERS, _falling(len(_LETTERS)), k=length)) for length in _lengths(chance)]
    weights = list(accumulate(_falling(_WORDS)))
    lines: list[str] = []
    length = 0
    while length < size:
        words = chance.choices(vocabulary, cum_weights=weights, k=chance.randint(9, 13))
        line = " ".join(words).capitalize() + chance.choice((",", ".", "", "", ""))
        if len(lines) % 3 == 2:
            link = "".join(chance.choices("0123456789abcdef", k=16))
            line = f'<p class="text"><a href="https://news.src.test/c/{link}">{line[:40]}</a></p>'
        lines.append(line)
        length += len(line) + 2
    return "\r\n".join([*lines, ""]).encode()


def _lengths(chance: random.Random) -> list[int]:
    return [min(14, max(1, round(chance.gauss(1.5 + rank**0.25, 1.5)))) for rank in range(_WORDS)]


def _falling(count: int) -> list[float]:
    """Zipf's law: the n-th most frequent comes 1/n as often."""
    return [1 / (rank + 2) for rank in range(count)]


def _attachment(chance: random.Random, size: int) -> bytes:
    return base64.encodebytes(chance.randbytes(size * 57 // 78)).replace(b"\n", b"\r\n")

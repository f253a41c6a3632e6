"""The phrases of vocabulary.toml, found in a text: what each speaks of, and where.

Made for speed, since replies come by the thousand: phrases are kept by their first letters, so a text costs a look at
each beginning of a word, whatever number of phrases there are (about 20 µs for a usual reply). Pure but for reading its
file, once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

from zonemta_py.mail.rules.spelling import folded

GAP = 30
"""Letters that "…" in a phrase may stand for, at most."""
_STARTS = re.compile(r"(?<![^\W_\u2e80-\uffff])(?:[^\W_]|\?(?=[a-z]))|[\u2e80-\uffff]")
_UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"}


class Token(NamedTuple):
    """text[start:end] speaks of these concepts."""

    start: int
    end: int
    concepts: frozenset[str]


class _Phrase(NamedTuple):
    """first: what begins here. whole: a word ends with it. rest: what follows, each within GAP letters."""

    first: str
    whole: bool
    rest: tuple[str, ...]
    concepts: frozenset[str]


def tokens(text: str) -> list[Token]:
    """Phrases in a folded text, in order, none within another: the longest at each place."""
    found: list[Token] = []
    index, done = _index(), 0
    for start in _STARTS.finditer(text):
        at = start.start()
        if at < done:
            continue
        for phrase in index.get(text[at : at + 3]) or index.get(text[at : at + 2]) or index.get(text[at], ()):
            if text.startswith(phrase.first, at) and _ends(text, at, phrase):
                done = _word_end(text, at + len(phrase.first)) if not phrase.whole else at + len(phrase.first)
                found.append(Token(at, done, phrase.concepts))
                break
    return found


def _ends(text: str, at: int, phrase: _Phrase) -> bool:
    """Whether the words end where the phrase asks for it, and its later parts follow."""
    end = at + len(phrase.first)
    if phrase.whole and "/" < text[end : end + 1] < "\u2e80" and text[end].isalnum():
        return False
    for part in phrase.rest:
        place = text.find(part, end, end + GAP + len(part))
        if place < 0:
            return False
        end = place + len(part)
    return True


def _word_end(text: str, at: int) -> int:
    """Of a word of which only the beginning was asked for."""
    while at < len(text) and text[at].isalnum() and text[at] < "\u2e80":
        at += 1
    return at


def prepare() -> None:
    """Reads the file now: the first reply need not wait for it, and child processes inherit it by fork."""
    _index()


@cache
def _index() -> dict[str, tuple[_Phrase, ...]]:
    """First letters → the phrases that begin so, the longest first. Three letters' phrases include those of fewer."""
    meanings: dict[str, set[str]] = {}
    for language in tomllib.loads(_file()).values():
        for concept, phrases in language.items():
            for phrase in phrases:
                for spelling in _spellings(phrase):
                    meanings.setdefault(spelling, set()).add(concept)
    every = sorted(map(_phrase, meanings.items()), key=lambda phrase: (-len(phrase.first), -len(phrase.rest)))
    heads: dict[str, list[_Phrase]] = {}
    for phrase in every:
        heads.setdefault(phrase.first[:3], []).append(phrase)
    for head, phrases in heads.items():
        phrases += [phrase for n in (2, 1) if len(head) > n for phrase in heads.get(head[:n], ()) if len(head) > 2]
    return {head: tuple(dict.fromkeys(phrases)) for head, phrases in heads.items()}


def _file() -> str:
    return resources.files(__package__).joinpath("vocabulary.toml").read_text(encoding="utf-8")


def _phrase(entry: tuple[str, Iterable[str]]) -> _Phrase:
    spelling, concepts = entry
    first, *rest = (part.strip() for part in spelling.split("…"))
    prefix = first.endswith("*") or first[-1] >= "\u2e80"
    return _Phrase(first.rstrip("*"), not prefix, tuple(rest), frozenset(concepts))


def _spellings(phrase: str) -> Iterator[str]:
    """Without marks; umlauts as two letters; marked letters lost."""
    if phrase.isascii():
        yield phrase
        return
    parts = [part for part in re.split(r"\s*…\s*", phrase) if part]
    marked = any(c.isalpha() and "\x7f" < c < "\u0250" for c in phrase)
    ways = [str.lower, _with_two, _with_lost] if marked else [str.lower]
    for way in ways:
        yield "…".join(_plain(way(part)) for part in parts)


def _plain(part: str) -> str:
    return folded(part.replace("?", "\x00")).replace("\x00", "?")


def _with_two(part: str) -> str:
    return "".join(_UMLAUTS.get(c, c) for c in part)


def _with_lost(part: str) -> str:
    return re.sub("[\x80-\u024f]+", "?", part)

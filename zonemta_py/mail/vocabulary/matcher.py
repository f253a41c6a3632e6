"""The vocabularies, files of lists of phrases beside this one, and how phrases are found in a text.

replies.toml: each where a word begins, the longest, with what it speaks of (`tokens`). Made for speed, since replies
come by the thousand: phrases are kept by their first letters, so a text costs a look at each beginning of a word,
whatever number of phrases there are (about 20 µs for a usual reply). returned.toml: whether one of a list is there
(`says`). wishes.toml: what each word is (`Words`), whole, by its beginning, or in writing without spaces. Pure but for
reading the files, once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from zonemta_py.mail.vocabulary.spelling import folded

GAP = 30
"""Letters that "…" in a phrase may stand for, at most."""
LETTERS = 6
"""By which phrases are looked up."""
REMEMBERED_MAX = 16_384
"""Beginnings of words kept, with what they may begin."""
_RUNNING = "\u0e00-\u0e7f\u2e80-\uffff"
"""Letters that are written without spaces between words: Thai, Chinese, Japanese, and Korean, which has endings."""
_STARTS = re.compile(rf"(?<![^\W_{_RUNNING}])(?:[^\W_]|\?(?=[a-z]))|[{_RUNNING}]")
_RUNS = re.compile(f"[{_RUNNING}]")
_SPACED = re.compile(rf"[^\W_{_RUNNING}]*")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_MARKED = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+")
_END = re.compile("[*…]")
_UNSPACED = "\u2e80"
"""From here on writing has no spaces between words, but for Korean."""
_SHORT = 6
_DIACRITICS = dict.fromkeys(range(0x0300, 0x0370))


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
    done = 0
    for start in _STARTS.finditer(text):
        at = start.start()
        if at < done:
            continue
        for phrase in _beginning(text[at : at + LETTERS]):
            if text.startswith(phrase.first, at) and _ends(text, at, phrase):
                done = _word_end(text, at + len(phrase.first)) if not phrase.whole else at + len(phrase.first)
                found.append(Token(at, done, phrase.concepts))
                break
    return found


def _ends(text: str, at: int, phrase: _Phrase) -> bool:
    """Whether the words end where the phrase asks for it, and its later parts follow."""
    end = at + len(phrase.first)
    if phrase.whole and text[end : end + 1].isalnum() and not _RUNS.match(text, end):
        return False
    for part in phrase.rest:
        place = text.find(part, end, end + GAP + len(part))
        if place < 0:
            return False
        end = place + len(part)
    return True


def _word_end(text: str, at: int) -> int:
    """Of a word of which only the beginning was asked for."""
    match = _SPACED.match(text, at)
    return match.end() if match else at


def prepare() -> None:
    """Reads the file now: the first reply need not wait for it, and child processes inherit it by fork."""
    _index()


@lru_cache(REMEMBERED_MAX)
def _beginning(letters: str) -> tuple[_Phrase, ...]:
    """What may begin so, the longest first."""
    those = _phrases(letters[:3]) or _phrases(letters[:2]) or _phrases(letters[:1])
    return tuple(one for one in those if one.first.startswith(letters) or letters.startswith(one.first))


@lru_cache(REMEMBERED_MAX)
def _phrases(head: str) -> list[_Phrase]:
    """Those that begin with these letters, if there are any, and those that are only the first of them."""
    index = _index()
    entries = [entry for n in range(len(head), 0, -1) for entry in index.get(head[:n], ())] if head in index else []
    return sorted(map(_phrase, entries), key=lambda phrase: (-len(phrase.first), -len(phrase.rest)))


@cache
def _index() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """First three letters, or all of a shorter phrase → the spellings that begin so, and their concepts."""
    index: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for entry in _meanings().items():
        head = entry[0][:3]
        if not head.isalnum():
            head = _END.split(head)[0].rstrip()
        index.setdefault(head, []).append(entry)
    return index


def _meanings() -> dict[str, frozenset[str]]:
    """Every spelling of a phrase → its concepts."""
    found: dict[str, frozenset[str]] = {}
    one: dict[frozenset[str], frozenset[str]] = {}  # of those that are equal: there are thousands of each
    said = [
        (one.setdefault(alone := frozenset((concept,)), alone), phrase.replace("* ", "*…"))
        for concept, those in lists("replies.toml")
        for phrase in those
    ]
    ascii_ones = [one for one in said if one[1].isascii()]
    others = [one for one in said if not one[1].isascii()]
    marked = [one for one in others if _MARKED.search(one[1])]
    for those, way in ((ascii_ones, str), (others, str), (marked, _with_two), (marked, _with_lost)):
        spellings = _plain(way("\n".join(phrase for _, phrase in those))).split("\n")
        for (concept, _), spelling in zip(those, spellings, strict=True):
            both = found.get(spelling, concept) | concept
            found[spelling] = one.setdefault(both, both)
    return found


def _phrase(entry: tuple[str, frozenset[str]]) -> _Phrase:
    spelling, concepts = entry
    first, *others = (part.strip() for part in spelling.split("…"))
    prefix = first.endswith("*") or _RUNS.match(first[-1]) is not None
    rest = tuple(part.rstrip("*") for part in others if part)
    return _Phrase(first.rstrip("*"), not prefix, rest, concepts)


def _plain(text: str) -> str:
    """Without marks, but for a letter that is lost."""
    return folded(text.replace("?", "\x00").replace("…", "\x01")).replace("\x00", "?").replace("\x01", "…")


def _with_two(text: str) -> str:
    """With umlauts as two letters."""
    return text.translate(_UMLAUTS)


def _with_lost(text: str) -> str:
    """With marked letters lost."""
    return _MARKED.sub("?", text)


# -- lists, phrases as they stand, words


def lists(file: str) -> Iterator[tuple[str, list[str]]]:
    """(name, phrases) of each list of a vocabulary, in order. Not read as TOML, which takes twenty times as long: who
    starts waits for it. A test holds both against each other."""
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    for block in text.split("]\n"):
        name, equals, those = block.rpartition(" = [")
        if equals:
            yield name.rpartition("\n")[2], those.split('"')[1::2]


def says(text: str, those: Iterable[str]) -> bool:
    """Whether one of the phrases is in the text, which is lower-case with single spaces: as it stands, in words too."""
    return any(phrase in text for phrase in those)


def with_bare(those: Iterable[str]) -> tuple[str, ...]:
    """The phrases, and those in Latin letters with marks without them: much is written by systems that have none."""
    said = list(those)
    return tuple(dict.fromkeys([*said, *map(_bare, said)]))


def beginning(those: Iterable[str]) -> re.Pattern[str]:
    """Finds any of the phrases where a word begins, short ones as a word, or, in writing without spaces, anywhere."""
    return re.compile("|".join(map(_pattern, those)))


def _pattern(phrase: str) -> str:
    if phrase[0] > _UNSPACED:
        return re.escape(phrase)
    return rf"(?<!\w){re.escape(phrase)}" + (r"(?!\w)" if len(phrase) < _SHORT and phrase.isascii() else "")


def _bare(phrase: str) -> str:
    bare = unicodedata.normalize("NFKD", phrase).translate(_DIACRITICS)
    return bare if bare.isascii() else phrase


class Words:
    """What each word of some lists is: the names of those that have it."""

    def __init__(self, those: Iterable[tuple[str, list[str]]]) -> None:
        whole, beginnings = dict[str, set[str]](), dict[str, set[str]]()
        for name, words in those:
            for word in words:
                begins = word.endswith("*")
                if begins:
                    beginnings.setdefault(word[:-1], set()).add(name)
                if not begins or word[0] >= _UNSPACED:
                    whole.setdefault(word.rstrip("*"), set()).add(name)
        self._whole = {word: frozenset(names) for word, names in whole.items()}
        self._beginnings = {word: frozenset(names) for word, names in beginnings.items()}

    def of(self, word: str) -> list[frozenset[str]] | None:
        """Of its parts, if it is written without spaces; None: nobody knows it."""
        if (names := self._whole.get(word)) is not None:
            return [names]
        korean = "\uac00" <= word[0] <= "\ud7a3"
        if word[0] >= _UNSPACED and not korean:
            return self._segments(word)
        for length in range(len(word), 1 if korean else 2, -1):
            if (names := self._beginnings.get(word[:length])) is not None:
                return [names]
        return None

    def _segments(self, word: str) -> list[frozenset[str]]:
        """The longest known words, from the left."""
        found, at = list[frozenset[str]](), 0
        while at < len(word):
            longest = min(12, len(word) - at) if word[at] >= _UNSPACED else 0
            for length in range(longest, 0, -1):
                if (names := self._whole.get(word[at : at + length])) is not None:
                    found.append(names)
                    at += length
                    break
            else:
                found.append(frozenset())
                at += 1
        return found

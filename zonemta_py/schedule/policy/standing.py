"""What stands, stops and what was learned, as rows for operators: all of it, in portions, or what has a name, without a
look at the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=tuple[str, ...])

Row: TypeAlias = dict[str, Any]
Portions: TypeAlias = Iterator[list[Row]]
"""Rows of what was looked at in one go; there may be none among them."""
AT_ONCE = 200
SUSPENDED, RESTING, LEARNED, NOTED = GROUPS = ("suspended", "resting", "learned", "noted")
"""What a row is, in its `group`: an order, or a threshold set by one; left alone for a time because of what a
destination said or did; a limit learned from replies; nothing that keeps mail from going."""


def portions(items: Iterable[T], row: Callable[[T], Row | None], what: str = "") -> Portions:
    """row: of an item; None: it has gone, or holds nothing back. what: only rows that are `meant`."""
    left = iter(items)
    while some := list(islice(left, AT_ONCE)):
        rows = [made for made in map(row, some) if made is not None]
        yield [made for made in rows if meant(what, made["name"])] if what else rows


class ByWord(Generic[K]):
    """Keys of things by the words of their names. Nearly every word is of one only: a dict for each would be larger."""

    def __init__(self) -> None:
        self._found: dict[str, K | dict[K, None]] = {}

    def add(self, key: K, name: str) -> None:
        for word in name.split():
            there = self._found.setdefault(word, key)
            if isinstance(there, dict):
                there[key] = None
            elif there != key:
                self._found[word] = {there: None, key: None}

    def discard(self, key: K, name: str) -> None:
        for word in name.split():
            there = self._found.get(word)
            if isinstance(there, dict):
                there.pop(key, None)
            if there in (key, {}):
                del self._found[word]

    def of(self, what: str) -> list[K]:
        """Those that may be `meant`: with the rarest of its words, in the order in which they came."""
        found = [self._found.get(word, {}) for word in what.split()]
        rarest = min(found, key=lambda there: len(there) if isinstance(there, dict) else 1, default={})
        return list(rarest) if isinstance(rarest, dict) else [rarest]


def meant(what: str, name: str) -> bool:
    """Whether that is the whole name, or one of its words."""
    return what == name or what in name.split()

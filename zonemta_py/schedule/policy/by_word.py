"""Things by the words of their names, so that those of one name are found without looking at all of them."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])


class ByWord(Generic[K]):
    """Keys of things. Nearly every word is of one thing only, so that a dict for each would be larger."""

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

"""Flow queues by how many recipients each has in memory, kept up to date at every change, so that the longest are found
without looking at all of them: there may be a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class ByLength(Generic[T]):
    """Of one flow. Those of one length are in the order in which they came to it."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[int, dict[T, None]] = {}

    def __iter__(self) -> Iterator[T]:
        return (one for part in self.parts.values() for one in part)

    def add(self, one: T, length: int) -> None:
        part = self.parts.get(length)
        if part is None:
            part = self.parts[length] = {}
        part[one] = None

    def remove(self, one: T, length: int) -> None:
        part = self.parts.get(length)
        if part is not None:
            part.pop(one, None)
            if not part:
                del self.parts[length]

    def move(self, one: T, before: int, after: int) -> None:
        """Its length has changed. One that is not here stays away."""
        parts = self.parts
        part = parts.get(before)
        if part is None or one not in part:
            return
        del part[one]
        if not part:
            del parts[before]
        part = parts.get(after)
        if part is None:
            part = parts[after] = {}
        part[one] = None


def longest(of: Iterable[ByLength[T]], most: int, after: int = 0) -> list[T]:
    """The longest of several flows, at most so many; after: how many to leave out. The counts of whole parts are enough
    to pass them by."""
    parts: dict[int, list[dict[T, None]]] = {}
    for each in of:
        for length, part in each.parts.items():
            parts.setdefault(length, []).append(part)
    found = list[T]()
    for length in sorted(parts, reverse=True):
        for part in parts[length]:
            if after >= len(part):
                after -= len(part)
                continue
            found += islice(part, after, after + most - len(found))
            after = 0
            if len(found) >= most:
                return found
    return found

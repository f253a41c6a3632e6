"""Names in the order of how many there are of each, kept up to date at every change, so that a page is found without
looking at all of them. In memory only.

A name's rank is how many there are, and behind that a part that its letters give it. Names of one rank are together,
so few that they are put in order when they are shown.
"""

from __future__ import annotations

from bisect import bisect_right
from zlib import crc32

PARTS = 64
"""Names of which there are equally many are divided into so many parts."""
MOVED_MAX = 500
"""Names that wait for their new place; most mail is for few domains, whose numbers change again and again."""


class Ranking:
    """The order: the largest first; equal ones by the part of their name, then by name. It outlasts a restart."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._ranks: dict[str, int] = {}
        self._names: dict[int, set[str]] = {}
        self._moved: set[str] = set()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, name: str, count: int) -> None:
        """So many more are there; a name of which there are none is forgotten."""
        there = self._counts.get(name, 0) + count
        if there:
            self._counts[name] = there
        else:
            self._counts.pop(name, None)
        self._moved.add(name)
        if len(self._moved) >= MOVED_MAX:
            self._place()

    def put(self, name: str, count: int) -> None:
        """So many are there now."""
        self.add(name, count - self._counts.get(name, 0))

    def _place(self) -> None:
        """Puts those that have moved where they belong."""
        for name in self._moved:
            count, before = self._counts.get(name, 0), self._ranks.pop(name, None)
            if before is not None:
                names = self._names[before]
                names.discard(name)
                if not names:
                    del self._names[before]
            if count:
                self._ranks[name] = rank = count * PARTS + (part(name) if before is None else before % PARTS)
                self._names.setdefault(rank, set()).add(name)
        self._moved.clear()

    def page(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        """Those that follow: how many, and the name. after: the last one of the page before, which may be gone."""
        self._place()
        found = list[tuple[int, str]]()
        last = None if after is None else after[0] * PARTS + part(after[1])
        for rank in sorted((rank for rank in self._names if last is None or rank <= last), reverse=True):
            names = sorted(self._names[rank])
            if after is not None and rank == last:
                del names[: bisect_right(names, after[1])]
            found += [(rank // PARTS, name) for name in names[: limit - len(found)]]
            if len(found) >= limit:
                break
        return found


def part(name: str) -> int:
    return crc32(name.encode()) % PARTS

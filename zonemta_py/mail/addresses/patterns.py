"""An index of the suppression list's patterns: which of them an address fits, without trying each.

A pattern is a local part, an @ and a domain, with `*` for any characters of its part, none included. It is found by
what is fixed in it: by its domain, if that has no `*`, and then by how its local part begins or ends; else by its local
part, or how that begins or ends; else by how its domain does. At most CROWD_MAX are found by the same, so an address is
compared with few, however many there are. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PATTERNS_MAX = 10_000
"""Of the list, in all scopes."""
CROWD_MAX = 100
STARS_MAX = 4
_WHOLE, _BEGINS, _ENDS = "=", "<", ">"


def anchor_of(glob: str) -> tuple[str, str]:
    """What is fixed in it: how it begins or ends, whichever is longer, or the whole."""
    first, star, rest = glob.partition("*")
    if not star:
        return _WHOLE, glob
    last = rest.rpartition("*")[2]
    return (_BEGINS, first) if len(first) >= len(last) else (_ENDS, last)


def place_of(pattern: str) -> tuple[str, str, str]:
    """By what it is found: its domain ("*": not by that), and sign and text of the anchor. Of one place there are
    CROWD_MAX at most."""
    local, _, domain = pattern.rpartition("@")
    if "*" not in domain:
        return (domain, *anchor_of(local))
    if local != "*":
        return ("*", *anchor_of(local))
    return ("**", *anchor_of(domain))


def fits(glob: str, text: str) -> bool:
    """Whether the text is the glob with something, or nothing, in the place of each `*`."""
    first, *rest = glob.split("*")
    if not rest:
        return glob == text
    last = rest.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in rest:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


class _Globs:
    """Patterns by an anchor."""

    __slots__ = ("_by_anchor", "_lengths")

    def __init__(self) -> None:
        self._by_anchor: dict[tuple[str, str], dict[str, None]] = {}
        self._lengths: dict[tuple[str, int], int] = {}
        """How many anchors there are by sign and length."""

    def add(self, anchor: tuple[str, str], pattern: str) -> None:
        if anchor not in self._by_anchor:
            kind = anchor[0], len(anchor[1])
            self._by_anchor[anchor] = {}
            self._lengths[kind] = self._lengths.get(kind, 0) + 1
        self._by_anchor[anchor][pattern] = None

    def discard(self, anchor: tuple[str, str], pattern: str) -> None:
        found = self._by_anchor.get(anchor)
        if found is None:
            return
        found.pop(pattern, None)
        if not found:
            del self._by_anchor[anchor]
            kind = anchor[0], len(anchor[1])
            self._lengths[kind] -= 1
            if not self._lengths[kind]:
                del self._lengths[kind]

    def crowd(self, anchor: tuple[str, str]) -> int:
        return len(self._by_anchor.get(anchor, ()))

    def found_by(self, text: str) -> Iterator[str]:
        by_anchor, size = self._by_anchor, len(text)
        for sign, length in self._lengths:
            if length > size or (sign == _WHOLE and length != size):
                continue
            part = text[size - length :] if sign == _ENDS else text[:length]
            yield from by_anchor.get((sign, part), ())


class PatternIndex:
    """Of one scope."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._by_domain: dict[str, _Globs] = {}
        self.count = 0
        for pattern in patterns:
            self.add(pattern)

    def __contains__(self, pattern: str) -> bool:
        domain, *anchor = place_of(pattern)
        globs = self._by_domain.get(domain)
        return globs is not None and pattern in globs._by_anchor.get((anchor[0], anchor[1]), ())

    def add(self, pattern: str) -> None:
        if pattern not in self:
            domain, sign, text = place_of(pattern)
            self._by_domain.setdefault(domain, _Globs()).add((sign, text), pattern)
            self.count += 1

    def discard(self, pattern: str) -> None:
        if pattern in self:
            domain, sign, text = place_of(pattern)
            self._by_domain[domain].discard((sign, text), pattern)
            self.count -= 1
            if not self._by_domain[domain]._by_anchor:
                del self._by_domain[domain]

    def crowd(self, place: tuple[str, str, str]) -> int:
        """How many are found by that."""
        globs = self._by_domain.get(place[0])
        return globs.crowd(place[1:]) if globs is not None else 0

    def fitting(self, who: str) -> list[str]:
        """The patterns that an address fits, in order. who: its canonical spelling (`mail.person`)."""
        local, at, domain = who.rpartition("@")
        if not at:
            return []
        found = list[str]()
        for name, text in ((domain, local), ("*", local), ("**", domain)):
            globs = self._by_domain.get(name)
            if globs is not None:
                found += [one for one in globs.found_by(text) if _fits(one, local, domain)]
        return sorted(found) if len(found) > 1 else found


def _fits(pattern: str, local: str, domain: str) -> bool:
    globs = pattern.rpartition("@")
    return fits(globs[0], local) and fits(globs[2], domain)

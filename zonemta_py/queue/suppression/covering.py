"""Entries of the suppression list that cover more than one address, or one that is known by its hash only
(`spelling.py`): which scopes have any, and which of them cover an address.

Domains and hashes are looked up in the store by their keys: of a domain as many as it has labels, and one hash. The
patterns of a scope are in memory, PATTERNS_MAX in all (`patterns.py`); whether one is still listed, the store says.
A scope without such entries costs nothing but four look-ups when it is first asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.addresses.entries import BELOW, DOMAIN, HASH, PATTERN, domain_entries, hash_of, is_covering
from zonemta_py.mail.addresses.patterns import CROWD_MAX, PATTERNS_MAX, PatternIndex, place_of
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.suppression.entry import Suppressed

Of = Callable[[str, str], Suppressed | None]
"""An entry by its spelling and scope. Raises StoreError."""
_NONE = PatternIndex()


class Cover:
    """What a scope has of them. read: the store was asked too; until then, what has come since."""

    __slots__ = ("below", "domains", "hashes", "patterns", "read")

    def __init__(self) -> None:
        self.read = self.domains = self.below = self.hashes = False
        self.patterns = _NONE

    def __bool__(self) -> bool:
        return self.domains or self.below or self.hashes or self.patterns is not _NONE

    def grown(self, text: str) -> None:
        if text.startswith(BELOW):
            self.below = True
        elif text.startswith(DOMAIN):
            self.domains = True
        elif text.startswith(HASH):
            self.hashes = True
        else:
            self.patterns = PatternIndex() if self.patterns is _NONE else self.patterns
            self.patterns.add(text.removeprefix(PATTERN))


class Covering:
    """Of all scopes."""

    def __init__(self, store: Store, of: Of) -> None:
        self._store, self._of = store, of
        self._covers: dict[str, Cover] = {}

    def grown(self, text: str, scope: str) -> None:
        """Such an entry comes; the store need not have it yet."""
        if is_covering(text):
            self._covers.setdefault(scope, Cover()).grown(text)

    def gone(self, places: Iterable[tuple[str, str]]) -> None:
        """The store has these entries no more, and all others that have come. Raises StoreError."""
        for text, scope in places:
            cover = self._covers.get(scope)
            if cover is None or not is_covering(text):
                continue
            if text.startswith(PATTERN):
                cover.patterns.discard(text.removeprefix(PATTERN))
            else:
                cover.domains, cover.below, cover.hashes = self._there(scope)

    def of_scope(self, scope: str) -> Cover:
        """Raises StoreError."""
        cover = self._covers.get(scope)
        if cover is None:
            cover = self._covers[scope] = Cover()
        if not cover.read:
            domains, below, hashes = self._there(scope)
            cover.domains, cover.below, cover.hashes = (
                cover.domains or domains,
                cover.below or below,
                cover.hashes or hashes,
            )
            for key in self._store.keys(*keys.suppressed_from(PATTERN, scope)):
                cover.grown(keys.suppressed_place(key)[0])
            cover.read = True
        return cover

    def _there(self, scope: str) -> tuple[bool, bool, bool]:
        """Whether the store has domains, domains with all below them, hashes."""
        first = self._store.first
        after, end = keys.suppressed_from(BELOW, scope)[1], keys.suppressed_from(DOMAIN, scope)[1]
        return (
            first(after, end) is not None,  # no domain begins with what comes before a star
            first(*keys.suppressed_from(BELOW, scope)) is not None,
            first(*keys.suppressed_from(HASH, scope)) is not None,
        )

    def among(self, scopes: Iterable[str]) -> CoverLookup | None:
        """For mail of these scopes; None: they have no such entries. Raises StoreError."""
        found = [(scope, cover) for scope in scopes if (cover := self.of_scope(scope))]
        return CoverLookup(self._of, found) if found else None

    def check_room(self, rows: Iterable[tuple[str, str]], scopes: Iterable[str]) -> None:
        """Whether these patterns may be added. rows: spelling and scope. scopes: all that the list has. Raises Refused,
        StoreError."""
        given = ((text.removeprefix(PATTERN), scope) for text, scope in rows)
        fresh = {one: None for one in given if one[0] not in self.of_scope(one[1]).patterns}
        if not fresh:
            return
        count = len(fresh) + sum(self.of_scope(scope).patterns.count for scope in scopes)
        if count > PATTERNS_MAX:
            raise Refused(
                f"the list would have {count:,} patterns, and takes {PATTERNS_MAX:,}; list domains (@example.com), "
                "addresses or hashes instead"
            )
        crowds: dict[tuple[str, tuple[str, str, str]], int] = {}
        for pattern, scope in fresh:
            place = place_of(pattern)
            known = crowds.get((scope, place))
            crowd = (self.of_scope(scope).patterns.crowd(place) if known is None else known) + 1
            crowds[scope, place] = crowd
            if crowd > CROWD_MAX:
                raise Refused(
                    f"{pattern!r}: {CROWD_MAX} others begin or end as it does, and are the same else; use fewer and "
                    "wider patterns, or give each more characters before its first * or after its last"
                )


class CoverLookup:
    """Looks up what covers addresses, for mail of some scopes; each domain once."""

    __slots__ = ("_by_domain", "_of", "_scopes", "_with_hashes")

    def __init__(self, of: Of, scopes: list[tuple[str, Cover]]) -> None:
        self._of, self._scopes = of, scopes
        self._by_domain: dict[str, list[Suppressed]] = {}
        self._with_hashes = any(cover.hashes for _, cover in scopes)

    def entries(self, who: str) -> Iterator[Suppressed]:
        """who: the canonical address. Raises StoreError."""
        domain = who.rpartition("@")[2] if "@" in who else ""
        known = self._by_domain.get(domain)
        if known is None:
            known = self._by_domain[domain] = list(self._of_domain(domain)) if domain else []
        yield from known
        for scope, cover in self._scopes:
            for pattern in cover.patterns.fitting(who) if cover.patterns is not _NONE else ():
                entry = self._of(PATTERN + pattern, scope)
                if entry is not None:
                    yield entry
        if self._with_hashes:
            hashed = hash_of(who)
            for scope, cover in self._scopes:
                entry = self._of(hashed, scope) if cover.hashes else None
                if entry is not None:
                    yield entry

    def _of_domain(self, domain: str) -> Iterator[Suppressed]:
        below = any(cover.below for _, cover in self._scopes)
        for number, text in enumerate(domain_entries(domain)):
            for scope, cover in self._scopes:
                entry = self._of(text, scope) if (cover.below if number else cover.domains) else None
                if entry is not None:
                    yield entry
            if not below:
                return

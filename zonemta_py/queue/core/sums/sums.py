"""Counters by name and state; and those of providers, in memory only: what the domains have that are a provider's, as
DNS has said.
"""

from __future__ import annotations

from collections.abc import Iterable

from zonemta_py.queue.core.state import COUNTED

STATES = len(COUNTED)
REMEMBERED_MAX = 200_000
"""Domains whose provider is known."""


class Sums:
    """Counters by name; those that have come to nothing are dropped."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[int]] = {}

    def of(self, name: str) -> list[int]:
        """By state."""
        return list(self.by_name.get(name) or [0] * STATES)

    def move(self, name: str, before: int | None, after: int | None, count: int) -> None:
        """As `Sizes.move`."""
        counts = self.by_name.get(name)
        if counts is None:
            counts = self.by_name[name] = [0] * STATES
        if before is not None:
            counts[before] -= count
        if after is not None:
            counts[after] += count
        if not any(counts):
            del self.by_name[name]

    def add(self, name: str, more: Iterable[int], sign: int = 1) -> None:
        """Adds to all states, or subtracts."""
        counts = self.by_name.setdefault(name, [0] * STATES)
        for state, count in enumerate(more):
            counts[state] += sign * count
        if not any(counts):
            del self.by_name[name]


class ProviderSizes(Sums):
    """By provider, of the domains of which it is known."""

    def __init__(self) -> None:
        super().__init__()
        self.provider_of: dict[str, str] = {}

    def told(self, domain: str, provider: str, counts: list[int]) -> None:
        """A domain is that provider's now ("": it is nobody's); `counts` is what waits for it."""
        before = self.provider_of.get(domain, "")
        if before == provider:
            return
        if before:
            self.add(before, counts, -1)
            del self.provider_of[domain]
        if provider:
            if len(self.provider_of) >= REMEMBERED_MAX:
                return
            self.add(provider, counts)
            self.provider_of[domain] = provider

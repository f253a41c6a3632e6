"""In which order chunks go: the canary, then day by day, recent openers, and all ways out and providers side by side.

No provider is hit in one lump: a recipient's place is (rank within its provider) / (provider's count). Ranking by a
hash makes that quotient the hash itself, to within chance, so that no sorting by provider is needed: everyone's place
is a uniform number, and every stretch of the plan has each provider's share.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from zonemta_py.pipeline.prepare.settings import CHUNK_BYTES, Settings


class Group(NamedTuple):
    """Recipients that may share chunks. n: how many. bytes: of their rows."""

    canary: bool
    day: int
    tier: int
    lane: int
    n: int
    bytes: int

    def chunks(self, settings: Settings) -> int:
        """Of each variant as many."""
        count = max(1, ceil(self.n / settings.chunk), ceil(self.bytes / CHUNK_BYTES))
        parts = max(1, len(settings.variants)) if self.canary else 1
        return ceil(count / parts) * parts


class ChunkPosition(NamedTuple):
    """One chunk to be: its number in the groups' order, its place in the campaign's order."""

    number: int
    position: int
    group: Group
    bucket: int


def bases(groups: Iterable[Group], settings: Settings) -> list[tuple[Group, int]]:
    """Each group, in a fixed order, and the number of its first chunk."""
    found, base = [], 0
    for group in sorted(groups):
        found.append((group, base))
        base += group.chunks(settings)
    return found


def places(groups: Iterable[Group], settings: Settings) -> list[ChunkPosition]:
    """All chunks, in the campaign's order."""
    chunks = [
        (not group.canary, group.day, group.tier, (bucket + 0.5) / group.chunks(settings), group.lane, base + bucket,
         bucket, group)
        for group, base in bases(groups, settings)
        for bucket in range(group.chunks(settings))
    ]  # fmt: skip
    return [
        ChunkPosition(number, position, group, bucket)
        for position, (*_, number, bucket, group) in enumerate(sorted(chunks))
    ]

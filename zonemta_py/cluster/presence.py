"""Which nodes are alive. Pure: moments are arguments, by this node's own steady clock.

A node is dead when its entry has stayed the same for as long as is agreed, while this node's own signs of life went
through all the time: one that slept, or was cut off itself, mistakes nobody for dead, but begins to count anew. What
was read counts only if this node's own last sign of life is in it: else it may be old.
"""

from __future__ import annotations

from typing import NamedTuple


class _Seen(NamedTuple):
    """grace_s: how long it has said that it will be silent. since: when its entry was first seen so."""

    revision: int
    grace_s: float
    since: float


class Presence:
    """dead_after_s: as agreed."""

    def __init__(self, dead_after_s: float) -> None:
        self._dead_after_s = dead_after_s
        self._gap_s = dead_after_s / 2
        self._nodes = dict[str, _Seen]()
        self._well_since, self._well_at = float("inf"), float("-inf")
        self._looked_at = float("-inf")

    def acknowledged(self, now: float) -> None:
        """This node's own sign of life went through."""
        if now - self._well_at > self._gap_s:
            self._well_since = now
        self._well_at = now

    def seen(self, node: str, revision: int, grace_s: float, now: float) -> None:
        """What its entry is now; an older one says nothing."""
        last = self._nodes.get(node)
        if last is None or revision > last.revision:
            self._nodes[node] = _Seen(revision, grace_s, now)

    def looked(self, now: float) -> None:
        """All that has been seen is as new as this node's own last sign of life."""
        self._looked_at = now

    def forget(self, node: str) -> None:
        """Its entry is gone."""
        self._nodes.pop(node, None)

    def is_well(self, now: float) -> bool:
        """Whether this node's own signs of life go through, and it sees those of others."""
        return now - min(self._well_at, self._looked_at) <= self._gap_s

    def is_dead(self, node: str, now: float) -> bool:
        if not self.is_well(now):
            return False
        last = self._nodes.get(node)
        since = self._well_since if last is None else max(last.since, self._well_since)
        return self._looked_at - since >= max(self._dead_after_s, last.grace_s if last is not None else 0.0)

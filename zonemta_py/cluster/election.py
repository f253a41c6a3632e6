"""Who leads: one entry in a bucket, changed only by who knows its last revision. Pure: moments are arguments, each by
the node's own steady clock.

An entry holds for TERM_S. Its owner counts from when it *sent* what was taken; another node from when it first *saw*
the revision, which cannot be earlier, and waits MARGIN_S longer: so two never lead at once, however late messages and
answers are, as long as no clock is faster than another by MARGIN_S in TERM_S. What was sent may have been taken though
no answer came: that is seen like any other entry.
"""

from __future__ import annotations

from typing import NamedTuple

TERM_S = 3.0
MARGIN_S = 0.5
RENEW_S = 1.0


class LeaderEntry(NamedTuple):
    """node: "": it has gone in order, and anybody may follow at once. instance: of the node's folder and process.
    term: rises with each new leader."""

    node: str
    instance: str
    term: int


VACANT = LeaderEntry("", "", 0)


class Bid(NamedTuple):
    """What to write, if the revision is still that one (0: there is no entry)."""

    entry: LeaderEntry
    revision: int


class Election:
    """As one node sees it."""

    def __init__(self, node: str, instance: str) -> None:
        self._node, self._instance = node, instance
        self.entry, self._revision, self._seen_at = VACANT, 0, 0.0
        self._known = False
        self._sent_at = float("-inf")
        self.until = 0.0
        """Up to when this node may act as the leader."""

    def seen(self, entry: LeaderEntry, revision: int, now: float) -> None:
        """What is in the bucket; an older one than is known already says nothing. now: when the answer was there."""
        if self._known and revision <= self._revision:
            return
        self._known = True
        self.entry, self._revision, self._seen_at = entry, revision, now
        if not self.is_mine:
            self.until = 0.0

    @property
    def is_mine(self) -> bool:
        return self.entry.instance == self._instance

    def leader(self, now: float) -> str:
        """The node that leads, as far as is known; "": none, since nobody has renewed the entry for too long."""
        return self.entry.node if now < self._seen_at + TERM_S + MARGIN_S else ""

    def bid(self, now: float) -> Bid | None:
        """What to write now, if anything; `taken` or `seen` follows."""
        if not self._known:
            return None
        if self.is_mine:
            if now < self._sent_at + RENEW_S:
                return None
            term = self.entry.term
        elif self.entry.node and now < self._seen_at + TERM_S + MARGIN_S:
            return None
        else:
            term = self.entry.term + 1
        self._sent_at = now
        return Bid(LeaderEntry(self._node, self._instance, term), self._revision)

    def taken(self, bid: Bid, revision: int, sent_at: float, now: float) -> None:
        """The bid is in the bucket. sent_at: when it was sent first."""
        if revision > self._revision or not self._known:
            self.entry, self._revision, self._seen_at = bid.entry, revision, now
            self.until = sent_at + TERM_S

    def resign(self) -> Bid | None:
        """What to write so that another may follow at once; this node leads no more."""
        self.until = 0.0
        return Bid(LeaderEntry("", "", self.entry.term), self._revision) if self.is_mine else None

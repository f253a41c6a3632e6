"""Counts to which several queues add: all come to the same sums, however often and late they tell each other.

A share is what one process has counted of one span of time. It only grows, and is told whole: of two of the same, the
larger is right. So none counts twice, also where it is told again, or comes with copies when queues come and go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

What = TypeVar("What", bound=Hashable)
Row = Sequence[int | str]
"""A share in the store: its fields, the last two only where there were several queues."""
SHARES_MAX = 1_000
"""Of one thing; the oldest are forgotten."""


class CountShare(NamedTuple):
    """people: how many. span: when, as whoever keeps it counts spans of time. of: the span, as it is called by whoever
    has counted them. process: that one, of all queues and starts; "": of the only queue."""

    span: int
    people: int
    process: str = ""
    of: int = 0

    @classmethod
    def read(cls, row: Row) -> CountShare:
        """As the store has it; there are none but of one queue in what an older version has written."""
        span, people, *more = row
        return cls(span, people, *(more or ("", span)))  # type: ignore[arg-type]

    @property
    def row(self) -> Row:
        return list(self) if self.process else [self.span, self.people]


class SharedCounts(Generic[What]):
    """Of many things, in spans of time. What this process counts is elsewhere."""

    def __init__(self) -> None:
        self._shares: dict[What, dict[tuple[str, int], CountShare]] = {}

    def learn(self, what: What, share: CountShare) -> None:
        known = self._shares.setdefault(what, {})
        key = (share.process, share.of)
        before = known.pop(key, share)
        known[key] = before._replace(people=max(before.people, share.people))
        if len(known) > SHARES_MAX:
            del known[next(iter(known))]

    def total(self, what: What, since: int) -> int:
        """In that span and later ones."""
        return sum(one.people for one in self._shares.get(what, {}).values() if one.span >= since)

    def shares(self, what: What) -> list[CountShare]:
        return list(self._shares.get(what, {}).values())

    def known(self) -> set[What]:
        return set(self._shares)

    def forget(self, what: What) -> None:
        self._shares.pop(what, None)

    def turn(self, since: int) -> None:
        """What is older counts no more."""
        for what, known in list(self._shares.items()):
            if old := [key for key, one in known.items() if one.span < since]:
                for key in old:
                    del known[key]
                if not known:
                    del self._shares[what]


def joined(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """What two queues have of the same thing."""
    counts: SharedCounts[None] = SharedCounts()
    for row in (*rows, *others):
        counts.learn(None, CountShare.read(row))
    return [share.row for share in sorted(counts.shares(None))]

"""Counters: what became of the recipients of each campaign; exact, and O(1) to read.

Kept as `sizes.py` keeps its counters: in memory, and written, if changed, in the same LevelDB batch as the recipient's
key; so whichever batch a crash leaves as the last one, counters and recipients agree. `fsck` recounts them.

Counted are recipients of merged messages, and of other messages that name the campaign (X-Campaign) and arrive while it
is in progress: these are marked in the note and the metadata, since earlier mail may have used the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED

SUPPRESSED = "suppressed"
"""How the reason of a removal begins that the recipient asked for, or that protects the recipient."""
REMOVED = 0
"""Verdict of a recipient that ends without a delivery: canceled, suppressed, dropped."""


@dataclass(slots=True)
class CampaignCounts:
    """accepted, delivered, bounced, removed: recipients. deferred: deferred attempts. blocked: attempts, deferred or
    bounced, that were refused because of who we are or what we send. suppressed: recipients left out at acceptance,
    which were never accepted; who is suppressed later is removed. first_ms, last_ms: first and latest result, UNIX ms,
    0: none. bounced_later: delivered ones whose server sent a bounce afterwards; that, and the following: what came
    back (`queue.feedback`)."""

    accepted: int = 0
    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    blocked: int = 0
    complaints: int = 0
    removed: int = 0
    suppressed: int = 0
    first_ms: int = 0
    last_ms: int = 0
    bounced_later: int = 0
    unsubscribes: int = 0
    auto_replies: int = 0
    opens: int = 0
    clicks: int = 0

    def join(self, other: CampaignCounts) -> None:
        """Adds another queue's figures."""
        firsts = [ms for ms in (self.first_ms, other.first_ms) if ms]
        last_ms = max(self.last_ms, other.last_ms)
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        self.first_ms, self.last_ms = min(firsts, default=0), last_ms

    @property
    def ended(self) -> int:
        return self.delivered + self.bounced + self.removed

    @property
    def waiting(self) -> int:
        return self.accepted - self.ended

    @property
    def attempts(self) -> int:
        return self.delivered + self.deferred + self.bounced


_figures = attrgetter(*(one.name for one in fields(CampaignCounts)))
"""As `astuple`, which takes ten times as long; this is asked for with every batch."""


class CampaignCounters:
    """By campaign. Only open ones are counted."""

    def __init__(self, store: Store) -> None:
        self._counters: dict[str, CampaignCounts] = {}
        self.left = set[str]()
        """Names of which mail waits that counted for a campaign which is forgotten; it counts for none."""
        self.unwritten: set[str] = set()
        self.written: set[str] = set()
        for key, value in store.scan(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS)):
            _, name, part = key.decode().split(" ")
            if part == "#":
                self._counters[name] = CampaignCounts(*packing.unpack(value)[: len(fields(CampaignCounts))])
            elif part == "-":
                self.left.add(name)

    def names(self) -> list[str]:
        return list(self._counters)

    def of(self, name: str) -> CampaignCounts:
        """Raises KeyError."""
        return self._counters[name]

    def open(self, name: str) -> None:
        """The campaign exists from now on."""
        self._counters.setdefault(name, CampaignCounts())
        self.unwritten.add(name)

    def join(self, name: str, counts: CampaignCounts) -> None:
        """Adds another queue's figures to those of one that exists."""
        self._counters[name].join(counts)
        self.unwritten.add(name)

    def forget(self, name: str) -> None:
        """The campaign no longer exists; the caller deletes its key."""
        self._counters.pop(name, None)
        self.unwritten.discard(name)
        self.written.discard(name)

    def add(self, name: str, figure: str, count: int = 1) -> None:
        """Adds to one figure (or subtracts); does nothing for an unknown campaign."""
        tally = self._counters.get(name)
        if tally is not None:
            setattr(tally, figure, getattr(tally, figure) + count)
            self.unwritten.add(name)

    def result(self, name: str, verdict: int, ms: int, blocked: bool = False) -> None:
        """One recipient was tried, or ended without an attempt (REMOVED)."""
        tally = self._counters.get(name)
        if tally is None:
            return
        if verdict == DELIVERED:
            tally.delivered += 1
        elif verdict == BOUNCED:
            tally.bounced += 1
        elif verdict == DEFERRED:
            tally.deferred += 1
        elif verdict == REMOVED:
            tally.removed += 1
        else:
            return
        tally.blocked += blocked
        tally.first_ms, tally.last_ms = tally.first_ms or ms, ms
        self.unwritten.add(name)

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = [
            (keys.tally(name), packing.pack(_figures(self._counters[name]))) for name in self.unwritten
        ]
        self.written, self.unwritten = self.unwritten, set()
        return operations

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten |= self.written


def campaign_of(metadata: dict[str, Any]) -> str:
    """The campaign whose counters included a message's recipients when it came; "" if there is none."""
    return metadata["campaign"] if "columns" in metadata or "counted" in metadata else ""

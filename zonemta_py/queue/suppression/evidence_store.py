"""Evidence in the store, one key for each person, and which people may have any, in memory.

Changes are given back as operations, which their caller submits in the same turn of the event loop, in one batch with
what they follow from: so a crash leaves both or neither. Until the batch is written they are read from memory.

Cost: somebody without evidence is looked up in memory only (`maybe`), wrong for one in a hundred if there are 40,000
with evidence; after a start, once all of it has been read (`fill`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, StoreFenced
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.suppression.entry import ALL
from zonemta_py.queue.suppression.evidence import Evidence
from zonemta_py.schedule.time.pace import Pace

log = logging.getLogger(__name__)

SLOTS = 1 << 22
_FULL = 255
AT_ONCE = 100


class EvidenceStore:
    """Of all people. Raises StoreError wherever it reads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.complete = core.disk.store.first(keys.EVIDENCE, keys.end(keys.EVIDENCE)) is None
        """What `maybe` says of people is known."""
        self.pending = 0
        """People whose evidence a delivery may clear."""
        self._slots = bytearray(SLOTS)  # pages are taken when they are written
        self._fresh: dict[str, tuple[Evidence | None, object]] = {}
        """What the store does not have yet, and in which turn that was given."""
        self._turn: list[str] | None = None

    @property
    def any(self) -> bool:
        """Whether a delivery may clear anything."""
        return self.pending > 0 or not self.complete

    def maybe(self, who: str) -> bool:
        """False: a delivery clears nothing of that person's."""
        return not self.complete or self._slots[hash(who) % SLOTS] > 0

    def get(self, who: str) -> Evidence | None:
        """Not to be changed: `put` a copy."""
        fresh = self._fresh.get(who)
        if fresh is not None:
            return fresh[0]
        value = self._core.disk.store.get(keys.evidence(who))
        return None if value is None else _read(who, value)

    def put(self, who: str, evidence: Evidence | None, before: Evidence | None) -> list[Operation]:
        """None, or an empty one: there is none any more. before: what `get` gives. Reads nothing."""
        if evidence is not None and evidence.empty:
            evidence = None
        self._count(who, is_pending(evidence) - is_pending(before))
        self._note(who, evidence)
        return [(keys.evidence(who), None if evidence is None else evidence.value())]

    def cleared(self, people: Iterable[str]) -> list[Operation]:
        """They have no evidence any more. Never raises StoreFenced."""
        changes = list[Operation]()
        for who in people:
            try:
                before = self.get(who)
            except StoreFenced:
                self._note(who, None)
                changes.append((keys.evidence(who), None))
            else:
                changes += self.put(who, None, before) if before is not None else []
        return changes

    def _count(self, who: str, change: int) -> None:
        place = hash(who) % SLOTS
        if change > 0:
            self.pending += 1
            self._slots[place] = min(_FULL, self._slots[place] + 1)
        elif change < 0 and self.complete:  # before, it is not known whether it was counted
            self.pending -= 1
            if 0 < self._slots[place] < _FULL:
                self._slots[place] -= 1

    def _note(self, who: str, evidence: Evidence | None) -> None:
        if self._turn is None:
            self._turn = []
            # What is submitted in the same turn is in the same batch.
            self._core.disk.lines.submit([], partial(self._written, self._turn), sync=False, keep=True)
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn.append(who)
        self._fresh[who] = evidence, self._turn

    def _end_turn(self) -> None:
        self._turn = None

    def _written(self, turn: list[str], _: Reply | None) -> None:
        for who in turn:
            fresh = self._fresh.get(who)
            if fresh is not None and fresh[1] is turn:
                del self._fresh[who]

    async def fill(self, seen: Callable[[Evidence], object]) -> None:
        """After a start: reads all of it, in portions. seen: is told each."""
        after, pace = keys.EVIDENCE, Pace(math.inf)
        while rows := list(islice(self._core.disk.store.scan(after, keys.end(keys.EVIDENCE)), AT_ONCE)):
            for key, value in rows:
                evidence = self._fresh.get(who := keys.evidence_of(key), (_read(who, value), None))[0]
                if is_pending(evidence):
                    self._count(who, 1)
                if evidence is not None:
                    seen(evidence)
            after = rows[-1][0] + b"\0"
            await pace.turn()
        self.complete = True

    def portion(self, after: bytes) -> tuple[list[Evidence], bytes]:
        """Some of it, and where the next portion begins; b"": there is no more. after: b"" for the first one."""
        rows = list(islice(self._core.disk.store.keys(after or keys.EVIDENCE, keys.end(keys.EVIDENCE)), AT_ONCE))
        found = [one for one in (self.get(keys.evidence_of(key)) for key in rows) if one is not None]
        return found, rows[-1] + b"\0" if len(rows) == AT_ONCE else b""


def _read(who: str, value: bytes) -> Evidence | None:
    """None: it cannot be read, and counts for nothing."""
    try:
        return Evidence.of(who, value)
    except (ValueError, TypeError):
        log.warning("the evidence about an address cannot be read, and is not used; `zonemta fsck` removes it")
        return None


def is_pending(evidence: Evidence | None) -> bool:
    """Whether a delivery may clear some of it: not once it has led to an entry for all mail."""
    return (
        evidence is not None
        and bool(evidence.items)
        and not any(place.endswith(f" {ALL}") for place in evidence.listed)
    )

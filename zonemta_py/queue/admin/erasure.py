"""Erases a person: removes all recipients with the address from the queue, and everything else the store keeps about
it.

The walk goes in portions, so that the event loop keeps running; none of the person's mail is leased meanwhile. It is
repeated until it finds nothing, since a recipient's key may move ahead of it. Deliveries in progress cannot be taken
back: they are counted, and if deferred, the next call finds them.

Failures: StoreError on a disk error; calling it again continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.notes import Note
from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.removal import remove_in_memory, remove_walked
from zonemta_py.queue.maintenance.deadlines import flow_queues_in_turn
from zonemta_py.queue.suppression.entry import ERASED
from zonemta_py.queue.suppression.register import because
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.zone import ZoneSchedule

WALKED_AT_ONCE = 5_000
PASSES_MAX = 5


async def forget(queue: QueueContext, who: str) -> dict[str, int]:
    """who: the canonical address (`mail.person`). removed: recipients; under_way: those being delivered right now.

    Raises StoreError.
    """
    core, removed = queue.core, 0
    queue.suppression.leaving.add(who)
    try:
        await core.disk.journal.stable()  # a result may be on its way into the store
        await core.disk.lines.stable()
        for _ in range(PASSES_MAX):
            found = await _Pass(queue, who).run()
            removed += found
            await core.disk.journal.stable()
            await core.disk.lines.stable()
            if not found:
                break
        await _empty_receipts(core)
        await _forget_doubts(core, who)
        async for rows in _portions(core, keys.SENT_TO):
            theirs: list[Operation] = [(key, None) for key, value in rows if person(_address(value)) == who]
            core.disk.lines.submit(theirs, immediately, sync=False, keep=True)
        async for rows in _portions(core, keys.SENT_ABOUT):
            about = core.counters.sent.about_person(rows, who)
            core.disk.lines.submit(about, immediately, sync=False, keep=True)
        await asyncio.to_thread(queue.feedback_register.unread.drop_naming, who)
        async for rows in _portions(core, keys.FEEDBACK):
            core.disk.lines.submit(queue.feedback_register.erased(rows, who), immediately, sync=False, keep=True)
        core.tasks.erase(who)
        core.disk.lines.submit(queue.suppression.evidence.cleared([who]), immediately, sync=False, keep=True)
    finally:
        queue.suppression.leaving.discard(who)
    if core.disk.replica is not None:
        core.disk.replica.erased()
    leased = (entry for lease in queue.leases.out.values() for entry in lease.open)
    return {"removed": removed, "under_way": sum(person(entry.address) == who for entry in leased)}


class _Pass:
    """One walk over all waiting recipients."""

    def __init__(self, queue: QueueContext, who: str) -> None:
        self._core, self._who, self._count = queue.core, who, 0
        self._part = who.rpartition("@")[0].encode() if who.isascii() else b""
        """A part of all of the person's keys, in lower case, to skip other keys quickly."""

    async def run(self) -> int:
        async for flow_queue in flow_queues_in_turn(self._core, self._core.schedule.flow_queues()):
            self._count += remove_in_memory(
                self._core, flow_queue, lambda entry: self._is_theirs(entry.address), _erased
            )
        for zone in self._core.schedule.zones.values():
            for family in FAMILY:
                prefix = f"{family} {zone.zone.name} ".encode()
                async for rows in _portions(self._core, prefix):
                    self._walk(zone, rows)
        return self._count

    def _is_theirs(self, address: str) -> bool:
        return person(address) == self._who

    def _walk(self, zone: ZoneSchedule, rows: list[tuple[bytes, bytes]]) -> None:
        busy, found = self._core.schedule.busy, list[Entry]()
        for key, value in rows:
            if self._part in key.lower() and key not in busy:
                place = keys.place(key)
                if self._is_theirs(place.recipient):
                    found.append(Entry(key, place.id, place.recipient, Note.of(value)))
        self._count += len(found) - len(remove_walked(self._core, zone, found, _erased))


def _erased(_: Entry) -> str:
    return because(ERASED)


async def _portions(core: Core, prefix: bytes) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Rows in portions; between two of them the event loop runs, and no iterator is open."""
    start = prefix
    while rows := list(islice(core.disk.store.scan(start, keys.end(prefix)), WALKED_AT_ONCE)):
        yield rows
        start = rows[-1][0] + b"\0"
        await asyncio.sleep(0)


def _address(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


async def _empty_receipts(core: Core) -> None:
    """All that was acknowledged so far is in the journal by now, so nobody is lost by it. A disk that refuses is none
    that may be waited for."""
    core.disk.receipts.ask_empty()
    for _ in range(PASSES_MAX):
        if core.disk.receipts.turns_asked:
            await core.disk.journal.stable()
            await core.disk.lines.stable()


async def _forget_doubts(core: Core, who: str) -> None:
    async for rows in _portions(core, keys.IN_DOUBTS):
        theirs: list[Operation] = [(key, None) for key, _ in rows if person(key.decode().split(" ", 2)[2]) == who]
        core.disk.lines.submit(theirs, immediately, sync=False, keep=True)

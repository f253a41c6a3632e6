"""Messages lost to damage: what is left of them is set aside, and a record ends them.

The record is REMOVED, with "lost" in its fifth field (the name of the case in quarantine/); FINISH follows for the
message. Both are on stable storage before anything is deleted from the store, so replay completes what a crash
interrupts. After that the message counts as ended: its segment can be archived, and a later check does not report it
again.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import Any

from zonemta_py.disk import body_file, keys
from zonemta_py.disk.leveldb.store import Operation, Store, StoreError
from zonemta_py.disk.quarantine import Incident, Quarantine
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import LOST_CASE, FinishRecord, RemovedRecord
from zonemta_py.queue.core.campaign_counters import REMOVED
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.locator import Located
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle import observe
from zonemta_py.schedule.batch import Batch

log = logging.getLogger(__name__)

REASON = "lost by damage"
REMEDY = "send them again from their source"
SHOWN = 3
RETURNED = "it is returned to its sender"
KEPT = "it is held; repair the disk, then `zonemta queue release` it"
ONE_CASE_MAX = 1_000
"""Messages in one case: its note is rewritten with each."""


def body(message_id: str, zone: str, addresses: list[str], why: str, case: str, **where: Any) -> bytes:
    """The body of the REMOVED record. where: `destination` and `due`, if the keys are known."""
    place = {"destination": "", "due": []} | where | {LOST_CASE: case}
    return RemovedRecord(message_id, zone, addresses, f"{REASON}: {why}", place).pack()


def rests(store: Store, message_id: str) -> list[bytes]:
    """The keys that are left of a message, without its recipients'."""
    prefix = keys.message_range(message_id)
    try:
        return list(store.keys(prefix, keys.end(prefix)))
    except StoreError:
        return []


def contents(store: Store, message_id: str) -> dict[str, bytes]:
    """What can be read of it, by part."""
    found: dict[str, bytes] = {}
    for key in rests(store, message_id):
        try:
            found[part_of(key)] = store.get(key) or b""
        except StoreError:
            continue
    return found


def part_of(key: bytes) -> str:
    return key.decode().rsplit(" ", 1)[1].replace("*", "metadata").replace("#", "existence")


class Aside:
    """What this process has set aside: each message once, all of them in one case."""

    def __init__(self, quarantine: Quarantine, store: Store, bodies: Path) -> None:
        self._quarantine, self._store, self._bodies = quarantine, store, bodies
        self._incident: Incident | None = None
        self._known: set[str] = set()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._known

    def put(self, message_id: str, why: str, then: str) -> str:
        """Returns the case's name. then: what becomes of the message, for the log. Raises OSError; the message is not
        set aside then."""
        case = self._incident
        if case is None or (len(case.rows) >= ONE_CASE_MAX and message_id not in self._known):
            note = {"error": "messages in the store are damaged", "remedy": REMEDY}
            case = self._incident = self._quarantine.incident("messages", note)
        if message_id not in self._known:
            case.add(message_id, {"error": why}, contents(self._store, message_id))
            with contextlib.suppress(OSError):  # what cannot be read need not be a file; it stays where it is
                body_file.keep(self._bodies, message_id, case.place, f"{message_id}-body")
            case.save()
            self._known.add(message_id)
            place = case.place.name
            log.error("message %s is damaged (%s): %s; what is left is in quarantine/%s", message_id, why, then, place)
        return case.place.name


def apply(
    core: Core, message_id: str, zone: str, found: dict[str, Located], first: bool = True, size: int = 0
) -> list[Operation]:
    """Updates the counters for the recipients that the record ends; returns the deletions. found: from
    `locator.places_of`.

    first: no earlier record has ended the message. size: the counted size of a merged message, which has no body.
    """
    operations: list[Operation] = []
    for address, (key, state, flow) in found.items():
        core.counters.sizes.move(zone, address.rpartition("@")[2], state, None, flow=flow)
        operations.append((key, None))
    left = rests(core.disk.store, message_id) if first else []
    if left:
        core.disk.bodies.ended(message_id)
        core.disk.compaction.ended(message_id)
        try:
            bytes_left = core.messages.size_left(message_id)
        except StoreError:
            bytes_left = 0  # fsck corrects the counter
        core.counters.message_count -= 1
        core.counters.message_bytes -= bytes_left or size
    core.messages.drop(message_id)
    return operations + [(key, None) for key in left]


class DamagedMessages:
    """Messages whose metadata turn out to be unreadable when leased: sets aside what is left of them, and ends them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.aside = Aside(core.disk.quarantine, core.disk.store, core.disk.bodies.folder)
        self._ended: set[str] = set()

    def set_aside(self, message_id: str, why: str, then: str) -> str:
        """Keeps what is left of a message, says so, and shows it until an operator acknowledges it; the case's name.
        then: what becomes of it. Raises OSError."""
        case = self.aside.put(message_id, why, then)
        self._core.note_damage()
        return case

    def end(self, batch: Batch, error: StoreError) -> None:
        """Each batch of such a message ends up here on its own; the first one ends the message."""
        core, entries = self._core, batch.entries
        message_id, zone = entries[0].id, batch.zone.zone.name
        people = ", ".join(entry.address for entry in entries[:SHOWN])
        more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
        then = f"it is lost for {people}{more}, and nobody can be told; send it again from its source"
        case = self.set_aside(message_id, str(error), then)  # if there is no space for it, the next batch tries again
        due = [keys.place(entry.key).due_ms for entry in entries]
        where = {"destination": batch.flow_queue.key, "due": due if any(due) else []}
        addresses = [entry.address for entry in entries]
        first = message_id not in self._ended
        record = body(message_id, zone, addresses, str(error), case, **where)
        core.disk.ledger.write(Type.REMOVED, record, partial(self._gone, batch, first))
        observe.removed(core, message_id, zone, addresses, REASON)
        if first:
            self._ended.add(message_id)
            core.disk.ledger.append(Type.FINISH, FinishRecord(message_id).pack())
            core.disk.segments.ended(message_id)
        batch.zone.done(batch)

    def _gone(self, batch: Batch, first: bool) -> None:
        """Applies the record to the store."""
        core, message_id, zone = self._core, batch.entries[0].id, batch.zone.zone.name
        campaign = batch.flow_queue.flow_id.campaign
        for entry in batch.entries:
            if entry.note.tallied and core.campaigns.owns(campaign, message_id):
                core.campaigns.counters.result(campaign, REMOVED, core.clock.ms())
        found = {one.address: Located(one.key, counted_as(one.key), one.note.flow) for one in batch.entries}
        operations = apply(core, message_id, zone, found, first, self._merged_size(batch))
        gone = [entry.key for entry in batch.entries]
        core.disk.lines.submit(operations, lambda _: core.schedule.busy.difference_update(gone), sync=False, keep=True)

    def _merged_size(self, batch: Batch) -> int:
        """The counted size of a merged message (its campaign's), as it has no body; 0: it is not merged."""
        campaign = self._core.campaigns.by_name.get(batch.flow_queue.flow_id.campaign)
        return campaign.size if campaign is not None and batch.entries[0].note.values is not None else 0

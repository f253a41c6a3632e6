"""Removal: recipients that leave the queue without a delivery or a bounce, for a reason that the journal records.

There are four ways to get here: from a lease about to be granted, from a flow queue in memory, from a walk over the
store, and at once after acceptance, if a plugin has dropped the recipient. Nothing is taken out of the schedule before
its message is known to be readable; after that nothing else touches its keys. The REMOVED record says where each key
was, so that a replay after a crash finds it at once, or knows that it is gone. Failures: StoreError, and nothing has
been done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError, StoreFenced
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import RemovedRecord
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.campaign_counters import REMOVED, SUPPRESSED
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message, whose
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.hooks import why_dropped
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.lost import DamagedMessages
from zonemta_py.queue.suppression.entry import ERASED
from zonemta_py.schedule.batch import Batch, Entry, FlowQueue, ZoneFace
from zonemta_py.schedule.zone import ZoneSchedule

_FORGOTTEN = f"{SUPPRESSED}: {ERASED}"
"""Of somebody who is being forgotten nothing more is told."""


def remove_leased(core: Core, damaged: DamagedMessages, batch: Batch, entries: list[Entry], reason: str) -> bool:
    """Removes these recipients from a batch before its start record is written; False: no recipient is left.

    If the whole batch goes, the limits that it was charged are refunded. Raises StoreFenced: nothing has been done.
    """
    try:
        message = core.messages.get(batch.entries[0].id)
    except StoreFenced:
        raise
    except StoreError as error:
        damaged.end(batch, error)
        return False
    gone = {entry.key for entry in entries}
    batch.entries = [entry for entry in batch.entries if entry.key not in gone]
    remove(core, batch.zone.zone.name, message, entries, reason, batch.flow_queue.key)
    if batch.entries:
        return True
    core.schedule.admission.untouched(batch)
    batch.zone.done(batch)
    return False


def remove_in_memory(
    core: Core, flow_queue: FlowQueue, wanted: Callable[[Entry], bool], reason: Callable[[Entry], str]
) -> int:
    """Removes the entries of a flow queue in memory for which `wanted` is true; how many. Raises StoreError."""
    zone, found = flow_queue.zone, [entry for entry in flow_queue.entries if wanted(entry)]
    messages = _messages_of(core, found)
    theirs = {entry.key for entry in found if entry.id in messages}
    if theirs:
        _remove_each(core, zone, messages, zone.withdraw(flow_queue, lambda entry: entry.key in theirs), reason)
        zone.tidy(flow_queue)
    return len(theirs)


def remove_walked(
    core: Core, zone: ZoneSchedule, entries: list[Entry], reason: Callable[[Entry], str], task: int = 0
) -> list[Entry]:
    """Removes entries that are in nobody's hands; returns those of damaged messages, which leasing
    deals with. task: for which that is done. Raises StoreError."""
    messages = _messages_of(core, entries)
    found = [entry for entry in entries if entry.id in messages]
    core.schedule.busy.update([entry.key for entry in found])
    # Until their end is written no low-water mark may pass them: after a crash they must be found again.
    for entry in found:
        if entry.key.startswith(b"deferred "):
            zone.due.promise(entry.key)
        elif entry.key.startswith(b"delivery-zone "):
            zone.fresh.promise(entry.key)
    _remove_each(core, zone, messages, found, reason, task)
    return [entry for entry in entries if entry.id not in messages]


def _messages_of(core: Core, entries: list[Entry]) -> dict[str, Message]:
    """Their messages, by id, without damaged ones, which leasing deals with. Raises StoreError."""
    found: dict[str, Message] = {}
    try:
        for entry in entries:
            if entry.id not in found:
                try:
                    found[entry.id] = core.messages.get(entry.id)
                except StoreDamaged:
                    continue
    except StoreError:
        for message in found.values():
            core.messages.unpin(message, 0)  # dropped from memory unless still in use
        raise
    return found


def _remove_each(
    core: Core, zone: ZoneFace, messages: dict[str, Message], entries: list[Entry], reason: Callable[[Entry], str],
    task: int = 0,
) -> None:  # fmt: skip
    """One record for the recipients of a message on one flow queue that leave for the same reason."""

    def together(entry: Entry) -> tuple[str, str, int, bool, str]:
        place = keys.place(entry.key)
        return entry.id, place.destination, place.task or task, place.family == "bounced", reason(entry)

    for (message_id, destination, number, _, why), rows in groupby(entries, together):
        remove(core, zone.zone.name, messages[message_id], list(rows), why, destination, task=number)


def remove(
    core: Core,
    zone: str,
    message: Message,
    entries: list[Entry],
    reason: str,
    destination: str = "",
    done: Callable[[Reply | None], None] = immediately,
    task: int = 0,
) -> None:
    """Ends recipients of one message, whose keys are busy; calls `done` once the store has it. Those that have bounced,
    and were kept, come by themselves; their end has been told.

    destination: key of their flow queue, if they may be parked. task: for which that is done, if it is for one.
    """
    places = [keys.place(entry.key) for entry in entries]
    due, kept = [place.due_ms for place in places], [place.until_ms for place in places]
    where: dict[str, Any] = {"destination": destination, "due": due if any(due) else []}
    where |= {"kept": kept} if any(kept) else {}
    where |= whose(message.metadata) | ({"task": task} if task else {})
    if (routing := entries[0].note.routing) and reason == why_dropped(routing):
        where["by"] = routing["dropped"][:2]
    if "meta" in message.metadata and reason != _FORGOTTEN and (about := message.about(entries)):
        where["about"] = about
    now_ms = core.clock.ms()
    record = RemovedRecord(message.id, zone, [entry.address for entry in entries], reason, where)
    for entry in entries:
        if not entry.pinned:
            entry.pinned = True
            core.messages.pin(message)
    if not any(kept):
        observe.removed(core, message.id, zone, record.recipients, reason)
    suppressed = reason.startswith(SUPPRESSED)
    apply = partial(_apply, core, zone, message, entries, now_ms, done, task)
    core.disk.ledger.write(Type.REMOVED, record.pack(), apply, now_ms, patient=suppressed)


def _apply(
    core: Core, zone: str, message: Message, entries: list[Entry], ms: int, done: Callable[[Reply | None], None],
    task: int,
) -> None:  # fmt: skip
    """Applies the record to the store. Called in the order of the records."""
    operations: list[Operation] = [(entry.key, None) for entry in entries]
    campaign = core.campaigns.counted_by(message.id, message.metadata)
    for entry in entries:
        domain = entry.address.rpartition("@")[2]
        core.counters.sizes.move(zone, domain, counted_as(entry.key), None, flow=entry.note.flow)
        if campaign and counted_as(entry.key) != sizes.BOUNCED:
            core.campaigns.counters.result(campaign, REMOVED, ms)
    core.tasks.removed(task, sum(not entry.key.startswith(b"deleted ") for entry in entries))
    operations += core.messages.finish(message, len(entries))
    if message.left <= 0:
        core.finish(message, zone)

    def written(reply: Reply | None) -> None:
        core.schedule.busy.difference_update([entry.key for entry in entries])
        core.messages.unpin(message, len(entries))
        done(reply)

    core.disk.lines.submit(operations, written, sync=False, keep=True)

"""Orders: an operator's decisions about held recipients. Journalled, and carried out after a crash too.

A released recipient becomes deferred, due at once: so it gets a key that it never had before, and recovery can tell
whether an older record about it has been applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import MovedRecord, RemovedRecord
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.campaign_counters import REMOVED
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.locator import Located, find_any
from zonemta_py.queue.core.messages import about_of
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.schedule.batch import Entry

DROPPED = "dropped by an operator"


async def release(queue: QueueContext, id: str) -> int:
    """Sends the held recipients of a message after all; returns how many. Raises ValueError if there are none."""
    return await _whatever_becomes_of_the_asker(queue, _release(queue, id))


async def drop(queue: QueueContext, id: str) -> int:
    """Removes the held recipients of a message for good; returns how many. Raises ValueError if there are none."""
    return await _whatever_becomes_of_the_asker(queue, _drop(queue, id))


async def _whatever_becomes_of_the_asker(queue: QueueContext, order: Coroutine[Any, Any, int]) -> int:
    """An order in the journal is carried out, even if the command that gave it is interrupted."""
    task = asyncio.ensure_future(order)
    queue.core.keep(task)
    return await asyncio.shield(task)


async def _release(queue: QueueContext, message_id: str) -> int:
    core, due_ms = queue.core, queue.core.clock.steady_ms()
    found = _held(queue, message_id)
    written: list[tuple[int, MovedRecord]] = []
    for zone, addresses in found.items():
        core.schedule.zones[zone].promise([keys.deferred(zone, due_ms, message_id, one) for one in addresses])
        flow = Note.of(core.disk.store.get(keys.held(zone, message_id, addresses[0])) or b"").flow
        moved = MovedRecord(message_id, zone, addresses, due_ms, flow, _about(queue, message_id, zone, addresses))
        written.append((core.disk.ledger.open(Type.MOVED, moved.pack()), moved))
    await core.disk.journal.stable()
    await core.disk.lines.stable()  # the store cannot be read while its disk has errors
    for seq, moved in written:
        core.disk.ledger.apply(seq, partial(apply_release, queue, moved))
    return await _done(queue, message_id, found)


async def _drop(queue: QueueContext, message_id: str) -> int:
    core = queue.core
    found, told = _held(queue, message_id), partial(_about, queue, message_id)
    removed = [
        RemovedRecord(message_id, zone, addresses, DROPPED, {"about": of} if (of := told(zone, addresses)) else None)
        for zone, addresses in found.items()
    ]
    written = [core.disk.ledger.open(Type.REMOVED, one.pack()) for one in removed]
    await core.disk.journal.stable()
    await core.disk.lines.stable()  # the store cannot be read while its disk has errors
    for seq, one in zip(written, removed, strict=True):
        core.disk.ledger.apply(seq, partial(apply_drop, queue, one, core.clock.ms()))
        observe.removed(core, one.id, one.zone, one.recipients, one.reason)
    return await _done(queue, message_id, found)


def _held(queue: QueueContext, message_id: str) -> dict[str, list[str]]:
    """By zone. They stay busy until `_done`: two orders at once would count them twice."""
    store, found, busy = queue.core.disk.store, dict[str, list[str]](), queue.core.schedule.busy
    for zone in queue.core.schedule.zones:
        prefix = keys.held_range(zone) + message_id.encode() + b" "
        addresses = [keys.place(key).recipient for key in store.keys(prefix, keys.end(prefix))]
        if addresses:
            found[zone] = addresses
    if not found:
        raise Refused(f"message {message_id!r} has no held recipient; `zonemta queue list --state held` shows them")
    if not busy.isdisjoint(theirs := _keys(message_id, found)):
        raise Refused(f"message {message_id!r} is already being released or deleted; try again in a moment")
    busy.update(theirs)
    return found


def _about(queue: QueueContext, message_id: str, zone: str, addresses: list[str]) -> list[Any] | None:
    """What the records tell of them (`mail.metadata`). The message may be damaged."""
    store, people = queue.core.disk.store, list[Entry]()
    for address in addresses:
        key = keys.held(zone, message_id, address)
        people.append(Entry(key, message_id, address, Note.of(store.get(key) or b"")))
    return about_of(queue.core.messages, message_id, people)


def _keys(message_id: str, found: dict[str, list[str]]) -> list[bytes]:
    return [keys.held(zone, message_id, address) for zone, addresses in found.items() for address in addresses]


async def _done(queue: QueueContext, message_id: str, found: dict[str, list[str]]) -> int:
    """Waits until the store has it. How many they were."""
    await _written(queue)
    queue.core.schedule.busy.difference_update(theirs := _keys(message_id, found))
    return len(theirs)


def apply_release(queue: QueueContext, moved: MovedRecord) -> None:
    """Applies a MOVED record, as far as it is not applied. The cursor over due recipients may have passed their
    time."""
    core, operations, promised = queue.core, list[Operation](), list[bytes]()
    message_id, zone, due_ms = moved.id, moved.zone, moved.due_ms
    for address in moved.recipients:
        key, due = keys.held(zone, message_id, address), keys.deferred(zone, due_ms, message_id, address)
        promised.append(due)
        value = core.disk.store.get(key)
        if value is None:
            continue
        domain = address.rpartition("@")[2]
        note = Note.of(value)
        core.counters.sizes.move(zone, domain, sizes.HELD, sizes.DEFERRED, flow=note.flow)
        operations += [(key, None), (due, note.freed(due_ms).value())]

    def arrived(_: Reply | None) -> None:
        core.schedule.busy.difference_update(promised)
        if zone in core.schedule.zones:
            core.schedule.zones[zone].due_at(due_ms)
        if core.tasks.active:
            core.tasks.moved(operations)

    core.disk.lines.submit(operations, arrived, sync=False, keep=True)


def apply_drop(queue: QueueContext, removed: RemovedRecord, ms: int, found: dict[str, Located] | None = None) -> int:
    """Applies a REMOVED record, as far as it is not applied; with the last recipient the message ends.

    found: where their keys are, if known, and how they are counted. Returns how many still existed.
    """
    core, operations, ended, left = queue.core, list[Operation](), 0, 0
    told = 0
    message_id, zone = removed.id, removed.zone
    for address in removed.recipients:
        entry = find_any(core.disk.store, zone, message_id, address) if found is None else found.get(address)
        if entry is not None:
            operations.append((entry.key, None))
            core.counters.sizes.move(zone, address.rpartition("@")[2], entry.state, None, flow=entry.flow)
            ended += 1
            left += entry.state == sizes.DELETED
            told += entry.state == sizes.BOUNCED
    if not ended:
        return 0
    if removed.where and "task" in removed.where:
        core.tasks.removed(removed.where["task"], ended - left)
    try:
        message = core.messages.get(message_id)
    except StoreDamaged:
        core.disk.lines.submit(operations, immediately, sync=False, keep=True)
        return ended
    core.messages.pin(message)
    if campaign := core.campaigns.counted_by(message_id, message.metadata):
        for _ in range(ended - told):
            core.campaigns.counters.result(campaign, REMOVED, ms)
    operations += core.messages.finish(message, ended)
    if message.left <= 0:
        core.finish(message, zone)
    core.disk.lines.submit(operations, lambda _: core.messages.unpin(message), sync=False, keep=True)
    return ended


async def _written(queue: QueueContext) -> None:
    """Waits until the store has it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    queue.core.disk.lines.submit([], lambda _: future.set_result(None), sync=False, keep=True)
    queue.core.disk.lines.flush()
    await future

"""In doubt: recipients whose final reply may have been on its way when their sender process, or the queue, died.

Only these can get a message twice. They are listed under keys of their own (those of a pull zone until their message
ends), and sent again or held for an operator, according to the `in_doubt` setting of their campaign, or else zone.
Recovery recognizes them by start records without a result. A recipient whose message has repeatedly killed its sender
while being rendered (`poison`) is held in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from functools import partial

from zonemta_py.config import Zone
from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.records import InDoubtRecord, InDoubtRow, StartRecord, Type
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.locator import find_entry, leased_keys
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.lifecycle.telling import tell
from zonemta_py.queue.poison import checksum
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.flow import FlowId, split_key

NOTHING_MADE = (-1, 0)


def lost(queue: QueueContext, worker: str, silent: bool = False) -> None:
    """A sender has died: recipients that it had begun are in doubt; the rest return to the queue as if never leased.

    silent: the process hangs and may continue; results that it then reports are still accepted (`Settling.late`).
    """
    queue.core.schedule.admission.idle.part(worker)
    doubtful, making = [], NOTHING_MADE if silent else queue.poison.of(worker)
    for lease in queue.leases.of(worker):
        if lease.settling:
            continue
        if not lease.sent:
            queue.leases.take_back(lease)
        elif lease.asking is not None:  # its answered part is to be recorded first
            lease.settling = True
            lease.asking.add_done_callback(partial(_heard, queue, lease))
        else:
            doubtful.append(lease)
    if silent:
        queue.leases.remember(doubtful)
    _in_doubt(queue, doubtful, {id(entry) for lease in doubtful for entry in _deadly(queue, lease, making)})
    queue.leases.gone(worker)
    queue.core.changed()


def give_up(queue: QueueContext, lease: Lease) -> None:
    """Nobody answers any more for what was pulled: a reservation is over, or its client is gone."""
    _in_doubt(queue, [lease])
    queue.core.changed()


def _heard(queue: QueueContext, lease: Lease, _: asyncio.Future[None]) -> None:
    _in_doubt(queue, [lease])
    queue.core.changed()


def _deadly(queue: QueueContext, lease: Lease, making: tuple[int, int]) -> list[Entry]:
    """The recipients whose message has killed a sender too often."""
    number, found = making
    if lease.number != number:
        return []
    return [
        entry
        for entry in lease.open
        if checksum(entry.address) == found and queue.poison.count(lease.message.id, entry.address)
    ]


def _in_doubt(queue: QueueContext, leases: list[Lease], deadly: Set[int] = frozenset()) -> None:
    """Ends the leases. deadly: ids of entries that are held."""
    rows = [
        InDoubtRow(
            lease.message.id,
            lease.zone.name,
            entry.address,
            lease.since_ms,
            _action(queue.core, lease, entry, deadly),
            lease.batch.flow_queue.key,
        )
        for lease in leases
        for entry in lease.open
    ]
    for lease in leases:
        tell.in_doubt(queue.core, lease.message.id, lease.zone.name, [entry.address for entry in lease.open])
        del queue.leases.out[lease.number]
        lease.batch.zone.done(lease.batch)
    if leases:
        record = InDoubtRecord([lease.number for lease in leases], rows)
        queue.core.ledger.write(Type.IN_DOUBT, record.pack(), partial(_resolve_all, queue.core, leases, deadly))


def _action(core: Core, lease: Lease, entry: Entry, deadly: Set[int]) -> str:
    return "hold" if id(entry) in deadly else _asked(core, lease.zone, lease.batch.flow_queue.flow_id.campaign)


def _asked(core: Core, zone: Zone, campaign: str) -> str:
    """As the campaign says, if somebody has put it and it says anything; else as the zone does."""
    known = core.campaigns.registered(campaign) if campaign else None
    return (known.in_doubt if known is not None else "") or zone.in_doubt


def _resolve_all(core: Core, leases: list[Lease], deadly: Set[int]) -> None:
    for lease in leases:
        _resolve(core, lease, deadly)
    core.changed()


def _resolve(core: Core, lease: Lease, deadly: Set[int]) -> None:
    """Lists a lease's recipients, and releases or holds them."""
    zone, entries = lease.zone, lease.open
    operations = [
        _listed(core, lease.message.id, entry.address, zone.name, lease.since_ms, _action(core, lease, entry, deadly))
        for entry in entries
    ]
    holding = [entry for entry in entries if _action(core, lease, entry, deadly) == "hold"]
    if len(holding) < len(entries):
        lease.batch.zone.put_back(lease.batch, [entry for entry in entries if entry not in holding])
    for entry in holding:
        operations += _hold(core, zone.name, entry)

    def held(_: Reply | None) -> None:
        core.schedule.busy.difference_update([entry.key for entry in holding])
        core.messages.unpin(lease.message, len(holding))
        if core.tasks.active:
            core.tasks.moved(operations)

    core.lines.submit(operations, held, sync=False, keep=True)


def action_of(core: Core, zone: str, campaign: str) -> str:
    """What becomes of recipients of that zone, which may be gone from the configuration, and campaign ("": none)."""
    known = core.config.zone(zone)
    return _asked(core, known, campaign) if known else "retry"


def recover(queue: QueueContext, working: list[StartRecord]) -> None:
    """Handles start records without a result, after a crash."""
    core, rows = queue.core, list[InDoubtRow]()
    for start in working:
        action = action_of(core, start.zone, FlowId.of(split_key(start.destination)[2]).campaign)
        rows += [
            InDoubtRow(start.id, start.zone, address, start.since_ms, action, start.destination)
            for address, _, _ in leased_keys(core.store.get, start)
        ]
    for row in rows:
        tell.in_doubt(core, row.id, row.zone, [row.address])
    if working:
        record = InDoubtRecord([start.lease for start in working], rows)
        core.ledger.write(Type.IN_DOUBT, record.pack(), partial(apply, queue, rows))


def apply(queue: QueueContext, rows: list[InDoubtRow]) -> None:
    """Applies an IN_DOUBT record, before anything is scheduled.

    A recipient may appear in several leases: older versions did not record that a lease was taken back.
    """
    core, once = queue.core, {(row.id, row.zone, row.address): row for row in rows}
    for message_id, zone, address, since_ms, action, _ in once.values():
        if core.pull_doubts.pulled(zone) and core.store.get(keys.existence(message_id)) is None:
            continue  # it has been taken again since, and has ended
        operations = [_listed(core, message_id, address, zone, since_ms, action)]
        entry = find_entry(core.store, zone, message_id, address) if action == "hold" else None
        if entry is not None:
            operations += _hold(core, zone, entry)
        core.lines.submit(operations, immediately, sync=False, keep=True)


def _listed(core: Core, message_id: str, address: str, zone: str, since_ms: int, action: str) -> Operation:
    key = keys.in_doubt(message_id, address)
    core.pull_doubts.listed(message_id, key, zone)
    return key, records.pack([zone, since_ms, action])


def _hold(core: Core, zone: str, entry: Entry) -> list[Operation]:
    domain = entry.address.rpartition("@")[2]
    core.sizes.move(zone, domain, counted_as(entry.key), sizes.HELD, flow=entry.note.flow)
    note = entry.note.held(core.clock.steady_ms())
    return [(entry.key, None), (keys.held(zone, entry.id, entry.address), note.value())]

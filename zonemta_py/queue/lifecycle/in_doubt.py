"""In doubt: recipients whose final reply may have been on its way when their sender process, or the queue, died.

Only these can get a message twice. They are listed under keys of their own (those of a pull zone until their message
ends), and sent again or held for an operator, according to the `in_doubt` setting of their campaign, or else zone.
Recovery recognizes them by start records without a result. A recipient whose message has repeatedly killed its sender
while being rendered (`poison`) is held in any case.
"""

from __future__ import annotations

import asyncio
from functools import partial

from zonemta_py.disk import keys
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import InDoubtRecord, InDoubtRow, StartRecord
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.locator import find_entry, leased_keys
from zonemta_py.queue.lifecycle import doubts, observe
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.poison import Remains, checksum
from zonemta_py.schedule.flow import FlowId, split_key


def lost(queue: QueueContext, worker: str, silent: bool = False, pid: int = 0) -> None:
    """A sender has died: recipients that it had begun are in doubt; the rest return to the queue as if never leased.

    silent: the process hangs and may continue; results that it then reports are still accepted (`Settling.late`).
    pid: the process; what it died of is counted then even if the queue has that message's result already.
    """
    queue.core.schedule.admission.idle.part(worker)
    doubtful, answered = list[Lease](), list[Lease]()
    left = None if silent else queue.poison.of(worker)
    for lease in queue.leases.of(worker):
        if lease.settling:
            continue
        if not lease.sent:
            queue.leases.take_back(lease)
        elif lease.asking is not None:  # its answered part is to be recorded first
            lease.settling = True
            answered.append(lease)
        else:
            doubtful.append(lease)
    if silent:
        queue.leases.remember(doubtful)
    deadly = _deadly(queue, worker, doubtful + answered, left)
    if left is not None and left.pid == pid and all(lease.number != left.lease for lease in doubtful + answered):
        queue.poison.note(worker, left)
    for lease in answered:
        assert lease.asking is not None
        lease.asking.add_done_callback(partial(_heard, queue, lease, deadly))
    doubts.end(queue.core, queue.leases, doubtful, deadly)
    queue.leases.gone(worker)
    queue.core.changed()


def give_up(queue: QueueContext, lease: Lease) -> None:
    """Nobody answers any more for what was pulled: a reservation is over, or its client is gone."""
    doubts.end(queue.core, queue.leases, [lease])
    queue.core.changed()


def _heard(queue: QueueContext, lease: Lease, deadly: dict[int, str], _: asyncio.Future[None]) -> None:
    doubts.end(queue.core, queue.leases, [lease], deadly)
    queue.core.changed()


def _deadly(queue: QueueContext, worker: str, leases: list[Lease], left: Remains | None) -> dict[int, str]:
    """The recipients whose message has ended a sender too often, and the reason for which they are held."""
    found: dict[int, str] = {}
    for lease in leases:
        if left is None or lease.number != left.lease:
            continue
        meant = {
            entry.address: entry
            for entry in lease.open
            if not left.checksum or checksum(entry.address) == left.checksum
        }
        held = queue.poison.count(worker, left, lease.message.id, list(meant))
        found |= {id(meant[address]): why for address, why in held.items()}
    return found


def action_of(core: Core, zone: str, campaign: str) -> str:
    """What becomes of recipients of that zone, which may be gone from the configuration, and campaign ("": none)."""
    known = core.config.zone(zone)
    return doubts.asked(core, known, campaign) if known else "retry"


def recover(queue: QueueContext, working: list[StartRecord]) -> None:
    """Handles start records without a result, after a crash."""
    core, rows = queue.core, list[InDoubtRow]()
    for start in working:
        action = action_of(core, start.zone, FlowId.of(split_key(start.destination)[2]).campaign)
        rows += [
            InDoubtRow(start.id, start.zone, address, start.since_ms, action, start.destination)
            for address, _, _ in leased_keys(core.disk.store.get, start)
        ]
    for row in rows:
        observe.in_doubt(core, row.id, row.zone, [row.address])
    if working:
        record = InDoubtRecord([start.lease for start in working], rows)
        core.disk.ledger.write(Type.IN_DOUBT, record.pack(), partial(apply, queue, rows))


def apply(queue: QueueContext, rows: list[InDoubtRow]) -> None:
    """Applies an IN_DOUBT record, before anything is scheduled.

    A recipient may appear in several leases: older versions did not record that a lease was taken back.
    """
    core, once = queue.core, {(row.id, row.zone, row.address): row for row in rows}
    for message_id, zone, address, since_ms, action, _, why in once.values():
        if core.pull_doubts.pulled(zone) and core.disk.store.get(keys.existence(message_id)) is None:
            continue  # it has been taken again since, and has ended
        operations = [doubts.listed(core, message_id, address, zone, since_ms, action, why)]
        entry = find_entry(core.disk.store, zone, message_id, address) if action == "hold" else None
        if entry is not None:
            operations += doubts.hold(core, zone, entry, why)
        core.disk.lines.submit(operations, immediately, sync=False, keep=True)

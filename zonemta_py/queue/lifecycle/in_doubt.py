"""In doubt: recipients whose final reply may have been on its way when their sender process, or the queue, died.

Only these can get a message twice. They are listed under keys of their own (those of a pull zone until their message
ends), and sent again or held for an operator, according to the `in_doubt` setting of their campaign, or else zone.
Recovery recognizes them by start records without a result. A recipient whose message has repeatedly killed its sender
while being rendered (`poison`) is held in any case. An IN_DOUBT record says so first; when it is stable, it is applied
to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from zonemta_py.config import Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import InDoubtRecord, InDoubtRow, StartRecord
from zonemta_py.mail.metadata import of_one
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.locator import find_entry, leased_keys
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.queue.poison import PoisonMessages, Remains, checksum
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.flow import FlowId, split_key

_NOBODY: dict[int, str] = {}
Deadly = Mapping[int, str]
"""Ids of entries that are held whatever their zone says, and why."""


class Parts(Protocol):
    """Of the queue, those that are needed here."""

    core: Core
    leases: Leases
    poison: PoisonMessages


def lost(queue: Parts, worker: str, silent: bool = False, pid: int = 0) -> None:
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
    end(queue.core, queue.leases, doubtful, deadly)
    queue.leases.gone(worker)
    queue.core.changed()


def give_up(queue: Parts, lease: Lease) -> None:
    """Nobody answers any more for what was pulled: a reservation is over, or its client is gone."""
    end(queue.core, queue.leases, [lease])
    queue.core.changed()


def _heard(queue: Parts, lease: Lease, deadly: dict[int, str], _: asyncio.Future[None]) -> None:
    end(queue.core, queue.leases, [lease], deadly)
    queue.core.changed()


def _deadly(queue: Parts, worker: str, leases: list[Lease], left: Remains | None) -> dict[int, str]:
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
    return asked(core, known, campaign) if known else "retry"


def recover(queue: Parts, working: list[StartRecord]) -> None:
    """Handles start records without a result, after a crash."""
    core, rows = queue.core, list[InDoubtRow]()
    for start in working:
        action = action_of(core, start.zone, FlowId.of(split_key(start.destination)[2]).campaign)
        rows += [
            InDoubtRow(
                start.id,
                start.zone,
                address,
                start.since_ms,
                action,
                start.destination,
                about=of_one(start.about, address),
            )
            for address, _, _ in leased_keys(core.disk.store.get, start)
        ]
    for row in rows:
        observe.in_doubt(core, row.id, row.zone, [row.address])
    if working:
        record = InDoubtRecord([start.lease for start in working], rows)
        core.disk.ledger.write(Type.IN_DOUBT, record.pack(), partial(apply, queue, rows))


def apply(queue: Parts, rows: list[InDoubtRow]) -> None:
    """Applies an IN_DOUBT record, before anything is scheduled.

    A recipient may appear in several leases: older versions did not record that a lease was taken back.
    """
    core, once = queue.core, {(row.id, row.zone, row.address): row for row in rows}
    for message_id, zone, address, since_ms, action, _, why, _ in once.values():
        if core.pull_doubts.pulled(zone) and core.disk.store.get(keys.existence(message_id)) is None:
            continue  # it has been taken again since, and has ended
        operations = [listed(core, message_id, address, zone, since_ms, action, why)]
        entry = find_entry(core.disk.store, zone, message_id, address) if action == "hold" else None
        if entry is not None:
            operations += hold(core, zone, entry, why)
        core.disk.lines.submit(operations, immediately, sync=False, keep=True)


# -- leases whose results will not come


def without_answer(core: Core, leases: Leases, lease: Lease, indices: Iterable[int], why: str) -> None:
    """Its sender has met a bug after the end of the message, and lives: trying again might end so again and again, so
    these are held; the lease has no others."""
    held = {id(lease.batch.entries[index]): why for index in indices}
    end(core, leases, [lease], held)
    core.changed()


def end(core: Core, table: Leases, leases: list[Lease], deadly: Deadly = _NOBODY) -> None:
    """Ends the leases."""
    rows = [
        InDoubtRow(
            lease.message.id,
            lease.zone.name,
            entry.address,
            lease.since_ms,
            _action(core, lease, entry, deadly),
            lease.batch.flow_queue.key,
            deadly.get(id(entry), ""),
            lease.message.about([entry]),
        )
        for lease in leases
        for entry in lease.open
    ]
    for lease in leases:
        observe.in_doubt(core, lease.message.id, lease.zone.name, [entry.address for entry in lease.open])
        del table.out[lease.number]
        lease.batch.zone.done(lease.batch)
    if leases:
        record = InDoubtRecord([lease.number for lease in leases], rows)
        core.disk.ledger.write(Type.IN_DOUBT, record.pack(), partial(_resolve_all, core, leases, deadly))


def _action(core: Core, lease: Lease, entry: Entry, deadly: Deadly) -> str:
    return "hold" if id(entry) in deadly else asked(core, lease.zone, lease.batch.flow_queue.flow_id.campaign)


def asked(core: Core, zone: Zone, campaign: str) -> str:
    """As the campaign says, if somebody has put it and it says anything; else as the zone does."""
    known = core.campaigns.registered(campaign) if campaign else None
    return (known.in_doubt if known is not None else "") or zone.in_doubt


def _resolve_all(core: Core, leases: list[Lease], deadly: Deadly) -> None:
    for lease in leases:
        _resolve(core, lease, deadly)
    core.changed()


def _resolve(core: Core, lease: Lease, deadly: Deadly) -> None:
    """Lists a lease's recipients, and releases or holds them."""
    zone, entries = lease.zone, lease.open
    operations = [
        listed(
            core, lease.message.id, entry.address, zone.name, lease.since_ms, _action(core, lease, entry, deadly),
            deadly.get(id(entry), ""),
        )
        for entry in entries
    ]  # fmt: skip
    holding = [entry for entry in entries if _action(core, lease, entry, deadly) == "hold"]
    if len(holding) < len(entries):
        lease.batch.zone.put_back(lease.batch, [entry for entry in entries if entry not in holding])
    for entry in holding:
        operations += hold(core, zone.name, entry, deadly.get(id(entry), ""))

    def held(_: Reply | None) -> None:
        core.schedule.busy.difference_update([entry.key for entry in holding])
        core.messages.unpin(lease.message, len(holding))
        if core.tasks.active:
            core.tasks.moved(operations)

    core.disk.lines.submit(operations, held, sync=False, keep=True)


def listed(core: Core, message_id: str, address: str, zone: str, since_ms: int, action: str, why: str) -> Operation:
    key = keys.in_doubt(message_id, address)
    core.pull_doubts.listed(message_id, key, zone)
    return key, packing.pack([zone, since_ms, action, *([why] if why else [])])


def hold(core: Core, zone: str, entry: Entry, why: str) -> list[Operation]:
    """why: as of its latest reply; "": as its zone says."""
    domain = entry.address.rpartition("@")[2]
    core.counters.sizes.move(zone, domain, counted_as(entry.key), sizes.HELD, flow=entry.note.flow)
    note = entry.note.held(core.clock.steady_ms())
    if why:
        note = note._replace(last=f"451 4.3.0 {why}")
    return [(entry.key, None), (keys.held(zone, entry.id, entry.address), note.value())]

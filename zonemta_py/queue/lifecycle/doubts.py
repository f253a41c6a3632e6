"""Ends leases whose results will not come: their recipients are listed as in doubt, and put back or held.

An IN_DOUBT record says so first; when it is stable, it is applied to the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from zonemta_py.config import Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import InDoubtRecord, InDoubtRow
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.schedule.batch import Entry

_NOBODY: dict[int, str] = {}
Deadly = Mapping[int, str]
"""Ids of entries that are held whatever their zone says, and why."""


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

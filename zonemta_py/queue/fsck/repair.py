"""Repairs what a comparison has found, in an order that a crash may interrupt anywhere.

First the damaged parts go to quarantine/, in one case; then the journal gets the records that end what is lost; once
they are stable, the store follows. The queue object used here has replayed everything, and is discarded afterwards,
since its counters are out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from zonemta_py.disk import body_file, keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import FinishRecord, InDoubtRecord, InDoubtRow
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.fsck import bodies
from zonemta_py.queue.fsck.compare import Comparison
from zonemta_py.queue.lifecycle import lost

_AT_ONCE = 1_000
"""Recipients in one record."""


async def repair(core: Core, found: Comparison, quarantine: Quarantine, doubtful: Iterable[InDoubtRow] = ()) -> int:
    """Returns how many are in doubt. doubtful: who is; their records are applied as any others that a crash has left.

    Raises OSError, StoreError.
    """
    operations = list(found.operations)
    if found.owed or found.broken:
        case = _set_aside(core, found, quarantine)
        operations += _ends(core, found, case)
    doubts, rows = 0, iter(doubtful)
    while portion := list(islice(rows, _AT_ONCE)):
        doubts += len(portion)
        core.disk.ledger.append(Type.IN_DOUBT, InDoubtRecord([], portion).pack())
    if found.owed or found.broken or doubts:
        await core.disk.journal.stable()
    core.disk.store.write(operations, sync=True)
    for message_id in found.broken:
        body_file.remove(core.disk.bodies.folder, message_id)
    bodies.clear(core.config.folder, quarantine, found.strange, found.truth.ended, found.lossy)
    found.report.repaired = True
    return doubts


def _set_aside(core: Core, found: Comparison, quarantine: Quarantine) -> str:
    note = {"error": f"{len(found.broken)} messages were damaged", "remedy": lost.REMEDY}
    case = quarantine.incident("messages", note)
    for message_id in sorted({*found.broken, *found.owed}):
        why = found.broken.get(message_id, "recipients are lost from a merged message; make their requests again")
        recipients = [address for rows in found.owed.get(message_id, {}).values() for address in rows]
        row = {"sender": found.truth.senders.get(message_id, ""), "recipients": recipients, "error": why}
        case.add(message_id, row, lost.contents(core.disk.store, message_id) if message_id in found.broken else {})
        body_file.keep(core.disk.bodies.folder, message_id, case.place, f"{message_id}-body")
    case.save()
    return case.place.name


def _ends(core: Core, found: Comparison, case: str) -> list[Operation]:
    """Writes the records; returns the deletions for the store."""
    for message_id, zones in found.owed.items():
        for zone, addresses in zones.items():
            why = found.broken.get(message_id, "its key")
            core.disk.ledger.append(Type.REMOVED, lost.body(message_id, zone, addresses, why, case))
    operations: list[Operation] = []
    for message_id in found.broken:
        core.disk.ledger.append(Type.FINISH, FinishRecord(message_id).pack())
        prefix = keys.message_range(message_id)
        operations += [(key, None) for key in core.disk.store.keys(prefix, keys.end(prefix))]
    return operations

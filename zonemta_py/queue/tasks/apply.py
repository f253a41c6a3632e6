"""Records of what was done for a task, and the store after them: written here, applied here, replayed here.

A TASK record "did" or "undid" names recipients of one zone with their keys. Once it is stable it is applied, in the
order of the records, and the task's row with it in the same batch: it says which record was the last, so a replay does
nothing twice. Until then the keys are busy, and no low-water mark passes them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.journal.records.taken import FAMILIES
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import about_of
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.core.tasks import DID, STANDING, UNDID, Task
from zonemta_py.queue.tasks import change
from zonemta_py.queue.tasks.change import Changed
from zonemta_py.schedule.batch import NEVER_MS, Entry
from zonemta_py.schedule.flow import FlowId

EXAMPLES_MAX = 10


def write(core: Core, task: Task, zone: str, entries: list[Entry], undo: bool = False) -> None:
    """Records the change, and applies it when that is stable. The entries are in nobody else's hands."""
    now_ms = core.clock.steady_ms()
    places = [keys.place(entry.key) for entry in entries]
    make = partial(_changed, core, task, undo, now_ms)
    changes = [make(place, entry.note) for place, entry in zip(places, entries, strict=True)]
    _take(core, zone, places, entries)
    for home, due in _deferred(changes).items():
        if home in core.schedule.zones:
            core.schedule.zones[home].promise(due)
    rows = [
        _row(place, entry.note, changed, about_of(core.messages, entry.id, [entry]))
        for place, entry, changed in zip(places, entries, changes, strict=True)
    ]
    verb = REROUTE if task.state == STANDING else task.verb
    value: list[Any] = [zone, rows, now_ms, verb, task.change]
    seq = core.disk.ledger.open(Type.TASK, TaskRecord(UNDID if undo else DID, task.number, value).pack())
    run = partial(_apply, core, task, undo, seq, entries, changes)
    core.disk.journal.when_stable(partial(core.disk.ledger.apply, seq, run))


def _changed(core: Core, task: Task, undo: bool, now_ms: int, place: keys.Place, note: Note) -> Changed:
    if undo:
        return change.undone(task, place, note, now_ms)
    return change.done(task, place, note, now_ms, core.clock.born_ms(place.id))


def _row(place: keys.Place, note: Note, changed: Changed, about: list[Any] | None) -> list[Any]:
    row = [place.id, place.recipient, FAMILIES.index(place.family), place.middle]
    until_ms = keys.place(changed.key).until_ms if changed.key.startswith(b"bounced ") else None
    if about:
        return [*row, note.flow, until_ms, about]
    if until_ms is not None:
        return [*row, note.flow, until_ms]
    return [*row, note.flow] if note.flow else row


def _take(core: Core, zone: str, places: list[keys.Place], entries: list[Entry]) -> None:
    """They are busy, and until their change is written no mark may pass them: after a crash they are found again."""
    schedule = core.schedule.zones.get(zone)
    core.schedule.busy.update([entry.key for entry in entries])
    for place, entry in zip(places, entries, strict=True) if schedule is not None else ():
        assert schedule is not None
        if place.family == "deferred":
            schedule.due.promise(entry.key)
        elif place.family == "delivery-zone":
            schedule.fresh.promise(entry.key)


def _deferred(changes: list[Changed]) -> dict[str, list[bytes]]:
    """By zone, the keys that are deferred."""
    found: dict[str, list[bytes]] = {}
    for one in changes:
        if one.key.startswith(b"deferred "):
            found.setdefault(one.zone, []).append(one.key)
    return found


def _apply(core: Core, task: Task, undo: bool, seq: int, entries: list[Entry], changes: list[Changed]) -> None:
    """Applies the record to the store. Called in the order of the records."""
    operations: list[Operation] = []
    for entry, changed in zip(entries, changes, strict=True):
        if changed.key != entry.key:
            operations.append((entry.key, None))
        operations.append((changed.key, changed.note.value()))
        _count(core, entry, changed)
        _count_bounces(core, entry, changed)
        if not undo and len(task.examples) < EXAMPLES_MAX:
            task.examples.append({"id": entry.id, "recipient": entry.address, "zone": changed.zone})
    if undo:
        task.undone += len(entries)
    else:
        task.done += len(entries)
        for changed in changes:
            task.zones[changed.zone] = task.zones.get(changed.zone, 0) + 1
    task.seq = seq
    core.tasks.changed(task)
    core.disk.lines.submit(operations, partial(_written, core, entries, changes, operations), sync=False, keep=True)


def _count(core: Core, entry: Entry, changed: Changed) -> None:
    key, domain, flow = entry.key, entry.address.rpartition("@")[2], changed.note.flow
    zone, sizes = key.split(b" ", 2)[1].decode(), core.counters.sizes
    before, after = counted_as(key), counted_as(changed.key)
    if FlowId.of(entry.note.flow)[1:] != FlowId.of(flow)[1:]:  # another tenant's, or campaign's
        sizes.flows.move(entry.note.flow, before, None, 1) if entry.note.flow else None
        sizes.flows.move(flow, None, after, 1) if flow else None
        flow = ""
    if zone != changed.zone:
        sizes.rezone(zone, changed.zone, domain, before, after, flow)
    elif before != after:
        sizes.move(zone, domain, before, after, flow=flow)


def _count_bounces(core: Core, entry: Entry, changed: Changed) -> None:
    """What is queued again is no bounce of its campaign any more, until it bounces again or that is undone."""
    more = changed.key.startswith(b"bounced ") - entry.key.startswith(b"bounced ")
    campaign = FlowId.of(changed.note.flow).campaign
    if more and changed.note.tallied and core.campaigns.owns(campaign, entry.id):
        core.campaigns.counters.add(campaign, "bounced", more)


def _written(
    core: Core, entries: list[Entry], changes: list[Changed], operations: list[Operation], _: Reply | None
) -> None:  # fmt: skip
    core.schedule.busy.difference_update([entry.key for entry in entries])
    for entry in entries:
        if entry.pinned:
            core.messages.unpin(core.messages.get(entry.id))
    for home, due in _deferred(changes).items():
        core.schedule.busy.difference_update(due)
        zone = core.schedule.zones.get(home)
        if zone is not None:
            zone.due_at(min(keys.place(key).due_ms for key in due))
            zone.deadline_ms = min([zone.deadline_ms, *(one.note.deadline_ms or NEVER_MS for one in changes)])
    if core.tasks.active:
        core.tasks.moved(operations)
    core.changed()


def replay(core: Core, seq: int, record: TaskRecord) -> None:
    """After a crash: what the store lacks of a record."""
    task = core.tasks.by_number.get(record.number)
    if task is None or task.seq >= seq:
        return
    zone, rows, now_ms = record.value[:3]
    undo, entries, changes = record.what == UNDID, list[Entry](), list[Changed]()
    for row in rows:
        key = change.key_of(zone, row)
        value = core.disk.store.get(key)
        if value is None:
            continue
        note, place = Note.of(value), keys.place(key)
        if undo and not change.undoable(task, note):
            continue
        entries.append(Entry(key, place.id, place.recipient, note))
        changes.append(_changed(core, task, undo, now_ms, place, note))
    _apply(core, task, undo, seq, entries, changes)

"""Whose results may be among the records that the journal has lost: they are in doubt, by name.

The store has each result up to `applied`; results after that are in the journal only, and so is who was tried. So if
records after it are lost, whoever could be tried then and is still in the store may have had their mail: recipients
that are queued, or deferred until a time that has come. Not in doubt are those whose message came after the loss, and
those who were tried again after it.

What is needed for that is in a file of the queue's folder, from before the journal is repaired until the records that
name them are on stable storage; so a start that is broken off loses nobody. Failures: OSError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import InDoubtRow
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.fsck import compare
from zonemta_py.queue.lifecycle import in_doubt
from zonemta_py.schedule.flow import FlowId

MARK = "results-lost"
_TRIED = ("delivery-zone", "parked", "deferred")


class Loss(NamedTuple):
    """applied: of the store, when the loss was found. end: the journal's end is lost, and nobody knows how much of it.
    own_from: from this number on, recovery itself has written the journal."""

    applied: int
    end: bool
    own_from: int


def note(folder: Path, loss: Loss) -> None:
    """Of the queue's folder. What an earlier start has noted, and did not come to tell, stays."""
    if not (folder / MARK).exists():
        replace_file(folder / MARK, json.dumps(loss).encode())


def noted(folder: Path) -> Loss | None:
    """None: nothing is to be told."""
    try:
        applied, end, own_from = json.loads((folder / MARK).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:  # damaged: whoever can be tried may have been
        return Loss(0, True, 0)
    return Loss(applied, end, own_from)


def told(folder: Path) -> None:
    """The records are on stable storage."""
    (folder / MARK).unlink(missing_ok=True)


def rows(core: Core, found: compare.Comparison, loss: Loss | None) -> Iterator[InDoubtRow]:
    """found: before it is repaired. Raises StoreError."""
    now_ms = core.clock.ms()
    for zone, message_id, address in found.doubtful:
        yield _row(core, zone, message_id, address, now_ms)
    if loss is None or not (loss.end or _several_lost(found, loss.applied)):
        return
    for place, _, value in compare.recipients(core.disk.store):
        if place.family in _TRIED and place.id in found.whole and _may_have_been_tried(core, found, place):
            yield _row(core, place.zone, place.id, place.recipient, now_ms, place.destination, Note.of(value).flow)


def _several_lost(found: compare.Comparison, applied: int) -> bool:
    """One record alone is no loss: a result whose START is there is in doubt anyway."""
    return any(last > applied and last > first for first, last in found.truth.lost_ranges)


def _may_have_been_tried(core: Core, found: compare.Comparison, place: keys.Place) -> bool:
    listed = keys.in_doubt(place.id, place.recipient)
    if place.due_ms > core.clock.steady_ms() or core.disk.store.get(listed) is not None:
        return False
    alive = found.truth.alive.get(place.id)
    if alive is not None and place.recipient not in alive:
        return False  # it has ended, and its key goes
    return not found.truth.sure(place.id, place.recipient)


def _row(
    core: Core, zone: str, message_id: str, address: str, now_ms: int, destination: str = "", flow: str = ""
) -> InDoubtRow:
    action = in_doubt.action_of(core, zone, FlowId.of(flow).campaign)
    return InDoubtRow(message_id, zone, address, now_ms, action, destination)

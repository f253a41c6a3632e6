"""What a task makes of one recipient, and how that is undone: from key and note alone, so a replay gives the same.

Whatever goes on waiting after it becomes deferred, due when it was, or at once: so it gets a key that it never had
before, and recovery can tell whether an older record about it has been applied (as `queue.admin.orders`).

The note keeps what was changed, the latest last: [task, family, middle, attempts, {field: value before}]. It can be
undone as long as it has not been tried since, and no later task has changed it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.taken import FAMILIES
from zonemta_py.queue.core.tasks import STANDING, Task
from zonemta_py.queue.tasks import settings
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.reroutes import HOP, hop_home

_RESTING = ("held", "deleted")
"""Families in which time does not count toward the lifetime."""
KEPT_MAX = 4
"""How many tasks one recipient remembers."""

DELETING = ("delete", "purge")
_WAITING = ("delivery-zone", "deferred", "parked")
REACH: dict[str, tuple[str, ...]] = {
    "delete": (*_WAITING, "held"), "purge": (*_WAITING, "held"), "hold": _WAITING, "release": ("held",),
    "flush": ("deferred",), "move": (*_WAITING, "held"), "set": (*_WAITING, "held"),
    "requeue": ("deferred", "held", "bounced"),
}  # fmt: skip
"""The families of keys in which a verb finds something to do."""


class Changed(NamedTuple):
    """Where a recipient is afterwards."""

    zone: str
    key: bytes
    note: Note


def key_of(zone: str, row: list[Any]) -> bytes:
    """The key of a recipient in a TASK record: [id, address, family, middle, …]."""
    message_id, address, family, middle = row[:4]
    name = FAMILIES[family]
    if name == "delivery-zone":
        return keys.fresh(zone, message_id, address)
    if name == "deferred":
        return keys.deferred(zone, middle, message_id, address)
    if name == "held":
        return keys.held(zone, message_id, address)
    if name == "deleted":
        return keys.deleted(zone, middle, message_id, address)
    if name == "bounced":
        return keys.bounced(zone, middle, message_id, address)
    return keys.parked(zone, middle, message_id, address)


def was_done(note: Note, task: Task) -> bool:
    """Whether the task has changed it, which was not undone."""
    return bool(note.done) and any(one[0] == task.number for one in note.done or ())


def done(task: Task, place: keys.Place, note: Note, now_ms: int, born_ms: int) -> Changed:
    """What the task makes of it. now_ms: steady time; born_ms: the same, when its message was accepted."""
    before: dict[str, Any] = {}
    zone, after = place.zone, place.family
    due_ms = max(place.due_ms, now_ms + 1)
    if task.verb in DELETING:
        after = "deleted"
    elif task.verb == "hold":
        after = "held"
    elif task.verb in ("release", "flush", "requeue"):
        after, due_ms = "deferred", now_ms + 1
        if task.verb != "release":
            before["early"], note = note.early, note._replace(early=True)
        if place.family == "bounced":
            note = _anew(note, now_ms - born_ms, before)
    elif task.verb == "move":
        before["zone"] = zone
        if task.state == STANDING:  # it was about to go, also if it was brought back before its time
            due_ms, before[HOP] = now_ms + 1, True
            if hop_home(note) == task.change["zone"]:
                return _back(task, place, note, due_ms, now_ms)
        zone = task.change["zone"]
        after = after if after == "held" else "deferred"
    elif task.verb == "set":
        note, due_ms = _set(task, note, due_ms, now_ms, before)
        after = after if after == "held" else "deferred"
    step = [task.number, FAMILIES.index(place.family), place.middle, note.attempts, before]
    note = note._replace(done=[*(note.done or ()), step][-KEPT_MAX:])
    return _placed(task, place, zone, after, due_ms, note, now_ms)


def _back(task: Task, place: keys.Place, note: Note, due_ms: int, now_ms: int) -> Changed:
    """From where a reroute has sent it: as if it had always been in the zone that it came from."""
    left = [step for step in note.done or () if HOP not in step[4]]
    return _placed(task, place, task.change["zone"], "deferred", due_ms, note._replace(done=left or None), now_ms)


def _anew(note: Note, age_ms: int, before: dict[str, Any]) -> Note:
    """Its life and its retries begin again. Its sender has been told of the bounce, so no delay is told any more."""
    before |= {"kept_ms": note.kept_ms, "attempts": note.attempts, "noticed": note.noticed}
    return note._replace(kept_ms=age_ms, attempts=0, noticed=True)


def _set(task: Task, note: Note, due_ms: int, now_ms: int, before: dict[str, Any]) -> tuple[Note, int]:
    change = task.change
    if "priority" in change:
        before["flow"] = note.flow
        note = note._replace(flow=FlowId.of(note.flow)._replace(priority=change["priority"]).text())
    if "life_h" in change:
        before["life_h"], note = note.life_h, note._replace(life_h=change["life_h"])
    if "at_ms" in change:
        before["early"], note = note.early, note._replace(early=True)
        due_ms = max(change["at_ms"], now_ms + 1)
    return settings.changed(change, note, before), due_ms


def undoable(task: Task, note: Note) -> bool:
    """Whether the task was the last to change it, and it has not been tried since."""
    if not note.done:
        return False
    number, _, _, attempts, _ = note.done[-1]
    return bool(number == task.number and attempts == note.attempts)


def home_before(note: Note) -> str:
    """The zone it was in before the latest task; "": it is there."""
    return str(note.done[-1][4].get("zone", "")) if note.done else ""


def undone(task: Task, place: keys.Place, note: Note, now_ms: int) -> Changed:
    """What it was before the task."""
    assert note.done
    _, family, middle, _, before = note.done[-1]
    zone = before.get("zone", place.zone)
    fields = {name: value for name, value in before.items() if name not in ("zone", HOP)}
    note = note._replace(done=note.done[:-1] or None, **fields)
    name = FAMILIES[family]
    if name == "bounced":
        return Changed(zone, keys.bounced(zone, middle, place.id, place.recipient), note)
    due_ms = max(middle if name == "deferred" else 0, now_ms + 1)
    return _placed(task, place, zone, "held" if name == "held" else "deferred", due_ms, note, now_ms)


def _placed(
    task: Task, place: keys.Place, zone: str, after: str, due_ms: int, note: Note, now_ms: int
) -> Changed:  # fmt: skip
    if after in _RESTING and place.family not in _RESTING:
        note = note.held(now_ms)
    elif after not in _RESTING and place.family in _RESTING:
        note = note.freed(now_ms)
    if after == "deleted":
        key = keys.deleted(zone, task.number, place.id, place.recipient)
    elif after == "held":
        key = keys.held(zone, place.id, place.recipient)
    else:
        key = keys.deferred(zone, due_ms, place.id, place.recipient)
    return Changed(zone, key, note)

"""To whom a task applies: its filter, for mail that was accepted before it, as far as its verb has something to do.

`Aim` is asked for every recipient of the queue, so it looks at the key first, and reads what else it needs only then.
"""

from __future__ import annotations

from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.core.tasks import Task
from zonemta_py.queue.tasks import change, settings
from zonemta_py.queue.tasks.change import DELETING, REACH
from zonemta_py.queue.tasks.facts import Candidate, Sight
from zonemta_py.queue.tasks.where import Where
from zonemta_py.zones import pull

LEFT_MAX = 100_000
SETTINGS_SET = frozenset(settings.SETTINGS)
DIVERTING = (*DELETING, "hold", "move", "set")
"""Verbs that keep a recipient from being leased."""


class Aim:
    """Of a task that is being done. families: in which it is looked for; waits: also what is leased now, once it is
    back."""

    waits = True

    def __init__(self, core: Core, task: Task) -> None:
        self.core, self.task = core, task
        self.where = self._filter()
        self._sight = Sight(core, task.now_ms, task.number)
        self._but = frozenset(task.but)
        self.suppressed = 0
        """What is meant and stays as it is: what has bounced, and would be left out when its turn came; of whom
        nothing can be set so."""
        self._left = set[bytes]()
        """Keys of those of whom nothing can be set; of very many not all."""
        states = self.where.values("state")
        self.families = REACH[task.verb]
        if states is None or "bounced" not in states:  # what has ended is queued again if that is said, not by the way
            self.families = tuple(family for family in self.families if family != "bounced")
        if states is not None and "leased" not in states:
            self.families = tuple(family for family in self.families if FAMILY[family] in states or family == "parked")
        self.ids = tuple(one.encode() for one in self.where.values("id") or ())
        """If there are any, keys without one of them are passed over."""

    def _filter(self) -> Where:
        return Where.of(self.task.where)

    def zones(self) -> list[str]:
        """Where it is looked for."""
        known, named = list(self.core.schedule.zones), self.where.values("zone")
        return known if named is None else [name for name in named if name in known]

    def prefix(self, zone: str, family: str) -> bytes:
        """The range of keys to be walked."""
        return f"{family} {zone} ".encode()

    def applies(self, key: bytes, value: bytes | Note) -> bool:
        """Raises StoreError."""
        place = keys.place(key)
        task = self.task
        if place.family not in self.families or place.id > task.until_id or place.id in self._but:
            return False
        candidate = Candidate(self._sight, place, value)
        if not self.where.matches(candidate):
            return False
        return not change.was_done(candidate.note, task) and self._fits(candidate)

    def covers(self, key: bytes, value: bytes) -> bool:
        """Whether its filter does, whatever there is to do."""
        return self.where.matches(Candidate(self._sight, keys.place(key), value))

    def _fits(self, one: Candidate) -> bool:
        """Whether there is something to do. What was pushed stays in its queue, and merged mail is made by senders."""
        task = self.task
        if one.place.family == "bounced":
            return self._bounced_before(one) and not self._is_suppressed(one)
        if task.verb == "set" and not SETTINGS_SET.isdisjoint(task.change):
            return not self._is_unfit(one)
        if task.verb == "flush":
            return one.place.due_ms > task.now_ms or not one.note.early
        if task.verb == "move":
            home = task.change["zone"]
            if home not in self.core.schedule.zones:  # it has left the configuration since
                return False
            pulled = self.core.schedule.pull_zone(home) is not None
            pushed = one.recipient.endswith(f"@{pull.DOMAIN}") and one.metadata.get("protocol") == pull.PUSHED
            return one.zone != home and not pushed and not (pulled and one.note.values is not None)
        return True

    def _is_unfit(self, one: Candidate) -> bool:
        change = self.task.change
        sender = one.sender if "sender" in change else None
        found = settings.unfit(self.core, change, one.zone, one.note, sender)
        who = f"{one.id} {one.recipient}".encode()
        if found and who not in self._left and len(self._left) < LEFT_MAX:
            self._left.add(who)
            self.suppressed += 1
        return found

    def _bounced_before(self, one: Candidate) -> bool:
        """Not what was being delivered at the order."""
        return not self.task.number or one.note.seq < self.task.number

    def _is_suppressed(self, one: Candidate) -> bool:
        zone = self.core.schedule.zones.get(one.zone)
        found = zone is not None and self.core.tasks.suppressed(one.id, one.recipient, zone.zone, one.flow)
        self.suppressed += found
        return found


class UndoAim(Aim):
    """Of a task that is being undone: what it was the last to change, and what nobody has tried since."""

    waits = False

    def __init__(self, core: Core, task: Task) -> None:
        super().__init__(core, task)
        self.families = ("deleted",) if task.verb in DELETING else ("held", "deferred", "parked")
        self.ids = ()

    def _filter(self) -> Where:
        return Where.of({"all": True})

    def zones(self) -> list[str]:
        return list(self.core.schedule.zones)

    def prefix(self, zone: str, family: str) -> bytes:
        return keys.deleted_range(zone, self.task.number) if family == "deleted" else super().prefix(zone, family)

    def applies(self, key: bytes, value: bytes | Note) -> bool:
        note = Note.of(value) if isinstance(value, bytes) else value
        if not change.undoable(self.task, note) or keys.place(key).family not in self.families:
            return False
        home = change.home_before(note)
        return not home or home in self.core.schedule.zones


class EndAim(UndoAim):
    """Of a deletion that is final now."""

    def applies(self, key: bytes, value: bytes | Note) -> bool:
        return key.startswith(b"deleted ") and keys.place(key).task == self.task.number

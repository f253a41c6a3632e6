"""Who is alive, by what the journal says: a fold over its facts, in their order.

A recipient is alive from the ENVELOPE of its message until it is delivered, has bounced (and is kept no longer), or is
removed. Whoever compares a store with the journal, or makes it again, reads it here.
"""

from __future__ import annotations

from zonemta_py.journal.facts import Accepted, Answered, Doubted, Ended, Fact, Moved, Removed, TakenOver, TaskDid
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DELIVERED, HELD
from zonemta_py.journal.records.taken import FAMILIES
from zonemta_py.mail.reroute import REROUTE

TYPES = frozenset({
    Type.ENVELOPE, Type.DELIVERY, Type.REMOVED, Type.FINISH, Type.MOVED, Type.IN_DOUBT, Type.TASK,
    Type.TAKEN,
})  # fmt: skip
"""Of the records whose facts matter."""
Place = tuple[str, str]
"""Message and recipient."""


class Alive:
    """Whose mail waits."""

    def __init__(self) -> None:
        self.alive: dict[str, dict[str, tuple[str, int, str | None]]] = {}
        """By message the recipients that are: their zone, and what RFC 3461 says of them."""
        self.senders: dict[str, str] = {}
        self.ended: set[str] = set()
        self.lost_before: set[str] = set()
        """Messages lost to damage that an earlier repair has ended."""
        self.deleted: dict[Place, int] = {}
        """The task that has deleted it, unless that was undone. It is alive, in a way, like one that has bounced."""
        self.bounced: dict[Place, int] = {}
        """Until when one that has bounced is kept."""
        self.held: set[Place] = set()
        """Those that wait for an operator."""

    def fold(self, fact: Fact) -> None:
        match fact:
            case Answered(id=id, number=number):
                if number == DELIVERED:
                    self._end(id, fact.people)
                elif number == BOUNCED:
                    self._bounced(fact)
                elif number == HELD:
                    self.held |= {(id, address) for address in fact.people}
            case Accepted(id=id):
                self.senders[id] = str(fact.metadata.get("sender") or "")
                self.alive.setdefault(id, {}).update({row[1]: (row[0], row[2], row[3]) for row in fact.rows()})
            case Ended(id=id):
                if id in self.lost_before and self.alive.get(id):
                    return  # lost with one of its recipients; the others follow in later records
                self.alive.pop(id, None)
                self.senders.pop(id, None)
                self.ended.add(id)
            case Removed(id=id):
                self._end(id, fact.recipients)
                if fact.case is not None:
                    self.lost_before.add(id)
            case Moved(id=id):
                self.held.difference_update((id, address) for address in fact.recipients)
            case Doubted(id=id):
                if fact.action == "hold" and id in self.alive:
                    self.held.add((id, fact.address))
            case TaskDid():
                self._done(fact)
            case TakenOver():
                self._taken(fact)

    def _taken(self, fact: TakenOver) -> None:
        """Also one that this queue has had before, and given away."""
        self.ended.discard(fact.id)
        self.senders[fact.id] = str(fact.metadata.get("sender") or "")
        self.alive[fact.id] = {}
        for row in fact.message.rows():
            place = fact.id, row.address
            self.alive[fact.id][row.address] = row.zone, row.notify, row.orcpt
            self.held.discard(place)
            self.bounced.pop(place, None)
            self.deleted.pop(place, None)
            if FAMILIES[row.family] == "held":
                self.held.add(place)
            elif FAMILIES[row.family] == "deleted":
                self.deleted[place] = row.middle
            elif FAMILIES[row.family] == "bounced":
                self.bounced[place] = row.middle

    def _bounced(self, fact: Answered) -> None:
        who = fact.who
        self._end(fact.id, [one.address for one in who if not one.due_ms])
        if fact.id in self.alive:
            self.bounced |= {(fact.id, one.address): one.due_ms for one in who if one.due_ms}

    def _done(self, fact: TaskDid) -> None:
        """A recipient whose key is lost comes back as what a task has made of it."""
        place = fact.id, fact.recipient
        if fact.verb == "requeue":
            self.bounced.pop(place, None)
            if fact.kept_until_ms is not None:  # undone
                self.bounced[place] = fact.kept_until_ms
        elif fact.verb in ("delete", "purge"):
            self.deleted.pop(place, None)
            if not fact.undone:
                self.deleted[place] = fact.task
        elif fact.verb in ("hold", "release"):
            held = (fact.verb == "hold") != fact.undone
            (self.held.add if held else self.held.discard)(place)
        elif fact.verb in ("move", REROUTE) and not fact.undone and fact.recipient in self.alive.get(fact.id, {}):
            self.alive[fact.id][fact.recipient] = (fact.now_in, *self.alive[fact.id][fact.recipient][1:])

    def _end(self, message_id: str, addresses: list[str]) -> None:
        known = self.alive.get(message_id)
        if known is not None:
            for address in addresses:
                place = message_id, address
                known.pop(address, None)
                self.held.discard(place)
                self.bounced.pop(place, None)
                self.deleted.pop(place, None)

"""Messages that go from node to node: mail of a zone that the node where it waits cannot send, to one that can; by
order (`zonemta cluster move --zone`); and so that all nodes have about as much to send (`zonemta cluster balance`).

Each node says with its sign of life which zones it can send: those of its configuration, but for those none of whose
source addresses is on its machine. What moves is decided here, little by little; how each message moves exactly once is
for the two queues (`queues/transfers.py`). Orders are carried out for a moment at a time: whoever gives one gives it
again until nothing moves any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zonemta_py.cluster.calls import Calls, FarQueue
from zonemta_py.cluster.nodes import NodeFacts, NodeMembership
from zonemta_py.config import Config
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.absent_zones import servable
from zonemta_py.queues.authority import OnMachine

log = logging.getLogger(__name__)

ROUND_S = 1.0
STEP_S = 2.0
"""How long an order moves mail before it is answered."""
AT_ONCE = 500
"""Recipients that are moved at a time."""
LEAST = 20
"""Nodes whose numbers of recipients differ by less are not balanced."""


class Step(NamedTuple):
    """What is to go where, to balance nodes."""

    zone: str
    giver: str
    taker: str
    recipients: int


def balanced(waiting: Mapping[str, Mapping[str, int]], zones: Mapping[str, list[str]]) -> list[Step]:
    """What has to go where so that nodes hold about as many recipients of each zone that several can send. waiting:
    by node and zone. zones: that each node can send."""
    steps, known = list[Step](), sorted({zone for of_node in waiting.values() for zone in of_node})
    for zone in known:
        able = sorted(node for node in waiting if zone in zones[node])
        if len(able) < 2:
            continue
        has = {node: waiting[node].get(zone, 0) for node in able}
        share, rest = divmod(sum(has.values()), len(able))
        by_size = sorted(able, key=lambda node: (-has[node], node))
        over = {node: has[node] - share - (place < rest) for place, node in enumerate(by_size)}
        if max(has.values(), default=0) - min(has.values(), default=0) < LEAST:
            continue
        steps += _paired(zone, over)
    return steps


def _paired(zone: str, over: dict[str, int]) -> Iterator[Step]:
    """over: by how many recipients each node has more than its share."""
    more = {node: count for node, count in over.items() if count > 0}
    less = {node: -count for node, count in over.items() if count < 0}
    while more and less:
        giver, taker = next(iter(more)), next(iter(less))
        count = min(more[giver], less[taker])
        yield Step(zone, giver, taker, count)
        for several, node in ((more, giver), (less, taker)):
            several[node] -= count
            if not several[node]:
                del several[node]


class Moves:
    """Of this node's agent. here: its queues. owner: the node of a queue, "" none."""

    def __init__(
        self, config: Config, members: NodeMembership, calls: Calls, here: Mapping[int, OnMachine],
        owner: Callable[[int], str],
    ) -> None:  # fmt: skip
        self._config, self._members, self._calls, self._here, self._owner = config, members, calls, here, owner
        self._name = config.node
        self.serves = servable(config)
        """Zones that this node can send."""
        self.away: dict[str, int] = {}
        """Recipients that wait here in zones that it cannot send."""

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self._round()
            except Exception:
                log.exception("mail of other nodes' zones cannot be moved; trying again")
            await asyncio.sleep(ROUND_S)

    # -- mail of zones that this node cannot send

    async def _round(self) -> None:
        where, away = self.where(), dict[str, int]()
        for number in [one for one in self._here if self._owner(one) == self._name]:
            try:
                found = await self._asked(number, questions.away, {"where": where})
                self.serves = found["serves"]
                for zone, count in found["waiting"].items():
                    away[zone] = away.get(zone, 0) + count
                    if count and where.get(zone, ["", False])[1]:
                        await self._sent_away(number, zone)
            except (ValueError, QueueRefusal, TimeoutError) as error:
                log.debug("mail in queue %d of other nodes' zones: %s", number, error)
        self.away = {zone: count for zone, count in away.items() if count}

    def where(self) -> dict[str, list[Any]]:
        """Of each zone that another node can send: which one, in a sentence, and whether that lives."""
        found = dict[str, list[Any]]()
        for node in sorted(self._members.nodes().values(), key=lambda one: one.is_alive):
            if node.name == self._name:
                continue
            for zone in node.facts.get("serves", ()):
                found[zone] = [_sentence(zone, node), node.is_alive]
        return found

    async def _sent_away(self, number: int, zone: str) -> None:
        """To a node that can send it, the one with the least mail."""
        able = [one for one in self._alive() if one.name != self._name and zone in one.facts.get("serves", ())]
        for node in sorted(able, key=lambda one: sum(one.facts.get("sizes", {}).values())):
            if (to := self._queue_of(node.name)) is None:
                continue
            there = list(node.facts["serves"])
            until = time.monotonic() + STEP_S
            while time.monotonic() < until:
                arguments = {"to": to, "zone": zone, "there": there, "here": self.serves, "most": AT_ONCE}
                gone = await self._asked(number, questions.give, arguments)
                if gone["messages"]:
                    log.info("%d recipients of zone %s go to node %s", gone["recipients"], zone, node.name)
                else:
                    return
            return

    def _alive(self) -> list[NodeFacts]:
        return [one for one in self._members.nodes().values() if one.is_alive]

    def _queue_of(self, node: str) -> int | None:
        """The queue that gets what goes to that node."""
        numbers = [number for number, owner in self._members.owners().items() if owner.node == node]
        return min(numbers, default=None)

    async def _asked(self, number: int, question: Any, arguments: dict[str, Any]) -> Any:
        queue = FarQueue(number, self._name, self._here, self._owner, self._calls)
        return await queue.ask(question, **arguments)

    # -- by order

    async def zone(self, zone: str, to: str, giver: str = "") -> questions.ZoneMove:
        """As of `questions.cluster_move_zone`."""
        alive = {one.name: one for one in self._alive()}
        for node in filter(None, (to, giver)):
            if node not in alive:
                raise Refused(f"there is no living node {node}; `zonemta cluster` shows them")
        if giver == to:
            raise Refused(f"mail of node {to} is there already; name another node with --from")
        if "serves" not in alive[to].facts:
            raise QueueRefusal(Reply(451, "4.3.0", f"node {to} has just started; try again in a moment"))
        there = list(alive[to].facts["serves"])
        if zone not in there:
            raise Refused(
                f"node {to} cannot send zone {zone!r}: its configuration lacks the zone, or no source address of it is"
                f" there; it has {', '.join(there) or 'none'}"
            )
        queue = self._queue_of(to)
        if queue is None:
            raise Refused(f"node {to} has no queue now; try again in a moment")
        numbers = [
            number
            for number, owner in self._members.owners().items()
            if owner.node != to and owner.node in ({giver} if giver else alive)
        ]
        return await self._moved(zone, queue, there, dict.fromkeys(numbers, 0))

    async def _moved(self, zone: str, to: int, there: list[str], numbers: dict[int, int]) -> questions.ZoneMove:
        """numbers: of queues, and how many recipients each is to give at most; 0: all."""
        done: questions.ZoneMove = {"zone": zone, "messages": 0, "recipients": 0, "left": 0, "why": []}
        until = time.monotonic() + STEP_S
        for number, most in numbers.items():
            given = 0
            while True:
                at_once = min(AT_ONCE, most - given) if most else AT_ONCE
                arguments = {"to": to, "zone": zone, "there": there, "most": at_once}
                try:
                    gone = await self._asked(number, questions.give, arguments)
                except QueueRefusal as refusal:
                    done["why"].append(f"queue {number}: {refusal.reply.text}")
                    break
                given += gone["recipients"]
                done["messages"] += gone["messages"]
                done["recipients"] += gone["recipients"]
                if not gone["messages"] or time.monotonic() > until or (most and given >= most):
                    done["left"] += gone["left"]
                    done["why"] += [gone["why"]] if gone["why"] else []
                    break
        return done

    async def balance(self, dry_run: bool = False) -> questions.Balance:
        """As of `questions.cluster_balance`."""
        alive = {one.name: one for one in self._alive()}
        counts = {node: dict[int, dict[str, int]]() for node in alive}
        for number, owner in self._members.owners().items():
            if owner.node in alive:
                counts[owner.node][number] = await self._waiting(number)
        waiting = {node: _summed(of_node) for node, of_node in counts.items()}
        serves = {name: list(one.facts.get("serves", ())) for name, one in alive.items()}
        steps = balanced(waiting, serves)
        found: questions.Balance = {"waiting": waiting, "steps": [_row(one) for one in steps], "recipients": 0}
        until = time.monotonic() + STEP_S
        for step in [] if dry_run else steps:
            to = self._queue_of(step.taker)
            if to is None or time.monotonic() > until:
                continue
            left = step.recipients
            for number, zones in counts[step.giver].items():
                most = min(left, zones.get(step.zone, 0))
                if most > 0:
                    gone = await self._moved(step.zone, to, serves[step.taker], {number: most})
                    found["recipients"] += gone["recipients"]
                    left -= gone["recipients"]
        return found

    async def _waiting(self, number: int) -> dict[str, int]:
        """Recipients that wait in that queue, by zone."""
        rows = (await self._asked(number, questions.sizes, {"by": "zone", "limit": 1_000}))["rows"]
        return {row["name"]: row["queued"] + row["deferred"] for row in rows}


def _row(step: Step) -> questions.BalanceStep:
    return {"zone": step.zone, "giver": step.giver, "taker": step.taker, "recipients": step.recipients}


def _summed(queues: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    found = dict[str, int]()
    for zones in queues.values():
        for zone, count in zones.items():
            found[zone] = found.get(zone, 0) + count
    return found


def _sentence(zone: str, node: NodeFacts) -> str:
    if node.is_alive:
        return f"zone {zone!r} lives on node {node.name}, which gets its mail"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - node.age_s))
    return f"zone {zone!r} lives on node {node.name}, which is away since {since}"

"""A node's agent: it joins the node's queues with those of all others.

It says each second that the node lives, answers for the node's queues to other nodes (`calls.py`), passes what
operators ask on to the leader, and is that itself if it is elected: then it runs the authority of all queues of all
nodes (`queues/authority.py`), as there is one where several queues are on one machine. When another node dies, its
queues are taken over: whoever is first to write his name behind a queue's number has it, and his supervisor starts it.

What is about this node alone (its configuration, its end, its files) is answered here, also while the others cannot be
reached. Failures: those of the questions. A node whose own queues others have taken over ends with REPLACED.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zonemta_py.cluster import REPLACED, agreed
from zonemta_py.cluster.agreed import AgreedState
from zonemta_py.cluster.calls import AGENT, LEADER, Calls, FarQueue, NotHere
from zonemta_py.cluster.join import connected
from zonemta_py.cluster.leader import Leadership
from zonemta_py.cluster.log_stream import stream_of
from zonemta_py.cluster.moves import Moves
from zonemta_py.cluster.nats import Nats, NatsError
from zonemta_py.cluster.nodes import NodeMembership, NotAdmitted
from zonemta_py.cluster.orders import ClusterOrders
from zonemta_py.cluster.tunnel import Tunnels
from zonemta_py.cluster.versions import Versions, sentence
from zonemta_py.config import Config
from zonemta_py.disk.files import replace_file
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Question, Refused
from zonemta_py.queues import layout
from zonemta_py.queues.answers import TABLE, Merged
from zonemta_py.queues.authority import Authority, OnMachine
from zonemta_py.wire import AUTHORITY, SOCKET
from zonemta_py.wire.question_server import Answering, serve

log = logging.getLogger(__name__)

BEAT_S = 1.0
LOOK_S = 0.5
AGAIN_S = 0.2
PATIENCE_S = 12.0
"""How long a question waits for somebody to lead: an election takes less."""
LEAVE_S = 10.0
START_S = 5.0
"""After so long the supervisor is reminded of a queue that it has not started."""
COMPARE_S = 2.0
UNKNOWN: dict[str, Any] = {"version": 0, "differs": []}
NOTHING = {"messages": 0, "bytes": 0}
OF_NODE = frozenset(
    {name for name, way in TABLE.items() if way.how == "first"}
    | set(map(str, (questions.ready, questions.generation, questions.draining, questions.copied, questions.adopt,
                    questions.rotate)))
)  # fmt: skip
"""Questions that are about this node."""
_ORDERED = {str(one): one for one in (questions.cluster_move, questions.cluster_move_zone, questions.cluster_balance)}
_FACTS: tuple[tuple[str, Any], ...] = (
    ("version", ""), ("hostname", ""), ("sizes", {}), ("serves", []), ("away", {}),
)  # fmt: skip


class Agent:
    """Of one node."""

    def __init__(
        self, config: Config, nats: Nats, members: NodeMembership, leadership: Leadership, wake: Callable[[], None]
    ) -> None:  # fmt: skip
        """wake: tells the supervisor that other queues are here than there were."""
        self._config, self._folder, self._nats, self._wake = config, config.folder, nats, wake
        self._members, self._leadership = members, leadership
        self._name = config.node
        self._here: dict[int, OnMachine] = {}
        self._started_at: dict[int, float] = {}
        """When the supervisor was last told of a queue."""
        self._leaving = set[int]()
        """Queues that are about to go to another node."""
        self._calls = Calls(nats, config.cluster.name, self._name, self._answering)
        self._versions = Versions(nats)
        self._tunnels = Tunnels(nats, config.cluster.name, self._name, self._folder, self._owner, self._socket)
        self._moves = Moves(config, members, self._calls, self._here, self._owner)
        self._authority: Authority | None = None
        self._leading: asyncio.Task[None] | None = None
        self._take_up()

    async def run(self) -> None:
        """For ever."""
        await self._calls.serve()
        await self._tunnels.start()
        self._leadership.begins, self._leadership.ends = self._begin, self._end
        listening = await serve(self.ask, self._folder / AUTHORITY)
        await asyncio.gather(
            listening.serve_forever(),
            self._members.run(self._died),
            self._leadership.run(),
            self._beat(),
            self._moves.run(),
            self._watch(),
            self._compare(),
        )

    def _take_up(self) -> None:
        """Queues that have come to this node."""
        for number in layout.numbers(self._folder):
            if number not in self._here:
                self._here[number] = OnMachine.lasting(layout.folder_of(self._folder, number), "agent")
        self._own = Merged({number: queue.ask for number, queue in self._here.items()}, _no_order)

    # -- what is asked

    def _answering(self, to: int) -> Answering | None:
        if to == AGENT:
            return self.ask
        if to == LEADER:
            return self._authority.ask if self._authority is not None else None
        queue = self._here.get(to)
        if queue is None or self._owner(to) != self._name:
            return None

        async def answer(question: str, arguments: dict[str, Any]) -> Any:
            return await queue.ask(Question(question), **arguments)

        return answer

    def _socket(self, number: int) -> Path:
        return layout.folder_of(self._folder, number) / SOCKET

    def _owner(self, number: int) -> str:
        found = self._members.owners().get(number)
        return found.node if found is not None else ""

    async def ask(self, question: str, arguments: dict[str, Any]) -> Any:
        """A question of somebody on this node. Raises ValueError, QueueRefusal."""
        if question == questions.cluster:
            return await self._state()
        if question in _ORDERED:
            _ORDERED[question].check(arguments)
        if question == questions.cluster_versions:
            return await self._told_versions()
        if question == questions.cluster_move:
            return await self._move(**arguments)
        if question == questions.cluster_move_zone:
            return await self._moves.zone(**arguments)
        if question == questions.cluster_balance:
            return await self._moves.balance(**arguments)
        if question in OF_NODE or (question == questions.metrics and arguments.get("node")):
            return await self._own.answer(question, arguments)
        until = time.monotonic() + PATIENCE_S
        while True:
            if self._authority is not None:
                return await self._authority.ask(question, arguments)
            leader = self._leadership.leader
            try:
                if leader and leader != self._name:
                    return await self._calls.ask(leader, LEADER, question, arguments)
            except NotHere as error:
                if time.monotonic() > until:
                    reply = error.reply if self._leadership.leader else Reply(451, "4.3.0", self._alone())
                    raise QueueRefusal(reply) from None
            if time.monotonic() > until:
                raise QueueRefusal(Reply(451, "4.3.0", self._alone()))
            await asyncio.sleep(AGAIN_S)

    def _alone(self) -> str:
        if not self._nats.is_connected:
            return "this node is cut off from NATS, so nothing can be asked of all nodes; see its servers"
        return "no node leads the cluster now, since NATS has no quorum or nodes have just died; try again in a moment"

    async def _state(self) -> dict[str, Any]:
        """As of `questions.cluster`."""
        leader, own = self._leadership.leader, await self._alone_here()
        here = _agreed(agreed.noted(self._folder))
        nodes = [
            {
                "node": name, "alive": one.is_alive, "leads": name == leader, "seen_s": round(one.age_s, 3),
                **{key: one.facts.get(key, none) for key, none in _FACTS},
                "alone": own if name == self._name else one.facts.get("alone", NOTHING),
                "agreed": here if name == self._name else one.facts.get("agreed", UNKNOWN),
            }
            for name, one in self._members.nodes().items()
        ]  # fmt: skip
        owners = self._members.owners()
        logs = await asyncio.gather(*(self._log_of(number) for number in owners))
        queues = [
            {"queue": number, "node": owner.node, "epoch": owner.epoch, "log": found}
            for (number, owner), found in zip(owners.items(), logs, strict=True)
        ]
        return {
            "cluster": self._config.cluster.name, "id": self._members.cluster_id, "node": self._name,
            "leader": leader, "connected": self._nats.is_connected, "nodes": nodes, "queues": queues,
        }  # fmt: skip

    async def _log_of(self, number: int) -> dict[str, int]:
        """Its bytes and sequences; empty where NATS does not say so."""
        try:
            info = await self._nats.info(stream_of(self._config.cluster.name, number), BEAT_S)
        except NatsError:
            return {}
        return {"bytes": info.bytes, "first": info.first, "last": info.last}

    # -- leading

    def _begin(self, term: int) -> None:
        self._leading = asyncio.get_running_loop().create_task(self._lead())

    def _end(self) -> None:
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    async def _lead(self) -> None:
        print(f"zonemta: this node leads cluster {self._config.cluster.name}", file=sys.stderr, flush=True)
        while True:
            try:
                await self._lead_once()
            except NatsError as error:
                log.warning("orders cannot be given: %s; trying again", error)
            except OSError as error:
                log.warning("orders cannot be given: %s; trying again", cause(error))
            await asyncio.sleep(AGAIN_S)

    async def _lead_once(self) -> None:
        """Until another queue is there, or the orders are another one's."""
        orders = await ClusterOrders.open(self._nats, self._config, asyncio.get_running_loop())
        numbers = sorted(self._members.owners())
        queues = {
            number: FarQueue(number, self._name, self._here, self._owner, self._calls) for number in numbers
        }  # fmt: skip
        authority = Authority(queues, orders, lambda: self._leadership.until)
        self._authority, tasks = authority, authority.start()
        try:
            while not orders.is_over and sorted(self._members.owners()) == numbers:  # noqa: ASYNC110
                await asyncio.sleep(AGAIN_S)
        finally:
            self._authority = None
            authority.stop()
            for task in tasks:
                task.cancel()

    # -- living and dying

    async def _beat(self) -> None:
        while True:
            begun = time.monotonic()
            try:
                await self._members.beat(await self._facts())
            except NotAdmitted as error:
                print(f"zonemta: {error}", file=sys.stderr, flush=True)
            except NatsError as error:
                log.debug("no sign of life: %s", error)
            await asyncio.sleep(max(0.0, BEAT_S - (time.monotonic() - begun)))

    async def _facts(self) -> dict[str, Any]:
        sizes = {"queued": 0, "deferred": 0, "held": 0}
        with contextlib.suppress(ValueError, QueueRefusal, TimeoutError):
            total = (await asyncio.wait_for(self._own.answer(questions.size, {}), BEAT_S))["total"]
            sizes = {name: total[name] for name in sizes}
        alone = await self._alone_here()
        zones = [zone.name for zone in self._config.zones]
        return {
            "version": version("zonemta-py"), "clock_ms": int(time.time() * 1000),
            "queues": sorted(self._here), "zones": zones, "sizes": sizes,
            "alone": alone, "agreed": _agreed(agreed.noted(self._folder)),
            "hostname": self._config.server.hostname, "leads": self._authority is not None,
            "serves": self._moves.serves, "away": self._moves.away,
        }  # fmt: skip

    async def _alone_here(self) -> dict[str, int]:
        """What this node's queues have accepted, and no other machine has yet, as far as they answer."""
        with contextlib.suppress(ValueError, QueueRefusal, TimeoutError):
            found: dict[str, int] = await asyncio.wait_for(self._own.answer(questions.alone, {}), BEAT_S)
            return found
        return NOTHING

    def _died(self, node: str, numbers: list[int]) -> None:
        self._calls.lost(node)
        self._tunnels.lost(node)
        for number in numbers:
            asyncio.get_running_loop().create_task(self._take_over(node, number))

    async def _take_over(self, node: str, number: int) -> None:
        try:
            epoch = await self._members.take(number)
        except NatsError as error:
            log.warning("queue %d of node %s cannot be taken over: %s", number, node, error)
            return
        if epoch is not None:
            log.warning("node %s is dead; its queue %d is taken over", node, number)
            self._look()

    async def _move(self, number: int, node: str) -> None:
        """As of `questions.cluster_move`."""
        owner, nodes = self._owner(number), self._members.nodes()
        if not owner:
            raise Refused(f"no node has queue {number}; `zonemta cluster` shows the queues")
        if node not in nodes or not nodes[node].is_alive:
            raise Refused(f"there is no living node {node}; `zonemta cluster` shows them")
        if owner == node:
            raise Refused(f"queue {number} is on node {node} already")
        if owner != self._name:
            await self._calls.ask(owner, AGENT, str(questions.cluster_move), {"number": number, "node": node})
            return
        if number == layout.home_of(self._folder):
            raise Refused(
                f"queue {number} is the one that node {owner} was started with; `zonemta drain --to-cluster` there"
                " gives away all it has"
            )
        self._leaving.add(number)
        place = layout.folder_of(self._folder, number)
        layout.write(self._folder, [one for one in layout.numbers(self._folder) if one != number])
        self._wake()
        until = time.monotonic() + self._config.server.stop_s + LEAVE_S
        while place.exists():  # its process ends what it has begun
            if time.monotonic() > until:
                self._leaving.discard(number)
                raise QueueRefusal(Reply(451, "4.3.0", f"queue {number} has not ended; it stays where it is"))
            await asyncio.sleep(AGAIN_S)
        if (left := self._here.pop(number, None)) is not None:
            left.end()  # else orders wait for it here, and it leases nothing where it goes
        self._take_up()
        await self._members.give(number, node)
        self._leaving.discard(number)

    async def _compare(self) -> None:
        """What all nodes must have alike: whether this one still has it."""
        while True:
            await asyncio.sleep(COMPARE_S)
            try:
                state = await self._versions.look(self._folder)
            except (NatsError, OSError) as error:
                log.debug("configurations cannot be compared: %s", cause(error))
                continue
            if state is not None:
                if state.had < state.number:
                    log.warning("%s", sentence(self._name, state))
                self._wake()

    async def _told_versions(self) -> dict[str, Any]:
        """As of `questions.cluster_versions`."""
        try:
            found = await self._versions.all()
        except NatsError as error:
            raise QueueRefusal(Reply(451, "4.3.0", f"versions cannot be read: {error}; try again")) from None
        values = [dict[str, Any](), *(one.values for one in found)]
        state = await self._state()
        return {
            "versions": [
                {
                    "number": one.number, "node": one.node, "by": one.by, "ms": one.ms, "digest": one.digest,
                    "changes": [list(row) for row in agreed.differing(before, one.values)] if before else [],
                    "values": one.values,
                }
                for before, one in zip(values, found, strict=False)
            ],
            "nodes": [{"node": row["node"], "alive": row["alive"], **row["agreed"]} for row in state["nodes"]],
        }  # fmt: skip

    async def _watch(self) -> None:
        known = dict[int, str]()
        while True:
            self._look()
            nodes = {number: owner.node for number, owner in sorted(self._members.owners().items())}
            if nodes and nodes != known:
                known = nodes
                replace_file(self._folder / layout.FOLDER / layout.NODES, json.dumps(nodes).encode(), 0o600)
                await self._tunnels.serve(set(nodes))  # of those that are here, too: they may leave
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        """Serves what is this node's, and no more than that."""
        there = layout.numbers(self._folder)
        instance = self._members.instance
        mine = [number for number, owner in self._members.owners().items() if owner.instance == instance]
        if lost := [number for number in there if number in self._members.owners() and number not in mine]:
            owner = self._owner(lost[0])
            print(f"zonemta: node {owner} has taken over queue {lost[0]} of this node", file=sys.stderr, flush=True)
            os._exit(REPLACED)
        if more := [number for number in mine if number not in there and number not in self._leaving]:
            for number in more:  # what is there of it is of a time before others had it
                layout.set_aside(self._folder, number)
            layout.write(self._folder, [*there, *more])
            self._take_up()
        now = time.monotonic()
        for number in self._here:
            if not self._here[number].there and now > self._started_at.get(number, 0.0) + START_S:
                self._started_at[number] = now
                self._wake()


def _agreed(state: AgreedState) -> dict[str, Any]:
    """As of `questions.ClusterNode`."""
    differs = [list(one) for one in state.differs[: agreed.SHOWN]] if state.had < state.number else []
    return {"version": state.had, "differs": differs}


async def _no_order(question: Question[..., Any], arguments: dict[str, Any]) -> dict[int, Any]:
    raise Refused(f"{question} is for all nodes, and goes to the leader")


async def run(config: Config, wake: Callable[[], None]) -> None:
    """For ever. wake: as of `Agent`."""
    try:
        nats = await connected(config, f"{config.node}: agent")
        members = NodeMembership(nats, config, config.folder)
        await _joined(members, layout.numbers(config.folder))
    except (ValueError, NotAdmitted, OSError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr, flush=True)
        os._exit(os.EX_CONFIG)
    leadership = Leadership(nats, config, members.instance)
    with contextlib.suppress(asyncio.CancelledError):
        await Agent(config, nats, members, leadership, wake).run()
    os._exit(os.EX_SOFTWARE)


async def _joined(members: NodeMembership, numbers: list[int]) -> None:
    """As who this node's queues are. Raises NotAdmitted, OSError."""
    while True:
        try:
            if (await members.join(0, numbers)).replaced:
                os._exit(REPLACED)
            return
        except NatsError as error:
            log.warning("the cluster cannot be joined: %s; trying again", error)
            await asyncio.sleep(AGAIN_S)

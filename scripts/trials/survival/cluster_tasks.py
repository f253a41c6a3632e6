"""Tasks that run on all nodes of a cluster while everything that a trial does to them happens: each as ordered, once.

Recipients of four domains, which are suspended, are held, released, deleted, put back and changed by orders to any node
that runs. An order whose answer is lost is not repeated: it was taken, or not; the cluster's own list says which.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from survival.client import Connection, Refused
from survival.ledger import Ledger
from survival.letters import Letter
from survival.tasks import ENDED, GROUPS, Operator, judge, people, states
from zonemta_py.wire.blocking_client import QueueGone, ask

if TYPE_CHECKING:
    from survival.cluster import Nodes

TOGETHER = 50
PAUSE_S = 1.5
ORDER_S = 60.0
SETTLED_S = 120.0
DATA = b"From: ann@src.test\r\nSubject: of a task\r\n\r\nHi\r\n"


class _AnyNode:
    """Where the operator asks: a node that runs, another one each time."""

    def __init__(self, nodes: Nodes, dice: random.Random) -> None:
        self._nodes, self._dice = nodes, dice

    async def ask(self, question: str, **arguments: Any) -> Any:
        """Raises QueueGone, ValueError."""
        there = [node for node in self._nodes.all if node.mta.alive]
        if not there:
            raise QueueGone("no node runs")
        return await asyncio.to_thread(ask, self._dice.choice(there).mta.folder, question, **arguments)  # type: ignore[arg-type]

    async def certainly(self, question: str, **arguments: Any) -> Any:
        """What can be asked again."""
        end = time.monotonic() + ORDER_S
        while True:
            try:
                return await self.ask(question, **arguments)
            except (QueueGone, ValueError):
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.2)


class _Certain:
    def __init__(self, nodes: _AnyNode) -> None:
        self.ask = nodes.certainly


class ClusterTasks:
    """count: of recipients, in the four domains."""

    def __init__(self, nodes: Nodes, seed: int, count: int = 2_000) -> None:
        self._count, dice = count, random.Random(seed)
        self._clients = [node.mta.port for node in nodes.all]
        self._nodes = _AnyNode(nodes, dice)
        self._operator = Operator(dice, count)

    async def fill(self) -> None:
        """Before anything happens to the nodes."""
        for group in range(GROUPS):
            await self._nodes.certainly("stop", kind="domain", name=f"d{group}.test")
        for group in range(GROUPS):
            rows = [one for one in people(self._count) if one.endswith(f"@d{group}.test")]
            for number, at in enumerate(range(0, len(rows), TOGETHER)):
                letter = Letter(f"task {group} {at}", "ann@src.test", rows[at : at + TOGETHER], DATA)
                await self._hand_in(self._clients[number % len(self._clients)], letter)

    @staticmethod
    async def _hand_in(port: int, letter: Letter) -> None:
        while True:
            try:
                connection = await Connection.open(port)
                await connection.transaction(letter)
                connection.close()
                return
            except Refused:
                await asyncio.sleep(0.2)

    async def order(self) -> None:
        """One task after the other, until it is canceled."""
        while True:
            with suppress(QueueGone, ValueError):
                await self._operator.order(self._nodes)  # type: ignore[arg-type]
            await asyncio.sleep(PAUSE_S)

    async def judged(self, ledger: Ledger) -> tuple[int, list[str]]:
        """How many tasks there were, and what is not as they should have left it. What is not deleted is then sent, and
        has to come, once."""
        rows, certain = await self._settled(), _Certain(self._nodes)
        broken = judge(rows, self._count, await states(certain), self._operator)  # type: ignore[arg-type]
        for row in [row for row in reversed(rows) if row["verb"] in ("delete", "hold") and row["undoable"]]:
            await self._nodes.certainly("task-undo", id=row["id"])
            await self._settled()
        await self._nodes.certainly("task", verb="release", where={"domain": "d*.test"}, set=None, cause="at the end")
        await self._settled()
        gone = (await states(certain))["deleted"]  # type: ignore[arg-type]
        ledger.merge(
            {*people(self._count)} - gone, lambda recipient, body: body.endswith(DATA[DATA.index(b"\r\n\r\n") :])
        )
        for group in range(GROUPS):
            await self._nodes.certainly("lift", kind="domain", name=f"d{group}.test")
        return len(rows), [f"tasks: {one}" for one in broken]

    async def _settled(self) -> list[dict[str, Any]]:
        """All tasks, the oldest first, when nothing is left to do."""
        end = time.monotonic() + SETTLED_S
        while time.monotonic() < end:
            rows: list[dict[str, Any]] = await self._nodes.certainly("tasks", limit=10_000)
            if all(row["state"] in ENDED for row in rows):
                return rows[::-1]
            await asyncio.sleep(0.2)
        raise AssertionError("tasks do not end")

"""A cluster of three nodes on three NATS servers, and rounds of cases with one blow each: a node that has a queue,
another one, the one that leads, or a NATS server is killed while all of the cases are in the middle of something, and
started again when the others have done what there is to do.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from survival.cluster import Node, Nodes
from zonemta_py.queues import layout
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.sink.record import ReceivedMessage
from zonemta_py.wire.blocking_client import QueueGone, ask

KINDS = ("owner", "another", "leader", "server")
"""What is killed: the node whose queue the cases are about, one that has nothing of it and does not lead, the node that
leads, the NATS server that leads the log of that queue."""
KEY = "zmta_contract"
PATIENCE_S = 240.0
WITHIN_S = 0.6
"""After all cases have come to their middle."""
SLOW_S = 6
RULES = (
    "rcpt:/^later/ 450 4.2.1 not now, 60%", "rcpt:/^never/ 450 4.2.1 not now",
    "rcpt:/^gone/ 550 5.1.1 nobody here", f"dot:/^slow/ 250 2.0.0 taken, after {SLOW_S}s",
)  # fmt: skip
RATE, BURST = 15.0, 3.0
"""Of messages of the zone "paced", of all nodes together."""
_MORE = """
[[http.keys]]
name = "contract"
hash = "{hash}"
role = "admin"
[learning]
initial = 20
[[throttles]]
name = "pace"
only = {{ zone = "paced" }}
messages = "{rate:g}/s"
burst = {burst:g}
"""
_ZONE = """
[[zones]]
name = "{name}"
host = "127.0.0.1"
port = {port}
tls = "none"
{more}
"""
ZONES = {
    "line": "connections = 1", "turns": "connections = 1", "few": "recipients_per_delivery = 4",
    "held": 'in_doubt = "hold"', "paced": "", "purged": "",
}  # fmt: skip


class Stage:
    """client: for HTTP."""

    def __init__(self, nodes: Nodes, sink: Sink, client: httpx.AsyncClient) -> None:
        self.nodes, self._sink, self.client = nodes, sink, client
        self._cases, self._rounds = 0, 0

    def arrived(self) -> list[ReceivedMessage]:
        return list(self._sink.messages)

    def next_number(self) -> int:
        self._cases += 1
        return self._cases

    async def state(self) -> dict[str, Any]:
        """As one of the nodes that run says. Raises AssertionError."""
        end = time.monotonic() + PATIENCE_S
        while True:
            for node in self.nodes.all:
                if node.mta.alive:
                    try:
                        return dict(await asyncio.to_thread(ask, node.mta.folder, "cluster"))
                    except (QueueGone, ValueError, OSError):
                        continue
            assert time.monotonic() < end, "no node says how the cluster is"
            await asyncio.sleep(0.1)

    async def queues(self) -> list[dict[str, Any]]:
        return list((await self.state())["queues"])

    async def round(self, kind: str) -> Round:
        """Its home is another node's each time; for "leader" and "another" one that does not lead."""
        leader = (await self.state())["leader"]
        homes = [node for node in self.nodes.all if kind not in ("leader", "another") or node.name != leader]
        self._rounds += 1
        home = homes[self._rounds % len(homes)]
        return Round(self, kind, home, leader)

    async def whole(self) -> None:
        """Waits until every node is back with its own queue, answers, and one leads. Raises AssertionError."""
        end = time.monotonic() + PATIENCE_S
        while lacks := await self._lacks():
            assert time.monotonic() < end, f"the cluster does not become whole again: {lacks}"
            await asyncio.sleep(0.1)

    async def _lacks(self) -> str:
        """Why it is not whole; "": it is."""
        state = await self.state()
        owners = {row["queue"]: row["node"] for row in state["queues"]}
        if not state["leader"]:
            return "nobody leads"
        for node in self.nodes.all:
            if owners.get(layout.home_of(node.mta.folder)) != node.name:
                return f"node {node.name} does not have its queue: {owners}"
        if len(owners) != len(self.nodes.all):
            return f"there are other queues: {owners}"
        said = [await self._silence(node) for node in self.nodes.all]
        return next(filter(None, said), "")

    async def _silence(self, node: Node) -> str:
        """How a node does not answer; "": it does."""
        try:
            if causes := await asyncio.to_thread(ask, node.mta.folder, "ready"):
                return f"node {node.name} is not ready: {causes}"
            await asyncio.to_thread(ask, node.mta.folder, "size")
            answer = await self.client.get(f"http://127.0.0.1:{node.http_port}/v1/ready", timeout=5)
        except (QueueGone, ValueError, OSError, httpx.HTTPError) as error:
            return f"node {node.name}: {error!r}"
        return "" if answer.status_code == 200 else f"node {node.name}: {answer.text}"


class Round:
    """One blow, and the cases that it meets. struck: the node that was killed."""

    def __init__(self, stage: Stage, kind: str, home: Node, leader: str) -> None:
        self.stage, self.kind, self.home, self._leader = stage, kind, home, leader
        self.number = layout.home_of(home.mta.folder)
        self.struck: Node | None = None
        self.seconds = dict[str, float]()
        """Until all cases were in their middle; until others had the dead node's queue; until all was back."""
        self.took_s = dict[str, float]()
        """By case."""
        self._all_came, self._prepared = asyncio.Event(), asyncio.Event()
        self._before, self._after = asyncio.Event(), asyncio.Event()
        self._missing, self._waited = 0, 0
        self._dice = random.Random(f"{kind} {self.number}")

    async def middle(self, last: Callable[[], Awaitable[None]] | None) -> None:
        """last: what is done when all the others are there."""
        self._come()
        await self._prepared.wait()
        if last is not None:
            await last()
        self._waited -= 1
        if not self._waited:
            self._before.set()
        await self._before.wait()

    def _come(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._all_came.set()

    def _give_up(self) -> None:
        """The others do not wait for a case that went wrong."""
        if not self._all_came.is_set():
            self._come()
        if not self._before.is_set():
            self._waited -= 1
            if not self._waited:
                self._before.set()

    async def over(self) -> None:
        await self._after.wait()

    async def run(
        self, cases: dict[str, Callable[[], Awaitable[None]]], earlier: asyncio.Task[Any] | None = None
    ) -> dict[str, str]:
        """By case: what went wrong; only of those where something did. earlier: a round that has to end before the
        blow."""
        self._missing = self._waited = len(cases)
        wrong = dict[str, str]()
        blow = asyncio.create_task(self._strike(earlier))
        await asyncio.gather(*(self._case(name, case, wrong) for name, case in cases.items()))
        await blow
        return wrong

    async def _case(self, name: str, case: Callable[[], Awaitable[None]], wrong: dict[str, str]) -> None:
        begun = time.monotonic()
        try:
            await case()
            assert self._after.is_set(), "it did not wait for the end"
        except (AssertionError, LookupError, ValueError, OSError, httpx.HTTPError) as error:
            wrong[name] = f"{_place(error)}: {type(error).__name__} {error}"
            if not self._after.is_set():
                self._give_up()
        finally:
            self.took_s[name] = time.monotonic() - begun

    async def _strike(self, earlier: asyncio.Task[Any] | None) -> None:
        arrived = time.monotonic()
        await self._all_came.wait()
        if earlier is not None:
            await asyncio.wait([earlier])
        self._prepared.set()
        await self._before.wait()
        self.seconds["before"] = round(time.monotonic() - arrived, 1)
        await asyncio.sleep(self._dice.uniform(0, WITHIN_S))
        begun = time.monotonic()
        if self.kind == "server":
            await self._strike_server()
        else:
            await self._strike_node()
        self.seconds["back"] = round(time.monotonic() - begun, 1)
        self._after.set()

    async def _strike_node(self) -> None:
        struck = self.struck = self._victim()
        gone, begun = layout.home_of(struck.mta.folder), time.monotonic()
        struck.mta.kill("all")

        async def taken() -> bool:
            return all(row["node"] != struck.name for row in await self.stage.queues() if row["queue"] == gone)

        await until(taken, f"nobody takes over the queue of node {struck.name}")
        self.seconds["taken over"] = round(time.monotonic() - begun, 1)
        struck.again()
        await self.stage.whole()

    def _victim(self) -> Node:
        nodes = self.stage.nodes.all
        if self.kind == "owner":
            return self.home
        if self.kind == "leader":
            return next(node for node in nodes if node.name == self._leader)
        return next(node for node in nodes if node is not self.home and node.name != self._leader)

    async def _strike_server(self) -> None:
        servers = self.stage.nodes.servers
        name = await asyncio.to_thread(servers.leader, f"zonemta-trial-LOG-{self.number}")
        server = servers.named(name) if name else servers.all[0]
        server.kill()
        await asyncio.sleep(4)
        await asyncio.to_thread(server.start)
        await self.stage.whole()


def _place(error: BaseException) -> str:
    """The line of the case."""
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("cases.py")]
    return f"line {found[-1].lineno}, {found[-1].line}" if found else "?"


async def until(true: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not await true():
        assert time.monotonic() < end, otherwise
        await asyncio.sleep(0.1)


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """Raises AssertionError: it does not come up."""
    hash = hashlib.sha256(KEY.encode()).hexdigest()
    settings = SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=RULES, seed=1)
    async with Sink(settings) as sink, httpx.AsyncClient() as client:
        zones = "".join(_ZONE.format(name=name, more=more, port=sink.port) for name, more in ZONES.items())
        more = _MORE.format(hash=hash, rate=RATE, burst=BURST) + zones
        nodes = Nodes(folder, sink.port, processes=1, retry_min=0.05, http=True, more=more)
        try:
            await nodes.start()
            made = Stage(nodes, sink, client)
            await made.whole()
            yield made
        finally:
            nodes.end()

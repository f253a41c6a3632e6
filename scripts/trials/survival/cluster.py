"""Three nodes on three NATS servers, and what can happen to them: processes and whole nodes killed, alone and with a
server, stopped for longer than a node may be silent, cut off; servers killed and stopped, two of three too, with bytes
of their files changed; everything at once, as in a power failure.

Letters go to all nodes. Whoever was handed one is asked no more about it: what was acknowledged has to come, from
whichever node. In the end each message that was in doubt is listed by name, and every folder passes a check.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nats_servers import ThreeServers
from ports import free_port
from restraint.kept import RELEASED
from sharing import exceeded

from survival.client import Client
from survival.cluster_tasks import ClusterTasks
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.proxy import Proxy
from survival.rig import Mta, enter, sink
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import folders as journals
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.api import QueueFault
from zonemta_py.wire.blocking_client import QueueGone, ask

NODES = "abc"
ROUNDED_MS = 2
PROCESSES = ("queue", "receiver", "sender", "authority", "supervisor", "all")
FAULTS = {
    "process": 10, "node killed": 4, "node and server": 2, "node stands still": 3, "node cut off": 4, "server": 4,
    "server of the leader": 2, "server stands still": 2, "two servers stand still": 2, "server damaged": 1,
    "everything": 1,
}  # fmt: skip
"""How often each falls, compared with the others."""
PATIENCE_S = 180.0
RATE, BURST = 60.0, 5.0
"""Of messages to one domain, a second and at once, for all nodes together."""
_LIMIT = f"""
[[throttles]]
name = "pace"
only = {{ zone = "bulk" }}
messages = "{RATE:g}/s"
burst = {BURST:g}
"""
_CLUSTER = """
[cluster]
name = "trial"
node = "{node}"
servers = [{servers}]
username = "{username}"
password = "{password}"
system_username = "{system_username}"
system_password = "{system_password}"
"""


class Node:
    """An MTA, and the ways by which it reaches the servers. http: whether it listens for HTTP, at http_port."""

    def __init__(
        self, name: str, folder: Path, sink_port: int, servers: ThreeServers, http: bool = False, **settings: Any
    ) -> None:
        self.name, self._servers, self.http_port = name, servers, free_port() if http else 0
        self.ways = [Proxy(server.port) for server in servers.all]
        self._folder, self._sink_port, self.settings = folder, sink_port, settings
        self.mta: Mta

    async def start(self) -> None:
        for way in self.ways:
            await way.start()
        urls = ", ".join(f'"nats://127.0.0.1:{way.port}"' for way in self.ways)
        said = self._servers.settings() | {"servers": urls, "node": self.name}
        more = self.settings.pop("more", "") + _CLUSTER.format(**said)
        if self.http_port:
            more += f"[http]\nenabled = true\nport = {self.http_port}\n"
        self.mta = Mta(self._folder, self._sink_port, more=more, **self.settings)
        self.mta.start()

    def cut(self, cut: bool) -> None:
        for way in self.ways:
            way.cut(cut)

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes."""
        for pid in [self.mta.one("supervisor"), *self.mta.children()]:
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def again(self) -> None:
        """Starts it if it has ended."""
        if not self.mta.alive:
            self.mta.start()


class Nodes:
    """So many of them, and three servers. settings: of each `Mta`."""

    def __init__(self, folder: Path, sink_port: int, count: int = 3, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.servers = ThreeServers(folder / "nats")
        self.all = [Node(name, folder / name, sink_port, self.servers, **dict(settings)) for name in NODES[:count]]

    async def start(self) -> None:
        """Returns when each takes mail, and one leads."""
        self.servers.start()
        await asyncio.to_thread(self.servers.ready)
        for node in self.all:
            await node.start()
        for node in self.all:
            await node.mta.accepting()
        await self.asked(self.all[0], "size")

    def end(self) -> None:
        for node in self.all:
            if hasattr(node, "mta"):
                node.signal(signal.SIGCONT)
                node.mta.end()
            for way in node.ways:
                way.end()
        self.servers.end()

    async def asked(self, node: Node, question: str, **arguments: Any) -> Any:
        """Of all nodes, by one that runs. Raises ValueError, QueueGone after a while."""
        return await asyncio.to_thread(node.mta.ask, question, **arguments)

    async def drained(self) -> None:
        """Waits until nothing is queued, leased or deferred any more on any node, as long as it gets less."""
        await self.drained_by(self.all[0])

    async def drained_by(self, node: Node) -> None:
        """The same; node: who is asked."""
        least, end, total = sys.maxsize, time.monotonic() + PATIENCE_S, dict[str, int]()
        while time.monotonic() < end:
            total = (await self.asked(node, "size"))["total"]
            left = sum(total[state] for state in ("queued", "leased", "deferred"))
            if not left:
                return
            if left < least:
                least, end = left, time.monotonic() + PATIENCE_S
            await asyncio.sleep(0.2)
        raise AssertionError(f"the queues do not drain: {total}; {node.mta.log_tail()}")


class Faults:
    """Strikes at random, and lets all come back."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self._nodes, self._dice = nodes, random.Random(seed)
        self._down = dict[str, float]()
        """Nodes that have ended, and when they are to be started again."""
        self.struck: Counter[str] = Counter()

    def look(self) -> None:
        """Starts what is due."""
        now = time.monotonic()
        for node in self._nodes.all:
            if not node.mta.alive and now >= self._down.setdefault(node.name, now + self._away_s()):
                del self._down[node.name]
                node.again()

    def _away_s(self) -> float:
        """Shorter, or longer, than a node may be silent."""
        return self._dice.choice((0.0, 0.0, self._dice.uniform(1, 4), self._dice.uniform(6, 15)))

    async def strike(self) -> None:
        name = self._dice.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.struck[name] += 1
        await getattr(self, "_" + name.replace(" ", "_"))()

    def _node(self) -> Node:
        there = [node for node in self._nodes.all if node.mta.alive]
        return self._dice.choice(there or self._nodes.all)

    async def _asleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            await asyncio.sleep(0.05)

    async def _process(self) -> None:
        self._node().mta.kill(self._dice.choice(PROCESSES), self._dice.random())

    async def _node_killed(self) -> None:
        self._node().mta.kill("all")

    async def _node_and_server(self) -> None:
        server = self._dice.choice(self._nodes.servers.all)
        self._node().mta.kill("all")
        server.kill()
        await self._asleep(self._dice.uniform(1, 8))
        server.start()
        await self._asleep(3)

    async def _node_stands_still(self) -> None:
        node = self._node()
        node.signal(signal.SIGSTOP)
        await self._asleep(self._dice.choice((2.0, 9.0, 15.0)))
        node.signal(signal.SIGCONT)

    async def _node_cut_off(self) -> None:
        node = self._node()
        node.cut(True)
        await self._asleep(self._dice.choice((1.0, 3.0, 9.0, 15.0)))
        node.cut(False)

    async def _server(self, server: Any = None) -> None:
        server = server or self._dice.choice(self._nodes.servers.all)
        server.kill()
        await self._asleep(self._dice.uniform(0.5, 6))
        server.start()
        await self._asleep(3)

    async def _server_of_the_leader(self) -> None:
        """Of the log of one queue."""
        name = await asyncio.to_thread(self._nodes.servers.leader, "zonemta-trial-LOG-1")
        await self._server(self._nodes.servers.named(name) if name else None)

    async def _server_stands_still(self) -> None:
        server = self._dice.choice(self._nodes.servers.all)
        server.hang()
        await self._asleep(self._dice.uniform(1, 10))
        server.go_on()
        await self._asleep(2)

    async def _two_servers_stand_still(self) -> None:
        two = self._dice.sample(self._nodes.servers.all, 2)
        for server in two:
            server.hang()
        await self._asleep(self._dice.choice((2.0, 8.0, 25.0)))
        for server in two:
            server.go_on()
        await self._asleep(4)

    async def _server_damaged(self) -> None:
        """Some bytes of its message files are changed, or an end is cut off, while it is down."""
        server = self._dice.choice(self._nodes.servers.all)
        server.kill()
        files = [path for path in server.folder.rglob("*.blk") if path.stat().st_size > 100]
        for path in self._dice.sample(files, min(2, len(files))):
            data = bytearray(path.read_bytes())
            if self._dice.random() < 0.5:
                data[self._dice.randrange(len(data))] ^= 1 << self._dice.randrange(8)
            else:
                del data[self._dice.randrange(len(data)) :]
            path.write_bytes(data)
        await self._asleep(self._dice.uniform(0.5, 3))
        server.start()
        await self._asleep(5)

    async def _everything(self) -> None:
        for node in self._nodes.all:
            node.mta.kill("all")
        for server in self._nodes.servers.all:
            server.kill()
        await asyncio.sleep(self._dice.uniform(0, 3))
        self._nodes.servers.start()
        for node in self._nodes.all:
            node.again()
        self._down.clear()
        await self._asleep(5)


class Moving:
    """Orders at random that mail of a zone goes to a node, or that nodes are balanced, while they are struck."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self._nodes, self._dice = nodes, random.Random(seed + 1)
        self.recipients = self.done = 0
        self.refused = Counter[str]()

    async def run(self, count: int) -> None:
        """So many orders, spread a little."""
        for _ in range(count):
            await asyncio.sleep(self._dice.uniform(0.05, 0.5))
            node, to = self._dice.choice(self._nodes.all), self._dice.choice(NODES)
            order: tuple[str, dict[str, Any]] = ("cluster-balance", {})
            if self._dice.random() < 0.8:
                order = "cluster-move-zone", {"zone": self._dice.choice(("default", "bulk")), "to": to}
            try:
                found = await asyncio.to_thread(ask, node.mta.folder, order[0], **order[1])
            except (ValueError, QueueGone, QueueFault, OSError) as error:
                self.refused[str(error)[:60]] += 1
            else:
                self.done += 1
                self.recipients += found["recipients"]


async def trial(
    folder: Path,
    *,
    letters: int,
    faults: int,
    seed: int,
    moves: int = 0,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ledger, start = Ledger(), time.monotonic()
    async with sink(ledger, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        nodes = Nodes(folder, running.port, more=_LIMIT)
        await nodes.start()
        try:
            clients = [Client(node.mta.port, ledger) for node in nodes.all]
            striking, tasks, moving = Faults(nodes, seed), ClusterTasks(nodes, seed), Moving(nodes, seed)
            await tasks.fill()
            shares = [range(at, letters, len(clients)) for at in range(len(clients))]
            done = lambda: sum(one.replies[250] for one in clients) + running.counters.messages  # noqa: E731
            async with asyncio.TaskGroup() as group:
                work = [group.create_task(one.hand_in(share)) for one, share in zip(clients, shares, strict=True)]
                ordering = group.create_task(tasks.order() if not moves else asyncio.sleep(0))  # mail of a task stays
                shifting = group.create_task(moving.run(moves))
                await _struck(striking, faults, letters, done, lambda: all(map(_is_over, work)), progress)
                ordering.cancel()
                shifting.cancel()
            nodes.servers.start()
            for node in nodes.all:
                node.again()
            ordered, problems = await tasks.judged(ledger)
            await nodes.drained()
            in_doubt = await asyncio.to_thread(nodes.all[0].mta.in_doubt)
        finally:
            nodes.end()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        problems += [f"{node.name}: {one}" for node in nodes.all for one in await node.mta.problems()]
        sent = sorted(leased([node.mta.folder for node in nodes.all], "bulk").values())
        above = exceeded([(ms / 1000, 1.0) for ms in sent], (RATE, BURST))
        if above is not None and above[2] > ROUNDED_MS / 1000 * RATE:
            problems.append(f"limit: {above[2]:.3g} messages more than {RATE:g}/s and {BURST:g} at once allow")
    return {
        "seconds": round(time.monotonic() - start, 1),
        "faults": dict(striking.struck),
        **({"moved": moving.recipients, "moves": moving.done, "moves refused": dict(moving.refused)} if moves else {}),
        "replies": dict(sum((one.replies for one in clients), Counter[int]())),
        "limited": len(sent),
        "tasks": ordered,
        **judgement.figures(),
        "broken": judgement.broken + [f"check: {problem}" for problem in problems[:5]],
    }


def leased(folders: list[Path], zone: str) -> dict[tuple[int, int], float]:
    """When each lease of that zone began, UNIX ms, by queue and number: once, though the queue's next node may have
    its record, too. What was not begun after all is left out."""
    found, released = dict[tuple[int, int], float](), set[tuple[int, int]]()
    for folder in folders:
        for source, place in journals.every(folder).items():
            number = journals.home_of(folder) if place == folder else journals.queue_of(source)
            for record in segments.read_files(segments.every_file(place / "journal", place / "archive")):
                if record.type not in (Type.START, Type.DELIVERY):
                    continue
                body = unpack(record.body)
                lease = number, body[0]
                if record.type == Type.START and body[2] == zone:
                    found[lease] = body[5]
                elif record.type == Type.DELIVERY and all(outcome[0] in RELEASED for outcome in body[4]):
                    released.add(lease)
    return {lease: ms for lease, ms in found.items() if lease not in released}


def _is_over(task: asyncio.Task[None]) -> bool:
    return task.done()


async def _struck(
    striking: Faults, faults: int, letters: int, done: Callable[[], int], over: Callable[[], bool], progress: Progress
) -> None:
    """The moments are spread over the work; what is left of them when all is in falls one after the other."""
    for number in range(faults):
        while done() < 2 * letters * number / faults and not over():
            striking.look()
            await asyncio.sleep(0.02)
        await striking.strike()
        striking.look()
        progress(number + 1, f"{done():,} in and out")
    while not over():
        striking.look()
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    sys.exit(
        command(
            "cluster", __doc__, "Three nodes, three NATS servers", trial,
            letters=(20_000, "letters handed in"), faults=(60, "faults"),
            moves=(0, "orders that mail of a zone goes to another node"),
        )
    )  # fmt: skip

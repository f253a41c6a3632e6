"""A node that is cut off from all servers, or from one, without a word: packets are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from blackhole import Way
from nats_servers import ThreeServers
from test_leader import Candidate, leader
from test_nodes import Node, until

from zonemta_py.cluster.nats import Nats
from zonemta_py.config import ClusterSection


class CutOff:
    """A connection whose ways to the servers can be lost."""

    def __init__(self, ways: list[Way], section: ClusterSection) -> None:
        self.ways = ways
        self.section = section.model_copy(update={"servers": [way.url for way in ways]})

    def lose(self) -> None:
        for way in self.ways:
            way.lose()

    def mend(self) -> None:
        for way in self.ways:
            way.mend()


@pytest.fixture
async def cut_off(servers: ThreeServers, section: ClusterSection) -> AsyncIterator[CutOff]:
    ways = [await Way(server.port).start() for server in servers.all]
    yield CutOff(ways, section)
    await asyncio.gather(*(way.end() for way in ways))


async def test_a_server_that_is_not_reached_any_more(cut_off: CutOff) -> None:
    nats = await Nats.connect(cut_off.section, "test")
    try:
        await nats.make_stream("cut", "cut.off")
        for number, way in enumerate([*cut_off.ways, *cut_off.ways]):
            way.lose()
            assert await nats.append("cut.off", b"x", number, 30) == number + 1
            way.mend()
        assert nats.connections > 1
        await nats.delete_stream("cut")
    finally:
        await nats.close()


async def test_a_leader_that_is_cut_off_ends_before_another_begins(
    cut_off: CutOff, section: ClusterSection, connect: Callable[..., Awaitable[Nats]]
) -> None:
    lonely = Candidate(await Nats.connect(cut_off.section, "test"), section, "a")
    candidates = [lonely]
    try:
        assert await leader(candidates) is lonely
        candidates += [Candidate(await connect(), section, name) for name in "bc"]
        cut_off.lose()
        end = time.monotonic() + 60
        while not any(one.leads for one in candidates[1:]):
            assert time.monotonic() < end
            assert sum(one.leads for one in candidates) <= 1
            await asyncio.sleep(0.01)
        assert lonely.heard == ["begins 1", "ends"]
        cut_off.mend()
        first = await leader(candidates)
        await until(lambda: lonely.leadership.leader == first.name)
        assert lonely.heard == ["begins 1", "ends"]
    finally:
        await asyncio.gather(*(one.stop() for one in candidates))
        await lonely.nats.close()


async def test_a_node_that_is_cut_off_loses_its_queues_and_mistakes_nobody(
    cut_off: CutOff, section: ClusterSection, connect: Callable[..., Awaitable[Nats]], tmp_path: Path
) -> None:
    section = section.model_copy(update={"dead_after_s": 2.0})
    lonely = Node(await Nats.connect(cut_off.section, "test"), section, "a", tmp_path / "a")
    nodes = [lonely, *[Node(await connect(), section, name, tmp_path / name) for name in "bc"]]
    try:
        for node in nodes:
            await node.join()
            node.live()
        await until(lambda: all(len(node.membership.nodes()) == 3 for node in nodes))
        cut_off.lose()
        await until(lambda: any(node.taken for node in nodes[1:]))
        (taker,) = [node for node in nodes[1:] if node.taken]
        await asyncio.sleep(3)
        assert lonely.died == []
        cut_off.mend()
        await until(lambda: lonely.membership.owners()[1].node == taker.name)
        assert lonely.died == []
        await until(lambda: taker.membership.nodes()["a"].is_alive)
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
        await lonely.nats.close()

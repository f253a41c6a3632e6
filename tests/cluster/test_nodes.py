"""NodeMembership: who joins, whose queues are whose, and who is dead, over real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats_servers import ThreeServers

from zonemta_py.cluster.nats import Nats, NatsError
from zonemta_py.cluster.nodes import Joined, NodeMembership, NotAdmitted, Owner
from zonemta_py.config import ClusterSection, Config

PATIENCE_S = 60.0
Make = Callable[..., Awaitable["Node"]]


class Node:
    """Gives signs of life, and takes what falls to it."""

    def __init__(self, nats: Nats, section: ClusterSection, name: str, folder: Path) -> None:
        self.name, self.nats, self.folder = name, nats, folder
        self.membership = NodeMembership(nats, Config(cluster=section.model_copy(update={"node": name})), folder)
        self.died = list[tuple[str, list[int]]]()
        self.taken = dict[int, int]()
        self.facts: dict[str, Any] = {}
        self.refused = ""
        self._tasks = list[asyncio.Task[None]]()

    async def join(self, wanted: int = 1, known: list[int] | None = None) -> Joined:
        return await self.membership.join(wanted, known or [])

    def live(self) -> None:
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self.membership.run(self._hear))]

    async def _beat(self) -> None:
        while not self.refused:
            try:
                await self.membership.beat(self.facts)
            except NotAdmitted as error:
                self.refused = str(error)
            except NatsError:
                continue
            await asyncio.sleep(0.3)

    def _hear(self, node: str, queues: list[int]) -> None:
        self.died.append((node, queues))
        self._tasks.append(asyncio.create_task(self._take(queues)))

    async def _take(self, queues: list[int]) -> None:
        for queue in queues:
            if (epoch := await self.membership.take(queue)) is not None:
                self.taken[queue] = epoch

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


@pytest.fixture
def section(section: ClusterSection) -> ClusterSection:
    return section.model_copy(update={"dead_after_s": 2.0})


@pytest.fixture
async def make(connect: Callable[..., Awaitable[Nats]], section: ClusterSection, tmp_path: Path) -> AsyncIterator[Make]:
    made = list[Node]()

    async def one(name: str, folder: str = "") -> Node:
        made.append(Node(await connect(), section, name, tmp_path / (folder or name)))
        return made[-1]

    yield one
    await asyncio.gather(*(node.stop() for node in made))


async def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_each_gets_numbers_of_its_own(make: Make) -> None:
    nodes = [await make(name) for name in "abc"]
    joined = await asyncio.gather(*(node.join(2) for node in nodes))
    assert sorted(number for one in joined for number in one.numbers) == [1, 2, 3, 4, 5, 6]
    assert all(one.home == one.numbers[0] and not one.replaced for one in joined)
    await nodes[0].membership.look()
    owners = nodes[0].membership.owners()
    for node, one in zip(nodes, joined, strict=True):
        assert all(owners[number] == (node.name, node.membership.instance, 1) for number in one.numbers)


async def test_one_that_comes_back_has_what_it_had(make: Make) -> None:
    first = await (await make("a")).join(2)
    again = await (await make("a")).join(2, [2, 1])
    assert (again.numbers, again.home, again.replaced) == ([2, 1], 2, [])
    more = await (await make("a")).join(3, [2, 1])
    assert (more.numbers, more.home) == ([2, 1, 3], 2)
    assert first.epochs == {1: 1, 2: 1}
    assert again.epochs == {1: 1, 2: 1}


async def test_one_that_was_renamed_has_what_it_had(make: Make) -> None:
    first = await make("a")
    joined = await first.join()
    again = await make("b", "a")
    found = await again.join(1, joined.numbers)
    assert (found.numbers, found.replaced) == (joined.numbers, [])
    assert again.membership.owners()[joined.home].node == "b"


async def test_a_queue_that_was_there_before_the_cluster_is_brought_along(make: Make) -> None:
    assert (await (await make("a")).join(1, [0])).numbers == [0]
    assert (await (await make("b")).join(1)).numbers == [1]
    with pytest.raises(NotAdmitted, match=r"has a queue 0, and the cluster 't\d+' has one of that number on node 'a'"):
        await (await make("c")).join(1, [0])


async def test_a_folder_of_another_cluster(make: Make, tmp_path: Path) -> None:
    await (await make("a")).join()
    path = tmp_path / "a" / "queues" / "node"
    path.write_text('{"cluster": "other", "instance": "1"}')
    with pytest.raises(NotAdmitted, match="is of the cluster 'other'"):
        await (await make("a")).join()


async def test_a_name_that_another_one_has(make: Make) -> None:
    first = await make("a")
    await first.join()
    first.live()
    with pytest.raises(NotAdmitted, match=r"give this one another cluster\.node"):
        await (await make("a", "elsewhere")).join()


async def test_the_name_of_one_that_is_gone(make: Make) -> None:
    """It may be had again, but not its queues."""
    (number,) = (await (await make("a")).join()).numbers
    second = await make("a", "elsewhere")
    joined = await second.join()
    assert joined.numbers == [number + 1]
    second.live()
    await until(lambda: second.taken)
    assert second.taken == {number: 2}
    assert second.membership.owners()[number] == ("a", second.membership.instance, 2)


async def test_a_copy_of_a_folder_is_found_out(make: Make) -> None:
    first = await make("a")
    await first.join()
    first.live()
    await (await make("a")).join(1, [1])
    await until(lambda: first.refused)
    assert "a copy of this folder, has become the node 'a'" in first.refused


async def test_the_dead_ones_queues_are_taken_once(make: Make) -> None:
    nodes = [await make(name) for name in "abc"]
    joined = [await node.join(4) for node in nodes]
    for node in nodes:
        node.live()
    await until(lambda: all(len(node.membership.nodes()) == 3 for node in nodes))
    await nodes[0].stop()
    rest = nodes[1:]
    await until(lambda: sum(len(node.taken) for node in rest) == 4)
    assert sorted(number for node in rest for number in node.taken) == joined[0].numbers
    assert {epoch for node in rest for epoch in node.taken.values()} == {2}
    assert {name for node in rest for name, _ in node.died} == {"a"}
    facts = rest[0].membership.nodes()
    assert not facts["a"].is_alive
    assert facts["c"].is_alive
    back = await (await make("a")).join(1, joined[0].numbers)
    assert back.replaced == joined[0].numbers
    assert back.numbers == [back.home] == [13]
    assert rest[0].membership.owners()[joined[0].numbers[0]].epoch == 2


async def test_one_that_slept_mistakes_nobody(make: Make) -> None:
    """Nor is it dead before its time where it said that it would be silent."""
    nodes = [await make(name) for name in "ab"]
    for node in nodes:
        await node.join()
    nodes[0].live()
    nodes[1].facts = {"grace_s": 3600.0}
    nodes[1].live()
    await until(lambda: all(len(node.membership.nodes()) == 2 for node in nodes))
    await until(lambda: "grace_s" in nodes[0].membership.nodes()["b"].facts)
    await nodes[1].stop()
    await nodes[0].stop()
    await asyncio.sleep(3)
    nodes[0].live()
    await asyncio.sleep(4)
    assert nodes[0].died == []
    assert nodes[0].membership.nodes()["b"].is_alive
    nodes[1].facts = {}
    nodes[1].live()
    await until(lambda: nodes[0].membership.nodes()["b"].facts == {})
    await asyncio.sleep(1)
    assert nodes[1].died == []  # it has slept, though a has not said anything new to it meanwhile
    await nodes[1].stop()
    await until(lambda: nodes[0].taken)


async def test_a_server_that_dies_kills_no_node(make: Make, servers: ThreeServers) -> None:
    nodes = [await make(name) for name in "abc"]
    for node in nodes:
        await node.join()
        node.live()
    await until(lambda: all(len(node.membership.nodes()) == 3 for node in nodes))
    for server in servers.all:
        server.kill()
        await asyncio.sleep(8)
        server.start()
    await asyncio.sleep(1)
    assert [node.died for node in nodes] == [[], [], []]


async def test_queues_that_are_released(make: Make) -> None:
    """Another takes them over at once, not the one that goes; if there is none it has them again when it comes back."""
    nodes = [await make(name) for name in "ab"]
    for node in nodes:
        await node.join(2)
        node.live()
    await until(lambda: all(len(node.membership.nodes()) == 2 for node in nodes))
    await nodes[0].membership.release([1, 2])
    await until(lambda: len(nodes[1].taken) == 2)
    assert nodes[1].taken == {1: 3, 2: 3}
    assert nodes[0].died == []
    await nodes[0].stop()
    await nodes[1].membership.release([1])
    await nodes[1].stop()
    again = await (await make("b")).join(0, [3, 4, 1])
    assert (again.numbers, again.epochs) == ([3, 4, 1], {3: 1, 4: 1, 1: 5})


async def test_queues_that_are_no_more(make: Make) -> None:
    node = await make("a")
    await node.join(3)
    await node.membership.give_up([2])
    assert sorted(node.membership.owners()) == [1, 3]
    assert await node.membership.fresh() == 4
    assert node.membership.owners()[4] == Owner("a", node.membership.instance, 1)

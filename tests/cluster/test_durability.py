"""A listener whose 250 means the disk of this node: it takes mail while the cluster cannot keep it, and all comes once,
whatever becomes of the node and of its queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats_servers import program
from ports import free_port
from survival.client import Client
from survival.cluster import Node, Nodes
from survival.ledger import Ledger
from survival.rig import enter, sink

from tests.cluster.test_nodes_run import home, judged, owners, total, until
from zonemta_py.config import Config
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.queue.core import spool
from zonemta_py.queues import layout

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(not program(), reason="nats-server is not installed")]


@asynccontextmanager
async def running(folder: Path, **same: Any) -> AsyncIterator[tuple[Nodes, Ledger, list[Client]]]:
    """Clients speak with the listeners whose 250 means the node's own disk. same: of all letters."""
    ledger = Ledger(**same)
    async with sink(ledger) as destination:
        nodes = Nodes(folder, destination.port, processes=1)
        ports = [free_port() for _ in nodes.all]
        for node, port in zip(nodes.all, ports, strict=True):
            node.settings["more"] = f'[[listeners]]\nname = "early"\nport = {port}\ndurability = "node"\n'
        try:
            await nodes.start()
            yield nodes, ledger, [Client(port, ledger, **same) for port in ports]
        finally:
            nodes.end()
            enter(destination, ledger)


def alone(node: Node) -> int:
    try:
        rows = node.mta.ask("cluster")["nodes"]
    except ValueError:  # its agent has yet to begin
        return -1
    return int(next(row["alone"]["messages"] for row in rows if row["node"] == node.name))


def spooled(node: Node) -> list[str]:
    """Ids in the node's own files."""
    place = node.mta.folder / "queues" / spool.SPOOL
    return [one.id for path in sorted(place.iterdir()) for one in spool.read(path)]


def marks(node: Node) -> int:
    """Of messages that the node's queues have, and its own files may have, too. The node is stopped."""
    found = 0
    for number in layout.numbers(node.mta.folder):
        store = Store(layout.folder_of(node.mta.folder, number) / "store")
        found += len(list(store.keys(keys.SPOOLED, keys.end(keys.SPOOLED))))
        store.close()
    return found


async def test_without_a_quorum_mail_is_taken_and_comes_once_after_the_node_died_and_is_back(tmp_path: Path) -> None:
    """Its own queue has not been taken over: nobody could."""
    async with running(tmp_path) as (nodes, ledger, clients):
        a = nodes.all[0]
        await clients[0].hand_in(range(20), sessions=3)
        for server in nodes.servers.all[:2]:
            server.hang()
        await clients[0].hand_in(range(20, 60), sessions=5)
        assert await asyncio.to_thread(alone, a) >= 40
        quorum = Client(a.mta.port, ledger)
        other = asyncio.create_task(quorum.hand_in(range(60, 62), sessions=2))
        await until(lambda: quorum.replies[451])
        await clients[0].hand_in(range(62, 70), sessions=2)
        a.mta.kill("queue")
        await asyncio.sleep(1)
        a.mta.kill("all")
        assert len(spooled(a)) >= 48
        for server in nodes.servers.all[:2]:
            server.go_on()
        await asyncio.sleep(2)
        a.again()
        await other
        await until(lambda: not spooled(a))
        await judged(nodes, ledger)
        await asyncio.sleep(0.5)
        assert marks(a) == 0


@pytest.mark.parametrize("left", [False, True])
async def test_what_a_node_alone_had_comes_once_though_others_have_taken_its_queue_over(
    tmp_path: Path, left: bool
) -> None:
    """Some of it was in the queue's log already, and some was not. left: as if the queue stayed with the others."""
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, _ = nodes.all
        for zone in ("default", "bulk"):
            await nodes.asked(b, "stop", kind="zone", name=zone)
        await clients[0].hand_in(range(30), sessions=3)
        had = home(a)
        await until(lambda: total(b) > 0)
        a.cut(True)
        await clients[0].hand_in(range(30, 60), sessions=1)
        a.mta.kill("all")
        there = len(spooled(a))
        assert there >= 30
        await until(lambda: owners(b)[had] in "bc")
        for zone in ("default", "bulk"):
            await nodes.asked(b, "lift", kind="zone", name=zone)
        await nodes.drained_by(b)
        if left:
            place = a.mta.folder / "queues" / spool.SPOOL / str(had)
            place.rename(place.with_name(f"{had}{spool.LEFT}-1"))
        a.cut(False)
        a.again()
        await until(lambda: not spooled(a))
        await judged(nodes, ledger)


def test_without_a_cluster_it_is_refused() -> None:
    for section in ({"listeners": [{"durability": "node"}]}, {"http": {"durability": "node"}}):
        with pytest.raises(ValueError, match="is for a node of a cluster"):
            Config.model_validate(section)


async def test_what_does_not_fit_waits_for_the_quorum(tmp_path: Path) -> None:
    async with running(tmp_path, large=1.0) as (nodes, ledger, clients):
        a = nodes.all[0]
        a.mta.kill("all")
        file = a.mta.config_file
        file.write_text(file.read_text().replace("[cluster]\n", "[cluster]\nnode_bytes = 1048576\n"))
        a.again()
        await a.mta.taking()
        big = clients[0]
        for server in nodes.servers.all[:2]:
            server.hang()
        work = asyncio.create_task(big.hand_in(range(60), sessions=8))
        await until(lambda: big.replies[451])
        assert 1 <= big.replies[250] < 60
        for server in nodes.servers.all[:2]:
            server.go_on()
        await work
        await judged(nodes, ledger)

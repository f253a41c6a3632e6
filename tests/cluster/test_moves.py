"""Messages that go from node to node, with real nodes: mail of a zone to the node that can send it, by order, and to
balance them; each comes once, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from nats_servers import program
from survival.cluster import Node, Nodes

from tests.cluster.test_nodes_run import home, judged, owners, running, until
from zonemta_py.cluster.moves import LEAST, Step, balanced
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.wire.blocking_client import QueueGone, ask

needs_servers = pytest.mark.skipif(not program(), reason="nats-server is not installed")
pytestmark = pytest.mark.timeout(240)
ZONES = ("default", "bulk")
ELSEWHERE = 'sources = ["192.0.2.7"]\n'
"""Of zone bulk, the last one of a node's configuration: an address that this machine does not have."""


def test_nodes_are_balanced_by_zone_among_those_that_can_send_it() -> None:
    zones = {"a": ["x", "y"], "b": ["x"], "c": ["x", "y"]}
    waiting = {"a": {"x": 90, "y": 40}, "b": {"x": 0}, "c": {"x": 0, "y": 20, "z": 500}}
    assert balanced(waiting, zones) == [Step("x", "a", "b", 30), Step("x", "a", "c", 30), Step("y", "a", "c", 10)]
    for seed in range(50):
        die = random.Random(seed)
        nodes = "abcde"[: die.randint(1, 5)]
        zones = {node: [zone for zone in "xyz" if die.random() < 0.7] for node in nodes}
        waiting = {node: {zone: die.randint(0, 300) for zone in zones[node]} for node in nodes}
        for step in balanced(waiting, zones):
            waiting[step.giver][step.zone] -= step.recipients
            waiting[step.taker][step.zone] += step.recipients
        for zone in "xyz":
            counts = [waiting[node][zone] for node in nodes if zone in zones[node]]
            assert not counts or max(counts) - min(counts) < LEAST
        assert balanced(waiting, zones) == []


async def stopped(nodes: Nodes, stop: bool = True) -> None:
    for zone in ZONES:
        await nodes.asked(nodes.all[1], "stop" if stop else "lift", kind="zone", name=zone)


async def moved(nodes: Nodes, node: Node, **what: Any) -> int:
    """How many recipients went, until none did."""
    count = idle = 0
    while idle < 5:
        try:
            step = await nodes.asked(node, "cluster-move-zone", **what)
        except (QueueRefusal, QueueGone):
            await asyncio.sleep(0.2)
            continue
        count += step["recipients"]
        if not step["left"]:
            return count
        idle = 0 if step["recipients"] else idle + 1
        await asyncio.sleep(0.1 * bool(idle))
    return count


def waiting(node: Node) -> dict[str, int]:
    """In zone bulk, by node."""
    found = node.mta.ask("cluster-balance", dry_run=True)["waiting"]
    return {name: zones.get("bulk", 0) for name, zones in found.items()}


def reasons(node: Node, zone: str) -> str:
    """Why its mail waits."""
    rows = node.mta.ask("explain", what=zone)["rows"]
    return " ".join(str(reason) for row in rows for reason in row["reasons"])


@needs_servers
async def test_mail_of_a_zone_moves_by_order_while_nodes_are_killed(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, c = nodes.all
        await stopped(nodes)
        for at, client in enumerate(clients):
            await client.hand_in(range(at, 150, 3), sessions=3)
        before = sum((await asyncio.to_thread(waiting, b)).values())
        work = asyncio.ensure_future(moved(nodes, b, zone="bulk", to="b"))
        for node, what in ((a, "queue"), (b, "queue"), (b, "authority"), (c, "queue")):
            await asyncio.sleep(0.2)
            node.mta.kill(what)
        await work
        await until(lambda: waiting(b) == {"a": 0, "b": before, "c": 0})
        await stopped(nodes, stop=False)
        await judged(nodes, ledger)


@needs_servers
async def test_nodes_are_balanced_by_order(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        await stopped(nodes)
        await clients[0].hand_in(range(150), sessions=3)
        plan = await nodes.asked(nodes.all[2], "cluster-balance", dry_run=True)
        assert plan["steps"]
        assert not plan["recipients"]
        for _ in range(20):
            if not (await nodes.asked(nodes.all[2], "cluster-balance"))["steps"]:
                break
        counts = (await asyncio.to_thread(waiting, nodes.all[1])).values()
        assert max(counts) - min(counts) < LEAST
        await stopped(nodes, stop=False)
        await judged(nodes, ledger)


@needs_servers
async def test_mail_goes_to_the_node_that_has_the_addresses_of_its_zone(tmp_path: Path) -> None:
    async with running(tmp_path, more=ELSEWHERE) as (nodes, ledger, clients):
        a, _, c = nodes.all
        await clients[0].hand_in(range(30), sessions=3)
        await until(lambda: waiting(a)["a"])
        await until(lambda: "'away'" in reasons(a, "bulk"))
        c.mta.config_file.write_text(c.mta.config_file.read_text().replace(ELSEWHERE, ""))
        await asyncio.to_thread(ask, c.mta.folder, "reload")
        await clients[1].hand_in(range(30, 60), sessions=3)
        a.mta.kill("queue")
        await judged(nodes, ledger)


@needs_servers
async def test_mail_of_a_dead_nodes_zone_waits_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, c = nodes.all
        for node in (a, b):
            text = node.mta.config_file.read_text()
            first, _, rest = text.partition('[[zones]]\nname = "bulk"')
            node.mta.config_file.write_text(first + rest[rest.index("\n[") :])
            await asyncio.to_thread(ask, node.mta.folder, "reload")
        await nodes.asked(b, "stop", kind="zone", name="bulk")
        await clients[2].hand_in(range(60), sessions=3)
        count, lost = (await asyncio.to_thread(waiting, c))["c"], home(c)
        assert count
        c.mta.kill("all")
        await until(lambda: owners(b)[lost] in "ab")
        await nodes.asked(b, "lift", kind="zone", name="bulk")
        await until(lambda: sum(waiting(b).values()) == count)
        await until(lambda: "lives on node c, which is away since" in reasons(b, "bulk"))
        await until(lambda: sum(one["away"].get("bulk", 0) for one in ask(b.mta.folder, "cluster")["nodes"]) == count)
        c.again()
        await judged(nodes, ledger)

"""Three nodes on three NATS servers, as real processes: what one has accepted comes, whatever becomes of it, and any of
them answers for all."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats_servers import program
from ports import free_port
from survival.client import Client
from survival.cluster import Node, Nodes
from survival.ledger import Ledger
from survival.rig import Mta, enter, sink

from zonemta_py.cluster.join import FURNISHING, NUMBERS
from zonemta_py.config import load
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queues import layout
from zonemta_py.queues.client import Cluster, Queues
from zonemta_py.queues.placement import of
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import QueueGone, ask, ask_at

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(not program(), reason="nats-server is not installed")]


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[tuple[Nodes, Ledger, list[Client]]]:
    ledger = Ledger()
    async with sink(ledger) as destination:
        nodes = Nodes(folder, destination.port, processes=1, **settings)
        try:
            await nodes.start()
            yield nodes, ledger, [Client(node.mta.port, ledger) for node in nodes.all]
        finally:
            nodes.end()
            enter(destination, ledger)


async def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end, said = time.monotonic() + seconds, ""

    def happened() -> bool:
        nonlocal said
        try:
            return bool(true())
        except ValueError as error:  # a node that cannot answer now says: ask again
            said = str(error)
            return False

    while not await asyncio.to_thread(happened):
        assert time.monotonic() < end, f"it did not happen; {said}"
        await asyncio.sleep(0.1)


def owners(node: Node) -> dict[int, str]:
    return {row["queue"]: row["node"] for row in ask(node.mta.folder, "cluster")["queues"]}


def home(node: Node) -> int:
    return layout.home_of(node.mta.folder)


def total(node: Node) -> int:
    found: dict[str, int] = node.mta.ask("size")["total"]
    return sum(found[state] for state in ("queued", "leased", "deferred"))


async def judged(nodes: Nodes, ledger: Ledger) -> None:
    await nodes.drained()
    in_doubt = await asyncio.to_thread(nodes.all[0].mta.in_doubt)
    nodes.end()
    await asyncio.sleep(0.5)
    assert not ledger.judge(in_doubt).broken
    for node in nodes.all:
        assert not await node.mta.problems()


async def test_the_mail_of_a_dead_node_comes_from_another_until_the_node_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, _ = nodes.all
        await nodes.asked(b, "stop", kind="zone", name="default")
        await nodes.asked(b, "stop", kind="zone", name="bulk")
        for at, client in enumerate(clients):
            await client.hand_in(range(at, 90, 3), sessions=3)
        waiting, lost = await asyncio.to_thread(total, b), home(a)
        a.mta.kill("all")
        await until(lambda: owners(b)[lost] in "bc")
        await until(lambda: total(b) == waiting)
        a.again()
        await until(lambda: owners(b)[lost] == a.name)
        assert home(a) == lost
        assert list((a.mta.folder / "queues").glob(f"{lost}.gone-*"))
        assert len(owners(b)) == 3
        await until(lambda: total(b) == waiting)
        await clients[0].hand_in(range(90, 100))
        for zone in ("default", "bulk"):
            await nodes.asked(a, "lift", kind="zone", name=zone)
        await judged(nodes, ledger)


async def test_a_node_that_slept_until_it_was_replaced_sends_nothing_and_begins_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, _ = nodes.all
        await nodes.asked(b, "stop", kind="zone", name="default")
        await clients[0].hand_in(range(40), sessions=3)
        slept = home(a)
        a.signal(signal.SIGSTOP)
        await until(lambda: owners(b)[slept] in "bc")
        await nodes.asked(b, "lift", kind="zone", name="default")
        await nodes.drained_by(b)
        a.signal(signal.SIGCONT)
        await until(lambda: owners(b)[slept] == a.name)
        await clients[0].hand_in(range(40, 60))
        await judged(nodes, ledger)


async def test_a_node_that_is_cut_off_refuses_mail_and_loses_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a = nodes.all[0]
        await clients[0].hand_in(range(20))
        a.cut(True)
        cut = asyncio.create_task(clients[0].hand_in(range(20, 30), sessions=1))
        await clients[1].hand_in(range(30, 50))
        await until(lambda: 451 in clients[0].replies or clients[0].broken)
        a.cut(False)
        await cut
        await judged(nodes, ledger)


async def test_draining_to_the_cluster_gives_all_mail_away_until_the_node_is_back_and_queues_can_be_moved(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (nodes, ledger, clients):
        a, b, _ = nodes.all
        for zone in ("default", "bulk"):
            await nodes.asked(b, "stop", kind="zone", name=zone)
        await clients[0].hand_in(range(40), sessions=3)
        gives, waiting = home(a), await asyncio.to_thread(total, b)
        begun = time.monotonic()
        await asyncio.to_thread(a.mta.ask, "drain", for_s=30.0, by="a test", to_cluster=True)
        assert await asyncio.to_thread(a.mta.waited) == 0
        await until(lambda: owners(b)[gives] in "bc")
        await until(lambda: total(b) == waiting)
        assert time.monotonic() - begun < 30
        holder = next(node for node in nodes.all if node.name == owners(b)[gives])
        other = next(node for node in nodes.all if node.name in "bc" and node is not holder)
        await asyncio.to_thread(b.mta.ask, "cluster-move", number=gives, node=other.name)
        await until(lambda: owners(b)[gives] == other.name)
        await until(lambda: total(b) == waiting)
        with pytest.raises(ValueError, match="drain --to-cluster"):
            await asyncio.to_thread(
                b.mta.ask, "cluster-move", number=home(b), node=other.name if other is not b else "c"
            )
        a.again()
        await until(lambda: owners(b)[gives] == a.name)
        for zone in ("default", "bulk"):
            await nodes.asked(a, "lift", kind="zone", name=zone)
        await judged(nodes, ledger)


async def test_an_order_to_one_node_holds_on_all_also_for_a_queue_whose_node_has_died(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, _, _):
        a, b, c = nodes.all
        await nodes.asked(a, "stop", kind="zone", name="default")
        await nodes.asked(c, "stop", kind="domain", name="nowhere.test")
        for node in nodes.all:
            names = {row["name"] for row in await nodes.asked(node, "standing")}
            assert names >= {"default", "nowhere.test"}
        c.mta.kill("all")
        begun = time.monotonic()
        await nodes.asked(b, "lift", kind="zone", name="default")
        assert time.monotonic() - begun < 20
        await until(lambda: c.name not in owners(b).values())
        await until(lambda: len(owners(b)) == 3 and "default" not in {row["name"] for row in b.mta.ask("standing")})


def keyed(number: int) -> Envelope:
    to = [Recipient("r@one.test")]
    return Envelope(sender="s@x.test", recipients=to, request=f"{number:032x}", digest=b"d" * 32)


def known(node: Node) -> dict[str, str]:
    """The queues of the cluster, as those processes know them that place mail."""
    path = node.mta.folder / "queues" / layout.NODES
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


_ONCE = b"Subject: once\r\n\r\nonce\r\n"


def face(mta: Mta) -> Queues:
    """As a receiver of that node places mail."""
    config = load(mta.config_file)
    config = config.with_queues(layout.home_of(config.folder), layout.numbers(config.folder))
    return Queues(config.folder, of(config), "test", 0, Cluster(config))


async def accepted(face: Queues, envelope: Envelope, body: bytes) -> Receipt:
    """A refusal for now (451), as when the connection between two agents has just begun anew, is tried again."""
    while True:
        try:
            return await face.accept(envelope, body)
        except QueueRefusal:
            await asyncio.sleep(0.2)


def _suspended(node: Node, queue: int) -> set[str] | None:
    """As that queue says; None: it does not answer yet."""
    try:
        rows = ask_at(layout.folder_of(node.mta.folder, queue) / SOCKET, "standing")
    except (QueueGone, OSError, ValueError):
        return None
    return {row["name"] for row in rows if row["kind"] == "domain"}


async def test_a_node_that_joins_later_has_what_all_have(tmp_path: Path) -> None:
    """Suppressions, stops, and what an MTA had that was alone before; though the orders are kept no more. And keys of
    requests: some of them are the new queue's now."""
    ledger = Ledger()
    async with sink(ledger) as destination:
        nodes = Nodes(tmp_path, destination.port, processes=1)
        a, b, c = nodes.all
        nodes.servers.start()
        try:
            for node in (a, b):
                await node.start()
                await node.mta.taking()
            rows = [[f"p{number}@one.test", "manual"] for number in range(300)]
            await asyncio.to_thread(a.mta.ask, "suppress", rows=rows)
            await asyncio.to_thread(b.mta.ask, "stop", kind="domain", name="two.test")
            await asyncio.to_thread(b.mta.ask, "stop", kind="domain", name="nowhere.test")
            await asyncio.to_thread(b.mta.ask, "lift", kind="domain", name="nowhere.test")
            await until(lambda: len(known(a)) == len(known(b)) == 2)
            before = face(a.mta)
            receipts = [await accepted(before, keyed(number), _ONCE) for number in range(30)]
            await c.start()
            await until(lambda: (c.mta.folder / "queues" / FURNISHING / NUMBERS).exists())
            c.mta.kill("all")  # before it has what all have
            c.again()
            await c.mta.taking()
            assert sorted(owners(a)) == [1, 2, 3]
            own = c.mta.folder
            assert {row["name"] for row in ask_at(own / SOCKET, "standing")} >= {"two.test"}
            assert len(ask_at(own / SOCKET, "suppressions", limit=1000)["rows"]) == 300
            assert "lacks orders" not in a.mta.log.read_text() + b.mta.log.read_text() + c.mta.log.read_text()
            await until(lambda: all(len(known(node)) == 3 for node in nodes.all))
            for again in (face(c.mta), face(a.mta)):
                for number, receipt in enumerate(receipts):
                    assert await accepted(again, keyed(number), _ONCE) == receipt._replace(repeated=True)
            c.mta.kill("all")
            await asyncio.to_thread(c.mta.dead)
            store = Store(own / "store")
            assert store.get(keys.ORDERED) is not None, "who takes it over knows which orders it has carried out"
            store.close()
            await until(lambda: c.name not in owners(a).values())
            taker = next(node for node in (a, b) if node.name == owners(a)[3])
            await asyncio.to_thread(a.mta.ask, "lift", kind="domain", name="two.test")
            await until(lambda: _suspended(taker, 3) == set())
            assert "lacks orders" not in a.mta.log.read_text() + b.mta.log.read_text()
        finally:
            nodes.end()


async def test_the_dashboard_shows_the_nodes(tmp_path: Path) -> None:
    port = free_port()
    more = f"[http]\nenabled = true\nport = {port}\ndashboard = true\n"
    async with running(tmp_path, more=more, count=1) as (nodes, _, _):
        mta = nodes.all[0].mta
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until(lambda: (mta.folder / "http.token").exists())
            token = (mta.folder / "http.token").read_text().strip()
            found = await client.get("/v1/cluster", headers={"Authorization": f"Bearer {token}"})
            assert [row["node"] for row in found.json()["nodes"]] == ["a"]
            await client.post("/dashboard/login", data={"key": token})
            page = await client.get("/dashboard/cluster")
            assert ("Cluster trial" in page.text, "leads" in page.text) == (True, True), page.text[:500]


async def test_a_key_and_a_named_queue_are_one_for_all_nodes(tmp_path: Path) -> None:
    """An idempotency key is answered with the first receipt, by whichever node it comes; what is pushed at one node can
    be taken at another."""
    async with running(tmp_path) as (nodes, _, _):
        await until(lambda: all(len(known(node)) == 3 for node in nodes.all))
        faces = [face(node.mta) for node in nodes.all]
        for number in range(6):
            receipts = [await accepted(one, keyed(number), _ONCE) for one in faces]
            assert len({receipt.id for receipt in receipts}) == 1
            assert [receipt.repeated for receipt in receipts] == [False, True, True]
        for number in range(3):
            name = f"letters{number}"
            pushed = Envelope(
                sender="", recipients=[Recipient(f"{name}@queue")], protocol="PULL", sending_zone=f"queue/{name}"
            )
            body = b"x" * 300_000 if number == 2 else b"Subject: hi\r\n\r\nhi\r\n"
            await accepted(faces[number], pushed, body)
            found = await faces[(number + 1) % 3].pull(name, wait_s=10)
            assert len(found) == 1
            assert await faces[(number + 1) % 3].ack(found[0].lease, found[0].id)

"""A campaign handed to the nodes of a cluster: each takes part, and one that dies costs nobody the mail, or gets it
twice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats_servers import program
from ports import free_port
from survival.cluster import Node, Nodes
from survival.ledger import Ledger
from survival.rig import sink

from zonemta_py.merge.compile import prepare
from zonemta_py.merge.load import load
from zonemta_py.pipeline.nodes.client import NodeAccess, NodeClient, NodeRefused
from zonemta_py.pipeline.nodes.groups import groups
from zonemta_py.pipeline.nodes.nodes import Announcement, bind
from zonemta_py.pipeline.nodes.nodes import Nodes as CampaignNodes
from zonemta_py.pipeline.prepare.chunks import PLAN
from zonemta_py.pipeline.prepare.suppressed import of_nodes
from zonemta_py.pipeline.send.campaign import send
from zonemta_py.pipeline.send.inject import inject
from zonemta_py.web.keys import hashed, new_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not program(), reason="nats-server is not installed")]

CHUNKS, EACH = 60, 20
TEMPLATE = 'subject = "Hello {{ name }}"\nfrom = "news@sender.net"\ntext = """\nDear {{ name }}\n"""\n'
_HTTP = """
[http]
enabled = true
port = {port}
[[http.keys]]
name = "campaigns"
hash = "{hash}"
role = "admin"
"""


class Running:
    """Three nodes with an HTTP listener each, and what came at their destination."""

    def __init__(self, folder: Path) -> None:
        self.key, self.came = new_key(), Counter[str]()
        self._folder, self._ready, self._end = folder, threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._failed: BaseException | None = None

    def __enter__(self) -> Running:
        self._thread.start()
        self._ready.wait(120)
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with sink(Ledger()) as destination:
            self._nodes = Nodes(self._folder, destination.port, processes=1)
            ports = [free_port() for _ in self._nodes.all]
            self.urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
            for node, port in zip(self._nodes.all, ports, strict=True):
                node.settings["more"] = _HTTP.format(port=port, hash=hashed(self.key))
            try:
                await self._nodes.start()
                self._ready.set()
                await self._end.wait()
            except BaseException as error:
                self._failed = error
                raise
            finally:
                self._ready.set()
                self._nodes.end()

    @property
    def nodes(self) -> list[Node]:
        return self._nodes.all

    def target(self, **changed: object) -> NodeAccess:
        return replace(NodeAccess(self.urls, self.key, patience_s=90), **changed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def announcement(folder: Path, name: str) -> Announcement:
    (folder / "letter.toml").write_text(TEMPLATE)
    return Announcement(name, "news@sender.net", prepare(load(folder / "letter.toml"), ["name"]).pack(), CHUNKS * EACH)


def planned(spark: SparkSession, name: str) -> DataFrame:
    rows = []
    for number in range(CHUNKS):
        recipients = [[f"{name}-{number}-{one}@d{one % 3}.net", f"N{one}"] for one in range(EACH)]
        body = {"campaign": name, "columns": ["name"], "zone": "", "source": "", "recipients": recipients}
        rows.append((f"main-{number:06d}", EACH, "", "", False, 0, number, json.dumps(body).encode()))
    return spark.createDataFrame(rows, PLAN)


def accepted(cluster: Running, name: str) -> int:
    with CampaignNodes(cluster.target()) as nodes:
        return int(nodes.status(name)["accepted"])


def test_nodes_of_one_cluster_are_one(cluster: Running) -> None:
    """Whatever is away, and whoever claims to be one."""
    (group,) = groups(cluster.target())
    assert (group.urls, group.name) == (cluster.urls, "trial")
    nobody = f"http://127.0.0.1:{free_port()}"
    (with_one_away,) = groups(cluster.target(nodes=(*cluster.urls[:2], nobody), patience_s=1.0))
    assert with_one_away.urls == (*cluster.urls[:2], nobody)
    other = group._replace(id="of another cluster")
    with NodeClient(other, cluster.target(patience_s=1.0)) as client, pytest.raises(NodeRefused, match="no node of"):
        client.campaigns()
    assert [*of_nodes(cluster.target(), {"all"})] == []


def test_a_node_that_dies_while_a_campaign_is_handed_in_costs_nobody_the_mail(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """Each once, though the node is killed, its queue taken over, and all of it handed in again, by the others too."""
    campaign = announcement(tmp_path, "may")
    with CampaignNodes(cluster.target()) as nodes:
        assert len(nodes.nodes) == 1
        nodes.announce(campaign)
        nodes.order("may", "pause", "test")
    killer = threading.Thread(target=strike, args=(cluster, "may"))
    killer.start()
    outcome = inject(planned(spark, "may"), cluster.target())
    killer.join()
    assert (outcome.chunks, outcome.accepted, outcome.away) == (CHUNKS, CHUNKS * EACH, {})
    bind(tmp_path, cluster.target(), "may")
    bind(tmp_path, cluster.target(nodes=cluster.urls[1:]), "may")
    again = inject(planned(spark, "may"), cluster.target(nodes=cluster.urls[1:]))
    assert (again.repeated, again.accepted) == (CHUNKS, CHUNKS * EACH)
    assert accepted(cluster, "may") == CHUNKS * EACH


def strike(cluster: Running, name: str) -> None:
    """Kills a node when some of the campaign is in, and starts it when others have its queue."""
    end = time.monotonic() + 60
    while not accepted(cluster, name) and time.monotonic() < end:
        time.sleep(0.01)
    cluster.nodes[0].mta.kill("all")
    time.sleep(8)
    cluster.nodes[0].again()


def test_a_whole_campaign_by_the_nodes_that_are_there(spark: SparkSession, cluster: Running, tmp_path: Path) -> None:
    """Announced, sent and completed with one node away all the time."""
    cluster.nodes[1].mta.kill("all")
    try:
        whole = send(planned(spark, "june"), announcement(tmp_path, "june"), cluster.target())
        assert whole.accepted == CHUNKS * EACH
        end = time.monotonic() + 90
        with CampaignNodes(cluster.target()) as nodes:
            while nodes.status("june")["delivered"] < CHUNKS * EACH:
                assert time.monotonic() < end, nodes.status("june")
                time.sleep(0.2)
            assert nodes.status("june")["delivered"] == CHUNKS * EACH
    finally:
        cluster.nodes[1].again()

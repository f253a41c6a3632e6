"""The writer against a real node: exactly once, whatever is killed; and what it says when it cannot go on."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.merge.compile import prepare
from zonemta_py.merge.load import load
from zonemta_py.pipeline.nodes.client import NodeAccess, NodeClient, NodeGone, NodeRefused
from zonemta_py.pipeline.nodes.nodes import Announcement
from zonemta_py.pipeline.prepare.chunks import PLAN
from zonemta_py.pipeline.send.campaign import CampaignStopped, send
from zonemta_py.pipeline.send.errors import InjectionFailed, InjectionStopped
from zonemta_py.pipeline.send.inject import inject
from zonemta_py.pipeline.send.writer import ZonemtaDataSource, node_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "pipeline" / "kills_inject.py"
CHUNKS, EACH = 90, 20
ROUNDS = (("node",), ("node", "task"))
"""Who is killed; scripts/pipeline/kills_inject.py kills each alone, and the driver, often."""


@pytest.fixture(scope="module")
def kills() -> Any:
    spec = importlib.util.spec_from_file_location("kills_inject", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def node(kills: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with kills.Node(tmp_path_factory.mktemp("node")) as one:
        yield one


def target(node: Any, **changed: Any) -> NodeAccess:
    values = {
        "nodes": (node.url,),
        "key": node.token.read_text().strip(),
        "key_file": str(node.token),
        "patience_s": 60,
    }
    return NodeAccess(**values | changed)


def announcement(kills: Any, folder: Path, name: str, **changed: Any) -> Announcement:
    (folder / "letter.toml").write_text(kills.TEMPLATE)
    packed = prepare(load(folder / "letter.toml"), ["name"]).pack()
    return Announcement(**{"name": name, "sender": "news@sender.net", "template": packed, **changed})


def planned(spark: "SparkSession", name: str, chunks: int = CHUNKS, canary: int = 0) -> "DataFrame":
    """A plan's rows: chunks of EACH recipients."""
    rows = []
    for number in range(chunks):
        recipients = [[f"{name}-{number}-{one}@d{one % 3}.net", f"N{one}"] for one in range(EACH)]
        body = {"campaign": name, "columns": ["name"], "zone": "", "source": "", "recipients": recipients}
        rows.append((f"main-{number:06d}", EACH, "", "", number < canary, 0, number, json.dumps(body).encode()))
    return spark.createDataFrame(rows, PLAN)


def announce(node: Any, campaign: Announcement) -> None:
    with NodeClient(node.url, target(node)) as one:
        one.put_campaign(campaign.name, campaign.template, sender=campaign.sender)


def everyone(name: str, chunks: int = CHUNKS) -> set[str]:
    return {f"{name}-{number}-{one}@d{one % 3}.net" for number in range(chunks) for one in range(EACH)}


def test_exactly_once_whatever_is_killed(spark: "SparkSession", kills: Any, node: Any, tmp_path: Path) -> None:
    """Two rounds: the node with SIGKILL during the injection, then it and a task's worker; then all of it again.

    While it is paused nothing is delivered, so that the sink shows doubles of the injection alone.
    """
    chance = random.Random(3)
    for number, victims in enumerate(ROUNDS):
        name = f"round{number}"
        announce(node, announcement(kills, tmp_path, name))
        node.ask("campaign-pause", name=name, cause="test")
        rows = planned(spark, name)
        killer = threading.Thread(target=strike, args=(node, name, victims, chance.uniform(0, 0.1)))
        killer.start()
        attempts = 0
        while True:
            try:
                outcome = inject(rows, target(node))
                break
            except InjectionFailed:  # a killed worker ends the job, as it would the driver's command
                attempts += 1
                if attempts > 3:
                    raise
        killer.join()
        assert (outcome.chunks, outcome.accepted) == (CHUNKS, CHUNKS * EACH)
        again = inject(rows, target(node))
        assert (again.repeated, again.accepted) == (CHUNKS, CHUNKS * EACH)
        assert kills.judge(node, name, everyone(name)) == []
        node.ask("campaign-resume", name=name, cause="test")
        node.wait_for(name)
    assert node.came(len(ROUNDS) * CHUNKS * EACH) == Counter(
        {who: 1 for number in range(len(ROUNDS)) for who in everyone(f"round{number}")}
    )


def strike(node: Any, name: str, victims: tuple[str, ...], after_s: float) -> None:
    end = time.monotonic() + 60
    while not node.ask("campaign", name=name)["accepted"] and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(after_s)
    if "task" in victims:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
    if "node" in victims:
        node.kill()
        node.start()


def workers() -> list[int]:
    """Python workers of this process's Spark, without the daemon that makes them."""
    found, queue = [], [os.getpid()]
    while queue:
        pid = queue.pop()
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone in between
                children = [int(child) for child in (thread / "children").read_text().split()]
                queue += children
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found += children
    return found


def test_a_refused_chunk_is_named_with_the_nodes_sentence(
    spark: "SparkSession", kills: Any, node: Any, tmp_path: Path
) -> None:
    """Other content under a key that was used is no repeat: the job fails and says which chunk."""
    announce(node, announcement(kills, tmp_path, "changed"))
    inject(planned(spark, "changed", 3), target(node))
    with pytest.raises(InjectionFailed, match=r"chunk main-00000\d: .*key"):
        inject(planned(spark, "changed", 3).replace({"main-000000": "main-000001"}, subset="chunk"), target(node))


def test_a_node_that_is_away_is_named_and_the_rest_goes_on(
    spark: "SparkSession", kills: Any, node: Any, tmp_path: Path
) -> None:
    """What belongs to the node that is there is in; the sentence says whose is not, and how to go on."""
    announce(node, announcement(kills, tmp_path, "away"))
    gone = f"http://127.0.0.1:{kills.free_port()}"
    rows = planned(spark, "away", 20)
    with pytest.raises(InjectionFailed, match=f"{gone} .* chunks.*continue with --resume"):
        inject(rows, target(node, nodes=(node.url, gone), patience_s=0.5))
    mine = sum(node_of(f"main-{number:06d}", (node.url, gone)) == node.url for number in range(20))
    assert 0 < mine < 20
    assert node.ask("campaign", name="away")["accepted"] == mine * EACH


def test_send_announces_sends_the_canary_and_completes(
    spark: "SparkSession", kills: Any, node: Any, tmp_path: Path
) -> None:
    """The canary is delivered before the rest leaves; at the end the campaign is complete, and again is the same."""
    steps: list[str] = []
    campaign = announcement(kills, tmp_path, "whole", planned=10 * EACH)
    outcome = send(planned(spark, "whole", 10, canary=2), campaign, target(node), say=steps.append)
    assert (outcome.chunks, outcome.accepted) == (10, 10 * EACH)
    assert steps == [
        "announce the campaign", "send the canary", "wait for the canary's results", "send",
    ]  # fmt: skip
    node.wait_for("whole")
    assert node.ask("campaign", name="whole")["state"] in ("complete", "ended")
    assert kills.judge(node, "whole", everyone("whole", 10)) == []


def test_a_paused_campaign_stops_the_injection(spark: "SparkSession", kills: Any, node: Any, tmp_path: Path) -> None:
    """The sentence has the cause, and says how to go on."""
    campaign = announcement(kills, tmp_path, "paused")
    announce(node, campaign)
    node.ask("campaign-pause", name="paused", cause="3 of 10 attempts were blocked")
    with pytest.raises(CampaignStopped, match="3 of 10 attempts were blocked; `zonemta campaign resume paused`"):
        send(planned(spark, "paused", 4), campaign, target(node))
    away = target(node, nodes=(f"http://127.0.0.1:{kills.free_port()}",))
    with pytest.raises(InjectionStopped, match="enough"):
        inject(planned(spark, "paused", 4), away, stop=lambda: "enough")


def test_mistakes_of_nodes_and_keys(spark: "SparkSession", node: Any, kills: Any) -> None:
    """Each is one sentence that names the node."""
    with pytest.raises(ValueError, match="'localhost:1' is not the URL of a node; write it like http"):
        NodeAccess(("localhost:1",), "k")
    with NodeClient(node.url, target(node, key="wrong", key_file="")) as one, pytest.raises(NodeRefused, match="key"):
        one.campaigns()
    away = f"http://127.0.0.1:{kills.free_port()}"
    with (
        NodeClient(away, target(node, patience_s=0)) as one,
        pytest.raises(NodeGone, match=f"{away}: .* does not answer"),
    ):
        one.campaigns()
    spark.dataSource.register(ZonemtaDataSource)
    with pytest.raises(Exception, match="the rows have no column chunk; write the rows of a plan"):
        spark.range(1).write.format("zonemta").option("nodes", node.url).mode("append").save()


def test_a_chunk_always_goes_to_the_same_node() -> None:
    """Whatever the order in which nodes are named; when one comes on top, no chunk moves but to that one."""
    nodes = [f"http://10.0.0.{number}:8525" for number in range(4)]
    keys = [f"main-{number}" for number in range(400)]
    before = {key: node_of(key, nodes[:3]) for key in keys}
    assert before == {key: node_of(key, reversed(nodes[:3])) for key in keys}
    assert {key: node_of(key, nodes) for key in keys if node_of(key, nodes) != nodes[3]}.items() <= before.items()
    assert min(Counter(before.values()).values()) > 90


@pytest.mark.parametrize(
    "url", ["http://mx.example.com:8525", "http://192.0.2.1:8525", "http://10.0.0.1", "http://[fd00::1]"]
)
def test_a_key_never_travels_in_the_clear(url: str) -> None:
    """Plain HTTP is for this machine; elsewhere whoever listens would have the key."""
    with pytest.raises(ValueError, match="would get the API key in the clear; write https://"):
        NodeAccess((url,), "k")
    NodeAccess((url.replace("http://", "https://"), "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"), "k")

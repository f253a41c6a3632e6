"""A canary that goes wrong, plans that know their nodes, and what Spark says of a list, as a person sees it."""

import datetime
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.cli.campaign.settings import with_recipient
from zonemta_py.cli.campaign.work import Work, _events, read_columns, sentences
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.load import load
from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.nodes.nodes import Announcement, OtherNodes, bind
from zonemta_py.pipeline.prepare.chunks import PLAN
from zonemta_py.pipeline.send.campaign import CampaignStopped, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "pipeline" / "kills_inject.py"
CHUNKS, CANARY, EACH = 8, 4, 30


@pytest.fixture(scope="module")
def kills() -> Any:
    spec = importlib.util.spec_from_file_location("kills_inject", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def node(kills: Any, tmp_path: Path) -> Iterator[Any]:
    with kills.Node(tmp_path / "node", rules=["rcpt:/^canary.*@d[01]/ 450 4.2.1 later"]) as one:
        yield one


def recipients(number: int) -> list[str]:
    kind = "canary" if number < CANARY else "main"
    return [f"{kind}-{number}-{one}@d{one % 3}.net" for one in range(EACH)]


def planned(spark: "SparkSession") -> "DataFrame":
    rows = []
    for number in range(CHUNKS):
        all_ = [[one, "Ada"] for one in recipients(number)]
        body = {"campaign": "may", "columns": ["name"], "zone": "", "source": "", "recipients": all_}
        rows.append((f"chunk-{number}", EACH, "", "", number < CANARY, 0, number, json.dumps(body).encode()))
    return spark.createDataFrame(rows, PLAN)


def test_a_canary_that_goes_wrong_stops_the_campaign(
    spark: "SparkSession", kills: Any, node: Any, tmp_path: Path
) -> None:
    """The node pauses it by itself, and nothing but the canary has left; after resume everyone is in exactly once."""
    (tmp_path / "letter.toml").write_text(kills.TEMPLATE)
    packed = prepare(load(tmp_path / "letter.toml"), ["name"]).pack()
    # More than half of the canary: what is left of it when it is paused cannot pause it again after the resume.
    bounds = {"least": 2 * CANARY * EACH // 3, "deferred": 0.3}
    campaign = Announcement("may", "news@sender.net", packed, bounds=bounds)
    target = NodeAccess((node.url,), node.token.read_text().strip(), 60)
    for _ in range(2):  # while it is paused, sending again says the same
        with pytest.raises(
            CampaignStopped, match=r"may is paused .* attempts were deferred .*`zonemta campaign resume"
        ):
            send(planned(spark), campaign, target)
    assert node.ask("campaign", name="may")["accepted"] == CANARY * EACH
    node.ask("campaign-resume", name="may", cause="")
    assert send(planned(spark), campaign, target).accepted == CHUNKS * EACH
    assert kills.judge(node, "may", {one for number in range(CHUNKS) for one in recipients(number)}) == []


def test_a_plan_keeps_to_its_nodes(node: Any, tmp_path: Path) -> None:
    """Under other URLs chunks would go to other nodes, and be taken again; a single node that knows it may move."""
    key = node.token.read_text().strip()
    two = NodeAccess(("http://127.0.0.1:1", "http://127.0.0.1:2"), key)
    bind(tmp_path, two, "may")
    bind(tmp_path, NodeAccess(("http://127.0.0.1:2/", "http://127.0.0.1:1"), key), "may")
    for other in (("http://localhost:1", "http://localhost:2"), ("http://127.0.0.1:1",)):
        with pytest.raises(
            OtherNodes, match=r"campaign may was started with http://127.0.0.1:1, http://127.0.0.1:2; .*--nodes"
        ):
            bind(tmp_path, NodeAccess(other, key), "may")
    (tmp_path / "nodes.json").write_text('["http://127.0.0.1:1"]')
    with pytest.raises(OtherNodes):
        bind(tmp_path, NodeAccess((node.url,), key), "may")
    node.ask("campaign-put", **put(tmp_path))
    bind(tmp_path, NodeAccess((node.url,), key), "may")


def put(folder: Path) -> dict[str, Any]:
    (folder / "plain.toml").write_text('subject = "Hi"\nfrom = "a@sender.net"\ntext = """\nx\n"""\n')
    return {"name": "may", "sender": "a@sender.net", "template": prepare(load(folder / "plain.toml"), []).pack()}


def test_what_spark_says_of_a_list_is_a_sentence(spark: "SparkSession", tmp_path: Path) -> None:
    """A damaged file, a value that is no number in a segment: said with what to mend; a bug of ours is none of that."""
    (tmp_path / "bad.parquet").write_text("nonsense")
    work = Work(None, "local[2]", 2, None)
    with pytest.raises(
        CommandError, match=r"the list cannot be read as asked: \[FAILED_READ_FILE.*correct the list"
    ) as caught:
        read_columns(work, str(tmp_path / "bad.parquet"), multiline=False)
    assert caught.value.code == Exit.DATA
    with (
        pytest.raises(CommandError, match=r"\[CAST_INVALID_INPUT\] The value 'n/a'.*the condition of --where"),
        sentences(),
    ):
        spark.createDataFrame([("n/a",), ("31",)], "age string").where("age > 30").collect()
    with pytest.raises(ZeroDivisionError), sentences():
        print(1 // 0)


def test_opens_of_a_file_and_of_the_lake(spark: "SparkSession", tmp_path: Path) -> None:
    """Both where both are there; of the lake what is genuine; a lake that has none adds nothing."""
    (tmp_path / "opens.csv").write_text("address,kind,at\nAnn@x.net,open,2026-05-01T08:00:00Z\n")
    lake, file = tmp_path / "lake", str(tmp_path / "opens.csv")
    assert _events(spark, "", None) is _events(spark, "", lake) is None
    assert _events(spark, file, lake).count() == 1
    at = datetime.datetime(2026, 5, 2, 9, tzinfo=datetime.UTC)
    came = [(f"{who}@x.net", "click", at, "may", proof, at.date()) for who, proof in (("bob", "token"), ("eve", ""))]
    kinds = "recipient string, kind string, at timestamp, campaign string, genuine string, day date"
    with table.locked(lake):
        table.write(lake, "feedback", spark.createDataFrame(came, kinds))
    for file_, people in ((file, {"ann@x.net", "bob@x.net"}), ("", {"bob@x.net"})):
        assert {row.address for row in _events(spark, file_, lake).collect()} == people


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["Who", "Name"], "it has 'Who', 'Name'; map one with --map email=COLUMN"),
        ([], "it has no columns at all"),
    ],
)
def test_a_list_that_names_no_recipient(names: list[str], said: str) -> None:
    """Said before the template is looked at, with what the list has."""
    with pytest.raises(CommandError) as caught:
        with_recipient({name: name for name in names}, "list.csv", names)
    assert said in caught.value.sentence

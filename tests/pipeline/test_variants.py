"""Templates that are tried on a part of a list: a real plan, a real node, and who gets what."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.test_canary import kills, node  # noqa: F401 (fixtures)
from zonemta_py.cli.campaign import settings as words
from zonemta_py.cli.campaign import variants
from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.nodes.nodes import Announcement, Nodes, OtherNodes, joined, store, stored
from zonemta_py.pipeline.prepare.plan import plan, rows
from zonemta_py.pipeline.prepare.settings import PlanRefused, Settings
from zonemta_py.pipeline.send.campaign import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = 400


def packed(subject: str) -> bytes:
    return prepare(TemplateSource("t", Text(subject), Text("news@sender.net"), text=Text("Hi {{ name }}\n"))).pack()


def test_a_part_gets_the_variants_and_the_rest_the_best(spark: "SparkSession", node: Any, tmp_path: Path) -> None:  # noqa: F811
    """Everybody once, and a seed each message, first; the rest not before it is chosen; sent again, nothing changes."""
    everyone = {f"user{number}@d{number % 3}.net" for number in range(PEOPLE)}
    (tmp_path / "list.csv").write_text("email,name\n" + "".join(f"{one},Ann\n" for one in sorted(everyone)))
    settings = Settings("may", fields={"name": "name"}, canary=0.3, variants=("a", "b"), chunk=100)
    made = plan(spark, settings, str(tmp_path / "list.csv"), tmp_path / "may.plan")
    choice = {"of": ["may.a", "may.b"], "metric": "clicks", "after_h": 0}
    campaign = Announcement(
        "may", "news@sender.net", packed("Plain"), planned=PEOPLE, choice=choice, seeds=("me@sender.net",),
        variants={"may.a": packed("Plain"), "may.b": packed("Bold")},
    )  # fmt: skip
    store(campaign, made.folder)
    assert stored(made.folder) == campaign
    target = NodeAccess((node.url,), node.token.read_text().strip(), 60)
    for _ in range(2):
        assert send(rows(spark, made.folder), campaign, target).accepted == PEOPLE + 3
    counts = {name: node.ask("campaign", name=name)["accepted"] for name in ("may.a", "may.b", "may")}
    assert sum(counts.values()) == PEOPLE + 3
    assert {who for _, who in node.accepted()} == everyone | {"me@sender.net"}
    assert 80 <= counts["may.a"] + counts["may.b"] <= 160
    assert min(counts["may.a"], counts["may.b"]) >= 20
    came = node.came(counts["may.a"] + counts["may.b"])
    assert len(came) == counts["may.a"] + counts["may.b"] - 1
    assert came["me@sender.net"] == 2
    assert node.ask("campaign", name="may")["state"] == "paused"
    with Nodes(target) as nodes:
        assert nodes.status("may")["variants"]["winner"] == ""
        nodes.decide("may", "may.b", "bold wins")
        assert nodes.status("may")["variants"]["winner"] == "may.b"
    assert node.came(PEOPLE + 3) == dict.fromkeys(everyone, 1) | {"me@sender.net": 3}


def test_several_nodes_choose_together() -> None:
    """Their figures are summed, and a winner is named."""
    row = {"state": "paused", "eta_ms": None, "history": [], "cause": ""}
    figures = [{"name": "may.a", "hits": 1, "of": 10}, {"name": "may.b", "hits": 2, "of": 10}]
    one = {"metric": "clicks", "decide_ms": 0, "winner": "", "figures": figures}
    whole = joined([row | {"variants": one}, row | {"variants": one}])
    assert whole["variants"]["figures"] == [
        {"name": "may.a", "hits": 2, "of": 20},
        {"name": "may.b", "hits": 4, "of": 20},
    ]
    with Nodes(NodeAccess(("http://127.0.0.1:1", "http://127.0.0.1:2"), "k", patience_s=0.1)) as nodes, pytest.raises(
        OtherNodes, match="each of 2 nodes knows only its own figures; name the variant"
    ):  # fmt: skip
        nodes.decide("may", "", "")


def test_seeds_are_addresses_or_a_file(tmp_path: Path) -> None:
    """Mistakes are named."""
    (tmp_path / "seeds").write_text("me@sender.net  # at a big provider\n\nyou@sender.net\nme@sender.net\n")
    assert words.seeds(str(tmp_path / "seeds")) == ("me@sender.net", "you@sender.net")
    assert (words.seeds("me@sender.net, you@x.net"), words.seeds("")) == (("me@sender.net", "you@x.net"), ())
    for given, said in (("me@@", "is not an address"), ("none", "cannot be read"), (" ,@", "is not an address")):
        with pytest.raises(CommandError, match=said):
            words.seeds(given)


def test_what_is_asked_for_variants() -> None:
    """As the help writes it; mistakes with their remedy."""
    found = variants.asked(["b=spring-b"], "10%", "opens", "90m", 1)
    assert (found.names, found.templates, found.share) == (("a", "b"), (Path("spring-b"),), 0.1)
    assert found.choice == {"metric": "opens", "after_h": 1.5}
    assert found.campaigns("spring") == ["spring.a", "spring.b"]
    assert variants.asked([], "10%", "opens", "4h", 1) == variants.Variants()
    assert variants.asked(["b=x"], "10%", "opens", "never", 2).choice["after_h"] == 0
    for given, share, after, nodes, said in (
        (["B=x"], "10%", "4h", 1, "--variant 'B' is not NAME=TEMPLATE"),
        (["a=x"], "10%", "4h", 1, "two are named alike"),
        (["b=x"], "10%", "soon", 1, "write 4h, 90m, 2d, or never"),
        (["b=x"], "10%", "4h", 2, "each of 2 nodes knows only its own figures"),
        (["b=x"], "100%", "4h", 1, "leaves nothing to try or to choose for"),
    ):
        with pytest.raises(CommandError, match=said):
            variants.asked(given, share, "clicks", after, nodes)
    with pytest.raises(PlanRefused, match="variants need some to be tried on"):
        Settings("x", variants=("a", "b"))

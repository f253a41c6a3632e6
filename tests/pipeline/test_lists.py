"""An issue of a newsletter, from its template to its plan: who has left that newsletter, at any node, is left out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.test_canary import kills, node  # noqa: F401 (fixtures)
from zonemta_py.cli.campaign.work import Work, sound
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.prepare.plan import rows
from zonemta_py.pipeline.prepare.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEMPLATE = '''subject = "Hi"
from = "news@sender.net"
text = """
x
"""
[headers]
List-Id = "Deals <Weekly.shop.example>"
'''


def test_who_has_left_a_newsletter_is_not_in_the_plan(spark: "SparkSession", node: Any, tmp_path: Path) -> None:  # noqa: F811
    """Of that list and tenant; who has left another list, or another tenant's, gets it."""
    left = {
        "left": "list:acme/weekly.shop.example", "all": "campaigns:acme", "kept-1": "list:acme/other.shop.example",
        "kept-2": "list:beta/weekly.shop.example", "kept-3": "list:weekly.shop.example",
    }  # fmt: skip
    entries = [[f"{name}@d1.net", "unsubscribe", "", "", "", "", 0, scope] for name, scope in left.items()]
    node.ask("suppress", rows=entries)
    (tmp_path / "list.csv").write_text("email\n" + "".join(f"{name}@d1.net\n" for name in [*left, "ann"]))
    (tmp_path / "letter.toml").write_text(TEMPLATE)
    work = Work(NodeAccess((node.url,), node.token.read_text().strip(), 60), "local[2]", 2, None)
    work.__dict__["spark"] = spark
    *_, list_id = sound(tmp_path / "letter.toml", {})
    settings, csv = Settings("weekly-8", chunk=100), str(tmp_path / "list.csv")
    made = work.plan(settings, csv, tmp_path / "weekly-8.plan", "", "", tenant="acme", list_ids=[list_id])
    (chunk,) = rows(spark, made.folder).collect()
    assert all(f'"{name}@d1.net"'.encode() in chunk.body for name in ("kept-1", "kept-2", "kept-3", "ann"))
    assert (made.report["kept"], made.report["suppressed"][0]["n"]) == (4, 2)

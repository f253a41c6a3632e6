"""How often Spark is asked, counted, against the numbers in counts.json: what is read twice takes twice as long.

They are written down again when they fall; where one rises, the commit that writes down the new number says why.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.pipeline.lake import bronze, update
from zonemta_py.pipeline.prepare.plan import plan
from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.prepare.suppressed import read as read_suppressed
from zonemta_py.pipeline.report import facts
from zonemta_py.pipeline.report.scope import of_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("counts.json").read_text())
OPERATORS = {"csv": "Scan csv", "parquet": "Scan parquet", "python": "EvalPython"}


@contextmanager
def counted(spark: "SparkSession") -> Iterator[dict[str, int]]:
    """jobs, queries, and how often these, all plans together, read files and ask Python workers (OPERATORS)."""
    context, found = spark.sparkContext._jsc.sc(), dict[str, int]()
    known = spark._jsparkSession.sharedState().statusStore()

    def so_far() -> tuple[int, int]:
        context.listenerBus().waitUntilEmpty()
        return context.statusStore().jobsList(None).size(), known.executionsList().size()

    jobs, queries = so_far()
    yield found
    jobs_after, queries_after = so_far()
    made = known.executionsList(queries, queries_after - queries)
    plans = [made.apply(number).physicalPlanDescription() for number in range(made.size())]
    trees = [text.partition("\n\n\n")[0].partition("== Initial Plan ==")[0] for text in plans]
    found |= {"jobs": jobs_after - jobs, "queries": queries_after - queries}
    found |= {name: sum(tree.count(words) for tree in trees) for name, words in OPERATORS.items()}


@pytest.fixture(scope="module")
def prepared(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Of a list with everything in it that takes a step of its own."""
    folder = tmp_path_factory.mktemp("counted")
    rows = [f"user{number % 290}@{'gmial.com' if number % 50 == 3 else 'big.net'},N{number}" for number in range(300)]
    rows += ["nobody,A", "x@b\u00fccher.net,B", "Y@Big.net,C", "only one column", "z@example.org,D"]
    (folder / "list.csv").write_text("email,name\n" + "\n".join(rows) + "\n")
    (folder / "out.csv").write_text("address,kind\nuser1@big.net,complaint\n")
    settings = Settings("may", fields={"name": "name"}, canary=0.1, providers={"big.net": "big"})
    with counted(spark) as found:
        made = plan(
            spark, settings, str(folder / "list.csv"), folder / "may.plan",
            lambda own: read_suppressed(own, str(folder / "out.csv")),
        )  # fmt: skip
    removed = {row["step"]: row["removed"] for row in made.report["steps"]}
    assert all(removed[step] for step in ("syntax", "bad row", "reserved domain", "duplicate", "suppressed"))
    assert made.report["typos"]
    return found


def test_a_list_is_read_once(prepared: dict[str, int]) -> None:
    """Once the list and once who is suppressed, each with its addresses judged once; everything else is of what that
    gave."""
    assert prepared == WRITTEN["prepare"]


def test_a_day_is_reported_in_few_queries(
    spark: "SparkSession", make_archive: Callable[..., Any], tmp_path: Path
) -> None:
    """From an archive to the facts of a page, by the tables that pages read."""
    make_archive(tmp_path / "archive", messages=40, days=1, seed=3)
    with counted(spark) as tables:
        bronze.ingest(spark, tmp_path / "archive", tmp_path / "lake")
        update.update(spark, tmp_path / "lake", [job.name for job in update.JOBS])
    with counted(spark) as page:
        found = facts.gather(spark, tmp_path / "lake", of_day(datetime(2026, 3, 2, tzinfo=UTC).date()))
    assert not found.empty
    assert {"tables": tables, "page": page} == {"tables": WRITTEN["tables"], "page": WRITTEN["page"]}

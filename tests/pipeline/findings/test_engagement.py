"""Opens, clicks and unsubscribes: who reads their mail, and what is no reading."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.pipeline.findings.engagement import engagement, events, told, unusable


@pytest.fixture(scope="module")
def found(spark: Any, attempts: Any, moment: Any) -> dict[str, Any]:
    to = {name: {"recipient": f"{name}@example.com", "days": 50} for name in ("Proxied", "reader", "late")}
    soon, later = 5 / 86_400, 0.1
    rows = [
        ("proxied", "open", 50 + soon, "spring"), ("proxied", "open", 50 + soon, ""),
        ("reader", "open", 50 + soon, "spring"), ("reader", "click", 50 + soon, "spring"),
        ("late", "open", 50 + later, "spring"), ("late", "open", 50 + later, "spring"), ("late", "open", 10, "winter"),
        ("late", "open", -80, "old"), ("late", "open", 90, "tomorrow"),
        ("gone", "click", 49, "spring"), ("gone", "unsubscribe", 49, "spring"),
        ("nobody", "glance", 49, ""),
    ]  # fmt: skip
    fed = [(f"{who}@example.com", kind, moment(days), campaign) for who, kind, days, campaign in rows]
    frame = spark.createDataFrame(fed, "address string, kind string, at timestamp, campaign string")
    assert unusable(frame).count() == 1
    result = engagement(frame, attempts(to.values()), moment(60), proxy_s=30).collect()
    return {row.address.partition("@")[0]: row for row in result}


def test_a_proxys_open_is_no_engagement(found: dict[str, Any]) -> None:
    """What was opened seconds after it came was opened by a machine, whether the campaign is named or not; a click is
    a person's, and makes a reader."""
    assert "proxied" not in found
    assert (found["reader"].last_open_at, found["reader"].clicks_30d) == (None, 1)


def test_opens_are_counted_by_their_age_and_once(found: dict[str, Any], moment: Any) -> None:
    """The same event fed in twice counts once; what lies in the future does not count; each span has its own count."""
    late = found["late"]
    assert (late.opens_30d, late.opens_90d) == (1, 2)
    assert late.last_open_at.timestamp() == moment(50.1).timestamp()
    assert late.score == pytest.approx(0.5 ** (9.9 / 30) + 0.5 ** (50 / 30) + 0.5 ** (140 / 30), abs=0.01)


def test_who_has_left_scores_nothing(found: dict[str, Any]) -> None:
    """Clicks of the day on which somebody unsubscribed are no reason to write to them."""
    assert (found["gone"].score, found["gone"].clicks_30d) == (0.0, 1)
    assert found["gone"].unsubscribed_at is not None


def test_files_of_each_kind_are_read_alike(spark: Any, tmp_path: Path, moment: Any) -> None:
    """CSV, JSON lines and Parquet; times as ISO 8601 or UNIX seconds or milliseconds; addresses in any case."""
    at = moment(0)
    times = [at.isoformat(), str(int(at.timestamp())), str(int(at.timestamp() * 1000))]
    lines = [f"Ann@Example.COM ,Open,{time},spring" for time in times]
    (tmp_path / "a.csv").write_text("address,kind,at,campaign\n" + "\n".join(lines))
    rows = [{"at": time, "kind": "open", "address": "ann@example.com", "campaign": "spring"} for time in times]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spark.createDataFrame(
        [("ann@example.com", "open", at, "spring")] * 3, "address string, kind string, at timestamp, campaign string"
    ).write.parquet(str(tmp_path / "a.parquet"))
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        found = events(spark, tmp_path / name).collect()
        wanted = ("ann@example.com", "open", at.timestamp(), "spring")
        assert [(r.address, r.kind, r.at.timestamp(), r.campaign) for r in found] == [wanted] * 3, name


def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    """Which file, what is wrong, what to do."""
    (tmp_path / "a.csv").write_text("mail,kind,at\nx,open,1\n")
    for name, words in (
        ("a.csv", "no column 'address'"),
        ("b.csv", "does not exist"),
        ("a.txt", "its format is unknown"),
    ):
        with pytest.raises(ValueError, match=words):
            events(spark, tmp_path / name)
    assert datetime.UTC


def test_what_came_back_by_itself(spark: Any, moment: Any) -> None:
    """Opens and clicks of tracked mail, unsubscribes and complaints, if something proves them; no bounces."""
    rows = [
        ("Ann@Example.com", "open", moment(1), "spring", "token"),
        ("ann@example.com", "click", moment(2), None, "token"),
        ("eve@example.com", "complaint", moment(3), "spring", ""),
        ("bob@example.com", "bounce", moment(4), "", "token"),
    ]
    back = spark.createDataFrame(rows, "recipient string, kind string, at timestamp, campaign string, genuine string")
    found = {(row.address, row.kind, row.campaign) for row in told(back).collect()}
    assert found == {("ann@example.com", "open", "spring"), ("ann@example.com", "click", "")}

"""Duplicates, suppression, segments and engagement against plain Python."""

import datetime
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.mail.addresses.entries import hash_of
from zonemta_py.pipeline.prepare.count import count
from zonemta_py.pipeline.prepare.plan import people
from zonemta_py.pipeline.prepare.reached import as_suppressed
from zonemta_py.pipeline.prepare.settings import BestHour, Lane, PlanRefused, Settings
from zonemta_py.pipeline.prepare.suppressed import COLUMNS
from zonemta_py.pipeline.prepare.suppressed import read as read_suppressed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = (
    "raw string, row string, marks bigint, inside boolean, line struct<file: int, block: bigint, record: bigint>, "
    "broken string"
)
SETTINGS = Settings("may", lanes=(Lane("a", "192.0.2.1", 3), Lane("a", "192.0.2.2"), Lane("b")), canary=0.1, recent_days=30, as_of="2026-05-31")  # noqa: E501  # fmt: skip


def listed() -> list[Any]:
    """3,000 rows of 1,000 people, some of them nobody, in no order."""
    chance, rows = random.Random(7), []
    for number in range(3000):
        who = chance.randrange(1000)
        raw = f"{chance.choice(['user', 'USER'])}{who}@d{who % 5}.net" if who % 10 else f"nobody {who}"
        rows.append((raw, f'"{number}"', 0, who % 3 > 0, (0, number // 1000, number), None))
    chance.shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def found(spark: "SparkSession") -> list[Any]:
    suppressed = [(f" User{who}@d{who % 5}.net", "complaint", who, "rules") for who in range(0, 1000, 7)]
    suppressed += [(f"user{who}@d{who % 5}.net", "manual", who + 1, "ann") for who in range(0, 1000, 14)]
    moment = datetime.datetime(2026, 5, 20, tzinfo=datetime.UTC)
    events = [(f"user{who}@d{who % 5}.net", "open", moment) for who in range(0, 1000, 4)]
    events += [(f"user{who}@d{who % 5}.net", "open", moment - datetime.timedelta(60)) for who in range(0, 1000, 5)]
    frame = spark.createDataFrame(listed(), ROWS).repartition(3)
    engagement = spark.createDataFrame(events, "address string, kind string, at timestamp")
    return people(frame, SETTINGS, spark.createDataFrame(suppressed, COLUMNS), engagement).collect()


def first_lines() -> dict[str, tuple[int, int]]:
    """Mailbox → number of its first row, and how many it has."""
    first: dict[str, tuple[int, int]] = {}
    for raw, _, _, _, (_, _, number), _ in sorted(listed(), key=lambda row: row[4]):
        if "@" in raw:
            before = first.get(raw.lower(), (number, 0))
            first[raw.lower()] = (before[0], before[1] + 1)
    return first


def test_the_first_row_of_a_mailbox_stays(found: list[Any]) -> None:
    """Whatever the order Spark reads them in; the others are counted."""
    good = {row.key: (int(row.recipient.split('"')[-2]), row.n) for row in found if row.reason != "syntax"}
    assert good == first_lines()


def test_rows_that_are_none_stay_as_they_are(found: list[Any]) -> None:
    """Each for itself, with its text and fields, and nothing else has these."""
    bad = {(row.raw, row.row, row.n) for row in found if row.reason == "syntax"}
    assert bad == {(raw, row, 1) for raw, row, *_ in listed() if "@" not in raw}
    assert not any(row.raw or row.row for row in found if row.reason != "syntax")
    assert sum(row.n for row in found) == 3000


def test_suppressed_recipients_go_with_their_provenance(found: list[Any]) -> None:
    """Kind and author are those of the oldest entry."""
    gone = {row.key: (row.kind, row.by) for row in found if row.reason == "suppressed"}
    assert gone == {key: ("complaint", "rules") for key in first_lines() if int(key[4:].partition("@")[0]) % 7 == 0}


def test_segment_and_recent_openers(found: list[Any]) -> None:
    """The segment takes out who is not meant; recent openers are of the first tier."""
    for row in found:
        if row.reason == "syntax":
            continue
        who = int(row.key[4:].partition("@")[0])
        assert (row.reason == "not in the segment") == (who % 7 > 0 and who % 3 == 0)
        assert row.tier == (0 if who % 4 == 0 else 1)


def test_lanes_and_canary_have_their_shares(found: list[Any]) -> None:
    """Weights 3:1:1 of 900 people, 10 % canary, each to within chance (five standard deviations)."""
    good = [row for row in found if row.reason != "syntax"]
    assert abs(sum(row.lane == 0 for row in good) - 0.6 * len(good)) < 75
    assert abs(sum(row.lane == 1 for row in good) - 0.2 * len(good)) < 60
    assert abs(sum(row.canary for row in good) - 0.1 * len(good)) < 45


def test_a_lane_is_kept_from_campaign_to_campaign(spark: "SparkSession", found: list[Any]) -> None:
    """The lane hangs on the address alone; the canary is another each time."""
    frame = spark.createDataFrame(listed(), ROWS)
    again = people(frame, Settings("june", lanes=SETTINGS.lanes, canary=0.1)).select("key", "lane", "canary").collect()
    assert {row.key: row.lane for row in again} == {row.key: row.lane for row in found}
    assert {row.key for row in again if row.canary} != {row.key for row in found if row.canary}


def test_only_those_who_are_followed(spark: "SparkSession") -> None:
    """The others of the list go, with a reason of their own; who is suppressed stays that."""
    frame = spark.createDataFrame(listed(), ROWS)
    those = spark.createDataFrame([(f" User{who}@D{who % 5}.net", "silent", None, "may") for who in (1, 2, 7)], COLUMNS)
    out = spark.createDataFrame([("user7@d2.net", "manual", 1, "ann")], COLUMNS)
    rows = people(frame, Settings("june"), out, those=those).collect()
    reasons = {row.key: row.reason for row in rows if row.reason not in ("syntax", "not in the segment")}
    assert {key for key, reason in reasons.items() if reason is None} <= {"user1@d1.net", "user2@d2.net"}
    assert reasons["user7@d2.net"] == "suppressed"
    assert {*reasons.values()} == {None, "suppressed", "not to follow up"}
    steps = count(people(frame, Settings("june"), out, those=those), Settings("june")).steps()
    step = next(row for row in steps if row["step"] == "not to follow up")
    assert step["removed"] == sum(reason == "not to follow up" for reason in reasons.values())


def test_a_suppression_list_of_its_own(spark: "SparkSession", tmp_path: Any) -> None:
    """CSV with an address is enough; without one the sentence says so."""
    (tmp_path / "out.csv").write_text("email,kind\nA@b.net,unsubscribe\n")
    assert read_suppressed(spark, str(tmp_path / "out.csv")).collect() == [("A@b.net", "unsubscribe", None, "out.csv")]
    assert as_suppressed(spark, {"a@b.net": "may"}, tmp_path).collect() == [
        ("a@b.net", "reached", None, "campaign may")
    ]
    (tmp_path / "wrong.csv").write_text("who\nA@b.net\n")
    with pytest.raises(PlanRefused, match="there is no column address; name the column of addresses so"):
        read_suppressed(spark, str(tmp_path / "wrong.csv"))


def test_domains_patterns_and_hashes_leave_out_whom_they_cover(spark: "SparkSession", tmp_path: Any) -> None:
    """As the queue spells them; an own entry says why first; a list of its own may spell them as orders do."""
    whom = ["a@x.net", "B@X.net", "a@sub.x.net", "a@b.sub.x.net", "bot7@y.net", "Ann@y.net", "bob@y.net", "c@ax.net",
            "bot@z.net"]  # fmt: skip
    rows = [(who, f'"{n}"', 0, True, (0, 0, n), None) for n, who in enumerate(whom)]
    frame = spark.createDataFrame(rows, ROWS)
    entries = [
        ("@x.net", "manual", 2, "ops"), ("@*.x.net", "manual", 1, "ops"), ("b@x.net", "complaint", 9, "rules"),
        ("pattern:bot*@y.net", "hard-bounce", 3, "ops"), (hash_of("ann@y.net"), "unsubscribe", 4, "them"),
    ]  # fmt: skip
    (tmp_path / "own.csv").write_text(f"address\n@X.net\n*@*.x.net\nbot*@y.net\n{hash_of('ann@y.net')[7:].upper()}\n")
    (tmp_path / "domains.csv").write_text("Domain\nx.net\n*.x.net\n")
    found = people(frame, SETTINGS, spark.createDataFrame(entries, COLUMNS)).collect()
    assert {row.key: (row.kind, row.by) for row in found if row.reason == "suppressed"} == {
        "a@x.net": ("manual", "ops"), "b@x.net": ("complaint", "rules"), "a@sub.x.net": ("manual", "ops"),
        "a@b.sub.x.net": ("manual", "ops"), "bot7@y.net": ("hard-bounce", "ops"), "ann@y.net": ("unsubscribe", "them"),
    }  # fmt: skip
    assert len(found) == len(whom)
    for file, gone in (("own.csv", 6), ("domains.csv", 4)):
        found = people(frame, SETTINGS, read_suppressed(spark, str(tmp_path / file))).collect()
        assert sorted(row.key for row in found if row.reason == "suppressed") == sorted(
            who.lower()
            for who in ("a@x.net", "b@x.net", "a@sub.x.net", "a@b.sub.x.net", "bot7@y.net", "ann@y.net")[:gone]
        )


def test_each_at_the_hour_in_which_they_read(spark: "SparkSession") -> None:
    """By their own clocks, in summer and winter; clicks count more, old opens less; nobody by two events only."""
    zones = {"a": "DE", "b": "US", "c": "", "d": "DE", "e": "DE", "f": "DE", "gone": "DE"}
    rows = [
        (f"{who}@x.net", f'"Ann","{zone}"', 0, True, (0, 0, n), None) for n, (who, zone) in enumerate(zones.items())
    ]
    events = [("A@x.net", "open", f"2026-0{month}-01T0{7 - (month > 3)}:20:00Z") for month in (2, 3, 5)]
    events += [("b@x.net", "open", "2026-05-01T22:00:00Z")] * 9 + [
        ("b@x.net", "click", f"2026-05-0{n}T01:00:00Z") for n in (2, 3)
    ]
    events += [("c@x.net", "open", f"2026-05-0{n}T17:30:00Z") for n in (1, 2, 3)]
    events += [("d@x.net", "open", f"2025-05-{n}T03:00:00Z") for n in range(10, 20)]
    events += [("d@x.net", "open", f"2026-05-3{n}T12:00:00Z") for n in (0, 1)]
    events += [("e@x.net", "click", f"2026-05-0{n}T01:00:00Z") for n in (1, 2)] + [
        ("e@x.net", "complaint", "2026-05-03T01:00:00Z")
    ]
    told = spark.createDataFrame(
        [(who, kind, at, "") for who, kind, at in events], "address string, kind string, at string, campaign string"
    )
    told = told.selectExpr("address", "kind", "to_timestamp(at) as at", "campaign")
    best = BestHour("time_zone", {"DE": "Europe/Berlin", "US": "America/New_York"}, "Asia/Kolkata")
    settings = Settings("may", fields={"name": "n", "time_zone": "t"}, best=best, as_of="2026-05-31")
    found = people(spark.createDataFrame(rows, ROWS), settings, engagement=told).collect()
    hours = {row.key[0]: json.loads(row.recipient)[1:] for row in found}
    assert hours["a"] == ["Ann", "DE", "08:00"]
    assert {who: hour for who, (_, _, hour) in hours.items()} == {
        "a": "08:00", "b": "21:00", "c": "23:00", "d": "14:00", "e": "", "f": "", "g": "",
    }  # fmt: skip
    assert {row.key[0] for row in found if row.own} == {"a", "b", "c", "d"}
    alone = Settings("may", best=BestHour(), as_of="2026-05-31")
    bare = [(raw, "", *rest) for raw, _, *rest in rows[:1]]
    (row,) = people(spark.createDataFrame(bare, ROWS), alone, engagement=told).collect()
    assert json.loads(row.recipient) == ["a@x.net", "06:00"], "in UTC"

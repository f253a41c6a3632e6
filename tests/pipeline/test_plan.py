"""A whole plan: the same again, byte for byte; sums that add up; nobody's provider hit in one lump."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.pipeline.prepare.plan import _SETTINGS, Plan, plan, rows
from zonemta_py.pipeline.prepare.settings import Cap, Lane, PlanRefused, Settings
from zonemta_py.pipeline.prepare.source.read import columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDERS = {"big.net": "big", "middle.net": "middle"}
SETTINGS = Settings(
    "may", email="E-Mail", fields={"name": "Name", "city": "City"}, canary=0.05, chunk=50, providers=PROVIDERS,
    lanes=(Lane("a", "192.0.2.1"), Lane("a", "192.0.2.2")),
)  # fmt: skip
PEOPLE = 2000
DOMAINS = ["big.net"] * 6 + ["mail.middle.net"] * 3 + ["other.org"]


def people(count: int) -> list[dict[str, str]]:
    chance = random.Random(5)
    made = []
    for number in range(count):
        who = number if chance.random() > 0.1 else chance.randrange(count)
        address = f"user{who}@{DOMAINS[who * 7919 % 10]}" if chance.random() > 0.02 else f"user{who} at big.net"
        made.append({"E-Mail": address, "Name": f'Ann "{who}"', "City": "" if who % 4 else "Köln,\tDeutz"})
    return made


def write_csv(path: Path, listed: list[dict[str, str]], more: str = "") -> Path:
    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    lines = [",".join(quoted(value) for value in row.values()) for row in listed]
    path.write_text("E-Mail,Name,City\n" + "\n".join(lines) + "\n" + more)
    return path


@pytest.fixture(scope="module")
def list_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(
        tmp_path_factory.mktemp("list") / "list.csv", people(PEOPLE), "broken row\nx@big.net,too,many,fields\n"
    )


@pytest.fixture(scope="module")
def planned(spark: "SparkSession", list_: Path) -> Plan:
    return plan(spark, SETTINGS, str(list_), list_.parent / "may.plan")


def chunks(spark: "SparkSession", planned: Plan) -> dict[str, Any]:
    return {row.chunk: row for row in rows(spark, planned.folder).collect()}


def test_every_row_is_accounted_for(spark: "SparkSession", planned: Plan) -> None:
    """Read = kept + all that was taken out, step by step, and the kept are in the plan, each once."""
    report = planned.report
    assert report["read"] == PEOPLE + 2
    left = report["read"]
    for row in report["steps"]:
        left -= row["removed"]
        assert row["left"] == left
    assert left == report["kept"]
    bodies = [json.loads(row.body) for row in chunks(spark, planned).values()]
    addresses = [address for body in bodies for address, *_ in body["recipients"]]
    good = {row["E-Mail"] for row in people(PEOPLE) if "@" in row["E-Mail"]}
    assert sorted(addresses) == sorted(good)
    assert len(addresses) == report["kept"]
    assert {row["step"]: row["removed"] for row in report["steps"]}["bad row"] == 2


def test_bodies_are_requests(spark: "SparkSession", planned: Plan) -> None:
    """Batches as the node takes them; values survive quoting; a control character became a space, and was counted."""
    for row in chunks(spark, planned).values():
        body = json.loads(row.body)
        assert (body["campaign"], body["columns"], body["zone"]) == ("may", ["name", "city"], "a")
        assert body["source"] == row.source
        assert len(body["recipients"]) == row.n
        for address, name, city in body["recipients"]:
            who = int(address[4:].partition("@")[0])
            assert (name, city) == (f'Ann "{who}"', "" if who % 4 else "Köln, Deutz")
    assert planned.report["cleaned"] + planned.report["empty"]["city"] == planned.report["kept"]


def test_bad_rows_are_named_with_file_and_line(planned: Plan, list_: Path) -> None:
    """The line is the list's own, from 1."""
    lines = list_.read_text().split("\n")
    found = Counter[str]()
    for row in planned.report["examples"]:
        found[row["reason"]] += row["n"]
    removed = {row["step"]: row["removed"] for row in planned.report["steps"]}
    assert found == {"syntax": removed["syntax"], "bad row": 2}, "they stand for all"
    assert Counter(row["reason"] for row in planned.report["examples"])["syntax"] <= 20 < removed["syntax"]
    for row in planned.report["examples"]:
        assert row["file"] == str(list_)
        assert row["text"] in lines[row["line"] - 1]


def test_no_provider_is_hit_in_one_lump(spark: "SparkSession", planned: Plan) -> None:
    """Any fifth of the campaign has every provider's share to within chance."""
    ordered = sorted(chunks(spark, planned).values(), key=lambda row: row.position)
    domains = [address.rpartition("@")[2] for row in ordered for address, *_ in json.loads(row.body)["recipients"]]
    shares = {domain: n / len(domains) for domain, n in Counter(domains).items()}
    fifth = len(domains) // 5
    for start in range(0, len(domains) - fifth, fifth):
        here = Counter(domains[start : start + fifth])
        assert all(abs(here[domain] / fifth - share) < 0.09 for domain, share in shares.items())


def test_the_canary_goes_first_in_chunks_of_its_own(spark: "SparkSession", planned: Plan) -> None:
    """About 5 %, with every provider in it."""
    ordered = sorted(chunks(spark, planned).values(), key=lambda row: row.position)
    kinds = [row.canary for row in ordered]
    assert kinds == sorted(kinds, reverse=True)
    canary = [json.loads(row.body)["recipients"] for row in ordered if row.canary]
    assert sum(map(len, canary)) == planned.report["canary"]
    assert 0.03 < planned.report["canary"] / planned.report["kept"] < 0.07
    assert len({address.rpartition("@")[2] for chunk in canary for address, *_ in chunk}) == 3


def test_the_same_again_is_the_same(
    spark: "SparkSession", planned: Plan, list_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, however Spark splits the work."""
    monkeypatch.setitem(_SETTINGS, "spark.sql.shuffle.partitions", "64")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        again = plan(spark, SETTINGS, str(list_), tmp_path / "again.plan")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert again.made
    assert again.report == planned.report
    assert chunks(spark, again) == chunks(spark, planned)


def test_a_plan_that_is_there_is_taken(spark: "SparkSession", planned: Plan, list_: Path) -> None:
    """Nothing is prepared twice; another list or other settings under its name are refused."""
    assert plan(spark, SETTINGS, str(list_), planned.folder) == Plan(planned.folder, planned.report, made=False)
    with pytest.raises(PlanRefused, match="the settings have changed since campaign may was planned; give"):
        plan(spark, Settings("may", email="E-Mail"), str(list_), planned.folder)
    other = write_csv(list_.with_name("other.csv"), people(10))
    with pytest.raises(PlanRefused, match="the list has changed since campaign may was planned; give"):
        plan(spark, SETTINGS, str(other), planned.folder)


def test_json_lines_and_parquet(spark: "SparkSession", planned: Plan, tmp_path: Path) -> None:
    """The same people in other formats, in several files, get the same chunks; a broken line is counted."""
    (tmp_path / "folder").mkdir()
    listed = people(PEOPLE)
    for number, half in enumerate((listed[: PEOPLE // 2], listed[PEOPLE // 2 :])):
        lines = [json.dumps(row) for row in half]
        (tmp_path / "folder" / f"{number}.jsonl").write_text("\n".join([*lines, "{broken"]))
    made = plan(spark, SETTINGS, str(tmp_path / "folder"), tmp_path / "json.plan")
    assert chunks(spark, made) == chunks(spark, planned)
    assert made.report["steps"] == planned.report["steps"]
    spark.createDataFrame(listed).write.parquet(str(tmp_path / "list.parquet"))
    made = plan(spark, SETTINGS, str(tmp_path / "list.parquet"), tmp_path / "parquet.plan")
    assert chunks(spark, made) == chunks(spark, planned)


def test_parquet_with_values_that_are_no_text(spark: "SparkSession", tmp_path: Path) -> None:
    """Bytes that are UTF-8 are text; a row with others, in a column that is used, is a bad row and named as one."""
    listed = [(b"ann@big.net", b"A", b"\xff"), (b"b\xff@big.net", b"B", b""), (b"cy@big.net", b"C\xff", b"")]
    spark.createDataFrame(listed, "`E-Mail` binary, Name binary, City binary").write.parquet(str(tmp_path / "L"))
    settings = Settings("may", email="E-Mail", fields={"name": "Name"})
    made = plan(spark, settings, str(tmp_path / "L"), tmp_path / "may.plan")
    (row,) = chunks(spark, made).values()
    assert json.loads(row.body)["recipients"] == [["ann@big.net", "A"]]
    assert {row["step"]: row["removed"] for row in made.report["steps"]}["bad row"] == 2
    assert sorted(one["text"] for one in made.report["examples"]) == ["C\ufffd", "b\ufffd@big.net"]
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "a.json").write_text('{"email": "a@b.net", "Email": "b@b.net"}\n')
    with pytest.raises(PlanRefused, match="it has the column 'email' twice; rename or remove one of them"):
        columns(spark, str(folder))


def test_a_folder_is_one_list(spark: "SparkSession", tmp_path: Path) -> None:
    """Its files come in the order of their names, also below: of rows alike the first wins, bad ones are named."""
    for place, rows_ in (("a.CSV", "ann@big.net,A,\nbad one,x,\n"), ("b [1].csv", "bob@big.net,B,\n"),
                         ("sub/c.csv", "ann@big.net,A2,\ncy@big.net,C,\nbad two,x,\n")):  # fmt: skip
        (tmp_path / "list" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "list" / place).write_text("E-Mail,Name,City\n" + rows_)
    made = plan(spark, SETTINGS, str(tmp_path / "list"), tmp_path / "may.plan")
    people_ = [one for row in chunks(spark, made).values() for one in json.loads(row.body)["recipients"]]
    assert sorted(one[:2] for one in people_) == [["ann@big.net", "A"], ["bob@big.net", "B"], ["cy@big.net", "C"]]
    places = [(Path(one["file"]).name, one["line"]) for one in made.report["examples"] if one["text"].startswith("bad")]
    assert places == [("a.CSV", 3), ("c.csv", 4)]


def test_caps(spark: "SparkSession", list_: Path, tmp_path: Path) -> None:
    """What is over a source's cap goes to the next day, and what even that does not take is left out and counted."""
    capped = Settings(
        "may", email="E-Mail", providers=PROVIDERS, lanes=(Lane("a", "192.0.2.1"),), days=2, canary=0.05,
        caps=(Cap("192.0.2.1", "middle", (150, 250)),),
    )  # fmt: skip
    made = plan(spark, capped, str(list_), tmp_path / "capped.plan")
    found = Counter[tuple[str, int]]()
    for row in rows(spark, made.folder).collect():
        for (address,) in json.loads(row.body)["recipients"]:
            found[address.rpartition("@")[2], row.day] += 1
    assert (found["mail.middle.net", 0], found["mail.middle.net", 1], found["big.net", 1]) == (150, 250, 0)
    assert {row["step"]: row["removed"] for row in made.report["steps"]}["over the warm-up caps"] > 0
    assert sum(found.values()) == made.report["kept"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"email": "mail"}, "there is no column 'mail'; it has E-Mail, Name, City; map one with --map"),
        ({"where": "Nam = 'x'"}, "--where \"Nam = 'x'\": .*Nam.*; write SQL over the list's columns"),
        ({"where": "Name = 'nobody'"}, "none of 2,002 rows is left to send to: .* not in the segment"),
    ],
)
def test_mistakes(spark: "SparkSession", list_: Path, tmp_path: Path, changed: dict[str, str], said: str) -> None:
    """One sentence, and nothing is left behind."""
    values = {"email": "E-Mail", **changed}
    with pytest.raises(PlanRefused, match=said):
        plan(spark, Settings("may", **values), str(list_), tmp_path / "x.plan")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []

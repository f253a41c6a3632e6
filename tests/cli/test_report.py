"""`zonemta report`: a page from a lake, and its mistakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit

_TIME = "timestamp '2026-05-04 09:00:00'"
_WHOSE = (
    "'default' as zone, '192.0.2.1' as source, 'google' as provider, 'spring' as campaign, date '2026-05-04' as day"
)
_TABLES = {
    "deliverability": f"""explode(array('5min', 'day')) as grain, {_TIME} as since, 30L as attempts, 20L as delivered,
        10L as deferred, 0L as encrypted, map('rate', 10L) as deferred_by, map('', 0L) as bounced_by""",
    "deliveries": f"""{_TIME} as at, 'deferred' as verdict, 'rate' as class, 421 as code, '' as enhanced,
        'slow' as reply""",
    "outcomes": f"""explode(sequence(1, 20)) as n, 'delivered' as state, 1 as attempts, {_TIME} as received_at,
        {_TIME} as first_attempt_at, {_TIME} as ended_at, 1.5D as to_delivery_s, 'gmail.com' as domain""",
}


@pytest.fixture(scope="module")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty recipients of one campaign, all at google, ten of them deferred once, in the tables that reports read."""
    pytest.importorskip("pyspark", reason="NOT TESTED: without pyspark there are no reports")
    from zonemta_py.pipeline.lake import table

    folder, spark = tmp_path_factory.mktemp("lake"), request.getfixturevalue("spark")
    with table.locked(folder):
        for name, columns in _TABLES.items():
            table.write(folder, name, spark.sql(f"select {columns}, {_WHOSE}").coalesce(1))
    return folder


@pytest.mark.parametrize(
    ("what", "name", "title"),
    [
        ("day", "2026-05-04", "Day 2026-05-04"),
        ("campaign", "spring", "Campaign spring"),
        ("zone", "default", "Zone default"),
    ],
)
def test_a_page_and_its_tables(
    zonemta: Callable[..., Any], lake: Path, tmp_path: Path, what: str, name: str, title: str
) -> None:
    """The file's name is printed; the tables stand beside it as CSV."""
    page, tables = tmp_path / "page.html", tmp_path / "tables"
    ran = zonemta("report", what, name, "--lake", lake, "--output", page, "--csv", tables, "--memory", 1)
    assert (ran.code, ran.out, ran.err) == (Exit.OK, f"{page}\n", "")
    assert f"<h1>{title}</h1>" in page.read_text()
    headline = (tables / "headline.csv").read_text().splitlines()
    assert headline[1].startswith("recipients accepted,20,")
    assert (tables / "replies.csv").exists()


def test_the_file_is_named_after_what_it_shows(
    zonemta: Callable[..., Any], lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder one is in; a day without mail has a page that says so."""
    monkeypatch.chdir(tmp_path)
    ran = zonemta("report", "day", "2020-01-01", "--lake", lake)
    assert ran.out == "report-day-2020-01-01.html\n"
    assert "nothing to show" in (tmp_path / "report-day-2020-01-01.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("campaign", "sprng"), "the lake has no campaign 'sprng'; the nearest are spring"),
        (("provider", "gogle"), "the lake has no provider 'gogle'; the nearest are google"),
        (("ip", "192.0.2.7"), "the lake has no source address '192.0.2.7'; the nearest are 192.0.2.1"),
        (("zone", "zzz"), "the lake has no zone 'zzz'; it has default"),
        (("zone", "default", "--from", "2027-01-01"), "--from: the lake ends with 2026-05-04; name a day up to then"),
    ],
)
def test_a_name_that_nothing_has(
    zonemta: Callable[..., Any], lake: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """One sentence, with the names that are nearest; no page is written."""
    ran = zonemta("report", *arguments, "--lake", lake)
    assert ran.code in (Exit.DATA, Exit.USAGE)
    assert (ran.out, ran.err) == ("", f"zonemta: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ("day", "2026-05-04", "--lake", "nowhere"),
            Exit.NO_INPUT,
            "nowhere: there is no such folder; create a lake with",
        ),
        (
            ("day", "4.5.26", "--lake", "."),
            Exit.USAGE,
            "'4.5.26' is not a day; write it like 2026-03-04, today or yesterday",
        ),
        (("day", "2026-05-04", "--lake", "."), Exit.NO_INPUT, "there is no table deliverability and no outcomes"),
        (
            ("zone", "z", "--lake", ".", "--from", "2026-05-04", "--to", "2026-05-01"),
            Exit.USAGE,
            "--from: the first day",
        ),
        (("day", "2026-05-04"), Exit.USAGE, "--lake"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    zonemta: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], code: Exit, sentence: str,
) -> None:  # fmt: skip
    """At once, in one sentence."""
    monkeypatch.chdir(tmp_path)
    ran = zonemta("report", *arguments)
    assert ran.code == code
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1

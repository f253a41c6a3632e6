"""Reports on the day: the running MTA closes its open segment for whoever wants to read the archive."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import DEFERRED, DELIVERED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

LATER = Reply(451, "4.2.0", "later")


async def mail(queue: LocalQueue) -> None:
    """One delivered, one put off."""
    for name, verdict, reply in (("bob", DELIVERED, Reply(250, "2.0.0", "ok")), ("ann", DEFERRED, LATER)):
        envelope = Envelope(
            "news@src.test", [Recipient(f"{name}@x.test", 0, None)], 9, received_ms=queue.core.clock.ms()
        )
        await queue.accept(envelope, b"A: b\r\n\r\n")
        (delivery,) = await queue.lease(1)
        await queue.settle(Result(delivery.lease, [Outcome(verdict, reply, "dot", [0])]))
        await queue.core.disk.lines.stable()


async def spring(queue: LocalQueue) -> None:
    """A campaign with two recipients, who get it."""
    source = TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi"))
    await queue.ask("campaign-put", name="spring", sender="news@src.test", template=prepare(source).pack())
    people = [Recipient(f"{name}@x.test", values=[name]) for name in ("cy", "di")]
    ms = queue.core.clock.ms()
    await queue.accept(Envelope("", people, columns=["name"], campaign="spring", received_ms=ms), b"")
    delivery = next(one for one in await queue.lease(5) if one.campaign)
    got = Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", list(range(len(delivery.recipients))))
    await queue.settle(Result(delivery.lease, [got]))


def test_the_report_of_today_has_what_happened_today(
    zonemta: Callable[..., Any], served: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Though one recipient waits still, and no segment is full; again an hour later, with what came since."""
    pytest.importorskip("pyspark", reason="NOT TESTED: without pyspark there are no reports")
    request.getfixturevalue("spark")
    home, page, tables = served(), tmp_path / "page.html", tmp_path / "tables"
    for _ in range(2):
        home.do(mail)
        ran = zonemta(
            "report", "zone", "default", "--lake", tmp_path / "lake", "--archive", tmp_path / "archive",
            "--output", page, "--csv", tables,
        )  # fmt: skip
        assert (ran.code, ran.out) == (Exit.OK, f"{page}\n"), ran.err
    headline = (tables / "headline.csv").read_text().splitlines()
    assert headline[1].startswith("recipients accepted,4,"), headline
    ran = zonemta("lake", "ingest", "--lake", tmp_path / "lake", "--archive", tmp_path / "journal")
    assert ran.out == "no new segments\n", "the open segment is never half taken"


def test_rotate_says_what_it_did(zonemta: Callable[..., Any], served: Callable[..., Any], tmp_path: Path) -> None:
    served().do(mail)
    first = zonemta("journal", "rotate", "--folder", tmp_path)
    assert first.out == f"{next((tmp_path / 'archive').iterdir()).name} is in the archive\n"
    again = zonemta("journal", "rotate", "--folder", tmp_path)
    assert again.out == "nothing new to close: the archive is complete\n"


def test_the_archive_of_an_mta_that_does_not_run(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    ran = zonemta("lake", "ingest", "--lake", tmp_path / "lake", "--archive", tmp_path / "archive")
    assert (ran.code, ran.err) == (
        Exit.NO_INPUT, f"zonemta: {tmp_path}/archive: there is no such folder; name the MTA's archive/\n",
    )  # fmt: skip


def test_a_campaigns_report_needs_no_lake(
    zonemta: Callable[..., Any], served: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is of what was recorded since the campaign began, up to now; its own lake is gone afterwards."""
    pytest.importorskip("pyspark", reason="NOT TESTED: without pyspark there are no reports")
    request.getfixturevalue("spark")
    home, place, work = served(), tmp_path / "pages", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    home.do(mail)
    before = zonemta("journal", "rotate", "--folder", tmp_path).out.split()[0]
    home.do(spring)
    (tmp_path / "archive" / before).write_bytes(b"damaged, and not looked at")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(work))
        ran = zonemta(
            "campaign", "report", "--folder", tmp_path, "--out", place, "--csv", tmp_path / "tables", "spring"
        )
    page = place / "report-campaign-spring.html"
    assert (ran.code, ran.out.splitlines()[0]) == (Exit.OK, str(page)), ran.err
    assert "<h1>Campaign spring</h1>" in page.read_text()
    assert (tmp_path / "tables" / "headline.csv").read_text().splitlines()[1].startswith("recipients accepted,2,")
    assert [*work.iterdir()] == []

"""Reports on our mail are recorded once, with what was checked of them, and summed up; none of them changes what is
sent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.mail.reports.makers import DMARC, TLS, gzipped, mixed, report, row
from tests.queue.test_feedback import recorded
from tests.reception.back import report as bounce
from tests.reception.back import verp_path
from tests.reception.test_proof import Dns, signed
from zonemta_py.config import Config
from zonemta_py.mail.reports.reputation import read_table
from zonemta_py.queue.api import Feedback, QueueRefusal
from zonemta_py.reception.feedback.proof import Lookups, SentBy
from zonemta_py.reception.feedback.returns import Returns
from zonemta_py.wire.frames import feedback_row

Make = Callable[..., Any]
TO = "dmarc@example.com"
PATH = {"reports": [TO], "verp": "b.test", "secret": "0123456789abcdef", "own_networks": ["2001:db8::/64"]}
SETTINGS = {
    "return_path": PATH, "listeners": [{"feedback": True}], "pools": [{"name": "p", "sources": [
        {"address": "192.0.2.9"}, {"address": "192.0.2.1"}]}], "zones": [{"name": "z", "pool": "p"}],
}  # fmt: skip
SENT = SentBy("203.0.113.1", "mx.provider.test", "bounce@provider.test")
TODAY = 1_700_000_000 // 86_400
"""Of the queue's clock."""


def today(*rows: str, org: str = "Provider", number: str = "1") -> bytes:
    """A report of yesterday, in a mail."""
    begin = (TODAY - 1) * 86_400
    text = report(org, number, *rows, begin=begin, end=begin + 86_399)
    return mixed("dmarc@provider.test", "Report Domain: example.com", "application/gzip", gzipped(text))


@pytest.fixture
def dns() -> Dns:
    return Dns()


@pytest.fixture
def made(house: Make, front: Make, dns: Dns) -> Make:
    async def make(**more: Any) -> tuple[Any, Callable[..., Any]]:
        home = await house(return_path={"verp": "b.test", "secret": PATH["secret"]})
        config = Config.model_validate(SETTINGS | more)
        now_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731
        returns = Returns(config, await front(home), Lookups(dns.text, dns.spf), now_ms, time.monotonic)

        async def take(message: bytes, *addresses: str, whole: bool = True) -> None:
            ours = [one for one in map(returns.find, addresses or (TO,)) if one is not None]
            await returns.take(ours, message, whole, SENT)

        return home, take

    return make


async def test_signed_once_and_again(made: Make) -> None:
    """The same report in another mail is known; the sums are those of one."""
    home, take = await made()
    mail = today(row("192.0.2.9", 990), row("192.0.2.1", 7, "fail", "fail"), row("203.0.113.7", 3, "fail", "fail"))
    for message in (signed(mail), signed(mail), signed(mail.replace(b"This is MIME", b"this is MIME"))):
        await take(message)
    (one,) = recorded(home)
    assert (one.kind, one.genuine, one.reporter, one.via) == ("dmarc-report", "dkim", "provider.test", "smtp")
    assert one.text == (
        "example.com at Provider: of 997 messages from our sources 99.2 % passed DMARC; 192.0.2.1 is not aligned: 7;"
        " 3 messages from others, 3 of which failed"
    )
    found = await home.queue.ask("feedback-reports")
    assert found["dmarc"] == [
        {"domain": "example.com", "org": "Provider", "proof": "dkim provider.test", "reports": 1, "messages": 1000,
         "passed": 990, "ours": 997, "ours_passed": 990}
    ]  # fmt: skip
    assert [(one["ip"], one["ours"], one["messages"], one["failed"]) for one in found["sources"]] == [
        ("192.0.2.1", True, 7, 7), ("192.0.2.9", True, 990, 0), ("203.0.113.7", False, 3, 3)
    ]  # fmt: skip
    assert home.queue.core.counters.meter.total("zonemta_dmarc_reported_total") == 1000
    listed = (await home.queue.ask("feedback"))["rows"]
    assert ([row["kind"] for row in listed], "report" in listed[0]) == (["dmarc-report"], False)
    whole = await home.queue.ask("feedback-one", seq=listed[0]["seq"])
    assert whole["report"]["messages"] == 1000
    await home.sound()


async def test_who_signs_nothing_is_told_apart(made: Make, dns: Dns) -> None:
    """Without a signature, with another's, with a wrong one: in a line of its own, and in no other figure; it does not
    keep the signed one out. Without an answer of DNS the mail comes again."""
    home, take = await made()
    mail = today(row("192.0.2.9", 5, "fail", "fail"))
    await take(mail)
    await take(signed(mail, "elsewhere.test"))
    await take(signed(mail).replace(b"A report", b"a report"))
    found = await home.queue.ask("feedback-reports")
    assert [(one["proof"], one["reports"], one["messages"]) for one in found["dmarc"]] == [("", 1, 5)]
    assert found["sources"] == []
    await take(signed(mail))
    found = await home.queue.ask("feedback-reports")
    assert sorted(one["proof"] for one in found["dmarc"]) == ["", "dkim provider.test"]
    assert home.queue.core.counters.meter.total("zonemta_dmarc_reported_total") == 5
    dns.texts = None
    with pytest.raises(QueueRefusal, match="DNS does not answer"):
        await take(signed(today(number="2")))


async def test_all_makers(made: Make) -> None:
    """Each is recorded, whatever its mail is like."""
    home, take = await made()
    for _, message, _ in [*DMARC, *TLS]:
        await take(message)
    kinds = [one.kind for one in recorded(home)]
    assert (kinds.count("dmarc-report"), kinds.count("tls-report"), len(kinds)) == (len(DMARC), len(TLS), len(kinds))
    await home.sound()


async def test_what_is_not_read_is_kept(made: Make) -> None:
    """A bomb, a mail that is too long, and what is no report at all; other addresses of the same mail get theirs."""
    home, take = await made()
    await take(mixed("a@b.test", "Report", "application/gzip", gzipped(bytes(50_000_000))))
    await take(mixed("a@b.test", "Report", "application/gzip", gzipped(report("R", "1", row())))[:-300], whole=False)
    await take(b"From: ann@x.test\r\nSubject: hello\r\n\r\nWho are you?\r\n")
    rows = recorded(home)
    assert [one.kind for one in rows] == ["other"] * 3
    assert rows[0].text == "a report that is not read: what is packed in it is neither XML nor JSON"
    assert rows[1].text.endswith("the message is longer than return_path.read_bytes (1,000,000)")
    assert all(one.raw_bytes for one in rows)
    await take(bounce(), verp_path(), TO)
    await take(today(row()), verp_path(), TO)
    assert [one.kind for one in recorded(home)[3:]] == ["bounce", "bounce", "dmarc-report", "other"]
    assert (await home.queue.ask("feedback", unread=True))["rows"]


async def test_it_is_there_after_a_crash(made: Make) -> None:
    """And forgotten after `verp_days`, as all that comes back."""
    home, take = await made()
    await take(signed(today(row())))
    await take(TLS[0][1])
    before = await home.queue.ask("feedback-reports", days=30)
    await home.crash(fsck="repair")
    assert await home.queue.ask("feedback-reports", days=30) == before
    await home.sound()
    await home.move(40 * 86_400)
    while home.queue.feedback_register.tidy():
        pass
    await home.queue.core.disk.settled()
    assert (await home.queue.ask("feedback-reports", days=100))["dmarc"] == []


async def test_imports(made: Make) -> None:
    """A table counts once; its correction is what is shown. Only such reports can be imported, and each has one."""
    home, _ = await made()
    day = time.strftime("%Y-%m-%d", time.gmtime((TODAY - 1) * 86_400))

    def rows(rate: str) -> list[list[Any]]:
        table = f"date,domain,domain reputation,spam rate\n{day},example.com,HIGH,{rate}\n".encode()
        return [
            feedback_row(Feedback("reputation", genuine="key", name=one.name, report=one.said))
            for one in read_table(table)
        ]

    assert await home.queue.ask("feedback-import", rows=rows("0.1%")) == [True]
    assert await home.queue.ask("feedback-import", rows=rows("0.1%")) == [False]
    assert await home.queue.ask("feedback-import", rows=rows("0.4%")) == [True]
    (found,) = (await home.queue.ask("feedback-reports"))["reputation"]
    assert (found["provider"], found["name"], found["complaint_rate"]) == ("google", "example.com", 0.004)
    for wrong in (Feedback("bounce"), Feedback("reputation"), Feedback("reputation", report={"x": "y" * 300_000})):
        with pytest.raises(ValueError, match=r"only dmarc-report|needs report|more than 262,144 bytes"):
            await home.queue.ask("feedback-import", rows=[feedback_row(wrong)])
    with pytest.raises(ValueError, match="has no report"):
        await home.queue.feedback([dataclasses.replace(Feedback("complaint"), report={"x": 1})])

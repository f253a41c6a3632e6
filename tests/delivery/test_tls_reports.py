"""What is written down of TLS, and found again in journal and archive; sending the reports."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.dane import Tlsa
from zonemta_py.delivery.tls.failures import CERTIFICATE, HANDSHAKE, TlsTrouble
from zonemta_py.delivery.tls.mail import send
from zonemta_py.delivery.tls.plan import Demands, TlsPlan, Trial
from zonemta_py.delivery.tls.reports import rows, seen_on
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.tls.mta_sts import Sts
from zonemta_py.mail.tls.reports import Reporter, Seen, TlsReport, reports_for

POLICY = Sts("d.test", "1", "testing", ("mx.d.test",), 60)
EXPIRED = TlsTrouble(CERTIFICATE, "certificate-expired", "expired")
DAY = date(2026, 3, 29)
NOON_MS = 1_774_785_600_000
TRIAL = Trial(TlsPlan(), "mx.d.test", "127.0.0.1", "127.0.0.9")
SEEN = Seen("d.test", "no-policy-found", "", "mx.d.test", "127.0.0.9", "127.0.0.1", "", [], [])


def test_each_domain_has_its_row() -> None:
    """One connection serves two domains: each gets it told under its own policy."""
    demands = Demands("opportunistic", sts=(POLICY,), domains=("d.test", "e.test"))
    trial = replace(TRIAL, plan=TlsPlan(verify="mta-sts", soft=True, source="sts"), verified="mta-sts")
    first, second = (Seen(*row) for row in rows(demands, [trial]))
    assert (first.domain, first.kind, first.mx, first.strings) == ("d.test", "sts", ["mx.d.test"], POLICY.lines())
    assert second == SEEN._replace(domain="e.test")


def test_dane_row() -> None:
    """The policy is the TLSA records as text, and the host they are of."""
    plan = TlsPlan("required", "dane", tlsa=(Tlsa(3, 1, 1, b"\x01\x02"),), source="tlsa")
    [row] = rows(Demands("opportunistic", domains=("d.test",)), [replace(TRIAL, plan=plan, trouble=EXPIRED)])
    seen = Seen(*row)
    assert (seen.kind, seen.result, seen.strings, seen.mx) == (
        "tlsa",
        "certificate-expired",
        ["3 1 1 0102"],
        ["mx.d.test"],
    )


def test_a_tested_policy_that_failed_is_no_success() -> None:
    """The connection that goes on unvalidated counts once, as a failure; also when nobody looked again."""
    demands = Demands("opportunistic", sts=(POLICY,), domains=("d.test",))
    good = replace(TRIAL, plan=TlsPlan(verify="mta-sts", soft=True, source="sts"))
    both = [Seen(*row).result for row in rows(demands, [replace(good, trouble=EXPIRED), good])]
    assert both == ["certificate-expired"]
    assert [Seen(*row).result for row in rows(demands, [good])] == ["validation-failure"]


def test_handshake_then_success() -> None:
    """A step lower without a policy: both connections are told."""
    demands = Demands("opportunistic", domains=("d.test",))
    failed = replace(TRIAL, trouble=TlsTrouble(HANDSHAKE, "validation-failure", "x" * 999))
    results = [Seen(*row) for row in rows(demands, [failed, TRIAL])]
    assert [one.result for one in results] == ["validation-failure", ""]
    assert len(results[0].detail) < 300


def test_policies_that_cannot_be_had() -> None:
    """A row without a host."""
    demands = Demands("opportunistic", domains=("d.test",), troubles=(("d.test", "sts-policy-fetch-error", "404"),))
    assert rows(demands, []) == [list(Seen("d.test", "sts", "sts-policy-fetch-error", detail="404"))]


# from journal and archive


def delivery_record(seq: int, ms: int, *more: Any) -> Record:
    trace = ["mx.d.test[127.0.0.1]:25", "127.0.0.9", "", 0, 0, *more]
    return Record(seq, ms, Type.DELIVERY, pack([1, "m", "z", "d.test", [], trace]))


def write(folder: Path, *records: Record) -> None:
    head = Record(records[0].seq - 1, NOON_MS, Type.SEGMENT, pack({"version": 1}))
    segments.Writer(folder).write([head, *records], True)


def test_found_again(tmp_path: Path) -> None:
    """Those of the day, each once, old records without rows among them; a segment may be in both folders just now."""
    row = [list(SEEN)]
    write(tmp_path / "archive", delivery_record(2, NOON_MS - 86_400_000, "", "", "", row), delivery_record(3, NOON_MS))
    write(
        tmp_path / "journal",
        delivery_record(11, NOON_MS, "", "", "", row),
        delivery_record(12, NOON_MS, "", "", "", [list(SEEN._replace(domain="e.test"))]),
        delivery_record(13, NOON_MS + 86_400_000, "", "", "", row),
    )
    for path in (tmp_path / "journal").iterdir():
        (tmp_path / "archive" / path.name).write_bytes(path.read_bytes())
    assert [one.domain for one in seen_on(tmp_path, DAY)] == ["d.test", "e.test"]
    assert [one.domain for one in seen_on(tmp_path, date(2026, 3, 28))] == ["d.test"]
    assert list(seen_on(tmp_path / "nowhere", DAY)) == []


# sending


class Names:
    """rua: of _smtp._tls.d.test, None if DNS does not answer."""

    def __init__(self, rua: str | None) -> None:
        self.rua = rua

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        assert name == "_smtp._tls.d.test"
        if self.rua is None:
            raise NoRoute(451, "4.4.3", "no answer")
        return False, [f"v=TLSRPTv1; rua={self.rua}"] if self.rua else []

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        return ("127.0.0.1",)

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        return False, []


@pytest.fixture
def report() -> TlsReport:
    [made] = reports_for(DAY, [SEEN], Reporter("mta.test", "Test", "tls@mta.test", "tls@mta.test"))
    return made


class Taken:
    """What was handed in; refuses if it is `full`."""

    def __init__(self, full: bool = False) -> None:
        self.full = full
        self.mails: list[tuple[str, list[str], bytes]] = []

    async def __call__(self, sender: str, recipients: list[str], message: bytes) -> None:
        if self.full:
            raise OSError("no space")
        self.mails.append((sender, recipients, message))


async def test_by_mail(report: TlsReport) -> None:
    """One mail for all mailto: addresses; what is no address is left out."""
    taken = Taken()
    said = await send(report, Names("mailto:a@x.test,mailto:b@y.test,mailto:%0d@z"), TlsContexts(), taken)
    assert said == ["d.test: handed in for a@x.test, b@y.test"]
    [(sender, recipients, message)] = taken.mails
    assert (sender, recipients) == ("tls@mta.test", ["a@x.test", "b@y.test"])
    assert b'report-type="tlsrpt"' in message


@pytest.mark.parametrize(
    ("rua", "full", "said"),
    [
        ("", False, []),
        (None, False, ["d.test: not sent, no answer"]),
        ("mailto:a@x.test", True, ["d.test: not sent to a@x.test, no space"]),
    ],
)
async def test_not_sent(rua: str | None, full: bool, said: list[str], report: TlsReport) -> None:
    """Nobody asks, DNS does not answer, or the queue does not take it: a sentence, and no error."""
    assert await send(report, Names(rua), TlsContexts(), Taken(full)) == said


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[tuple[int, TlsContexts, list[bytes]]]:
    """An HTTPS server that takes reports: its port, contexts that trust it, and what it got."""
    authority, got = trustme.CA(), []  # type: tuple[trustme.CA, list[bytes]]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("collector.test").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        got.extend((head, await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], TlsContexts(tmp_path / "ca.pem"), got
    server.close()


async def test_by_post(collector: Any, report: TlsReport) -> None:
    """POST of the gzipped JSON, as application/tlsrpt+gzip (RFC 8460 5.4)."""
    port, contexts, got = collector
    uri = f"https://collector.test:{port}/r?x=1"
    assert await send(report, Names(uri), contexts, Taken(), lambda _: "") == [f"d.test: sent to {uri}"]
    head, body = got
    assert head.startswith(b"POST /r?x=1 HTTP/1.1\r\n")
    assert b"content-type: application/tlsrpt+gzip\r\n" in head.lower()
    assert json.loads(gzip.decompress(body)) == report.body
    [said] = await send(report, Names(uri), TlsContexts(), Taken(), lambda _: "")
    assert "certificate" in said


async def test_a_report_is_not_posted_to_a_private_address(collector: Any, report: TlsReport) -> None:
    """Who asks for reports is a stranger, and so is who says where that name leads."""
    port, contexts, got = collector
    [said] = await send(report, Names(f"https://collector.test:{port}/r"), contexts, Taken())
    assert "collector.test is at 127.0.0.1, a loopback address" in said
    assert got == []

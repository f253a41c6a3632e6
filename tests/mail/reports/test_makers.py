"""Reports are read as their makers send them, whatever they are called and however they are packed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mail.reports.makers import (
    BEGIN,
    DMARC,
    END,
    TLS,
    encoded,
    gzipped,
    is_ours,
    mixed,
    policy,
    report,
    row,
    tls,
    zipped,
)
from zonemta_py.mail.reports.letters import read_report, read_reports
from zonemta_py.mail.reports.words import sentence


@pytest.mark.parametrize(("message", "wanted"), [one[1:] for one in DMARC], ids=[one[0] for one in DMARC])
def test_dmarc(message: bytes, wanted: dict[str, Any]) -> None:
    (found,), refused = read_reports(message, is_ours)
    assert (found.kind, refused) == ("dmarc-report", "")
    assert {name: found.said.get(name, 0) for name in wanted} == wanted
    assert found.said["domain"] == "example.com"
    assert found.said["begin_s"] == BEGIN
    assert sum(one["count"] for one in found.said["rows"]) == found.said["messages"]


@pytest.mark.parametrize(("message", "wanted"), [one[1:] for one in TLS], ids=[one[0] for one in TLS])
def test_tls(message: bytes, wanted: dict[str, Any]) -> None:
    (found,), refused = read_reports(message, is_ours)
    assert (found.kind, refused) == ("tls-report", "")
    assert {name: found.said.get(name) for name in wanted} == wanted


def said(*rows: str, **more: Any) -> dict[str, Any]:
    found = read_report(report("R", "1", *rows, **more).encode(), is_ours)
    assert found is not None
    return found.said


def test_what_a_row_says() -> None:
    """Ours first; addresses in their usual spelling; which domains have signed, which envelope SPF was checked for."""
    results = (
        "<dkim><domain>Esp.example.</domain><result>pass</result></dkim><dkim><domain>example.com</domain>"
        "<result>fail</result></dkim><spf><domain>esp.example</domain><result>softfail</result></spf>"
    )
    reason = "<reason><type>mailing_list</type><comment>x</comment></reason>"
    found = said(row("203.0.113.1", 90), row("2001:DB8::0025", 2, "fail", "fail", results=results, reasons=reason))
    assert [(one["ip"], one["ours"]) for one in found["rows"]] == [("2001:db8::25", True), ("203.0.113.1", False)]
    assert found["rows"][0] == {
        "ip": "2001:db8::25", "count": 2, "ours": True, "passed": False, "domain": "example.com", "disposition": "none",
        "dkim": "fail", "spf": "fail", "signed": ["esp.example"], "envelope": "esp.example", "spf_result": "softfail",
        "reasons": ["mailing_list"],
    }  # fmt: skip
    assert (found["messages"], found["passed"], found["ours"], found.get("ours_passed")) == (92, 90, 2, 0)


def test_rows_alike_are_one_and_few_are_kept() -> None:
    """The sums stay those of all."""
    found = said(*(row(f"198.51.{number // 250}.{number % 250}", 2) for number in range(700)), row(), row())
    assert (found["messages"], len(found["rows"]), found["left_out"]) == (1420, 501, 201)
    assert sum(one["count"] for one in found["rows"]) == 1420
    assert "ip" not in found["rows"][-1]
    assert (found["rows"][0]["ip"], found["rows"][0]["count"]) == ("192.0.2.9", 20)


@pytest.mark.parametrize(
    ("begin", "end", "wanted"),
    [
        (f"{BEGIN}000", f"{END}000", (BEGIN, END)),
        ("2026-11-28T00:00:00Z", "2026-11-28T23:59:59", (BEGIN, END)),
        (BEGIN, BEGIN - 5, (BEGIN, BEGIN)),
    ],
)
def test_times(begin: Any, end: Any, wanted: tuple[int, int]) -> None:
    found = said(row(), begin=begin, end=end)
    assert (found["begin_s"], found["end_s"]) == wanted


def test_it_is_said_in_a_sentence() -> None:
    found = said(row(count=12_203), row("192.0.2.1", 97, "fail", "fail"), row("203.0.113.7", 3, "fail", "fail"))
    assert sentence("dmarc-report", found) == (
        "example.com at R: of 12,300 messages from our sources 99.2 % passed DMARC; 192.0.2.1 is not aligned: 97;"
        " 3 messages from others, 3 of which failed"
    )
    (found_tls,), _ = read_reports(TLS[0][1], is_ours)
    wanted = "example.com at Google: 7 of 97 TLS sessions failed; certificate-expired at mx.example.com: 7"
    assert sentence("tls-report", found_tls.said) == wanted


def test_several_in_one_message_and_what_is_none() -> None:
    """A page, a picture, a table and a zip of something else are no reports; what is refused is said of the first."""
    one = mixed("a@b.example", "x", "application/gzip", gzipped(report("A", "1", row())))
    two = gzipped(json.dumps(tls("B", "2", policy(1))))
    tail = b"--b0\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--b0--\r\n"
    more = b"--b0\r\nContent-Transfer-Encoding: base64\r\n\r\n" + encoded(two) + b"\r\n" + tail
    found, refused = read_reports(one.replace(b"--b0--\r\n", more), is_ours)
    assert ([each.kind for each in found], refused) == (["dmarc-report", "tls-report"], "")
    other = mixed("a@b.example", "x", "application/zip", zipped("virus.exe", b"MZ"))
    assert read_reports(other, is_ours) == ([], "what is packed in it is neither XML nor JSON")
    page = mixed("a@b.example", "x", "text/html", b"<!DOCTYPE html><html><p>feedback</p></html>", coding="7bit")
    assert read_reports(page, is_ours) == ([], "")
    assert read_reports(b"Subject: hello\r\n\r\n{}\r\n", is_ours) == ([], "")
    assert read_reports(b"", is_ours) == ([], "")


def test_what_makes_it_the_same() -> None:
    """Who, which number, which domain and day; not the file, which is packed anew each time."""
    names = {read_reports(message, is_ours)[0][0].name for _, message, _ in [*DMARC, *TLS]}
    assert len(names) == len(DMARC) + len(TLS)
    first, again = (read_report(gzipped(report(org, "1", row())), is_ours) for org in ("Google", "google"))
    assert first is not None
    assert again is not None
    assert first.name == again.name

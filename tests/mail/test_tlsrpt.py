"""TLS reports: sums by policy, the JSON of RFC 8460, and the mail that carries it."""

from __future__ import annotations

import email
import email.policy
import gzip
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.tls.reports import Reporter, Seen, addressees, mailbox, message, reports_for

DAY = date(2026, 3, 29)
WHO = Reporter("mta.test", "Test Inc.", "postmaster@mta.test", "tls@mta.test")
STS = (["version: STSv1", "mode: testing", "mx: *.d.test", "max_age: 60"], ["*.d.test"])


def seen(domain: str = "d.test", result: str = "", kind: str = "sts", **more: Any) -> Seen:
    strings, mx = STS if kind == "sts" else ([], [])
    return Seen(domain, kind, result, "mx.d.test", "127.0.0.9", "127.0.0.1", strings=strings, mx=mx, **more)


def test_body() -> None:
    """One report a domain; each policy has its sums; equal failures are counted together (RFC 8460 4.4)."""
    rows = [seen(), seen(), seen(result="certificate-expired", detail="expired"), seen(result="certificate-expired",
            detail="expired"), seen(kind="no-policy-found"), seen("e.test", kind="tlsa")]  # fmt: skip
    first, second = reports_for(DAY, rows, WHO)
    assert (first.domain, second.domain) == ("d.test", "e.test")
    assert first.body == {
        "organization-name": "Test Inc.",
        "date-range": {"start-datetime": "2026-03-29T00:00:00Z", "end-datetime": "2026-03-29T23:59:59Z"},
        "contact-info": "tls@mta.test",
        "report-id": "20260329.d.test@mta.test",
        "policies": [
            {
                "policy": {"policy-type": "sts", "policy-domain": "d.test", "policy-string": STS[0], "mx-host": STS[1]},
                "summary": {"total-successful-session-count": 2, "total-failure-session-count": 2},
                "failure-details": [
                    {
                        "result-type": "certificate-expired",
                        "sending-mta-ip": "127.0.0.9",
                        "receiving-mx-hostname": "mx.d.test",
                        "receiving-ip": "127.0.0.1",
                        "failure-reason-code": "expired",
                        "failed-session-count": 2,
                    }
                ],
            },
            {
                "policy": {"policy-type": "no-policy-found", "policy-domain": "d.test"},
                "summary": {"total-successful-session-count": 1, "total-failure-session-count": 0},
            },
        ],
    }


def test_filename() -> None:
    """submitter!domain!begin!end.json.gz in UNIX time (RFC 8460 5.1)."""
    [report] = reports_for(DAY, [seen()], WHO)
    assert report.filename == "mta.test!d.test!1774742400!1774828799.json.gz"


def test_message() -> None:
    """multipart/report; report-type=tlsrpt with the report as its second part, gzipped; lines short and CRLF."""
    [report] = reports_for(DAY, [seen(detail=f"d{n}", result="validation-failure") for n in range(50)], WHO)
    raw = message(report, ["a@d.test", "b@d.test"], datetime(2026, 3, 30, tzinfo=UTC))
    assert raw.count(b"\n") == raw.count(b"\r\n")
    assert max(map(len, raw.split(b"\r\n"))) < 200
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    assert parsed.get_content_type() == "multipart/report"
    assert parsed.get_param("report-type") == "tlsrpt"
    assert (parsed["TLS-Report-Domain"], parsed["TLS-Report-Submitter"]) == ("d.test", "mta.test")
    text, attachment = parsed.iter_parts()  # type: ignore[attr-defined]
    assert text.get_content_type() == "text/plain"
    assert attachment.get_content_type() == "application/tlsrpt+gzip"
    assert json.loads(gzip.decompress(attachment.get_content())) == report.body


@pytest.mark.parametrize(
    ("texts", "uris"),
    [
        (["v=TLSRPTv1; rua=mailto:tls@d.test"], ["mailto:tls@d.test"]),
        (["v=TLSRPTv1;rua=https://d.test/r, mailto:a@d.test ;"], ["https://d.test/r", "mailto:a@d.test"]),
        (["other", "v=TLSRPTv1; x=y; rua=ftp://d.test,mailto:a@d.test"], ["mailto:a@d.test"]),
        (["v=TLSRPTv1; rua=mailto:a@d.test", "v=TLSRPTv1; rua=mailto:b@d.test"], []),
        (["v=TLSRPTv2; rua=mailto:a@d.test"], []),
        (["v=TLSRPTv1"], []),
        ([], []),
    ],
)
def test_addressees(texts: list[str], uris: list[str]) -> None:
    """Exactly one record; only mailto: and https: (RFC 8460 3)."""
    assert addressees(texts) == uris


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("mailto:a@d.test", "a@d.test"),
        ("mailto:a%2Bb@d.test?subject=x", "a+b@d.test"),
        ("mailto:a@d.test%0d%0aBcc:x@y", ""),
        ("mailto:<a@d.test>", ""),
        ("mailto:nobody", ""),
    ],
)
def test_mailbox(uri: str, address: str) -> None:
    """An address from a stranger's DNS never breaks out of a header field."""
    assert mailbox(uri) == address


rows = st.builds(seen, st.sampled_from(["a.test", "b.test"]), st.sampled_from(["", "certificate-expired"]),
                 st.sampled_from(["sts", "tlsa", "no-policy-found"]))  # fmt: skip


@given(st.lists(rows, max_size=40))
@settings(max_examples=50)
def test_nothing_is_lost(many: list[Seen]) -> None:
    """Every connection is in exactly one sum, every failure in one detail."""
    reports = reports_for(DAY, many, WHO)
    policies = [policy for report in reports for policy in report.body["policies"]]
    sums = [policy["summary"] for policy in policies]
    assert sum(s["total-successful-session-count"] for s in sums) == sum(not one.result for one in many)
    bad = sum(bool(one.result) for one in many)
    assert sum(s["total-failure-session-count"] for s in sums) == bad
    assert sum(f["failed-session-count"] for p in policies for f in p.get("failure-details", [])) == bad

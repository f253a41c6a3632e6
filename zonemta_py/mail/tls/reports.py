"""Reports on TLS (RFC 8460): what was seen in a day, as JSON for each policy domain, and as the mail that carries it.

Pure: the day, the clock and the reporter are arguments.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

from zonemta_py.mail import fields
from zonemta_py.mail.address import AddressRefused, parse_mailbox

MAIL, WEB = "mailto:", "https://"
MEDIA_TYPE = "application/tlsrpt+gzip"
FAILURES_MAX = 1000
"""Different failures of one policy in a report: a domain with thousands of hosts must not make it endless."""
_RECORD = re.compile(r"v=TLSRPTv1[ \t]*(;|$)")
_LINE = 76


class Seen(NamedTuple):
    """One connection (or one policy that could not be had, without a host), for one policy domain.

    kind: "tlsa", "sts", "no-policy-found". result: "" if it went well, else a result-type of RFC 8460 4.3. strings: the
    policy as text; mx: the hosts it names.
    """

    domain: str
    kind: str
    result: str
    host: str = ""
    local: str = ""
    address: str = ""
    detail: str = ""
    strings: list[str] = []  # noqa: RUF012 - never changed
    mx: list[str] = []  # noqa: RUF012


@dataclass(slots=True)
class Policy:
    """Sums of one policy. failures: what failed how → how often."""

    kind: str
    domain: str
    strings: tuple[str, ...]
    mx: tuple[str, ...]
    good: int = 0
    bad: int = 0
    failures: dict[Seen, int] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        if not seen.result:
            self.good += 1
            return
        self.bad += 1
        which = seen._replace(strings=(), mx=())  # type: ignore[arg-type]
        if which in self.failures or len(self.failures) < FAILURES_MAX:
            self.failures[which] = self.failures.get(which, 0) + 1

    def body(self) -> dict[str, Any]:
        policy: dict[str, Any] = {"policy-type": self.kind, "policy-domain": self.domain}
        if self.strings:
            policy["policy-string"] = list(self.strings)
        if self.mx:
            policy["mx-host"] = list(self.mx)
        body: dict[str, Any] = {
            "policy": policy,
            "summary": {"total-successful-session-count": self.good, "total-failure-session-count": self.bad},
        }
        if self.failures:
            body["failure-details"] = [_failure(seen, count) for seen, count in self.failures.items()]
        return body


def _failure(seen: Seen, count: int) -> dict[str, Any]:
    named = {
        "result-type": seen.result,
        "sending-mta-ip": seen.local,
        "receiving-mx-hostname": seen.host,
        "receiving-ip": seen.address,
        "failure-reason-code": seen.detail,
    }
    row: dict[str, Any] = {name: value for name, value in named.items() if value}
    return row | {"failed-session-count": count}


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports. name: our host name; address: the mail's sender."""

    name: str
    organization: str
    address: str
    contact: str


@dataclass(frozen=True, slots=True)
class TlsReport:
    """On one policy domain. day: UTC. body: RFC 8460 4.4."""

    domain: str
    day: date
    reporter: Reporter
    body: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same day and domain, so that a report sent twice is recognised."""
        return f"{self.day:%Y%m%d}.{self.domain}@{self.reporter.name}"

    @property
    def filename(self) -> str:
        """RFC 8460 5.1."""
        start, end = (int(moment.timestamp()) for moment in _span(self.day))
        return f"{self.reporter.name}!{self.domain}!{start}!{end}.json.gz"

    def compressed(self) -> bytes:
        return gzip.compress(json.dumps(self.body, ensure_ascii=False).encode(), mtime=0)


def reports_for(day: date, seen: Iterable[Seen], reporter: Reporter) -> list[TlsReport]:
    """One for each policy domain in what was seen that day, by name."""
    domains: dict[str, dict[tuple[Any, ...], Policy]] = {}
    for one in seen:
        key = (one.kind, tuple(one.strings), tuple(one.mx))
        policies = domains.setdefault(one.domain, {})
        if key not in policies:
            policies[key] = Policy(one.kind, one.domain, key[1], key[2])
        policies[key].add(one)
    return [_report(domain, day, list(policies.values()), reporter) for domain, policies in sorted(domains.items())]


def _report(domain: str, day: date, policies: list[Policy], reporter: Reporter) -> TlsReport:
    start, end = _span(day)
    report = TlsReport(domain, day, reporter, {})
    report.body.update(
        {
            "organization-name": reporter.organization,
            "date-range": {"start-datetime": _moment(start), "end-datetime": _moment(end)},
            "contact-info": reporter.contact,
            "report-id": report.id,
            "policies": [policy.body() for policy in policies],
        }
    )
    return report


def _span(day: date) -> tuple[datetime, datetime]:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start, start + timedelta(days=1, seconds=-1)


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def addressees(texts: Iterable[str]) -> list[str]:
    """The mailto: and https: URIs in the TXT records of _smtp._tls.DOMAIN; none unless exactly one record is for this.

    RFC 8460 3.
    """
    records = [text for text in texts if _RECORD.match(text)]
    if len(records) != 1:
        return []
    for part in records[0].split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip() == "rua":
            uris = [uri.strip() for uri in value.split(",")]
            return [uri for uri in uris if uri.lower().startswith((MAIL, WEB)) and uri.isprintable() and " " not in uri]
    return []


def mailbox(uri: str) -> str:
    """The address in a mailto: URI (RFC 6068), "" if there is none that can be written to."""
    try:
        address = parse_mailbox(unquote(uri[len(MAIL) :].partition("?")[0]))
    except AddressRefused:
        return ""
    return "" if '"' in address else address  # it stands in our To


def message(report: TlsReport, recipients: list[str], now: datetime) -> bytes:
    """The mail of RFC 8460 5.3, with CRLF. TLS-Required: No, so that broken TLS does not hold up the report on it."""
    who, boundary = report.reporter, f"=_tlsrpt_{report.day:%Y%m%d}_{len(report.compressed())}"
    encoded = base64.b64encode(report.compressed()).decode()
    lines = [
        f"From: <{who.address}>",
        f"To: {', '.join(f'<{recipient}>' for recipient in recipients)}",
        f"Date: {fields.date(int(now.timestamp()))}",
        f"Subject: Report Domain: {report.domain} Submitter: {who.name} Report-ID: <{report.id}>",
        f"Message-ID: <tlsrpt.{report.id}>",
        f"TLS-Report-Domain: {report.domain}",
        f"TLS-Report-Submitter: {who.name}",
        "TLS-Required: No",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
        f'Content-Type: multipart/report; report-type="tlsrpt"; boundary="{boundary}"',
        "",
        f"--{boundary}",
        "Content-Type: text/plain; charset=us-ascii",
        "",
        f"This is an aggregate report on TLS from {who.name} about {report.domain},",
        f"for {report.day:%Y-%m-%d} (UTC). See RFC 8460.",
        "",
        f"--{boundary}",
        f"Content-Type: {MEDIA_TYPE}",
        "Content-Transfer-Encoding: base64",
        f'Content-Disposition: attachment; filename="{report.filename}"',
        "",
        *(encoded[at : at + _LINE] for at in range(0, len(encoded), _LINE)),
        "",
        f"--{boundary}--",
        "",
    ]
    return "\r\n".join(lines).encode()

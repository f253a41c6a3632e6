"""An SMTP TLS report (RFC 8460), read: how many sessions to our servers were protected, and why the others were not.

Makers differ: counts as text or floats, one policy instead of a list of them, hosts as text, times as numbers, fields
that are missing. `mail/tls/reports.py` makes such reports.

Failures: ReportRefused, one sentence.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from zonemta_py.mail.reports.unpacking import Pieces, ReportRefused
from zonemta_py.mail.reports.values import COUNT_MAX, address, count, domain, line, time_s

POLICIES_MAX = 100
FAILURES_MAX = 200
"""Of all policies together; those with the most sessions are kept."""
HOSTS_MAX = 20
DAY_S = 86_400


class TlsFailure(NamedTuple):
    """Sessions that failed alike. kind: the result type (RFC 8460 4.3). mx: our host; source: whose address."""

    kind: str
    policy: str
    domain: str
    mx: str
    ip: str
    source: str
    reason: str


class TlsPolicy(NamedTuple):
    """kind: "sts", "tlsa", "no-policy-found"."""

    kind: str
    domain: str
    mx: tuple[str, ...]
    succeeded: int
    failed: int


class ReceivedTlsReport(NamedTuple):
    """org: who says so, by its own word. begin_s, end_s: UNIX time. failures: with their sessions."""

    org: str
    id: str
    contact: str
    begin_s: int
    end_s: int
    policies: tuple[TlsPolicy, ...]
    failures: dict[TlsFailure, int]


def read_tls(pieces: Pieces) -> ReceivedTlsReport:
    """Raises ReportRefused."""
    try:
        said = json.loads(b"".join(pieces()), parse_constant=lambda _: 0)
    except (ValueError, RecursionError):
        raise ReportRefused("its JSON is cut off or damaged") from None
    whole = _object(said[0] if isinstance(said, list) and said else said)
    if not {"policies", "report-id", "organization-name"} & whole.keys():
        raise ReportRefused("it is JSON, but no TLS report: it has neither policies nor a report-id")
    times = _object(whole.get("date-range"))
    begin_s = time_s(times.get("start-datetime"))
    if not begin_s:
        raise ReportRefused("it is a TLS report that does not say which day it is about")
    policies, failures = list[TlsPolicy](), dict[TlsFailure, int]()
    for one in _listed(whole.get("policies"))[:POLICIES_MAX]:
        policies.append(_policy(_object(one), failures))
    if sum(policy.succeeded + policy.failed for policy in policies) > COUNT_MAX:
        raise ReportRefused(f"it has a count above {COUNT_MAX:,}")
    contact = line(whole.get("contact-info"))
    return ReceivedTlsReport(
        line(whole.get("organization-name")) or domain(contact.rpartition("@")[2]), line(whole.get("report-id")),
        contact, begin_s, max(begin_s, time_s(times.get("end-datetime")) or begin_s + DAY_S - 1), tuple(policies),
        failures,
    )  # fmt: skip


def told(report: ReceivedTlsReport) -> dict[str, Any]:
    """As it is recorded."""
    failures = sorted(report.failures.items(), key=lambda one: (-one[1], one[0]))
    left = sum(number for _, number in failures[FAILURES_MAX:])
    rest = [(TlsFailure("others", "", "", "", "", "", ""), left)] if left else []
    value = {
        "org": report.org, "id": report.id, "contact": report.contact, "begin_s": report.begin_s,
        "end_s": report.end_s, "domain": next((one.domain for one in report.policies if one.domain), ""),
        "sessions": sum(one.succeeded + one.failed for one in report.policies),
        "failed": sum(one.failed for one in report.policies),
        "policies": [one._asdict() | {"mx": list(one.mx)} for one in report.policies],
        "failures": [{name: said for name, said in one._asdict().items() if said} | {"count": number}
                     for one, number in failures[:FAILURES_MAX] + rest],
        "left_out": max(0, len(failures) - FAILURES_MAX),
    }  # fmt: skip
    return {name: one for name, one in value.items() if one not in ("", [])}


def _policy(said: dict[str, Any], failures: dict[TlsFailure, int]) -> TlsPolicy:
    named = _object(said.get("policy")) or said
    sums = _object(said.get("summary"))
    kind, about = line(named.get("policy-type"), 40).lower(), domain(named.get("policy-domain"))
    hosts = [line(one) for one in _listed(named.get("mx-host"))[:HOSTS_MAX]]
    failed = 0
    for one in map(_object, _listed(said.get("failure-details"))):
        number = count(one.get("failed-session-count"))
        failed += number
        which = TlsFailure(
            line(one.get("result-type"), 60).lower() or "unspecified", kind, about,
            domain(one.get("receiving-mx-hostname")), address(one.get("receiving-ip")),
            address(one.get("sending-mta-ip")), line(one.get("failure-reason-code"), 100),
        )  # fmt: skip
        failures[which] = failures.get(which, 0) + number
    succeeded = count(sums.get("total-successful-session-count"))
    if (untold := count(sums.get("total-failure-session-count")) - failed) > 0:  # no details of these
        which = TlsFailure("unspecified", kind, about, "", "", "", "")
        failures[which] = failures.get(which, 0) + untold
        failed += untold
    return TlsPolicy(kind, about, tuple(filter(None, map(str.lower, hosts))), succeeded, failed)


def _object(said: Any) -> dict[str, Any]:
    """With its names as the RFC has them."""
    if not isinstance(said, dict):
        return {}
    return {name.strip().lower().replace("_", "-"): value for name, value in said.items()}


def _listed(said: Any) -> list[Any]:
    if isinstance(said, list):
        return said
    return [] if said is None or said == "" else [said]

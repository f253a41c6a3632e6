"""Table `reports`: what receivers report about our mail, a row for each source, kind of failure, domain and day."""

from __future__ import annotations

import json

from tests.mail.reports.makers import EXPIRED, is_ours, policy, report, row, tls
from tests.pipeline.lake.test_update import place
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.mail.reports.letters import read_report
from zonemta_py.mail.reports.reputation import read_table
from zonemta_py.pipeline.journal import rows as journal_rows
from zonemta_py.pipeline.lake import reports, table, update


def put(journal, kind, said, genuine="dkim"):
    """As a FEEDBACK record of the journal is read."""
    record = FeedbackRecord(kind, "", reporter="provider.test", via="smtp", genuine=genuine, report=said)
    (made,) = journal_rows._FORMS[Type.FEEDBACK].expand([(1, 2)], [list(record)])
    columns = dict(zip(("seq", "part", "at", *journal_rows._FORMS[Type.FEEDBACK].columns), made, strict=True))
    known = {name: columns[name] for name in ("kind", "what", "name", "remote", "value")}
    journal.record("FEEDBACK", [None], **known)


def test_rows_can_be_added_up(spark, tmp_path, journal):
    """Also those that a large report does not keep one by one; they are in no other table."""
    many = [row(f"198.51.{number // 250}.{number % 250}", 2, "fail", "fail") for number in range(600)]
    text = report("Provider", "1", row("192.0.2.9", 90), row("192.0.2.1", 7, "fail", "fail"), *many).encode()
    put(journal, "dmarc-report", read_report(text, is_ours).said)
    said = tls("Sender", "2", policy(80, 9, EXPIRED), policy(kind="tlsa"))
    put(journal, "tls-report", read_report(json.dumps(said).encode(), is_ours).said, genuine="")
    (reputation,) = read_table(b"date,domain,domain reputation,spam rate\n2026-11-29,example.com,BAD,0.4%\n")
    put(journal, "reputation", reputation.said, genuine="key")
    journal.feedback("00000000000000a1", "a@x.example", "complaint")
    place(tmp_path, journal.rows)
    update.update(spark, tmp_path, ["reports", "feedback"])
    found = table.read(spark, tmp_path, "reports").collect()
    dmarc = [one for one in found if one.kind == "dmarc-report"]
    assert (sum(one.passed for one in dmarc), sum(one.failed for one in dmarc)) == (90, 1207)
    assert [(one.source, one.ours, one.failed) for one in dmarc if one.ours and one.failed] == [("192.0.2.1", True, 7)]
    assert [one.failed for one in dmarc if one.source is None] == [204]
    assert {(one.org, one.domain, one.report, one.reporter, one.genuine) for one in dmarc} == {
        ("Provider", "example.com", "1", "provider.test", "dkim")
    }
    assert dmarc[0].begin_at.timestamp() == 1_795_824_000
    failures = [(one.policy, one.failure, one.mx, one.passed, one.failed) for one in found if one.kind == "tls-report"]
    assert sorted(failures, key=str) == [
        ("sts", "certificate-expired", "mx.example.com", 0, 7),
        ("sts", "unspecified", None, 0, 2),
        ("sts", None, None, 80, 0),
        ("tlsa", None, None, 90, 0),
    ]
    (one,) = [one for one in found if one.kind == "reputation"]
    assert (one.provider, one.name, one.domain, one.reputation, one.complaint_rate) == (
        "google", "example.com", "example.com", "BAD", 0.004,
    )  # fmt: skip
    assert [one.kind for one in table.read(spark, tmp_path, "feedback").collect()] == ["complaint"]


def test_only_days_with_new_reports_are_made_again(spark, tmp_path, journal):
    """What else comes back is no reason to."""
    journal.feedback("00000000000000a1", "a@x.example", "complaint")
    place(tmp_path, journal.rows)
    assert reports.touched(spark.read.parquet(str(tmp_path / "bronze"))) == []

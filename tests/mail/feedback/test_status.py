"""Reports as RFC 3464 and RFC 6533 have them."""

from __future__ import annotations

import pytest

from zonemta_py.config.section import shipped
from zonemta_py.mail.dsn import Kind, build
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.feedback.status import read_status
from zonemta_py.mail.notices.phrases import load
from zonemta_py.mail.notices.wording import Failed, Wording
from zonemta_py.mail.reply import Reply

LANGUAGES = tuple(load(file.stem, shipped("notices")) for file in sorted(shipped("notices").iterdir()))
ORIGINAL = b"Message-ID: <1@example.com>\r\nFeedback-ID: 7:c\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nHi\r\n"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("failed", "bounce"), ("delayed", "delay"), ("relayed", "delivered"), ("delivered", "delivered")],
)
@pytest.mark.parametrize("address", ["ann@example.net", "änn@exämple.net"])
def test_our_own_notifications_are_read(kind: Kind, expected: str, address: str) -> None:
    code = {"failed": 550, "delayed": 451}.get(kind, 250)
    failed = Failed(Recipient(address, 0), Reply(code, f"{code // 100}.1.1", "in these words"), "mx.example.net")
    envelope = Envelope(sender="s@example.com", recipients=[failed.recipient])
    wording = Wording("me.example", "mailer-daemon@me.example", LANGUAGES)
    made = build(kind, envelope, [failed], ORIGINAL, wording=wording, now_ms=0, unique="u")
    report = read(made)
    (found,) = report.found
    assert report.form == "rfc3464"
    assert (found.kind, found.recipient, found.reporter) == (expected, address, "mx.example.net")
    assert found.reply == failed.reply
    assert (report.message_id, report.feedback_id) == ("<1@example.com>", "7:c")
    assert report.original["subject"] == "Grüße"


def test_what_nobody_understands_is_other() -> None:
    report = read(b"Subject: hello\r\n\r\nHow are you?\r\n")
    assert (report.form, [found.kind for found in report.found], report.subject) == ("", ["other"], "hello")


@pytest.mark.parametrize(
    "status",
    [
        "Final-Recipient: rfc822; a@b.example\nAction: failed\nStatus: 5.1.1\n"
        "Final-Recipient: rfc822; c@b.example\nAction: failed\nStatus: 5.2.2",
        "Action: failed\nFinal-Recipient: rfc822; a@b.example\nStatus: 5.1.1\n"
        "Action: failed\nFinal-Recipient: rfc822; c@b.example\nStatus: 5.2.2",
        "Final-Recipient: rfc822; a@b.example\n\nAction: failed\n\nStatus: 5.1.1\n\n"
        "Final-Recipient: rfc822; c@b.example\n\nAction: failed\n\nStatus: 5.2.2",
    ],
    ids=["no blank line between", "the action first", "a blank line after each field"],
)
def test_recipients_are_told_apart_however_blank_lines_stand(status: str) -> None:
    found = read_status(f"Reporting-MTA: dns; b.example\n{status}\n")
    assert [(one.kind, one.recipient, one.reply.enhanced) for one in found] == [
        ("bounce", "a@b.example", "5.1.1"),
        ("bounce", "c@b.example", "5.2.2"),
    ]


@pytest.mark.parametrize(
    ("named", "recipient"),
    [("utf-8; j\\x{F6}rn@b.example", "jörn@b.example"), ("rfc822; ann@#b.example", "ann@#b.example")],
)
def test_odd_addresses_are_named_as_they_were_used(named: str, recipient: str) -> None:
    """RFC 6533 3 escapes; and what fails is often no domain."""
    (found,) = read_status(f"Final-Recipient: {named}\nAction: failed\nStatus: 5.1.2\n")
    assert found.recipient == recipient


def test_fields_of_nobody_beside_a_recipient_are_no_news() -> None:
    status = "Action: failed\nStatus: 5.0.0\n\nFinal-Recipient: rfc822; a@b.example\nAction: delayed\nStatus: 4.7.0\n"
    assert [(one.kind, one.recipient) for one in read_status(status)] == [("delay", "a@b.example")]

"""What a person or a program answers is no bounce, whatever its words; what asks to be left alone is an unsubscribe."""

# ruff: noqa: E501 - a message is a line
from __future__ import annotations

import pytest

from zonemta_py.mail.feedback.read import read


def kind_of(head: str, body: str = "") -> str:
    (found,) = read(f"{head}\n\n{body}\n".encode()).found
    return found.kind


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("From: Bob <bob@example.net>\nReturn-Path: <>\nSubject: Re: Your parcel was rejected", "User unknown, who is that? 550"),
        ("From: Bob <bob@example.net>\nReturn-Path: <>\nSubject: Spring", "My old address does not exist; write to bea@example.net"),
        ("From: Bob <bob@example.net>\nSubject: Your account is over quota", "Buy more at https://example.net"),
        ("From: Bob <bob@example.net>\nSubject: AW: failure notice", "What does 550 5.1.1 mean?"),
    ],
)  # fmt: skip
def test_what_nobody_has_marked_and_no_mail_system_wrote_is_no_bounce(head: str, body: str) -> None:
    assert kind_of(head, body) == "other"


@pytest.mark.parametrize("field", ["Auto-Submitted: auto-replied", "X-Autoreply: yes", "Precedence: auto_reply"])
def test_an_automatic_reply_that_speaks_of_failure_is_no_bounce(field: str) -> None:
    head = f"From: Bob <bob@example.net>\nReturn-Path: <>\n{field}\nSubject: Undeliverable: Spring"
    assert kind_of(head, "550 5.1.1 This mailbox does not exist any more: <bob@example.net>") == "auto-reply"


@pytest.mark.parametrize(
    "subject", ["unsubscribe", "Unsubscribe me!", "please unsubscribe", "Abmelden", "baja", "退订", "désabonner"]
)
def test_a_mail_that_asks_for_it_is_an_unsubscribe(subject: str) -> None:
    assert kind_of(f"From: bob@example.net\nTo: u-7f3a@mail.example.com\nSubject: {subject}") == "unsubscribe"


@pytest.mark.parametrize("subject", ["Trabaja", "Re: unsubscribed by mistake?", "Abmeldungen und andere Fragen zur neuen Satzung unseres Vereins, die ich gestern schon gestellt habe"])  # fmt: skip
def test_a_letter_that_speaks_of_it_is_none(subject: str) -> None:
    assert kind_of(f"From: bob@example.net\nTo: u-7f3a@mail.example.com\nSubject: {subject}", "Dear all,") == "other"


def test_apples_mail_program_unsubscribes() -> None:
    head = "From: bob@example.net\nX-Apple-Unsubscribe: true\nAuto-Submitted: auto-replied\nSubject: Spring"
    assert kind_of(head, "Apple Mail sent this email to unsubscribe") == "unsubscribe"


@pytest.mark.parametrize("disposition", ["manual-action/MDN-sent-manually; displayed", "automatic-action/MDN-sent-automatically; deleted"])  # fmt: skip
def test_a_read_receipt_is_other_news(disposition: str) -> None:
    part = f"--b\nContent-Type: message/disposition-notification\n\nFinal-Recipient: rfc822; bob@example.net\nDisposition: {disposition}\n--b--"
    report = read(f"From: bob@example.net\nContent-Type: multipart/report; boundary=b\n\n{part}\n".encode())
    (found,) = report.found
    assert (report.form, found.kind, found.recipient) == ("rfc8098", "other", "bob@example.net")


QUOTED = "Why did <ann@example.net>: 550 5.1.1 User unknown come back?\n\nFinal-Recipient: rfc822; ann@example.net\nAction: failed\n"


@pytest.mark.parametrize(
    "subject", ["A question", "Re: Undelivered Mail", "[ops] Mail delivery failed (#550)", "550 5.1.1"]
)
def test_whoever_can_be_answered_may_quote_a_bounce(subject: str) -> None:
    """A mail system leaves the envelope's sender empty (RFC 5321 4.5.5), so a person's mail is told from a bounce."""
    message = f"From: Bob <bob@example.net>\nSubject: {subject}\n\n{QUOTED}".encode()
    (found,) = read(message, "bob@example.net").found
    assert found.kind == "other"


@pytest.mark.parametrize("subject", ["Delivery failed: order 550", "Mailbox full?", "Unknown user", "Delivery delayed"])
def test_whoever_can_be_answered_may_speak_of_deliveries(subject: str) -> None:
    """A bounce names somebody else, and its title is of a delivery."""
    message = (
        f"From: Bob <bob@example.net>\nSubject: {subject}\n\nIt was not delivered (550). Write to bob@example.net\n"
    )
    for sender in ("bob@example.net", None):
        assert [found.kind for found in read(message.encode(), sender).found] == ["other"]
    bounce = (
        b"From: gate@example.net\nSubject: Delivery failed\n\nNot delivered to ann@example.net: 550 5.1.1 unknown\n"
    )
    assert [(found.kind, found.recipient) for found in read(bounce, "gate@example.net").found] == [
        ("bounce", "ann@example.net")
    ]


@pytest.mark.parametrize("field", ["List-Id: <ops.example.net>", "List-Unsubscribe: <mailto:x@example.net>"])
def test_a_list_may_quote_a_bounce(field: str) -> None:
    message = f"From: Bob <bob@example.net>\n{field}\nSubject: Undelivered Mail\n\n{QUOTED}".encode()
    assert [found.kind for found in read(message, "ops-owner@example.net").found] == ["other"]


def test_a_postmaster_may_write_a_letter() -> None:
    message = b"From: postmaster@example.net\nSubject: Your newsletter\n\nSign it, or we shall answer 550 5.7.1.\n"
    assert [found.kind for found in read(message, "postmaster@example.net").found] == ["other"]
    bounce = b"From: postmaster@example.net\nSubject: Your mail\n\n<ann@example.net>: 550 5.1.1 User unknown\n"
    assert [(found.kind, found.recipient) for found in read(bounce, "").found] == [("bounce", "ann@example.net")]


ECHO = "Our spam report 2026: unsubscribe or stay?"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("From: Ann <ann@x.example>\nReturn-Path: <>\nAuto-Submitted: auto-replied\nSubject: Automatic reply: {}", "auto-reply"),
        ("From: Ann <ann@x.example>\nReturn-Path: <ann@x.example>\nSubject: Automatic reply: {}", "auto-reply"),
        ("From: Ann <ann@x.example>\nReturn-Path: <>\nAuto-Submitted: auto-replied\nSubject: Respuesta automática: estoy de baja", "auto-reply"),
        ("From: Ann <ann@x.example>\nReturn-Path: <ann@x.example>\nSubject: Re: {}", "other"),
        ("From: MAILER-DAEMON@x.example\nReturn-Path: <>\nSubject: Undeliverable: {}", "bounce"),
        ("From: MAILER-DAEMON@x.example\nReturn-Path: <>\nSubject: Delayed: {}", "delay"),
    ],
)  # fmt: skip
def test_who_repeats_our_subject_means_nothing_of_what_it_says(head: str, kind: str) -> None:
    """Neither a complaint nor a wish to leave, with the original below or without."""
    said = {
        "bounce": "<ann@x.example>: 452 4.2.2 mailbox full",
        "delay": "<ann@x.example>: 452 4.2.2 full. We will keep trying.",
    }
    original = (
        f"\n-----Original Message-----\nFrom: Shop <shop@src.example>\nTo: ann@x.example\nSubject: {ECHO}\n\nDear Ann"
    )
    for below in ("", original):
        assert kind_of(head.format(ECHO), said.get(kind, "I am back on Monday.") + below) == kind


@pytest.mark.parametrize("sender", ["Support <support@x.example>", "サポート <support@x.example>"])
def test_a_help_desk_that_mentions_an_old_address_bounces_nothing(sender: str) -> None:
    head = f"From: {sender}\nReturn-Path: <>\nSubject: Hello"
    body = "Thank you for your message. Please note that old@x.example no longer exists; write to new@x.example."
    assert kind_of(head, body) != "bounce"

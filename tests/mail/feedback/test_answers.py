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

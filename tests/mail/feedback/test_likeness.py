"""What a mail is most like decides last, and never what stops mail at once; what it costs has a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.mail.feedback import parts, texts
from zonemta_py.mail.feedback.page import TextPage
from zonemta_py.mail.feedback.read import read


def mail(sender: str, subject: str, body: str, envelope: str = "<>", more: str = "") -> bytes:
    head = f"Return-Path: {envelope}\nFrom: {sender}\nTo: b+1@news.example.com\nSubject: {subject}\n{more}"
    return f"{head}Content-Type: text/plain; charset=utf-8\n\n{body}\n".encode()


def test_a_program_without_a_known_name_bounces() -> None:
    body = "Barua yako kwa juma@pwani.example haikuweza kutumwa. Sababu: jina la kikoa halipatikani; hakuna seva."
    (found,) = read(mail("Mtuma barua <mtuma@barua.example>", "Barua haikutumwa", body)).found
    assert (found.kind, found.recipient) == ("bounce", "juma@pwani.example")


@pytest.mark.parametrize(
    ("sender", "subject", "body"),
    [
        ("Ann <ann@example.net>", "Kilépett", "Már nem dolgozom itt, a postafiók megszűnik. Írjon: peti@x.example"),
        ("Bank <alerts@bank.example>", "Security notice", "Somebody tried to log in as joe@pay.example from Rome."),
        ("p@dmarc.example", "Report Domain: example.com", "Messages rejected: 12, 550 5.7.1. Contact a@dmarc.example"),
        ("Guard <guard@x.example>", "Please verify", "Mail to ann@example.net is parked. Type the word at https://x"),
        ("Newsletter <n@x.example>", "Mail failed? 5 tips", "550 5.1.1 user unknown means ann@y.example is gone."),
    ],
)
def test_what_is_like_no_report_is_none(sender: str, subject: str, body: str) -> None:
    more = "List-Unsubscribe: <mailto:u@x.example>\n" if sender.startswith("Newsletter") else ""
    envelope = "<alerts@bank.example>" if sender.startswith("Bank") else "<>"
    assert read(mail(sender, subject, body, envelope, more)).found[0].kind not in ("bounce", "delay")


@pytest.mark.parametrize(
    "body",
    [
        "Outlook thinks this is spam. I have moved it to the inbox. Keep it coming!",
        "I looked in my spam folder. I never subscribed successfully.",
        "Please do not take me off your list, I still want it.",
        "Don't remove me! I love it.",
        "Can you delete the comment under my article?",
        "Please cancel my order 123 and stop shipping us",
        "Please remove my old address from the list and add the new one ann2@example.net",
        "Bitte löschen Sie meine alte Adresse und nehmen Sie die neue: ann2@example.net",
    ],
)
def test_a_reader_who_wants_to_stay_stays(body: str) -> None:
    letter = mail("Bob <bob@y.example>", "A question", body, "<bob@y.example>")
    assert read(letter).found[0].kind == "other"


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """One entry for each call of a function from now on."""
    calls: list[None] = []
    whole: Callable[..., Any] = getattr(owner, name)

    def counting(*given: Any) -> Any:
        calls.append(None)
        return whole(*given)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_what_stands_over_a_list_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of a hundred recipients it took 24 ms."""
    heading = "\n".join(["the user of this mailbox was not found in our directory of people " * 10] * 12)
    recipients = "\n".join(f"u{number}@b.example" for number in range(100))
    headings = counted(monkeypatch, TextPage, "_paragraph_over")
    replies = counted(monkeypatch, texts, "reply_of")
    found = read(mail("MAILER-DAEMON@mx.example", "Undelivered Mail", f"{heading}\n{recipients}")).found
    assert len(found) == 100
    assert len(headings) == 1
    assert len(replies) <= 2


def test_multiparts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a boundary of its own, which must be looked for."""

    def part(depth: int, name: str) -> str:
        inner = "".join(f"--{name}\n{part(depth - 1, f'{name}.{n}')}\n" for n in range(40)) if depth else "text"
        return f'Content-Type: multipart/mixed; boundary="{name}"\n\n{inner}--{name}--\n'

    looked = counted(monkeypatch, parts, "_sections")
    assert read(f"From: a@b.example\nReturn-Path: <>\n{part(2, 'b')}".encode()).found
    assert len(looked) <= parts.PARTS_MAX

"""What a text for people says of whom, and why: courtesy, numbers, forwarded headers and new addresses apart."""

from __future__ import annotations

import pytest

from zonemta_py.mail.feedback.read import read


def said(text: str, subject: str = "Undelivered", kind: str = "text/plain") -> list[tuple[str, str, str]]:
    head = f"From: MAILER-DAEMON@example.net\nSubject: {subject}\nContent-Type: {kind}\n\n"
    found = read(f"{head}{text}\n".encode(), "").found
    return [(one.kind, one.recipient, one.reply.text) for one in found]


def test_clauses_that_only_tell_that_it_failed_are_left_out() -> None:
    """Rules go by all words of a reply, and "could not be delivered" is in every report."""
    text = "Your letter to ann@b.example could not be delivered, because her mailbox was deleted."
    assert said(text) == [("bounce", "ann@b.example", "because her mailbox was deleted.")]


@pytest.mark.parametrize("reason", ["could not be delivered for 5 days.", "was rejected as spam."])
def test_a_clause_that_also_tells_why_is_kept(reason: str) -> None:
    ((_, recipient, text),) = said(f"Your letter to ann@b.example {reason} We are sorry for that.")
    assert (recipient, reason in text) == ("ann@b.example", True)


def test_recipients_in_a_numbered_list_are_each_told() -> None:
    text = "These recipients did not get your mail:\n 1) ann@b.example - unknown\n 2. bob@b.example - mailbox full"
    assert [recipient for _, recipient, _ in said(text)] == ["ann@b.example", "bob@b.example"]


def test_where_somebody_has_gone_is_not_who_failed() -> None:
    assert [one[1] for one in said("Mail to ann@b.example is returned. Her new address is anne@c.example.")] == [
        "ann@b.example"
    ]


def test_what_only_the_subject_says_is_read() -> None:
    assert said("(attached)", "Undeliverable: 550 5.1.1 <ann@b.example> unknown")[0][1] == "ann@b.example"


def test_cells_of_a_table_are_words_of_their_own() -> None:
    text = "<table><tr><td>Recipient</td><td>ann&#64;b.example</td><td>550&nbsp;5.1.1 unknown</td></tr></table>"
    assert said(text, kind="text/html") == [("bounce", "ann@b.example", "unknown")]


def test_details_of_the_original_are_not_its_end() -> None:
    text = "Not delivered.\n\nOriginal message details\nSubject: Spring\n\nann@b.example\n550 5.1.1 unknown"
    assert said(text) == [("bounce", "ann@b.example", "unknown")]


def test_a_part_of_blanks_does_not_hide_the_other_form() -> None:
    parts = "--b\n\n \n--b\nContent-Type: text/html\n\n<p>ann@b.example: 550 5.1.1 unknown</p>\n--b--"
    assert said(parts, kind="multipart/alternative; boundary=b") == [("bounce", "ann@b.example", "unknown")]


@pytest.mark.parametrize(
    "words", ["<ann@b.example>: 550 Mail from 192.0.2.1 is refused", "ann@b.example takes no mail from you."]
)
def test_mail_from_somewhere_does_not_make_the_recipient_the_sender(words: str) -> None:
    assert [one[1] for one in said(words)] == ["ann@b.example"]
    assert [one[1] for one in said(f"MAIL FROM:<me@c.example>\n{words}")] == ["ann@b.example"]

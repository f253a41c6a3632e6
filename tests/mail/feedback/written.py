"""More than 200 reports in words of our own: forms of many mail systems, languages, codings, broken MIME.

Each is made of a text (`texts.py`) and a way to wrap it (`_wrapped`); none is copied from a collection.
"""

# ruff: noqa: E501 - a text is a line
from __future__ import annotations

import base64
import quopri
from collections.abc import Iterator
from email.header import Header
from typing import NamedTuple

from tests.mail.feedback.measure import Row
from tests.mail.feedback.texts import ANSWERS, COMPLAINTS, FAILURES, STATUSES, UNSUBSCRIBES, Text

SENDER = "news-7f3a@mail.example.com"
ORIGINAL = (
    "Return-Path: <{sender}>\nReceived: from out.example.com by mx.example.net with ESMTP id 1; Mon, 2 Nov 2026 10:00:00 +0000\n"
    "Message-ID: <m1@mail.example.com>\nFeedback-ID: spring:shop\nFrom: Shop <shop@mail.example.com>\nTo: {to}\n"
    "Subject: Spring\nDate: Mon, 2 Nov 2026 10:00:00 +0000\n"
)


class Written(NamedTuple):
    name: str
    message: bytes
    rows: list[Row]


def _head(text: Text, more: str = "") -> str:
    subject = Header(text.subject, text.charset).encode() if not text.subject.isascii() else text.subject
    return (
        f"Return-Path: <>\nReceived: from mx.example.net by in.example.com; Tue, 3 Nov 2026 10:00:00 +0000\n"
        f"From: {text.sender}\nTo: <{SENDER}>\nSubject: {subject}\nDate: Tue, 3 Nov 2026 10:00:00 +0000\n"
        f"Message-ID: <r1@mx.example.net>\nMIME-Version: 1.0\n{text.fields}{more}"
    )


def _coded(body: str, charset: str, coding: str) -> bytes:
    content = body.encode(charset, "replace")
    if coding == "base64":
        return base64.encodebytes(content)
    return quopri.encodestring(content) if coding == "quoted-printable" else content


def _plain(text: Text, coding: str) -> bytes:
    """The text alone, the original's header behind it."""
    mark = "\n------ This is a copy of your message, including all the headers. ------\n\n" if text.encloses else ""
    body = f"{text.body}\n{mark}{_original(text) if text.encloses else ''}"
    head = _head(text, f"Content-Type: text/plain; charset={text.charset}\nContent-Transfer-Encoding: {coding}\n")
    return head.encode() + b"\n" + _coded(body, text.charset, coding)


def _mixed(text: Text, coding: str, end: bool = True, html: bool = False) -> bytes:
    """The text and the original as parts; `end`: the last boundary is there."""
    body = (
        f"<html><head><style>p {{ x }}</style></head><body><p>{_marked_up(text.body)}</p></body></html>"
        if html
        else text.body
    )
    parts = [
        f"Content-Type: text/{'html' if html else 'plain'};\n charset=\"{text.charset}\"\n".encode()
        + f"Content-Transfer-Encoding: {coding}\n\n".encode() + _coded(body, text.charset, coding),
        f"Content-Type: message/rfc822\n\n{_original(text)}\nHello\n".encode(),
    ]  # fmt: skip
    lines = b"".join(b"--=_b1\n" + part + b"\n" for part in parts) + (b"--=_b1--\n" if end else b"")
    return _head(text, 'Content-Type: multipart/mixed;\n\tboundary="=_b1"\n').encode() + b"\nMIME\n\n" + lines


def _marked_up(body: str) -> str:
    return body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br>\n")


def _original(text: Text) -> str:
    return ORIGINAL.format(sender=SENDER, to=text.rows[0].recipient or "ann@example.net")


def _failures() -> Iterator[Written]:
    for text in FAILURES:
        wide = "8bit" if text.charset != "us-ascii" else "7bit"
        yield Written(f"{text.name}-plain", _plain(text, wide), text.rows)
        yield Written(f"{text.name}-base64", _mixed(text, "base64"), text.rows)
        yield Written(f"{text.name}-crlf", _plain(text, "quoted-printable").replace(b"\n", b"\r\n"), text.rows)
        if len(text.rows) == 1:
            yield Written(f"{text.name}-html", _mixed(text, "quoted-printable", end=False, html=True), text.rows)


def _statuses() -> Iterator[Written]:
    for text in STATUSES:
        for kind, wide in (("delivery-status", False), ("global-delivery-status", True)):
            charset = "; charset=utf-8\nContent-Transfer-Encoding: base64" if wide else ""
            status = base64.encodebytes(text.body.encode()).decode() if wide else text.body
            body = (
                f"--b\nContent-Type: text/plain\n\nSomething went wrong.\n--b\nContent-Type: message/{kind}{charset}\n\n{status}\n"
                f"--b\nContent-Type: text/rfc822-headers\n\n{_original(text)}\n--b--\n"
            )
            head = _head(text, 'Content-Type: multipart/report; report-type=delivery-status;\n boundary="b"\n')
            yield Written(f"{text.name}-{kind}", f"{head}\n{body}".encode(), text.rows)
        torn = f"{_head(text)}\n{text.body}\n\n{_original(text)}"
        yield Written(f"{text.name}-torn", torn.encode(), text.rows)


def _complaints() -> Iterator[Written]:
    for text in COMPLAINTS:
        if text.report:
            body = (
                f"--f\nContent-Type: text/plain\n\n{text.body}\n--f\nContent-Type: message/feedback-report\n\n{text.report}\n"
                f"--f\nContent-Type: message/rfc822\n\n{ORIGINAL.format(sender=SENDER, to='hidden-recipients:;')}\nHello\n--f--\n"
            )
            head = _head(text, "Content-Type: multipart/report; report-type=feedback-report; boundary=f\n")
            yield Written(text.name, f"{head}\n{body}".encode(), text.rows)
        else:
            yield Written(text.name, _mixed(text, "7bit"), text.rows)


def _answers() -> Iterator[Written]:
    for text in (*ANSWERS, *UNSUBSCRIBES):
        coding = "base64" if text.charset != "us-ascii" else "7bit"
        message = _plain(text, coding)
        if text in UNSUBSCRIBES:  # people write them
            message = message.replace(b"Return-Path: <>", b"Return-Path: <" + text.rows[0].recipient.encode() + b">", 1)
        yield Written(text.name, message, text.rows)


ALL = [*_failures(), *_statuses(), *_complaints(), *_answers()]

"""What ties a complaint to what was sent, where the provider has redacted the rest."""

from __future__ import annotations

from zonemta_py.mail.feedback.read import read


def complaint(report: str, original: str) -> bytes:
    return (
        "From: feedback@isp.example.net\nContent-Type: multipart/report; report-type=feedback-report; boundary=f\n\n"
        f"--f\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\nVersion: 1\n{report}\n"
        f"--f\nContent-Type: text/rfc822-headers\n\n{original}\n--f--\n"
    ).encode()


def test_the_return_path_is_told_by_the_report_where_the_original_has_none() -> None:
    """It has our token."""
    report = read(complaint("Original-Mail-From: <b-7f3a@mail.example.com>\n", "Subject: redacted\n"))
    assert report.return_path == "b-7f3a@mail.example.com"
    assert [(one.kind, one.recipient) for one in report.found] == [("complaint", "")]


def test_the_originals_own_return_path_comes_first() -> None:
    report = read(complaint("Original-Mail-From: <x@example.net>\n", "Return-Path: <b-7f3a@mail.example.com>\n"))
    assert report.return_path == "b-7f3a@mail.example.com"


def test_a_long_unsubscribe_field_of_the_original_is_kept_whole() -> None:
    address, link = f"<mailto:u-{'a' * 120}@mail.example.com>", f"<https://mail.example.com/u/{'b' * 700}>"
    report = read(complaint("", f"List-Unsubscribe: {address},\n {link}\nMessage-ID: <1@mail.example.com>\n"))
    assert report.original["list-unsubscribe"] == f"{address}, {link}"
    assert report.message_id == "<1@mail.example.com>"

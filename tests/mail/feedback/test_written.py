"""Reports in words of our own are read: bounces of many mail systems and languages, complaints, answers."""

from __future__ import annotations

import pytest

from tests.mail.feedback.measure import compare
from tests.mail.feedback.written import ALL, Written
from zonemta_py.mail.feedback.read import read


def test_they_are_many() -> None:
    assert len(ALL) >= 200
    assert len({one.message for one in ALL}) == len(ALL)


@pytest.mark.parametrize("written", ALL, ids=[one.name for one in ALL])
def test_kind_recipients_and_hardness_are_right(written: Written) -> None:
    compared = compare(written.name, written.message, written.rows)
    assert compared.whom, compared.said
    assert not compared.auto_reply_as_bounce


def test_the_reason_is_right() -> None:
    """In 19 of 20: it is the rules' matter, which know more words than these."""
    compared = [compare(one.name, one.message, one.rows) for one in ALL]
    whys = [right for one in compared for right in one.why]
    assert sum(whys) >= 0.95 * len(whys), [one.said for one in compared if not all(one.why)]


def test_the_original_is_found_in_every_form_that_encloses_it() -> None:
    """By Message-ID and Feedback-ID it is tied to what was sent."""
    reports = [read(one.message) for one in ALL if b"<m1@mail.example.com>" in one.message]
    assert len(reports) > 80
    for report in reports:
        assert report.message_id == "<m1@mail.example.com>"
        assert report.feedback_id == "spring:shop"
        assert report.original["subject"] == "Spring"

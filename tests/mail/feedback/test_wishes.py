"""Who wants to leave a list is understood by the own first words, never by what is quoted; prose waits for an operator.

Each figure is asserted of those mails that were looked at, and of those that were not (`apart`).
"""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.mail.feedback.quoting import LANGUAGES, STYLES, answers, message
from tests.mail.feedback.wishes import LOOKALIKES, REPLIES, WISHES, Said
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.feedback.report import WISH

PEOPLE = "bob@example.net"


def became(mail: bytes) -> str:
    """ "taken", "kept" for an operator, or what else it is read as."""
    report = read(mail, PEOPLE)
    (found,) = report.found
    assert found.recipient == PEOPLE or found.kind == "other"
    return "taken" if found.kind == "unsubscribe" else "kept" if report.form == WISH else found.kind


def test_quoted_footers_are_nobodys_wish() -> None:
    """33 ways to quote, 12 languages."""
    ones = list(answers())
    assert len(ones) == len(STYLES) * len(LANGUAGES) >= 390
    assert sum(one.apart for one in ones) > 30
    assert [one.name for one in ones if became(one.message) in ("taken", "kept")] == []


def test_what_people_answer_is_nobodys_wish() -> None:
    styles = cycle(STYLES)
    ones = [(own, next(styles), language) for language, answers in REPLIES.items() for own in answers]
    assert len(ones) >= 115
    assert [one for one in ones if became(message(*one)) in ("taken", "kept")] == []


@pytest.mark.parametrize(
    "text", ["Super, bestelle ich", "Nehmen wir!", "Take it", "Wir melden uns", "Me apunto", "Ik schrijf u"]
)
def test_a_word_that_may_leave_is_none_without_whom_or_what(text: str) -> None:
    assert became(Said("", "=", text).message()) == "other"


@pytest.mark.parametrize(
    "text", ["Could you email me the list again? I deleted it.", "I deleted it.", "My son is ill, please sign off."]
)
def test_what_somebody_has_done_or_tells_of_is_not_taken(text: str) -> None:
    assert became(Said("", "=", text).message()) in ("kept", "other")


@pytest.mark.parametrize("text", ["newsleter abmeldung", "abbestelen bitte", "unsubscirbe me", "uitschijven svp"])
def test_a_wish_with_a_typing_error_is_kept(text: str) -> None:
    assert became(Said("", "=", text).message()) in ("taken", "kept")


@pytest.mark.parametrize("style", STYLES)
def test_a_wish_above_or_below_a_quote_is_taken(style: str) -> None:
    for language, own in (("en", "Please unsubscribe me."), ("de", "Bitte nehmen Sie mich aus dem Verteiler.")):
        assert became(message(own, style, language)) == "taken", (style, language)


@pytest.mark.parametrize("apart", [False, True])
def test_plain_wishes_are_taken_or_kept(apart: bool) -> None:
    """26 languages."""
    ones = [one for one in WISHES if one.apart is apart]
    assert len({one.language for one in WISHES}) >= 24
    got = [became(one.message()) for one in ones]
    assert sum(one in ("taken", "kept") for one in got) >= 0.95 * len(ones)
    assert got.count("taken") >= 0.85 * len(ones)


@pytest.mark.parametrize("apart", [False, True])
def test_what_only_sounds_like_a_wish_is_not_taken(apart: bool) -> None:
    ones = [one for one in LOOKALIKES if one.apart is apart]
    assert len(LOOKALIKES) >= 110
    assert [one for one in ones if became(one.message()) == "taken"] == []


@pytest.mark.parametrize("field", ["List-Id: <talk.example.net>", "Precedence: bulk", "X-Auto-Response-Suppress: All"])
def test_lists_and_programs_wish_for_nothing(field: str) -> None:
    for one in WISHES:
        assert became(one.message(f"{field}\n")) not in ("taken", "kept"), one


@pytest.mark.parametrize("field", ["Precedence: bulk", "Precedence: junk", "X-Auto-Response-Suppress: OOF, AutoReply"])
@pytest.mark.parametrize("style", ["gmail", "outlook-plain", "outlook-html", "footer-unmarked"])
def test_what_answers_by_itself_is_an_automatic_reply_by_any_of_its_fields(field: str, style: str) -> None:
    """In words that nobody knows."""
    own = "Grüezi mitenand, mir sind am Bärg obe."
    assert became(message(own, style, "de", f"{field}\n")) == "auto-reply"


@pytest.mark.parametrize(
    ("subject", "body", "kind"),
    [
        ("Abmeldung", "Hiermit melde ich meine Tochter Lena vom Schwimmkurs ab.", "kept"),
        ("Unsubscribe", "Our company has a new name, and Bob Miller left.", "taken"),
        ("Swimming on Tuesday", "Please take me off the list.", "kept"),
        ("Re: unsubscribe", "", "taken"),
        ("Re: Unsubscribe", "Lovely hats!", "kept"),
        ("Re: How to unsubscribe", "Lovely hats!", "other"),
    ],
)
def test_a_subject_counts_where_it_is_nearly_all_of_it(subject: str, body: str, kind: str) -> None:
    assert became(Said("", subject, body).message()) == kind


def test_a_wish_that_is_kept_says_what_its_writer_said() -> None:
    (found,) = read(message("Who of you can stop sending me this stuff?", "gmail", "en"), PEOPLE).found
    assert (found.kind, found.recipient, found.reply.text) == (
        "other",
        PEOPLE,
        "Who of you can stop sending me this stuff?",
    )

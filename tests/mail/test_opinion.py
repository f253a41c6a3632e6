"""The second opinion: asked only where no rule knows the text, and never the cause of more than another class."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail.shipped_rules import SHIPPED
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules import opinion as module
from zonemta_py.mail.rules.opinion import OPINION, SUPPRESSING, opinion
from zonemta_py.mail.rules.precedence import RECIPIENT
from zonemta_py.mail.rules.rule import STAGES
from zonemta_py.mail.rules.rules import as_said
from zonemta_py.queue.suppression.evidence import OF_CLASS

TOP = Path(__file__).parents[2]


def test_the_classes_it_never_gives_are_those_that_suppress() -> None:
    """A guess is never the cause of a suppression, not even together with other guesses."""
    assert set(OF_CLASS) | RECIPIENT == SUPPRESSING


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([450, 451, 550, 554]), st.text(alphabet="abcdeilmnoprstu ", max_size=60), st.sampled_from(STAGES)
)
def test_it_changes_the_class_and_nothing_else(code: int, text: str, stage: str) -> None:
    """Whatever is said: action and verdict are those of the vague rule, and nobody is suppressed."""
    reply = Reply(code, "", text)
    judged = SHIPPED.judge(reply, stage, "")
    if judged.rule == OPINION:
        first = SHIPPED.matching(reply, stage, "")[0]
        assert first.vague
        assert judged.action.verdict == first.action.verdict
        assert judged.kind not in SUPPRESSING
        assert not judged.agreed


def test_it_learns_classes_from_words_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few replies: the class whose replies are alike, by the letters they share; none if none is."""
    monkeypatch.syspath_prepend(str(TOP / "scripts"))
    learn = importlib.import_module("understood.learn")
    lines = {"rate": "frobnicated again", "virus": "the zyzzyva was found"}
    lessons = [
        (module.features(as_said(Reply(550, "", f"{line} {n}")), "dot"), kind)
        for kind, line in lines.items() for n in range(5)
    ]  # fmt: skip
    monkeypatch.setattr(module, "_model", lambda: module._Model(*learn.learned(lessons)))
    opinion.cache_clear()
    found = opinion(Reply(550, "", "your frobnication"), "dot")
    assert found.kind == "rate"
    assert set(found.because) & {"fro", "rob", "obn", "bni"}
    assert opinion(Reply(550, "", "quux"), "dot").kind == ""
    opinion.cache_clear()

"""The second opinion: it corrects the class that a rule gives, where that allows it, and never suppresses anybody."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail.shipped_rules import SHIPPED
from zonemta_py.config.section import shipped
from zonemta_py.mail.models.linear import Linear
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules import opinion as module
from zonemta_py.mail.rules.classes import SUPPRESSING
from zonemta_py.mail.rules.opinion import opinion
from zonemta_py.mail.rules.rule import OPINION, STAGES, RulesError
from zonemta_py.mail.rules.rules import Rules, as_said

TOP = Path(__file__).parents[2]
CORRECTED = Reply(451, "", "mailbox server busy, our disk subsystem is failing")
"""A rule reads "busy", hence a rate; as a whole it is like replies of systems that are broken."""


@pytest.fixture
def learn(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sklearn", reason="scikit-learn is missing; scripts/prepare --dev installs it")
    monkeypatch.syspath_prepend(str(TOP / "scripts"))
    return importlib.import_module("understood.learn")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([450, 451, 550, 554]), st.text(alphabet="abcdeilmnoprstu ", max_size=60), st.sampled_from(STAGES)
)
def test_what_follows_is_that_of_the_class(code: int, text: str, stage: str) -> None:
    """Whatever is said: action and verdict are those of the class that is recorded, and a guess suppresses nobody."""
    reply = Reply(code, "", text)
    judged = SHIPPED.judge(reply, stage, "")
    if judged.rule.endswith(OPINION):
        first = SHIPPED.matching(reply, stage, "")[0]
        assert first.second_opinion
        assert judged.rule == f"{first.name}{OPINION}"
        assert judged.action.verdict in (SHIPPED.own(judged.kind, "dot").action.verdict, "retry", "")
        assert not judged.action.rest_s or judged.kind in ("blocked-ip", "reverse-dns")
        assert judged.kind not in SUPPRESSING
        assert "greylisting" not in (judged.kind, first.kind)
        assert judged.counted_as == first.name
        assert not judged.agreed


def test_it_corrects_a_shipped_rule_and_never_an_operators_own() -> None:
    judged = SHIPPED.judge(CORRECTED, "dot", "")
    assert judged.rule.endswith(OPINION)
    assert judged.kind == "system-error"
    own = """
        [[rules]]
        name = "mine"
        class = "rate"
        pattern = "busy"
    """
    rules = Rules.parse([("own.toml", own), ("rules.toml", shipped("rules.toml").read_text("utf-8"))])
    assert rules.judge(CORRECTED, "dot", "")[:2] == ("mine", "rate")
    asking = Rules.parse([("own.toml", f"{own}\n        second_opinion = true\n")])
    assert asking.judge(CORRECTED, "dot", "")[:2] == (f"mine{OPINION}", judged.kind)


@pytest.mark.parametrize("name", ["opinion", "kinds"])
def test_the_models_are_those_of_the_lessons(learn: ModuleType, name: str) -> None:
    """scripts/learn makes them anew."""
    file, read = {"opinion": (learn.OPINION, learn.replies_read()), "kinds": (learn.KINDS, learn.mails_read())}[name]
    assert Linear.read(file.read_text("utf-8")).lessons == learn.digest(read), (
        f"{file.name} is out of date: scripts/learn"
    )


def test_it_learns_classes_from_words_and_says_why(learn: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few replies: the class whose replies are alike, by the letters they share; none if none is."""
    lines = {"rate": "frobnicated again and again", "virus": "the zyzzyva was found", "tls": "no gloop shake"}
    lessons = [
        (module.features(as_said(Reply(550, "", f"{line} {n}")), "dot"), kind)
        for kind, line in lines.items() for n in range(5)
    ]  # fmt: skip
    monkeypatch.setattr(module, "_model", lambda: Linear.read(json.dumps([*learn.learned(lessons), ""])))
    found = opinion(Reply(550, "", "you frobnicated it again and again"), "dot")
    assert found.kind == "rate"
    assert found.corrects("virus")
    told = module.because(Reply(550, "", "you frobnicated it again and again"), "dot", "rate")
    assert "frobnicated" in told
    assert opinion(Reply(550, "", "quux"), "dot").kind == ""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (552, 'mailbox "t.klein" cannot be found in storage, thus 0 of 0 bytes allotted'),
        (550, "invalid domain mailbox user"),
        (550, "Boîte inactive depuis plus de six mois, elle ne reçoit plus rien"),
        (450, "Votre correspondant a trop de courriels en attente ; il devra en effacer avant de recevoir les vôtres."),
        (451, "4.7.1 Sender address rejected: quota of 200 deliveries an hour has been spent, wait 1284 s"),
    ],
)
def test_neither_terms_of_suppression_nor_waiting_follow_from_it(code: int, text: str) -> None:
    """Classes that suppress differ in after how many; the server's own time to wait is that of greylisting alone."""
    reply = Reply(code, "", text)
    judged, ruled = SHIPPED.judge(reply, "rcpt", ""), SHIPPED.matching(reply, "rcpt", "")[0]
    assert judged.kind == ruled.kind or judged.kind not in SUPPRESSING | {"greylisting"}
    assert ruled.kind != "greylisting" or judged.kind == "greylisting"


def test_two_rules_of_a_name_are_corrected_only_if_both_allow_it() -> None:
    own = '[[rules]]\nname = "rate-busy"\nclass = "rate"\npattern = "busy"'
    rules = Rules.parse([("own.toml", own), ("rules.toml", shipped("rules.toml").read_text("utf-8"))])
    assert rules.judge(CORRECTED, "dot", "")[:2] == ("rate-busy", "rate")
    with pytest.raises(RulesError, match="marks what a second opinion has corrected"):
        Rules.parse([("own.toml", own.replace("rate-busy", f"mine{OPINION}"))])


def test_class_verdict_and_rest_agree_in_the_journal() -> None:
    """A letter that is spam, to the second opinion, is not tried again as if our address were listed."""
    reply = Reply(554, "5.7.1", "Blocked: message contains a domain listed in dbl.spamhaus.org")
    judged = SHIPPED.judge(reply, "dot", "")
    assert judged.rule.endswith(OPINION)
    assert (judged.kind, judged.action) == ("spam-content", SHIPPED.own("spam-content", "dot").action)

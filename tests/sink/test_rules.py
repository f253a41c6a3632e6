"""Rules: what is understood, what is refused, and how often they apply."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.sink import SinkError
from zonemta_py.sink.rules import ACTIONS, STAGES, SinkRule, parse_rules


def parse(text: str) -> SinkRule:
    return SinkRule.parse(text, Random(1))


def test_a_whole_rule_is_understood() -> None:
    """Stage, pattern, reply with commas, share and delay are all read."""
    rule = parse(r"rcpt:/@slow\.test$/ 450 4.2.1 later, maybe, 30%, after 2.5s")
    assert (rule.stage, rule.action, rule.share, rule.after_s) == ("rcpt", "450 4.2.1 later, maybe", 0.3, 2.5)
    assert rule.code == 450
    assert rule.pattern is not None


def test_a_rule_without_pattern_fits_all() -> None:
    """No pattern, no share: the rule always applies."""
    assert parse("dot 250 2.0.0 fine").applies([])


def test_patterns_ignore_case_and_search() -> None:
    """A pattern is searched anywhere and without regard to case, in any of the subjects."""
    rule = parse("dot:/@Slow/ 450 later")
    assert rule.applies(["", "a@fast.test", "b@sLOW.test"])
    assert not rule.applies(["a@fast.test"])


@given(st.sampled_from(STAGES), st.sampled_from(ACTIONS))
def test_every_stage_takes_every_action(stage: str, action: str) -> None:
    """Stages and actions combine freely; an action has no code."""
    rule = parse(f"{stage} {action}, 5%")
    assert (rule.stage, rule.action, rule.code) == (stage, action, 0)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rcpt", "write STAGE"),
        ("helo 250 ok", "no stage 'helo'"),
        ("rcpt explode", "not an action"),
        ("rcpt 700 what", "not an action"),
        ("rcpt:/(/ 450 later", "regular expression"),
        ("rcpt 450 later, 130%", "cannot exceed"),
    ],
)
def test_mistakes_are_one_sentence(text: str, word: str) -> None:
    """Each mistake names the rule and what to do, in one line."""
    with pytest.raises(SinkError, match=word.replace("(", r"\(")) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_the_same_seed_gives_the_same_draws() -> None:
    """With a seed shares repeat; about the share asked for applies."""

    def draws(seed: int) -> list[bool]:
        rule = parse_rules(["rcpt 450 later, 30%"], seed)["rcpt"][0]
        return [rule.applies([]) for _ in range(1000)]

    assert draws(7) == draws(7) != draws(8)
    assert 250 < sum(draws(7)) < 350


def test_rules_draw_independently() -> None:
    """What another rule draws does not change this rule's sequence."""
    alone = parse_rules(["rcpt 450 later, 30%"], 7)["rcpt"][0]
    pair = parse_rules(["rcpt 450 later, 30%", "rcpt 550 never, 50%"], 7)["rcpt"]
    assert [alone.applies([]) for _ in range(50)] == [(pair[0].applies([]), pair[1].applies([]))[0] for _ in range(50)]

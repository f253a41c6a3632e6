"""Replies that no rule knew: clustered by shape, and made rules that hold what they promise."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.rules.check import problems
from zonemta_py.mail.rules.pattern import FLAGS, risk
from zonemta_py.mail.rules.rule import reply_of
from zonemta_py.mail.rules.rules import Rules
from zonemta_py.pipeline.findings.rule_proposal import guess, pattern, rule_file
from zonemta_py.pipeline.findings.unknown import UNKNOWN, VAGUE, Shape, clusters, common, shape, unknown

OURS = Rules.load([Path("config/rules.toml")])
MADE_UP = (
    "The glorbing of {host} [{ip}] for <{address}> is flimmered, ticket {id}, see https://help.example.net/{n}",
    "Frobnicated sender quorum: {n} of {n} votes for {address}",
    "mailbox quorx {id} frozzled until {n}:{n}",
)


def said(chance: random.Random, form: str) -> str:
    return form.format(
        host=f"mx{chance.randrange(99)}.example.{chance.choice(['com', 'org'])}",
        ip=f"192.0.2.{chance.randrange(255)}",
        address=f"user{chance.randrange(9999)}@example.com",
        id=f"q{chance.randrange(10**9):x}x{chance.randrange(10**6):06d}",
        n=chance.randrange(10_000),
    )


def rows() -> list[dict[str, Any]]:
    chance = random.Random(3)
    made: list[dict[str, Any]] = []
    for number in range(300):
        form = MADE_UP[0 if number % 6 < 3 else 1 if number % 6 < 5 else 2]
        made.append(
            {"days": number / 100, "reply": said(chance, form), "provider": "yahoo" if form is MADE_UP[1] else "google"}
        )
    for row in made:
        first = row["reply"].startswith("The")
        row |= {"verdict": "deferred", "code": 450 if first else 550, "enhanced": "4.9.9" if first else "",
                "stage": "rcpt",
                "class": "system-error" if first else "", "rule": "code-450" if first else ""}  # fmt: skip
    near = {"verdict": "deferred", "code": 450, "stage": "rcpt", "enhanced": "4.9.9"}
    made += [
        near | {"reply": said(chance, MADE_UP[0]).replace("is flimmered", "was flimmered"), "class": "undefined"}
    ] * 4
    known = {
        "verdict": "bounced",
        "code": 550,
        "class": "user-unknown",
        "rule": "unknown-user",
        "reply": "No such user",
    }
    return [*made, *([known] * 50), *([{}] * 50)]


@pytest.fixture(scope="module")
def found(attempts: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in unknown(attempts(rows())).collect()]


def test_replies_are_put_together_by_shape(found: list[dict[str, Any]]) -> None:
    """Three forms make three clusters, the commonest first; one word's difference joins; known ones are not there."""
    assert list(found[0]) == [part.split()[0] for part in UNKNOWN.split(", ")]
    assert [(row["replies"], row["shapes"]) for row in found] == [(154, 2), (100, 1), (50, 1)]
    assert found[0]["shape"] == ("the glorbing of <host> [<ip>] for <<address>> is flimmered, ticket <id>, see <url>")
    assert (found[0]["codes"], found[1]["providers"], found[2]["stages"]) == ([450], ["yahoo"], ["rcpt"])
    assert found[0]["first_at"] < found[0]["last_at"]


def test_the_proposal_loads_and_matches_its_examples(found: list[dict[str, Any]]) -> None:
    """Each rule is sound by the project's own check, matches other replies of its form, and none that rules know."""
    rules = Rules.parse([("proposed", rule_file(found, OURS))])
    assert len(rules.rules) == 3
    assert problems(rules) == []
    assert all(len(rule.examples) >= 2 for rule in rules.rules)
    chance = random.Random(99)
    for form, rule in zip(MADE_UP, rules.rules, strict=True):
        line = f"{'450 4.9.9' if form is MADE_UP[0] else '550'} {said(chance, form)}"
        assert rules.matching(reply_of(line), "rcpt", "")[:1] == [rule], line
    ours = [example for rule in OURS.rules for example in rule.examples]
    assert not [example.line for example in ours if rules.matching(example.reply, example.stage, example.provider)]


def test_the_shipped_rules_that_go_by_the_code_alone_are_those() -> None:
    """What they take is unknown still; every other rule says something of the text or of a precise code."""
    vague = [rule for rule in OURS.rules if re.search(VAGUE, rule.name)]
    assert len(vague) >= 10
    assert not any(rule.pattern for rule in vague)


def test_what_a_newer_rule_knows_is_not_proposed(found: list[dict[str, Any]]) -> None:
    """Replies of the time before a rule was added do not bring it back."""
    first = rule_file(found[:1], OURS)
    assert "[[rules]]" in first
    assert "[[rules]]" not in rule_file(found[:1], Rules.parse([("ours", first)]))


def test_a_cluster_without_fixed_words_is_left_as_a_comment(found: list[dict[str, Any]]) -> None:
    """A pattern that matches anything is worse than none."""
    text = rule_file([found[0] | {"examples": ["450 12 34", "450 99 98"]}])
    assert Rules.parse([("proposed", text)]).rules == ()
    assert "no rule could be derived from: 450 12 34" in text


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("550 5.1.1 quorx", "user-unknown"),
        ("452 the quota of this mailbox is used up", "mailbox-full"),
        ("421 slow down please", "rate"),
        ("554 5.7.1 found on our blocklist", "blocked-ip"),
        ("450 glorb", "undefined"),
    ],
)
def test_classes_are_guessed(line: str, kind: str) -> None:
    """By the enhanced code where it says much, else by words."""
    assert guess([line]) == kind


def test_shapes_mark_what_changes() -> None:
    """Addresses, URLs, hosts, IP addresses, identifiers and numbers; words, times and versions stay readable."""
    line = "Message 1wXyZ9-00 from 2001:db8::17 (mx1.a.example) to <ann@b.example> over 10.5 MB; http://x.example/y?z=1"
    assert shape(line) == "message <id> from <ip> (<host>) to <<address>> over <n> mb; <url>"
    assert shape("server refused to talk to us: 554 5.7.1 Go  away") == "go away"


def looked_at(text: str) -> str:
    """As rules see a reply: its lines joined and its addresses taken out."""
    return reply_of(f"550 {text}").text


def make(text: str, replies: int = 1, code: int = 450) -> Shape:
    return Shape(text, replies, (code,), (), ("rcpt",), (), 0.0, 1.0, (f"{code} {text}",))


@given(st.lists(st.text("abc ", min_size=1, max_size=30).filter(str.strip), max_size=12, unique=True))
def test_no_shape_is_lost_or_doubled(texts: list[str]) -> None:
    """However shapes are put together, each is in one cluster."""
    made = [make(text, number) for number, text in enumerate(texts)]
    assert sorted(each for members in clusters(made) for each in members) == sorted(made)


def test_a_refusal_for_good_and_one_for_now_are_two() -> None:
    """The same words with 4xx and 5xx stay apart: their rules would have different actions."""
    assert len(clusters([make("go away now", 2, 450), make("go away now", 1, 550)])) == 2


@given(st.lists(st.sampled_from("abcd"), max_size=8), st.lists(st.sampled_from("abcd"), max_size=8))
def test_common_words_are_in_both_in_order(one: list[str], other: list[str]) -> None:
    """What two shapes share can be struck out of either."""
    for words in (one, other):
        rest = iter(words)
        assert all(word in rest for word in common(one, other))


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=12, max_size=80),
        min_size=1,
        max_size=3,
    )
)
def test_a_pattern_matches_what_it_was_made_of(texts: list[str]) -> None:
    """Or there is none: never one that its own replies do not hold."""
    asked = pattern([f"550 {text}" for text in texts])
    assert not asked or not risk(asked)
    assert not asked or all(re.search(asked, looked_at(text), FLAGS) for text in texts)

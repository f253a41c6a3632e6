"""Damaged files; scripts/trials/faults strikes 900 blows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from survival import damage, damaged_queue
from survival.blows import Blow


def test_every_damage_is_named_or_harmless(memory: Path) -> None:
    """Whatever is flipped, cut, zeroed or gone: the rest is delivered, no wrong byte comes, what misses is named."""
    figures = damage.trial(memory, flips=4, cuts=2, files=14, seed=901)
    assert figures["broken"] == []
    assert figures["blows"] == 20


def test_an_undamaged_queue_is_delivered_whole(memory: Path) -> None:
    """The trial's own ground: without a blow, each recipient is in the state it was left in, and nothing is said."""
    states = damaged_queue.make(memory / "queue")
    assert set(Counter(states.values())) == {"alive", "held", "ended"}
    blow = Blow("flip", "nothing", 0, 0)
    recorded = frozenset(damage.records(memory / "queue"))
    outcomes = damage.deliver_all(memory / "queue")
    assert damage.judge(blow, states, outcomes, recorded) == []
    assert (outcomes.said, outcomes.starts) == ("", 1)


def test_the_judge_sees_a_silent_loss(memory: Path) -> None:
    """A recipient that did not come, and of which nothing was said, breaks the rule."""
    states = {"a@one.test": "alive", "b@one.test": "held", "c@one.test": "ended"}
    blow = Blow("cut", "store/000003.log", 7, 0)
    orders = set(damaged_queue.ORDERS)
    silent = damage.Outcomes(Counter(), {"b@one.test"}, set(), [], "", 1, True, {}, [], orders, {1, 2})
    assert len(damage.judge(blow, states, silent)) == 2
    assert len(damage.judge(blow, states, silent._replace(said="damage"))) == 1, "a word is not a name"
    assert damage.judge(blow, states, silent._replace(said="damage: a@one.test")) == []
    assert damage.judge(blow, states, silent._replace(said="lost: 18bc", names={"a@one.test": "18bc"})) == []
    assert len(damage.judge(blow, states, silent._replace(said="a@one.test", left=["a size is wrong"]))) == 1
    assert len(damage.judge(blow, states, silent._replace(said="a@one.test", wrong=["1.0"]))) == 1
    assert damage.judge(blow, states, silent._replace(said="a@one.test"), frozenset({1, 2})) == []
    assert len(damage.judge(blow, states, silent._replace(said="a@one.test"), frozenset({1, 2, 3}))) == 1
    assert len(damage.judge(blow, states, silent._replace(said="a@one.test", orders=orders - {"acme"}))) == 1
    assert len(damage.judge(blow, states, silent._replace(said="a@one.test", orders=orders - {"key-5"}))) == 1

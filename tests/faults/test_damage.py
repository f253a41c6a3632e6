"""Damaged files; scripts/faults strikes 700 blows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from survival import damage


def test_every_damage_is_named_or_harmless(memory: Path) -> None:
    """Flipped bytes and cut tails anywhere: the rest is delivered, no wrong byte comes, what is missing is named."""
    figures = damage.trial(memory, flips=30, cuts=15, seed=60)
    assert figures["broken"] == []
    assert figures["blows"] == 45


def test_an_undamaged_queue_is_delivered_whole(memory: Path) -> None:
    """The trial's own ground: without a blow, each recipient is in the state it was left in, and nothing is said."""
    states = damage.make(memory / "queue")
    assert set(Counter(states.values())) == {"alive", "held", "ended"}
    (memory / "queue" / "stderr").unlink()
    outcomes = damage.deliver_all(memory / "queue")
    blow = damage.Blow("flip", "nothing", 0, 0)
    assert damage.judge(blow, states, outcomes) == []
    assert (outcomes.said, outcomes.starts) == ("", 1)


def test_the_judge_sees_a_silent_loss(memory: Path) -> None:
    """A recipient that did not come, and of which nothing was said, breaks the rule."""
    states = {"a@one.test": "alive", "b@one.test": "held", "c@one.test": "ended"}
    blow = damage.Blow("cut", "store/000003.log", 7, 0)
    silent = damage.Outcomes(Counter(), {"b@one.test"}, set(), [], "", 1, True)
    assert len(damage.judge(blow, states, silent)) == 1
    assert damage.judge(blow, states, silent._replace(said="damage")) == []
    assert len(damage.judge(blow, states, silent._replace(said="damage", wrong=["1.0"]))) == 1

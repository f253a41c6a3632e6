"""Schedules of three queues in simulated time share random limits: a short form of scripts/trials/limits --random."""

from __future__ import annotations

import pytest
from restraint.configurations import configuration
from restraint.simulated import simulated
from restraint.variety import figures, outcome


@pytest.mark.parametrize("number", range(100, 106))
def test_no_limit_is_exceeded_and_no_queue_starves(number: int) -> None:
    """Of any dimension and kind, several in the way of the same mail: queues and authority are killed and stopped,
    clocks are set, limits are raised and lowered."""
    found = outcome(number, seconds=20)
    assert found.exceeded == []
    assert found.starved_s < 10


@pytest.mark.parametrize("number", [5, 10])
def test_limits_of_several_dimensions_are_used_together(number: int) -> None:
    """A rate that cannot be divided among mail that needs a connection too; connections of which one queue has had all
    before another one has mail."""
    terms = configuration(number, seconds=40)
    terms.faults = []
    world = simulated(terms)
    assert world.check() == []
    shares = [use.calm for use in world.used.values() if use.calm_s > 20]
    assert shares
    assert min(shares) > 0.85


def test_one_queue_keeps_them_in_the_same_simulation() -> None:
    """So what is found wrong with several is not the simulation's own."""
    for number in (100, 103):
        world = simulated(configuration(number, seconds=20).alone())
        assert world.check() == []


def test_what_is_printed_counts_what_was_broken() -> None:
    """As the command shows it."""
    found = outcome(101, seconds=10)
    rows = figures([found, found._replace(exceeded=["101: too much"], starved_s=99.0)])
    assert rows["configurations"] == 2
    assert rows["exceeded"] == 1
    assert rows["broken"][:2] == ["101: too much", "101: a queue had nothing of a limit of one connection for 99.0 s"]

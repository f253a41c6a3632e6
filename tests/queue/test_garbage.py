"""Garbage that only refers to itself is looked for when the event loop has time, and when memory has doubled."""

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from zonemta_py.queue.maintenance import garbage
from zonemta_py.queue.maintenance.garbage import Garbage


@pytest.fixture
def collector() -> Iterator[Garbage]:
    usual = gc.get_threshold()
    gc.collect()
    try:
        yield Garbage()
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


class Ring:
    def __init__(self) -> None:
        self.itself = self


def old_garbage() -> "weakref.ref[Any]":
    ring = Ring()
    gc.collect(1)  # from now on it is among the old ones
    return weakref.ref(ring)


def rounds(count: int) -> None:
    for _ in range(count):
        gc.collect(1)


def test_everything_is_looked_at_when_there_is_time(collector: Garbage) -> None:
    """What is old and refers to itself goes then, and only then."""
    ring = old_garbage()
    rounds(garbage.ROUNDS)
    worked = time.thread_time()
    while time.thread_time() - worked < 0.05:
        pass
    assert not collector.look()
    assert ring() is not None
    rounds(garbage.ROUNDS)
    time.sleep(0.2)
    assert collector.look()
    assert ring() is None


def test_an_idle_queue_looks_at_nothing_twice(collector: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it has: who asks would have to wait. What has become garbage since goes when memory has doubled."""
    monkeypatch.setattr(garbage, "IDLE", 2.0)
    kept = Ring()
    ring = weakref.ref(kept)
    rounds(garbage.ROUNDS)
    assert collector.look()
    assert gc.get_freeze_count() > 0
    del kept
    rounds(garbage.ROUNDS)
    assert collector.look()
    assert ring() is not None
    collector.whole = 0
    monkeypatch.setattr(garbage, "GROWN_BLOCKS", 0)
    rounds(garbage.ROUNDS)
    assert collector.look()
    assert ring() is None


def test_nothing_is_looked_for_where_nothing_was_made(collector: Garbage) -> None:
    """An idle queue stays idle."""
    time.sleep(0.1)
    assert not collector.look()


def test_memory_that_has_doubled_is_looked_at_in_any_case(collector: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy it is, garbage does not fill the memory."""
    ring = old_garbage()
    monkeypatch.setattr(garbage, "GROWN_BLOCKS", 0)
    more = [float(number) for number in range(2 * collector.left)]
    assert collector.look()
    assert ring() is None
    assert more

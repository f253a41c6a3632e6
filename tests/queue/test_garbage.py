"""Garbage that only refers to itself is looked for among what is new, in small steps; what is in use is not searched
again and again."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from zonemta_py.queue.maintenance import garbage
from zonemta_py.queue.maintenance.garbage import OLD, OLDER, YOUNG, Garbage

ROUND = YOUNG * (OLDER + 2)
"""What is looked at again when it has become older."""


@pytest.fixture
def collector() -> Iterator[Garbage]:
    usual = gc.get_threshold()
    gc.collect()
    one = Garbage()
    try:
        yield one
    finally:
        gc.callbacks.remove(one._note)
        gc.set_threshold(*usual)
        gc.unfreeze()


class Ring:
    def __init__(self) -> None:
        self.itself = self


def grow(rounds: int) -> list[Any]:
    return [[] for _ in range(rounds * ROUND)]


def test_what_has_become_old_is_looked_at_again(collector: Garbage) -> None:
    """A connection, say, that was in use for a while."""
    one = Ring()
    found = weakref.ref(one)
    gc.collect(1)
    kept = grow(1)
    del one
    kept += grow(OLD + 2)
    assert found() is None
    assert kept


def test_what_is_in_use_is_looked_at_until_that_takes_long(collector: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much mail there is, and however busy the queue: never at more than what has come since the last look."""
    monkeypatch.setattr(garbage, "LOOK_S", 0.0)
    looked = list[int]()

    def count(phase: str, look: dict[str, Any]) -> None:
        if phase == "start":
            looked.append(sum(len(gc.get_objects(generation)) for generation in range(look["generation"] + 1)))

    gc.callbacks.append(count)
    try:
        kept = grow(10 * OLD)
    finally:
        gc.callbacks.remove(count)
    assert len(kept) > 2 * max(looked)
    assert YOUNG / 2 < max(looked) < 2 * YOUNG


def test_quick_looks_keep_nothing_for_good(collector: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small queue is searched whole: no circle is lost there."""
    monkeypatch.setattr(garbage, "LOOK_S", 1e9)
    one = Ring()
    found, kept = weakref.ref(one), gc.get_freeze_count()
    more = grow(3 * OLD)
    assert gc.get_freeze_count() <= kept  # what was kept may end
    del one
    more += grow(6 * OLD)
    assert found() is None
    assert more

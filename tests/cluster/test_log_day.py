"""What a log takes beside what is queued, over a day's waves of mail: `scripts/trials/day`, smaller."""

from __future__ import annotations

from pathlib import Path

import pytest
from survival.day import Day

from tests.cluster.memory import MemoryStream
from zonemta_py.cluster import log


async def test_a_day_takes_twice_what_is_queued(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most, and a little: all the while, also while a copy is made and when a backlog has gone."""
    monkeypatch.setattr(log, "SLACK_BYTES", 1024 * 1024)
    monkeypatch.setattr(log, "LEAST_BYTES", 128 * 1024)
    monkeypatch.setattr(log, "RESTS", 0.0)
    day = Day(memory / "queue", MemoryStream(1), 0.06, 1, lambda number, said: None, steps=150, first_h=7)
    await day.run()
    figures = day.figures()
    assert figures["broken"] == []
    assert figures["copies"] > 2
    assert max(one.queued for one in day.samples) > 4 * log.SLACK_BYTES, "a backlog stood, beside which that is little"

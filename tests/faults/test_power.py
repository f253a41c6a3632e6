"""Power cuts; scripts/trials/faults makes 50, and 60 with three queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from survival import powercut


@pytest.mark.skipif(bool(powercut.missing()), reason=powercut.missing())
@pytest.mark.parametrize("queues", [1, 3])
async def test_two_power_cuts_lose_nothing(tmp_path: Path, queues: int) -> None:
    """What was acknowledged was on the disk itself; store and journal open clean, without a word of damage."""
    figures = await powercut.trial(tmp_path, cuts=2, queues=queues, seed=5)
    assert figures["broken"] == []
    assert figures["acknowledged"] > 0

"""Power cuts; scripts/trials/faults makes 50."""

from __future__ import annotations

from pathlib import Path

import pytest
from survival import powercut


@pytest.mark.skipif(bool(powercut.missing()), reason=powercut.missing())
async def test_two_power_cuts_lose_nothing(tmp_path: Path) -> None:
    """What was acknowledged was on the disk itself; store and journal open clean, without a word of damage."""
    figures = await powercut.trial(tmp_path, cuts=2, seed=5)
    assert figures["broken"] == []
    assert figures["acknowledged"] > 0

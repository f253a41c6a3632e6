"""The loop closed, with real processes; scripts/trials/returns does the same at length."""

from __future__ import annotations

from pathlib import Path

from survival import returns


async def test_killed_between_the_dot_and_the_answer(tmp_path: Path) -> None:
    """Mail with VERP goes out, all of it comes back as bounce, complaint or unsubscribe, queue and receivers are killed
    meanwhile: what got its 250 is recorded once, however often it came, and its recipient is suppressed."""
    figures = await returns.trial(tmp_path, bounces=60, kills=3, seed=22)
    assert figures["broken"] == []
    assert figures["replies"] == {250: 60}

"""The short form of `scripts/trials/domains`: no domain is lost by a kill, and a change holds at once."""

from __future__ import annotations

from pathlib import Path

from survival.domains import trial


async def test_domains_hold_at_once_and_survive_a_kill(tmp_path: Path) -> None:
    figures = await trial(tmp_path, 60, 20, 1, 7, lambda n, text: None)
    assert figures["broken"] == []

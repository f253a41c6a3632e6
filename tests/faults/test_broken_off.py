"""Clients that break off large bodies, for some seconds; scripts/trials/faults does it for an hour."""

from pathlib import Path

from survival import broken_off


async def test_bodies_broken_off_leave_the_disk_to_others(tmp_path: Path) -> None:
    """The disk has three times what lives at most, besides the archive; small mail goes on; no process grows much."""
    figures = await broken_off.trial(tmp_path, seconds=8, seed=1)
    assert figures["broken"] == []
    assert figures["broken_off"] > 2
    assert figures["delivered"] > 2
    assert figures["small letters"] > 2

"""Full and failing disks beneath the running MTA; scripts/faults does more of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from survival import disk, shim

needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=shim.missing())


@needs_shim
async def test_a_disk_that_fills_up_is_452_until_there_is_space(tmp_path: Path) -> None:
    """At ten offsets: 452 and nothing else, nothing acknowledged is lost, mail is taken again within 5 s by itself."""
    figures = await disk.no_space(tmp_path, rounds=10, seed=20)
    assert figures["broken"] == []


@needs_shim
async def test_a_sync_that_fails_acknowledges_nothing(tmp_path: Path) -> None:
    """EIO from each of the first 16 syncs, and all that it should have made stable gone: 451, never acknowledged."""
    figures = await disk.failing_syncs(tmp_path, calls=range(1, 17), seed=30)
    assert figures["broken"] == []
    assert figures["failed"] == 16


@pytest.mark.skipif(bool(disk.cannot_mount()), reason=disk.cannot_mount())
async def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 64 MB that another program fills to the last byte: the same."""
    figures = await disk.full_disk(tmp_path, rounds=2)
    assert figures["broken"] == []

"""Full and failing disks beneath the running MTA; scripts/trials/faults does more of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from survival import disk, disk_mounted, shim

needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=shim.missing())

needs_root = pytest.mark.skipif(bool(disk_mounted.cannot_mount()), reason=disk_mounted.cannot_mount())


@needs_shim
async def test_a_disk_that_fills_up_is_452_until_there_is_space(tmp_path: Path) -> None:
    """At five offsets: 452 and nothing else, nothing acknowledged is lost, mail is taken again within 5 s by itself."""
    figures = await disk.no_space(tmp_path, rounds=5, seed=20)
    assert figures["broken"] == []


@needs_shim
async def test_a_sync_that_fails_acknowledges_nothing(tmp_path: Path) -> None:
    """EIO from each of the first 16 syncs, and all that it should have made stable gone: 451, never acknowledged."""
    figures = await disk.failing_syncs(tmp_path, calls=range(1, 17), seed=30)
    assert figures["broken"] == []
    assert figures["failed"] == 16


@needs_shim
async def test_a_disk_that_is_read_only_for_a_while(tmp_path: Path) -> None:
    """EROFS from everything: 451, nothing acknowledged is lost, and it goes on by itself when that is over."""
    figures = await disk.read_only(tmp_path, rounds=4, seed=40)
    assert figures["broken"] == []


@needs_root
@pytest.mark.parametrize(("kind", "by"), [("tmpfs", "another"), ("ext4", "mail")])
async def test_a_disk_that_is_really_full(tmp_path: Path, kind: str, by: str) -> None:
    """A file system of 64 MB that another program fills to the last byte, or mail that waits: the same."""
    figures = await disk_mounted.full(tmp_path, kind=kind, by=by, rounds=2)
    assert figures["broken"] == []


@needs_root
async def test_bodies_that_never_end_leave_room_for_letters(tmp_path: Path) -> None:
    """They may fill half of a small disk; messages are accepted all the while."""
    figures = await disk_mounted.broken_off(tmp_path, kind="tmpfs", rounds=1)
    assert figures["broken"] == []


@needs_root
async def test_an_error_of_ext4_makes_it_read_only(tmp_path: Path) -> None:
    """451 until it is mounted again; nothing acknowledged is lost, and the log says why."""
    figures = await disk_mounted.read_only(tmp_path, rounds=1)
    assert figures["broken"] == []

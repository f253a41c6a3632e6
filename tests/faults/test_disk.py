"""Full and failing disks beneath the running MTA; scripts/faults does more of the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


@pytest.mark.skipif(bool(disk.cannot_mount()), reason=disk.cannot_mount())
def test_a_trial_that_was_killed_leaves_no_file_system_for_good(tmp_path: Path) -> None:
    """The next one unmounts it; those of trials that run stay."""
    program = f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(disk.__file__).parents[1])!r})
from survival import disk
with disk.small_disk(Path(sys.argv[1]), 1):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    left, own = tmp_path / "left here", tmp_path / "own"
    killed = subprocess.run([sys.executable, "-c", program, str(left)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.path.ismount(left)
    with disk.small_disk(own, 1):
        assert not os.path.ismount(left)
        with disk.small_disk(tmp_path / "other", 1):
            assert os.path.ismount(own)

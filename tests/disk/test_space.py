"""Space: short while less than the reserve is free; the disk is not asked at every message."""

from pathlib import Path

import pytest

from zonemta_py.disk import space
from zonemta_py.disk.space import Space, free_bytes


def test_short_follows_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at when `every_s` has passed, and not before."""
    free, asked = [100], []
    monkeypatch.setattr(space, "free_bytes", lambda folder: asked.append(folder) or free[0])
    room = Space(tmp_path, reserve_bytes=100, every_s=1.0)
    assert not room.short(now=0.0)
    free[0] = 99
    assert not room.short(now=0.9)
    assert room.short(now=1.0)
    free[0] = 100
    assert room.short(now=1.5)
    assert not room.short(now=2.0)
    assert len(asked) == 3


def test_free_bytes_is_what_the_disk_says(tmp_path: Path) -> None:
    """A real file system has some."""
    assert free_bytes(tmp_path) > 0

"""A file is replaced as a whole or not at all."""

import os
from pathlib import Path

import pytest

from zonemta_py.disk.files import fresh_file, replace_file


def watch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done from now on, in its order: syncs by what they are of, renames."""
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(handle: int) -> None:
        done.append("sync " + Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    def replace(source: Path, target: Path) -> None:
        done.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return done


def test_bytes_then_name_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename may reach the disk before what it renames, and neither is there before the folder is."""
    done = watch(monkeypatch)
    replace_file(tmp_path / "file", b"new")
    assert done == ["sync file.new", "rename file", f"sync {tmp_path.name}"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """And nothing beside it."""
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match="no space"), fresh_file(tmp_path / "file") as file:  # noqa: PT012
        file.write(b"half")
        raise OSError("no space")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_left_over_has_no_say(tmp_path: Path) -> None:
    """Neither its rights nor what it points to: who is killed in the middle leaves one, who means harm a link."""
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    (tmp_path / "file.new").symlink_to(other)
    replace_file(tmp_path / "file", b"secret", 0o600)
    assert other.read_bytes() == b"mine"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "file").is_symlink()

"""A copy of a queue's folder is known for one; the folder itself is not, wherever it is moved to."""

import json
import shutil
from pathlib import Path

import pytest

from zonemta_py.disk import identity

HERE, THERE = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("before", "after", "copied"), [(HERE, HERE, False), (HERE, THERE, True), ("", HERE, False), (HERE, "", False)]
)
def test_a_folder_knows_its_machine(tmp_path: Path, before: str, after: str, copied: bool) -> None:
    """Another machine's is a copy; a machine without an id (a container) is not asked for one."""
    assert identity.copied(tmp_path, before) == ""
    assert bool(identity.copied(tmp_path, after)) is copied


def test_a_copied_folder_is_a_copy_until_it_is_adopted(tmp_path: Path) -> None:
    """cp makes one, mv does not; the adopted one is a queue of its own right, and the original stays what it was."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    assert identity.copied(first, HERE) == ""
    shutil.copytree(first, copy)
    first.rename(tmp_path / "moved")
    assert identity.copied(tmp_path / "moved", HERE) == ""
    assert "zonemta queue adopt" in identity.copied(copy, HERE)
    assert identity.adopt(copy, HERE).incarnation == 2
    assert identity.copied(copy, HERE) == ""
    (copy / identity.NAME).write_text("torn")
    assert "zonemta queue adopt" in identity.copied(copy, HERE)


def test_a_copy_finds_its_original(tmp_path: Path) -> None:
    """Where that ran last; one that is gone, or that another queue has taken the place of, is not it. A folder of an
    earlier version learns where it is at its next start."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    identity.copied(first, HERE)
    shutil.copytree(first, copy)
    assert identity.original(copy) == first
    assert identity.original(first) is None
    first.rename(tmp_path / "moved")
    assert identity.original(copy) is None
    assert identity.copied(tmp_path / "moved", HERE) == ""
    shutil.copytree(tmp_path / "moved", tmp_path / "third")
    assert identity.original(tmp_path / "third") == tmp_path / "moved"
    first.mkdir()
    identity.copied(first, HERE)
    assert identity.original(copy) is None
    path = first / identity.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "folder": ""}))
    assert identity.copied(first, HERE) == ""
    shutil.copytree(first, tmp_path / "fourth")
    assert identity.original(tmp_path / "fourth") == first


@pytest.mark.parametrize("folder", [False, True])
def test_an_identity_that_cannot_be_read_is_called_that(tmp_path: Path, folder: bool) -> None:
    """Its folder counts as a copy, for it may be one; whatever stands in the file's place, it can be adopted."""
    path = tmp_path / identity.NAME
    path.mkdir() if folder else path.write_bytes(b"\x00" * 80)
    assert "cannot be read" in identity.copied(tmp_path, HERE)
    assert identity.adopt(tmp_path, HERE).incarnation == 1
    assert identity.copied(tmp_path, HERE) == ""

"""Quarantine: damaged bytes are kept with a note that says what they are."""

import json
import os
import shutil
from pathlib import Path

import pytest

from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.queue.recovery.once import Once


def test_a_case_holds_bytes_and_a_note(tmp_path: Path) -> None:
    """The note is JSON; cases of the same second do not mix."""
    quarantine = Quarantine(tmp_path / "quarantine")
    assert quarantine.cases() == []
    places = {quarantine.case("message-1", {"message": "1", "path": tmp_path}, {"000001": b"\0\xff"}) for _ in range(3)}
    assert sorted(places) == quarantine.cases()
    for place in places:
        assert (place / "000001").read_bytes() == b"\0\xff"
        assert json.loads((place / "note.json").read_text()) == {"message": "1", "path": str(tmp_path)}


def test_move_and_copy(tmp_path: Path) -> None:
    """A file or folder is moved there, or copied when the original is to be mended in place; a missing one is none."""
    quarantine = Quarantine(tmp_path / "quarantine")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.ldb").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"y")
    copied = quarantine.copy("store", {}, [tmp_path / "store", tmp_path / "file", tmp_path / "none"])
    assert (copied / "store" / "1.ldb").read_bytes() + (copied / "file").read_bytes() == b"xy"
    assert (tmp_path / "store" / "1.ldb").exists()
    moved = quarantine.move("file", {}, tmp_path / "file")
    assert (moved / "file").read_bytes() == b"y"
    assert not (tmp_path / "file").exists()


def test_a_table_is_linked_and_a_log_is_copied(tmp_path: Path) -> None:
    """Tables are never written again; a log may be, and its copy must stay as it was."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.ldb").write_bytes(b"x")
    (tmp_path / "store" / "2.log").write_bytes(b"y")
    place = Quarantine(tmp_path / "quarantine").copy("store", {}, [tmp_path / "store"]) / "store"
    assert (place / "1.ldb").stat().st_nlink == 2
    assert (place / "2.log").stat().st_nlink == 1


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Whoever tries again on a full disk must not fill it with halves."""
    quarantine = Quarantine(tmp_path / "quarantine")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.ldb").write_bytes(b"x")
    os.mkfifo(tmp_path / "store" / "pipe")
    with pytest.raises((OSError, shutil.Error)):
        quarantine.copy("store", {}, [tmp_path / "store"])
    assert quarantine.cases() == []


def test_what_is_found_again_before_the_end_is_one_case(tmp_path: Path) -> None:
    """A start that is broken off, and started again, finds the same; after `done` it is another finding."""
    (tmp_path / "file").write_bytes(b"y")
    for _ in range(5):
        once = Once(tmp_path / "quarantine")
        once.copy("store", {"error": "CURRENT is gone"}, [tmp_path / "file"])
        once.case("journal", {"error": "the journal is gone"})
    assert len(once.cases()) == 2
    once.copy("store", {"error": "another"}, [tmp_path / "file"])
    assert len(once.cases()) == 3
    once.done()
    once.case("journal", {"error": "the journal is gone"})
    assert len(once.cases()) == 4

"""Quarantine: damaged bytes are kept with a note that says what they are."""

import json
from pathlib import Path

from zonemta_py.disk.quarantine import Quarantine


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

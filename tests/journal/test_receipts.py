"""Receipts: what was acknowledged last is told in a place of its own, until the journal tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zonemta_py.disk import packing
from zonemta_py.journal import receipts
from zonemta_py.journal.receipts import Receipts


def _envelope(number: int) -> bytes:
    return packing.pack([f"{number:016x}", {"sender": "ann@src.test"}, [["z", f"r{number}@x.test", 0, None]]])


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    """Number of the batch and envelopes; of this life and of those before, until they are forgotten."""
    assert receipts.last(tmp_path) == 0
    first = Receipts(tmp_path)
    first.write(7, [_envelope(1), _envelope(2)])
    second = Receipts(tmp_path)
    second.write(8, [_envelope(3)])
    assert receipts.last(tmp_path) == 8
    found = {number: [row[0] for row in rows] for number, rows in receipts.read(tmp_path)}
    assert found == {7: [f"{1:016x}", f"{2:016x}"], 8: [f"{3:016x}"]}
    second.forget()
    assert [number for number, _ in receipts.read(tmp_path)] == [8]


def test_nothing_is_made_before_there_is_something_to_tell(tmp_path: Path) -> None:
    """A check of a queue changes nothing."""
    idle = Receipts(tmp_path)
    idle.turn(5, 5)
    idle.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_emptied_only_when_the_journal_has_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows where the journal is slow; else both are small, and the newest receipt is always there."""
    monkeypatch.setattr(receipts, "FILE_BYTES", 1000)
    rows = Receipts(tmp_path)
    for number in range(1, 200):
        rows.turn(number, 0)  # nothing is stable
        rows.write(number, [_envelope(number)])
    assert {number for number, _ in receipts.read(tmp_path)} == set(range(1, 200))
    for number in range(200, 400):
        rows.turn(number - 1, number - 10)
        rows.write(number, [_envelope(number)])
    kept = {number for number, _ in receipts.read(tmp_path)}
    assert kept >= set(range(389, 400)), "what the journal had not is there"
    assert len(kept) < 60


def test_they_are_emptied_for_a_person_only_as_far_as_the_journal_has_them(tmp_path: Path) -> None:
    """The last batch's number stays known; what the journal has not yet, too."""
    rows = Receipts(tmp_path)
    rows.write(1, [_envelope(1)])
    rows.ask_empty()
    rows.turn(10, 0)
    rows.write(2, [_envelope(2)])
    rows.turn(11, 9)
    assert dict(receipts.read(tmp_path)).keys() >= {1, 2}, "record 10 is not stable"
    rows.turn(12, 11)
    assert (rows.turns_asked, receipts.last(tmp_path)) == (0, 2)
    assert [number for number, there in receipts.read(tmp_path) if there] == [2], "it came after the question"
    rows.ask_empty()
    rows.turn(12, 12)
    rows.turn(12, 12)
    assert [(number, there) for number, there in receipts.read(tmp_path)] == [(2, []), (2, [])]
    idle = Receipts(tmp_path / "idle")
    idle.ask_empty()
    idle.turn(5, 5)
    assert (idle.turns_asked, (tmp_path / "idle").exists()) == (0, False)


def test_a_torn_end_hides_nothing_else(tmp_path: Path) -> None:
    """Damage here is no damage to the queue."""
    rows = Receipts(tmp_path)
    rows.write(1, [_envelope(1)])
    rows.write(2, [_envelope(2)])
    (path,) = [path for path in (tmp_path / receipts.FOLDER).iterdir() if path.stat().st_size]
    path.write_bytes(path.read_bytes()[:-3])
    assert receipts.last(tmp_path) == 1

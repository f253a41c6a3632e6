"""The proof of an erasure: what it says, that it is true, and that it can be gone on with."""

import json
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.queue.erasure import in_files
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import Type
from zonemta_py.pipeline.erasure.proof import DONE, LEFT, forget
from zonemta_py.pipeline.lake import table

ANN = "ann@example.com"


def segment(folder: Path, address: str = ANN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        (Type.SEGMENT, {"version": 1, "first": 1}),
        (Type.REMOVED, ["18bcfe5680000001", "default", [address, "bob@example.com"], "order"]),
        (Type.END, None),
    ]
    path = folder / "0000000000000001.journal"
    path.write_bytes(frame([Record(seq, 7, kind, pack(body)) for seq, (kind, body) in enumerate(rows, 1)], 0))
    return path


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """An archive with a segment, a lake with a text."""
    segment(tmp_path / "archive")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "report.json").write_text(json.dumps({"top": [ANN]}))
    return {"archive": tmp_path / "archive", "lake": tmp_path / "lake"}


def test_the_proof_says_what_was_done_and_who_is_not_in_it(places: dict[str, Path], tmp_path: Path) -> None:
    """Each place with counts and hashes, and a search over all bytes that finds nothing; neither address nor hash."""
    told = forget(ANN, tmp_path / "proof.json", **places, node=tmp_path / "node", queue={"removed": 2})
    text = (tmp_path / "proof.json").read_text()
    assert json.loads(text) == told
    assert (told["state"], told["queue"], told["waiting"]) == (DONE, {"removed": 2}, [])
    assert [(place["place"], place["entries"], place["replaced"]) for place in told["places"]] == [
        ("archive", 1, 1), ("lake", 1, 1),
    ]  # fmt: skip
    assert all(place["before"] != place["after"] for place in told["places"])
    assert told["search"]["found"] == []
    assert told["search"]["files"] == 2
    assert told["search"]["bytes"] >= sum(path.stat().st_size for path in places["archive"].iterdir())
    assert "ann" not in text
    assert all(ANN.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_an_erasure_goes_on_under_the_same_stand_in(places: dict[str, Path], tmp_path: Path) -> None:
    """What the MTA still writes to is named; once it has come to the archive, the same proof is completed."""
    waiting = segment(tmp_path / "node" / "journal")
    first = forget(ANN, tmp_path / "proof.json", **places, node=tmp_path / "node")
    assert (first["state"], first["waiting"]) == (LEFT, [[str(waiting), 2]])
    waiting.rename(places["archive"] / "0000000000000009.journal")
    second = forget(ANN, tmp_path / "proof.json", **places, node=tmp_path / "node")
    assert (second["state"], second["stand_in"], len(second["places"])) == (DONE, first["stand_in"], 3)
    with pytest.raises(ValueError, match="is the proof of a completed erasure"):
        forget(ANN, tmp_path / "proof.json", **places)


def test_a_run_that_was_killed_is_gone_on_with(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the archive, before the lake: the second run finds the rest, and the proof has both."""

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("zonemta_py.pipeline.erasure.lake._plain", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(ANN, tmp_path / "proof.json", **places)
    told = forget(ANN, tmp_path / "proof.json", **places)
    assert (told["state"], [place["place"] for place in told["places"]]) == (DONE, ["archive", "lake"])
    assert ANN.encode() not in (places["lake"] / "report.json").read_bytes()


def test_no_other_process_may_change_the_lake_meanwhile(places: dict[str, Path], tmp_path: Path) -> None:
    """An update that runs at the same time would bring rows back."""
    with table.locked(places["lake"]), pytest.raises(table.Busy):
        forget(ANN, tmp_path / "proof.json", **places)


def test_a_file_that_is_no_proof_is_not_overwritten(places: dict[str, Path], tmp_path: Path) -> None:
    """Somebody's notes under that name stay."""
    (tmp_path / "proof.json").write_text("notes")
    with pytest.raises(ValueError, match="is not the proof"):
        forget(ANN, tmp_path / "proof.json", **places)
    assert (tmp_path / "proof.json").read_text() == "notes"


def test_the_command_says_what_is_left(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 75 while the MTA still needs a segment, 1 for damage, 0 when all is done."""
    waiting = segment(tmp_path / "node" / "journal")
    arguments = (ANN, tmp_path / "proof.json", *places.values(), tmp_path / "node", False, None, Telling(False))
    with pytest.raises(CommandError) as stop:
        in_files(*arguments)
    assert stop.value.code is Exit.TEMPORARY
    assert "run this again with --proof" in stop.value.sentence
    waiting.unlink()
    in_files(*arguments)
    assert "searched again: 2 files" in capsys.readouterr().out
    (places["archive"] / "0000000000000500.journal").write_bytes(b"\x01" * 99)
    with pytest.raises(CommandError) as stop:
        in_files(ANN, tmp_path / "other.json", *places.values(), tmp_path / "node", False, None, Telling(False))
    assert (stop.value.code, "damaged" in stop.value.sentence) == (Exit.PROBLEMS, True)
    with pytest.raises(CommandError, match="no such folder"):
        in_files(ANN, tmp_path / "x.json", tmp_path / "none", None, tmp_path, False, None, Telling(False))

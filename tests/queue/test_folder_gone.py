"""A folder that has lost its store, its journal, or what is in the archive only: it is never taken for a new queue."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk import identity
from zonemta_py.disk.frame import frame
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.maintenance import archive

Make = Callable[..., Any]


async def lived(house: Make) -> tuple[Any, dict[str, str]]:
    """A queue with a suppression and a message in a closed segment; ids by address."""
    home = await house(queue={"segment_bytes": 65_536})
    await home.queue.ask("suppress", rows=[["never@x.test", "complaint"]])
    ids = {"closed@x.test": await home.put("closed@x.test")}
    await home.queue.position()
    home.queue.core.disk.ledger.rotate()
    await archive.publish(home.queue.core)
    ids["open@x.test"] = await home.put("open@x.test")
    await home.rest()
    identity.copied(home.folder, "")
    return home, ids


async def struck(home: Any, *names: str) -> None:
    """Ends the queue as SIGKILL does, takes these away, and starts again."""
    copy = home.image()
    home.abandon()
    for name in names:
        shutil.rmtree(copy / name)
    home.folder = copy
    await home.open()


def cases(home: Any) -> str:
    return "".join((case / "note.json").read_text() for case in Quarantine(home.folder / "quarantine").cases())


async def test_what_the_archive_knows_of_a_queue_that_is_gone_is_named(house: Make, capsys: Any) -> None:
    """Its mail by name, its suppressions are back, and its numbers go on: no new segment has an old one's name."""
    home, ids = await lived(house)
    archived = [path.name for path in segments.files(home.folder / "archive")]
    last = max(record.seq for record in segments.read(home.folder / "archive"))
    await struck(home, "store", "journal")
    said = capsys.readouterr().err
    assert "this is not a new queue" in said
    assert "cannot be named" in said
    assert ids["closed@x.test"] in said + cases(home)
    assert [row["address"] for row in (await home.queue.ask("suppressions"))["rows"]] == ["never@x.test"]
    assert any(row["kind"] == "lost" for row in await home.queue.ask("standing"))
    assert home.queue.core.disk.journal.next_seq > last
    home.queue.core.disk.ledger.rotate()
    await archive.publish(home.queue.core)
    assert set(archived) < {path.name for path in segments.files(home.folder / "archive")}
    await home.sound()


@pytest.mark.parametrize("left", ["archive", "receipts", "bodies", "identity"])
async def test_whatever_is_left_of_a_queue_it_is_not_taken_for_new(house: Make, left: str, capsys: Any) -> None:
    """One trace is enough; it is said once, and the next start is like any other."""
    home, _ = await lived(house)
    one = home.queue.begin()
    for number in range(12):
        await one.write(bytes([number]) * 10 + bytes(range(256)) * 255)
    (home.folder / "bodies" / "0123456789abcdef").write_bytes(b"large")
    there = [path.name for path in home.folder.iterdir() if path.is_dir() and path.name != left]
    if left != "identity":
        (home.folder / identity.NAME).unlink()
    await struck(home, *there)
    assert "this is not a new queue" in capsys.readouterr().err
    await home.crash()
    assert "no new queue" not in capsys.readouterr().err
    await home.sound()


async def test_fsck_says_that_the_store_is_gone_and_makes_none(house: Make) -> None:
    """Without --repair nothing is changed."""
    home, _ = await lived(house)
    folder = home.image()
    home.abandon()
    home.folder = folder
    shutil.rmtree(home.folder / "store")
    assert [problem.what for problem in home.check().problems] == ["the store is gone"]
    assert not (home.folder / "store").exists()
    assert any(row.severity == "damage" for row in home.check(repair=True).problems)
    assert home.check().problems == []


async def test_an_empty_folder_is_a_new_queue(house: Make, capsys: Any) -> None:
    """Nothing is said of it."""
    home = await house()
    await home.crash()
    assert capsys.readouterr().err == ""
    await home.sound()


async def test_a_journal_taken_from_under_a_running_queue_comes_back(house: Make, capsys: Any) -> None:
    """It goes on in new files; the next start finds that they begin in the middle, and takes the rest back."""
    home, ids = await lived(house)
    shutil.rmtree(home.folder / "journal")
    (home.folder / "journal").mkdir()
    ids["later@x.test"] = await home.put("later@x.test")
    await home.rest()
    capsys.readouterr()
    await home.crash()
    said = capsys.readouterr().err
    assert "the journal's beginning is gone" in said
    assert segments.first_seq(segments.files(home.folder / "journal")[0]) == 1
    await home.crash()
    assert "is gone" not in capsys.readouterr().err
    await home.sound()
    await home.move(100_000)
    assert {r.address for d in await home.leases() for r in d.recipients if d.sender} == set(ids)


@pytest.mark.parametrize("blow", ["flip", "cut", "tail", "emptied"])
async def test_fsck_finds_damage_that_only_the_archive_has(house: Make, blow: str) -> None:
    """No restart reads these segments, but the audit log and the pipeline do. What can be read is kept."""
    home, _ = await lived(house)
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.rest()
    await home.queue.position()
    folder = home.image()
    home.abandon()
    home.folder = folder
    oldest = segments.first_seq(segments.files(folder / "journal")[0])
    path = segments.files(folder / "archive")[0]
    assert segments.first_seq(path) < oldest
    assert home.check().problems == []
    before = {record.seq for record in segments.read_file(path, [])}
    _strike(path, blow)
    (problem,) = home.check().problems[:1]
    assert problem.severity == "damage"
    assert problem.id == str(path) or blow in ("tail", "emptied")
    assert any(problem.severity == "damage" for problem in home.check(repair=True).problems)
    assert home.check().problems == []
    after = list(segments.read(folder / "archive"))
    told = [record for record in after if record.type == Type.LOST]
    assert told
    assert before - {record.seq for record in after if record.type != Type.LOST}
    assert path.name in cases(home) or blow in ("tail", "emptied"), "then what follows has the LOST record"


def _strike(path: Path, blow: str) -> None:
    rows, data = list(segments.read_file(path, [])), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    tail, cut = frame(rows[:-2], 0), bytes(data[: len(data) // 2])
    path.write_bytes({"flip": bytes(data), "cut": cut, "tail": tail, "emptied": b""}[blow])

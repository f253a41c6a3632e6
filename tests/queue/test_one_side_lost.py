"""One side is lost, the other whole: which is ahead is asked first, and nothing of the whole one is called lost.

What the store knows of results whose records are gone is believed; whom it cannot know about is in doubt, by name.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import done
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import RemovedRecord
from zonemta_py.queue.maintenance import archive
from zonemta_py.queue.recovery import offline
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]
Strike = Callable[[Path], None]


async def half_delivered(house: Make) -> tuple[Any, set[str], set[str]]:
    """Mail whose envelopes are in closed segments and whose results are in the open one; who got theirs, who waits.

    The result of last@x.test is on stable storage in the journal, and in no batch of the store yet.
    """
    many = {"connections": 1000, "connections_per_destination": 1000}
    home = await house(queue={"segment_bytes": 65_536}, zones=[{"name": "z", "default": True, **many}])
    done, waits = set[str](), set[str]()
    for number in range(6):
        await home.put(f"one{number}@x{number}.test")
        await home.put(f"two{number}@y{number}.test", f"rest{number}@z{number}.test")
        done |= {f"one{number}@x{number}.test", f"two{number}@y{number}.test"}
        waits.add(f"rest{number}@z{number}.test")
    await home.put("last@x.test")
    await home.rest()
    home.queue.core.disk.ledger.rotate()
    await archive.publish(home.queue.core)
    later = []
    for delivery in await home.leases():
        address = delivery.recipients[0].address
        if address in done:
            await home.settle(delivery)
        elif address == "last@x.test":
            later.append(delivery)
        else:
            home.queue.leases.take_back(home.queue.leases.out[delivery.lease])
    await home.rest()
    for delivery in later:
        await home.settle(delivery)
    return home, {*done, "last@x.test"}, waits


def open_segment(folder: Path) -> None:
    segments.files(folder / "journal")[-1].unlink()


def whole_journal(folder: Path) -> None:
    shutil.rmtree(folder / "journal")


def journal_and_archive(folder: Path) -> None:
    shutil.rmtree(folder / "journal")
    shutil.rmtree(folder / "archive")


def last_blocks(folder: Path) -> None:
    """Everything but the first record of the open segment is zeros."""
    path = segments.files(folder / "journal")[-1]
    path.write_bytes(path.read_bytes()[:120] + bytes(40_000))


def lost(home: Any) -> list[RemovedRecord]:
    rows = segments.read_files(segments.every_file(home.folder / "journal", home.folder / "archive"))
    removed = [RemovedRecord.of(unpack(row.body)) for row in rows if row.type == Type.REMOVED]
    return [one for one in removed if one.case is not None]


@pytest.mark.parametrize("strike", [open_segment, whole_journal, journal_and_archive, last_blocks])
@pytest.mark.parametrize("repair", [False, True])
async def test_the_end_of_the_journal_is_lost_and_the_store_is_whole(
    house: Make, strike: Strike, repair: bool, capsys: Any
) -> None:
    """Who was delivered is not lost, and is not sent to again; but whom the store cannot know about is listed."""
    home, done, waits = await half_delivered(house)
    copy = home.image(drop=True)
    home.abandon()
    strike(copy)
    home.folder = copy
    capsys.readouterr()
    looked = " ".join(map(str, home.check().problems))
    assert "journal" in looked
    assert "store" not in looked, home.check().problems
    report = await offline.check(home.config, repair=True, clock=home.clock) if repair else None
    await home.open()
    said = capsys.readouterr().err + " ".join(map(str, report.problems if report else ()))
    assert "the journal" in said
    assert "in doubt" in said
    assert "damage in the store" not in said
    assert "lost from" not in said
    assert lost(home) == []
    listed = {row["recipient"] for row in (await home.queue.ask("in-doubt"))}
    await home.move(100_000)
    again = {r.address for d in await home.leases() for r in d.recipients if d.sender}
    assert again >= waits
    assert again & done <= listed
    assert again & done == {"last@x.test"}
    await home.crash()
    assert capsys.readouterr().err == ""
    await home.sound()


async def test_both_sides_have_lost_something(house: Make, capsys: Any) -> None:
    """Nobody can know who had their mail: who is sent to again is in doubt, and what is missing is not simply lost."""
    home, done, waits = await half_delivered(house)
    copy = home.image(drop=True)
    home.abandon()
    open_segment(copy)
    (copy / "store" / "CURRENT").unlink()
    home.folder = copy
    capsys.readouterr()
    await home.open()
    said = capsys.readouterr().err
    assert "or it has ended in what is lost from the journal" in said
    listed = {row["recipient"] for row in (await home.queue.ask("in-doubt"))}
    await home.move(100_000)
    again = {r.address for d in await home.leases() for r in d.recipients if d.sender}
    assert again >= waits
    assert again & done <= listed
    assert {f"two{number}@y{number}.test" for number in range(6)} <= again
    await home.sound()


async def test_a_start_that_is_broken_off_still_names_who_is_in_doubt(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the journal was repaired, and before anybody was named."""
    home, _, _ = await half_delivered(house)
    copy = home.image(drop=True)
    home.abandon()
    open_segment(copy)
    home.folder = copy

    async def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("zonemta_py.queue.recovery.start.repair", fail)
        with pytest.raises(OSError, match="No space"):
            await home.open()
    home.folder = copy.with_name("left")
    shutil.copytree(copy, home.folder, ignore=shutil.ignore_patterns("LOCK"))
    await home.open()
    assert "last@x.test" in {row["recipient"] for row in (await home.queue.ask("in-doubt"))}
    assert not (home.folder / "results-lost").exists()
    await home.sound()


async def test_a_result_that_the_store_has_is_in_no_doubt(house: Make) -> None:
    """Records are lost from the middle of the journal, and the store had applied them: nobody is listed."""
    home, done, _ = await half_delivered(house)
    await home.rest()
    await home.queue.position()
    copy = home.image()
    home.abandon()
    path = segments.files(copy / "journal")[-1]
    data = bytearray(path.read_bytes())
    data[300:700] = bytes(400)
    path.write_bytes(data)
    home.folder = copy
    assert home.check(repair=True).problems
    await home.open()
    assert await home.queue.ask("in-doubt") == []
    await home.move(100_000)
    assert not {r.address for d in await home.leases() for r in d.recipients if d.sender} & done


async def test_a_task_that_was_forgotten_does_not_begin_again(house: Make) -> None:
    """The journal's latest position is lost with its end: what the store has applied, and forgotten since, is over."""
    home = await house()
    await home.put("bob@x.test")
    row = await done(home, "delete", where={"domain": "nobody.test"})
    core = home.queue.core
    core.tasks.forget(core.tasks.by_number[int(row["id"])])
    await home.rest()
    await home.crash()
    assert home.queue.core.tasks.by_number == {}
    await home.sound()


@pytest.mark.parametrize("archived", [True, False])
async def test_what_has_ended_long_ago_does_not_come_back_with_the_stores_damage(house: Make, archived: bool) -> None:
    """A table with deletions is lost, and what they had deleted is there again: it is not sent a second time."""
    home = await house(queue={"segment_bytes": 65_536})
    await home.put("bob@x.test", "cid@y.test")
    await home.rest()
    store = home.queue.core.disk.store
    before = [(key, value) for key, value in store.scan(b"", b"\xff") if key.split(b" ")[0] in _MAIL]
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.rest()
    await home.queue.position()
    home.queue.core.disk.ledger.rotate()
    await home.put("dan@z.test")
    for _ in range(2):
        await home.rest()
        await home.queue.position()
    assert segments.first_seq(segments.files(home.folder / "journal")[0]) > 1
    copy = home.image()
    home.abandon()
    if not archived:
        shutil.rmtree(copy / "archive")
    store = Store(copy / "store")
    store.write(before, sync=True)
    store.close()
    (copy / REPAIR_MARK).write_text("a table is lost")
    home.folder = copy
    await home.open()
    await home.move(100_000)
    assert {r.address for d in await home.leases() for r in d.recipients if d.sender} == {"dan@z.test"}
    await home.sound()


_MAIL = (b"message", b"delivery-zone", b"at")

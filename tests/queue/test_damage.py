"""Files of a queue gone, cut or flipped, also right after a 250: what is whole is sent, and what is not is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk.leveldb import log
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import segments
from zonemta_py.queue.api import DEFERRED, DELIVERED
from zonemta_py.queue.recovery import offline
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]


async def struck(home: Any, strike: Callable[[Path], None]) -> None:
    """Ends the queue as SIGKILL does, at this instant, strikes, and starts again."""
    copy = home.image(drop=True)
    home.abandon()
    strike(copy)
    home.folder = copy
    await home.open()


def gone(pattern: str) -> Callable[[Path], None]:
    def strike(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return strike


def notes(home: Any) -> str:
    return "".join((case / "note.json").read_text() for case in Quarantine(home.folder / "quarantine").cases())


async def seen(home: Any) -> set[str]:
    await home.move(100_000)
    return {r.address for d in await home.leases() for r in d.recipients if d.sender}


async def filled(house: Make, count: int = 6) -> tuple[Any, dict[str, str]]:
    """Some mail on all disks; ids by address."""
    home = await house(queue={"segment_bytes": 65_536})
    ids = {address: await home.put(address) for number in range(count) if (address := f"r{number}@x{number}.test")}
    await home.rest()
    await home.queue.position()
    return home, ids


@pytest.mark.parametrize("pattern", ["store/CURRENT", "store/MANIFEST-*"])
async def test_a_file_that_says_where_all_else_is(house: Make, pattern: str) -> None:
    """It is no new store: the tables and logs are there, and all is sent; also what was acknowledged just before."""
    home, ids = await filled(house)
    await home.crash()  # makes tables
    ids["late@x.test"] = await home.put("late@x.test")
    await struck(home, gone(pattern))
    assert await seen(home) == set(ids)
    assert len(Quarantine(home.folder / "quarantine").cases()) == 1
    await home.sound()


@pytest.mark.parametrize("pattern", ["store/*.log", "store/*.ldb", "store", "store/*"])
async def test_what_is_gone_is_named_to_the_last_message(house: Make, pattern: str, capsys: Any) -> None:
    """Each message that is in no file any more, and the one whose 250 was given this instant."""
    home, ids = await filled(house)
    await home.crash()
    ids["late@x.test"] = await home.put("late@x.test")
    capsys.readouterr()
    await struck(home, gone(pattern))
    there = await seen(home)
    said = capsys.readouterr().err + notes(home)
    lost = set(ids) - there
    assert lost
    assert [address for address in lost if ids[address] not in said] == []
    await home.sound()


@pytest.mark.parametrize("what", ["flip", "length", "cut", "half", "zeros"])
async def test_a_blow_right_after_the_answer(house: Make, what: str, capsys: Any) -> None:
    """On the last batch of LevelDB's log, which nothing but the receipts tells from a torn one."""
    home, ids = await filled(house)
    last = await home.put("late@x.test")

    def strike(folder: Path) -> None:
        path = max(folder.glob("store/*.log"))
        data = bytearray(path.read_bytes())
        start = log.read(bytes(data)).batches[-1][0]
        match what:
            case "flip":
                data[start + 60] ^= 8
            case "length":
                data[start + 5] ^= 16
            case "cut":
                del data[start:]
            case "half":
                del data[start + 100 :]
            case "zeros":
                data[start:] = bytes(len(data) - start)
        path.write_bytes(data)

    capsys.readouterr()
    await struck(home, strike)
    there = await seen(home)
    assert there >= set(ids)
    if "late@x.test" not in there:
        assert last in capsys.readouterr().err
        assert last in notes(home)
    await home.sound()


async def test_mail_behind_the_damage_is_sent(house: Make) -> None:
    """One batch is lost, and named; those behind it in the same block are not."""
    home = await house()
    ids = {address: await home.put(address) for number in range(9) if (address := f"r{number}@x{number}.test")}

    def strike(folder: Path) -> None:
        path = max(folder.glob("store/*.log"))
        data = bytearray(path.read_bytes())
        (at,) = [at for at, batch in log.read(bytes(data)).batches if ids["r4@x4.test"].encode() + b" *" in batch]
        data[at + 30] ^= 1
        path.write_bytes(data)

    await struck(home, strike)
    assert await seen(home) == set(ids) - {"r4@x4.test"}
    rows = [json.loads((case / "note.json").read_text()) for case in Quarantine(home.folder / "quarantine").cases()]
    (row,) = [message for row in rows if "CURRENT" not in str(row) for message in row.get("messages", [])][:1]
    assert row["message"] == ids["r4@x4.test"]
    assert row["sender"] == "ann@src.test"
    assert row["recipients"] == ["r4@x4.test"]
    await home.sound()


async def test_a_journal_that_is_gone_is_made_anew(house: Make, capsys: Any) -> None:
    """One case says what is lost; all mail is sent; the next starts find nothing wrong."""
    home, ids = await filled(house)
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    capsys.readouterr()
    await struck(home, gone("journal"))
    said = capsys.readouterr().err
    assert said.count("the journal is missing, and is created again") == 1
    (case,) = Quarantine(home.folder / "quarantine").cases()
    note = json.loads((case / "note.json").read_text())
    assert any("stops" in row for row in note["lost"])
    for _ in range(3):
        await home.crash()
    assert len(Quarantine(home.folder / "quarantine").cases()) == 1
    await home.sound()
    assert await seen(home) == set(ids)


@pytest.mark.parametrize("what", ["journal", "one"])
async def test_closed_segments_come_back_from_the_archive(house: Make, what: str) -> None:
    """They have a second name there."""
    home, ids = await filled(house)
    home.queue.core.disk.ledger.rotate()
    await home.put("more@x.test")
    await home.rest()
    await home.queue.position()
    archive = home.folder / "archive"
    from zonemta_py.queue.maintenance import archive as archiving

    await archiving.publish(home.queue.core)
    first = segments.files(archive)[0].name
    await struck(home, gone("journal" if what == "journal" else f"journal/{first}"))
    assert first in [path.name for path in segments.files(home.folder / "journal")]
    await home.sound()
    assert await seen(home) == {*ids, "more@x.test"}


async def test_a_segment_that_is_gone_for_good_is_named(house: Make, capsys: Any) -> None:
    """It looked like one that had gone to the archive."""
    home, ids = await filled(house)
    home.queue.core.disk.ledger.rotate()
    await home.put("more@x.test")
    await home.rest()
    await home.queue.position()
    first = segments.files(home.folder / "journal")[0].name
    capsys.readouterr()

    def strike(folder: Path) -> None:
        for place in ("journal", "archive"):
            (folder / place / first).unlink(missing_ok=True)

    await struck(home, strike)
    assert "a segment of the journal is missing: records 1 to " in capsys.readouterr().err
    await home.crash()
    assert capsys.readouterr().err.count("is gone") == 0
    await home.sound()
    assert await seen(home) == {*ids, "more@x.test"}


async def test_a_start_that_is_broken_off_again_and_again_makes_one_case(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor starts the queue twice a second; quarantine/ must not fill up with it."""
    home, ids = await filled(house)
    copy = home.image()
    home.abandon()
    home.folder = copy
    gone("store/CURRENT")(copy)

    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Store, "repair", staticmethod(fail))
        for _ in range(5):
            with pytest.raises(OSError, match="No space"):
                await home.open()
    assert len(Quarantine(copy / "quarantine").cases()) == 1
    await home.open()
    assert len(Quarantine(copy / "quarantine").cases()) == 1
    assert not (copy / REPAIR_MARK).exists()
    assert await seen(home) == set(ids)


async def test_nothing_is_said_after_a_crash(house: Make, capsys: Any) -> None:
    """A queue whose process was killed, or whose power was cut, is healthy: no case, no word."""
    home, _ = await filled(house)
    capsys.readouterr()
    for number in range(6):
        await home.put(f"s{number}@x.test")
        await home.crash(power=number % 2 == 1, drop=number % 3 == 0)
    assert capsys.readouterr().err == ""
    assert not (home.folder / "quarantine").exists()
    await home.sound()


@pytest.mark.parametrize("back", [1, 3, 40])
async def test_a_damaged_order_at_the_end_of_the_journal_is_named(house: Make, back: int, capsys: Any) -> None:
    """The stop was acknowledged, and the store had not noted that yet: it is gone, but not without a word."""
    home = await house()
    await home.put("bob@x.test")
    await home.rest()
    await home.queue.ask("stop", kind="destination", name="x.test")

    def strike(folder: Path) -> None:
        path = segments.files(folder / "journal")[-1]
        data = bytearray(path.read_bytes())
        data[len(data) - back] ^= 1
        path.write_bytes(data)

    capsys.readouterr()
    await struck(home, strike)
    said = capsys.readouterr().err
    assert "damage" in said
    assert "STANDING" in said or "cannot be read" in said
    (case,) = Quarantine(home.folder / "quarantine").cases()
    assert len(list(case.iterdir())) == 2
    await home.crash()
    assert capsys.readouterr().err == ""
    await home.sound()


@pytest.mark.parametrize("verdict", [DEFERRED, DELIVERED])
async def test_a_message_that_was_tried_is_missed_too(house: Make, verdict: int, capsys: Any) -> None:
    """One of its recipients has a result, the other waits: with the store gone it is lost, and not ended."""
    home = await house()
    message_id = await home.put("bob@x.test", "cid@y.test")
    (delivery,) = [d for d in await home.leases() if d.recipients[0].address == "bob@x.test"]
    await home.settle(delivery, verdict)
    await home.rest()
    capsys.readouterr()
    await struck(home, gone("store"))
    assert message_id in capsys.readouterr().err
    assert message_id in notes(home)
    await home.sound()


async def test_an_archive_that_is_gone_brings_nothing_back(house: Make) -> None:
    """Segments there hold the ends of mail whose envelopes are in older ones: nobody gets it twice for that."""
    home = await house()
    await home.put("early@x.test")  # keeps the first segment in the journal
    await home.put("bob@y.test", "cid@z.test")
    await home.put("dan@v.test")
    await home.rest()
    home.queue.core.disk.ledger.rotate()
    for delivery in await home.leases():
        if delivery.recipients[0].address in ("bob@y.test", "dan@v.test"):
            await home.settle(delivery)
        else:
            home.queue.leases.take_back(home.queue.leases.out[delivery.lease])
    await home.rest()
    home.queue.core.disk.ledger.rotate()
    await home.put("late@w.test")
    await home.rest()
    for _ in range(2):
        await home.queue.position()
    assert len(segments.files(home.folder / "journal")) == 2, "the middle one has gone to the archive"
    copy = home.image()
    home.abandon()
    home.folder = copy
    gone("archive")(copy)
    report = await offline.check(home.config, repair=True, clock=home.clock)
    assert [p for p in report.problems if p.severity != "harmless"] == []
    await home.open()
    assert await seen(home) == {"early@x.test", "cid@z.test", "late@w.test"}


async def test_a_segment_that_begins_with_a_position_is_known_by_it(house: Make, capsys: Any) -> None:
    """So the one before it, if it is gone, is missed: it looked like one that had gone to the archive."""
    home, ids = await filled(house)
    await home.crash()  # the next record begins a segment: a position
    await home.queue.position()
    await home.put("late@x.test")
    await home.rest()
    assert len(segments.files(home.folder / "journal")) == 2
    capsys.readouterr()
    await struck(home, lambda folder: segments.files(folder / "journal")[0].unlink())
    assert "a segment of the journal is missing" in capsys.readouterr().err
    assert await seen(home) == {*ids, "late@x.test"}
    await home.sound()

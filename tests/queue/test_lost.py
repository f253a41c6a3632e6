"""Messages that damage has cost: ended by a record, one quarantine case for all; new losses are told from old ones."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.api import HELD

Make = Callable[..., Any]
LOST = 20


def drop_bodies(folder: Path, ids: list[str]) -> None:
    store = Store(folder / "store")
    store.write([(keys.chunk(message_id, 1), None) for message_id in ids], sync=True)
    store.close()


async def damaged(house: Make) -> tuple[Any, list[str]]:
    """A stopped house with 22 messages, of which 20 have lost their bodies."""
    home = await house(zones=[{"name": "z"}])
    ids = [await home.put(f"a@x{number}.test", f"b@x{number}.test") for number in range(LOST + 2)]
    await home.rest()
    await home.queue.position()
    home.folder, _ = home.image(), home.abandon()
    drop_bodies(home.folder, ids[:LOST])
    return home, ids


def cases(home: Any) -> list[Path]:
    return sorted((home.folder / "quarantine").iterdir())


async def test_what_was_lost_is_said_once(house: Make) -> None:
    """One case for the incident; fsck is content afterwards, and counts what was lost before."""
    home, ids = await damaged(house)
    assert {problem.id for problem in home.check(repair=True).problems if problem.severity == "damage"} == {*ids[:LOST]}
    (case,) = cases(home)
    note = json.loads((case / "note.json").read_text())
    assert [row["message"] for row in note["messages"]] == sorted(ids[:LOST])
    assert note["messages"][0]["recipients"] == ["a@x0.test", "b@x0.test"]
    assert note["messages"][0]["sender"] == "ann@src.test"
    for _ in range(2):
        report = home.check()
        assert report.problems == []
        assert (report.counts["messages lost by damage before"], report.counts["queued"]) == (LOST, 4)
    rows = segments.read(home.folder / "journal", 0, [], home.folder / "archive")
    ended = [row for row in rows if row.type == Type.REMOVED]
    assert {packing.unpack(row.body)[0] for row in ended} == {*ids[:LOST]}
    assert all(packing.unpack(row.body)[4]["lost"] == case.name for row in ended)


async def test_new_losses_are_told_from_old_ones(house: Make) -> None:
    """Only what was lost since the last repair is a problem."""
    home, ids = await damaged(house)
    home.check(repair=True)
    drop_bodies(home.folder, ids[LOST : LOST + 1])
    assert [problem.id for problem in home.check().problems if problem.severity == "damage"] == [ids[LOST]]
    home.check(repair=True)
    assert home.check().problems == []
    assert len(cases(home)) == 2


async def test_a_segment_whose_mail_was_lost_goes_to_the_archive(house: Make) -> None:
    """And the sizes are what is there."""
    home, _ = await damaged(house)
    home.check(repair=True)
    await home.open()
    sizes = await home.sizes()
    assert (sizes["queued"], sizes["messages"]) == (4, 2)
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.rest()
    home.queue.core.disk.ledger.rotate()
    await home.queue.position()
    await home.queue.position()
    firsts = [segments.first_seq(path) for path in segments.files(home.folder / "archive")]
    assert 1 in firsts, "the segment that has all the envelopes"
    await home.sound()


async def test_the_automatic_repair_ends_them_too(house: Make) -> None:
    """A store that was cut is found behind at the start; after that fsck finds nothing."""
    home = await house(zones=[{"name": "z"}])
    await home.queue.position()
    early = home.image()
    ids = [await home.put(f"a@x{number}.test") for number in range(3)]
    await home.rest()
    await home.queue.position()
    late = home.image()
    home.abandon()
    shutil.rmtree(late / "receipts")
    shutil.rmtree(late / "store")
    shutil.copytree(early / "store", late / "store")
    home.folder = late
    assert {problem.id for problem in home.check().problems} == {*ids, "store"}
    await home.open()
    assert (await home.sizes())["messages"] == 0
    await home.sound()
    home.abandon()
    report = home.check()
    assert (report.problems, report.counts["messages lost by damage before"]) == ([], 3)
    assert len([case for case in cases(home) if "messages" in case.name]) == 1


async def test_the_record_comes_before_the_deletion(house: Make) -> None:
    """A message that turns out to be damaged when its turn comes: nothing is deleted until that is on record."""
    home = await house(zones=[{"name": "z"}])
    message_id = await home.put("a@x.test", "b@y.test")
    await home.put("c@z.test")
    await home.rest()
    await home.crash()
    core = home.queue.core
    core.disk.lines.submit([(keys.metadata(message_id), None)], lambda _: None, sync=True, keep=True)
    await home.rest()
    start = core.disk.journal._start
    core.disk.journal._start = lambda: None  # the journal's disk is slow
    taker = asyncio.ensure_future(home.queue.lease(10))
    for _ in range(20):
        await core.disk.lines.stable()
    assert home.queue.core.disk.quarantine.cases(), "it has been found out"
    assert core.disk.store.get(keys.existence(message_id)) is not None, "deleted before the record is stable"
    core.disk.journal._start = start
    core.disk.journal._soon = False
    await home.rest()
    assert core.disk.store.get(keys.existence(message_id)) is None
    assert [delivery.recipients[0].address for delivery in await taker] == ["c@z.test"]
    (case,) = cases(home)
    assert message_id in (case / "note.json").read_text()
    sizes = await home.sizes()
    assert (sizes["leased"], sizes["messages"]) == (1, 1)
    await home.sound()


async def test_a_crash_between_record_and_deletion(house: Make) -> None:
    """The start makes the record true."""
    home = await house(zones=[{"name": "z"}])
    message_id = await home.put("a@x.test")
    await home.put("c@z.test")
    await home.rest()
    await home.queue.position()
    await home.crash()
    core = home.queue.core
    core.disk.lines.submit([(keys.metadata(message_id), None)], lambda _: None, sync=True, keep=True)
    await home.rest()
    core.disk.lines._start = lambda: None
    await home.lease(3)
    await core.disk.journal.stable()
    home.folder, _ = home.image(drop=True), home.abandon()
    store = Store(home.folder / "store")
    assert store.get(keys.existence(message_id)) is not None, "the test's own ground"
    store.close()
    assert home.check().problems == []
    await home.open()
    assert (await home.sizes())["messages"] == 1
    await home.sound()


async def test_damage_in_an_old_segment_is_said_before_it_is_archived(house: Make) -> None:
    """It is mended, the damaged file is kept, and the archive has no unnamed hole."""
    home = await house(zones=[{"name": "z"}])
    await home.put("a@x.test")
    (delivery,) = await home.lease()
    home.queue.core.disk.ledger.rotate()
    await home.settle(delivery, HELD)
    await home.rest()
    await home.queue.ask("drop", id=delivery.id)
    await home.rest()
    first, *_ = segments.files(home.folder / "journal")
    data = bytearray(first.read_bytes())
    data[20] ^= 1
    first.write_bytes(data)
    await home.queue.position()
    await home.queue.position()
    (archived, *_) = segments.files(home.folder / "archive")
    faults: list[segments.Fault] = []
    kinds = [record.type for record in segments.read_file(archived, faults)]
    assert faults == []
    assert Type.LOST in kinds
    (case,) = cases(home)
    assert (case / first.name).read_bytes() == bytes(data)

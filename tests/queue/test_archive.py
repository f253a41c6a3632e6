"""Closed segments are in the archive, where reports read them: when full, when their time has come, when told to.

A recipient that waits keeps its segment in the journal too, for a restart may need it, but keeps nothing from readers.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from tests.queue.test_suppression_rebuilt import pruned
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.pipeline.erasure.archive import erase_segment
from zonemta_py.pipeline.erasure.person import DataSubject
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.maintenance import archive as archiving

Make = Callable[..., Awaitable[Any]]


async def test_a_quiet_queue_closes_its_segment_in_time(house: Make) -> None:
    """What is told reaches the archive within `segment_s`, however little it is; a segment without news stays open."""
    home = await house(queue={"segment_s": 3600})
    await home.put("bob@x.test")
    await home.settle((await home.lease())[0])
    await home.rest()
    archive = home.folder / "archive"
    home.queue.core.disk.ledger.rotate_old()
    await archiving.publish(home.queue.core)
    assert not list(archive.iterdir()), "its time has not come"
    await home.move(3601)
    home.queue.core.disk.ledger.rotate_old()
    await archiving.publish(home.queue.core)
    assert len(list(archive.iterdir())) == 1
    await home.move(3601)
    home.queue.core.disk.ledger.rotate_old()
    await archiving.publish(home.queue.core)
    assert len(list(archive.iterdir())) == 1, "nothing was told since"
    await home.sound()


async def test_a_position_names_nobody_who_has_gone(house: Make) -> None:
    """Low-water marks stand in every later segment of a quiet zone: they must not keep who was forgotten."""
    home = await house()
    await home.put("bob@x.test")
    await home.put("ann@x.test")
    for delivery in await home.lease(2):
        await home.settle(delivery)
    await home.queue.ask("forget", address="ann@x.test")
    await home.rest()
    await home.queue.position()
    newest = list(segments.read(home.folder / "journal"))[-1]
    assert newest.type == Type.POSITION
    assert b"x.test" not in newest.body
    await home.sound()


async def _archive_has(home: Any, files: int) -> None:
    for _ in range(6000):
        if len(list(home.folder.glob("archive/*"))) >= files:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("closed segments stay out of the archive")


def _archived(home: Any) -> list[Type]:
    return [Type(record.type) for record in segments.read(home.folder / "archive")]


async def test_a_recipient_that_waits_keeps_nothing_out_of_the_archive(house: Make) -> None:
    """The report of a campaign is to be had on its day, though one of its recipients is put off for two."""
    home = await house()
    await home.put("bob@x.test")
    await home.put("ann@y.test")
    first, second = await home.lease(2)
    await home.settle(first)
    await home.settle(second, DEFERRED)
    closed = (await home.queue.ask("rotate"))["closed"]
    assert [path.name for path in (home.folder / "archive").iterdir()] == [closed]
    assert _archived(home).count(Type.DELIVERY) == 2
    assert (home.folder / "journal" / closed).samefile(home.folder / "archive" / closed)
    assert (await home.queue.ask("rotate"))["closed"] == "", "nothing was told since"
    await home.sound()


async def test_a_full_segment_is_readable_at_once(house: Make) -> None:
    home = await house(queue={"segment_bytes": 65_536})
    home.queue.start()
    while len(list(home.folder.glob("journal/*"))) < 3:
        await home.put("bob@x.test")
    await _archive_has(home, len(list(home.folder.glob("journal/*"))) - 1)
    await home.sound()


async def test_a_crash_before_the_link_is_made_good(house: Make) -> None:
    home = await house()
    await home.put("bob@x.test")
    home.queue.core.disk.ledger.rotate()
    await home.rest()
    assert not (home.folder / "archive").exists()
    await home.crash()
    home.queue.start()
    await _archive_has(home, 1)
    assert _archived(home).count(Type.ENVELOPE) == 1
    await home.settle((await home.lease())[0])
    await home.sound()


async def test_what_was_erased_in_the_archive_stays_erased(house: Make) -> None:
    """`forget` writes the archived file again; the one that the journal kept until its mail ended goes without it."""
    home = await house()
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    closed = home.folder / "archive" / (await home.queue.ask("rotate"))["closed"]
    assert (
        erase_segment(closed, DataSubject("bob@x.test", "gone-1@forgotten.invalid")).entries == 2
    )  # accepted, started
    await home.settle(delivery)
    await home.rest()
    await home.queue.position()
    await home.queue.position()
    assert not (home.folder / "journal" / closed.name).exists()
    assert b"bob@x.test" not in closed.read_bytes()
    await home.sound()


async def test_repair_repairs_both_names_of_a_segment(house: Make) -> None:
    home = await house()
    await home.put("bob@x.test")
    name = (await home.queue.ask("rotate"))["closed"]
    await home.rest()
    home.abandon()
    kept = home.folder / "journal" / name
    data = bytearray(kept.read_bytes())
    data[-20] ^= 1
    kept.write_bytes(data)
    home.check(repair=True)
    assert kept.samefile(home.folder / "archive" / name)
    faults: list[segments.Fault] = []
    assert list(segments.read(home.folder / "archive", 0, faults))
    assert faults == []
    await home.open()
    await home.sound()


async def test_segments_that_leave_in_any_order_are_whole(house: Make) -> None:
    """One leaves the journal long after those behind it have left: what is between them is in the archive, not lost."""
    home = await house()
    await home.put("bob@x.test")
    (waits,) = await home.lease()
    for _ in range(3):
        await home.queue.ask("rotate")
        await home.put("ann@y.test")
        await home.settle((await home.lease())[0])
        await home.queue.position()
        await home.queue.position()
    await home.queue.ask("rotate")
    await home.settle(waits)
    for _ in range(2):
        await home.rest()
        await home.queue.position()
    assert len(list((home.folder / "journal").iterdir())) == 1
    assert not list(home.folder.glob("quarantine/*"))
    assert Type.LOST not in _archived(home)
    await home.sound()


async def test_a_segment_whose_end_is_gone_is_noticed_when_it_leaves(house: Make) -> None:
    home = await house()
    await home.put("bob@x.test")
    (waits,) = await home.lease()
    closed = home.folder / "journal" / (await home.queue.ask("rotate"))["closed"]
    await home.settle(waits)
    os.truncate(closed, closed.stat().st_size - 30)
    for _ in range(2):
        await home.rest()
        await home.queue.position()
    assert not closed.exists()
    assert len(list(home.folder.glob("quarantine/*"))) == 1
    assert Type.LOST in _archived(home)
    await home.sound()


async def test_a_summary_goes_with_its_segment(house: Make) -> None:
    """When the archive keeps the segment no longer."""
    home = await house()
    await home.put("bob@x.test")
    await home.settle((await home.lease())[0])
    await home.rest()
    await archiving.rotate(home.queue.core)
    segment = segments.files(home.folder / "archive")[0]
    summary = segments.summary_of(segment)
    summary.write_bytes(b"x")
    await pruned(home, segment.name)
    assert not summary.exists()


async def test_how_long_limits_held_mail_changes_nothing_at_a_restart(house: Make) -> None:
    home = await house()
    home.queue.core.schedule.admission.waits.held("slow", 9)
    home.queue.maintenance.note_waits()
    await home.rest()
    await home.crash()
    assert await home.queue.ask("standing") == []

"""fsck between a crash and the next start: what only the journal has is no problem, and nothing owed is taken away."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.disk.frame import frame
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.fsck import compare
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]
COUNT = 8


async def bounced(house: Make) -> Any:
    """A house whose journal has the bounces of eight messages, and whose store has none of them."""
    home = await house(zones=[{"name": "z"}])
    for number in range(COUNT):
        await home.put(f"gone@x{number}.test", sender=f"s@src{number}.test")
    await home.put("stays@y.test", sender="s@other.test")
    await home.queue.position()
    deliveries = await home.leases()
    verdicts = [DEFERRED if d.sender == "s@other.test" else BOUNCED for d in deliveries]
    results = [home.result(d, verdict) for d, verdict in zip(deliveries, verdicts, strict=True)]
    home.queue.core.disk.lines._start = lambda: None  # the store follows later than the crash
    for result in results:
        await home.queue.settle(result)
    return home


async def told(home: Any) -> set[str]:
    """Who gets a notification, and how many of the others are there."""
    found = [d.recipients[0].address for d in await home.leases() if d.sender == ""]
    assert len(found) == len(set(found)), "nobody is told twice"
    return set(found)


@pytest.mark.parametrize("repair", [False, True])
async def test_bounces_that_only_the_journal_has(house: Make, repair: bool) -> None:
    """They are no problem, and after fsck, with --repair too, every sender is told."""
    home = await bounced(house)
    home.folder, _ = home.image(drop=True), home.abandon()
    assert pending(home) == COUNT + 1, "the test's own ground"
    assert home.check().problems == []
    if repair:
        assert home.check(repair=True).problems == []
        assert home.check().problems == []
    await home.open()
    assert await told(home) == {f"s@src{number}.test" for number in range(COUNT)}


def pending(home: Any) -> int:
    """How many results wait to be applied."""
    store = Store(home.folder / "store")
    applied = compare.state_of(store).applied
    store.close()
    rows = segments.read(home.folder / "journal")
    return sum(record.type == Type.DELIVERY and record.seq > applied for record in rows)


async def test_fsck_changes_nothing(house: Make) -> None:
    """Without --repair not a byte of the journal, not a key of the store."""
    home = await bounced(house)
    home.folder, _ = home.image(drop=True), home.abandon()
    before = content(home.folder)
    home.check()
    assert content(home.folder) == before
    assert not (home.folder / "quarantine").exists()


def content(folder: Path) -> Any:
    store = Store(folder / "store")
    rows = list(store.scan(b"", b"\xff"))
    store.close()
    return rows, {path.name: path.read_bytes() for path in (folder / "journal").iterdir()}


def open_below(folder: Path) -> list[str]:
    """Files that this process has open."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one of this walk
            found.append(str(one.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


async def test_wherever_the_journal_was_cut(house: Make) -> None:
    """A kill leaves it at any record, whole or torn; each time fsck is content, and who is owed a bounce gets it."""
    home = await bounced(house)
    image = home.image(drop=True)
    home.abandon()
    store = Store(image / "store")
    stable = compare.state_of(store).stable
    store.close()
    *_, last = segments.files(image / "journal")
    rows = list(segments.read_file(last, []))
    for number, record in enumerate(rows):
        if record.seq < stable or (record.seq > stable and record.type != Type.DELIVERY):
            continue
        whole = frame(rows[: number + 1], 0)
        # Bounced, and agreed.
        owed = sum(row.type == Type.DELIVERY and b"\x9a\x03" in row.body for row in rows[: number + 1])
        for torn, repair in ((b"", False), (b"", True), (b"\x01\x02\x03\x04\x40\x00\x11half", True)):
            home.folder = image.with_name("cut")
            shutil.copytree(image, home.folder)
            (home.folder / "journal" / last.name).write_bytes(whole + torn)
            assert home.check().problems == [], record
            if repair:
                assert home.check(repair=True).problems == []
                assert open_below(home.folder) == []
            await home.open()
            assert len(await told(home)) == owed, record
            home.abandon()
            await asyncio.to_thread(shutil.rmtree, home.folder)


async def test_automatic_repair_tells_who_is_owed_a_bounce(house: Make) -> None:
    """A damaged store is repaired and compared at the start; what waits to be applied is applied before that."""
    home = await bounced(house)
    home.folder, _ = home.image(drop=True), home.abandon()
    (home.folder / REPAIR_MARK).write_text("it was found damaged")
    store = Store(home.folder / "store")
    store.write([(keys.size("z", "nobody.test"), b"\x93\x07\x00\x00")], sync=True)
    store.close()
    await home.open()
    assert await told(home) == {f"s@src{number}.test" for number in range(COUNT)}
    home.abandon()
    await home.open()
    await home.sound()


async def test_a_delivered_one_is_not_queued_again(house: Make) -> None:
    """fsck --repair with deliveries that the store has not seen: they stay delivered."""
    home = await house(zones=[{"name": "z"}])
    await home.put("a@x.test", "b@x.test")
    deliveries = await home.leases()
    home.queue.core.disk.lines._start = lambda: None
    for delivery in deliveries:
        await home.queue.settle(home.result(delivery, DELIVERED))
    home.folder, _ = home.image(drop=True), home.abandon()
    assert home.check(repair=True).problems == []
    await home.open()
    assert await home.leases() == []
    assert (await home.sizes())["messages"] == 0

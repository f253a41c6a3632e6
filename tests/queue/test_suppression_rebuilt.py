"""The suppression list after the store is gone: made again of the journal and its archive, or its loss is named."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.journal import segments

Make = Callable[..., Any]


async def suppress(home: Any, *addresses: str) -> None:
    rows = [[address, "manual", "", "", "", ""] for address in addresses]
    await home.queue.ask("suppress", rows=rows)


async def listed(home: Any) -> set[str]:
    return {row["address"] for row in (await home.queue.ask("suppressions", limit=10_000))["rows"]}


async def without_store(house: Make) -> Any:
    """40 people listed, three segments ago; 2 of them taken off since; then the store goes."""
    home = await house()
    await suppress(home, *(f"p{number}@x.test" for number in range(40)))
    await home.queue.ask("unsuppress", addresses=["p0@x.test"])
    for _ in range(2):
        await home.rest()
        home.queue.core.disk.ledger.rotate()
        await home.queue.ask("unsuppress", addresses=["p1@x.test"])
        await home.queue.position()
    await home.put("waits@y.test")
    await home.rest()
    await home.queue.position()
    home.folder, _ = home.image(), home.abandon()
    assert segments.first_seq(segments.files(home.folder / "journal")[0]) > 1, "the list is in the archive only"
    shutil.rmtree(home.folder / "store")
    return home


@pytest.mark.parametrize("by", ["start", "fsck"])
async def test_the_list_is_made_again(house: Make, by: str) -> None:
    """Also of segments that are in the archive only; who was taken off stays off."""
    home = await without_store(house)
    if by == "fsck":
        home.check(repair=True)
    await home.open()
    assert await listed(home) == {f"p{number}@x.test" for number in range(2, 40)}
    assert [row for row in await home.queue.ask("standing") if row["name"] == "suppressions"] == [], "all are there"
    home.abandon()
    assert home.check().problems == []


async def test_what_cannot_be_made_again_is_named(house: Make, capfd: Any) -> None:
    """Where the archive was cut; and what only the store had."""
    home = await without_store(house)
    segments.files(home.folder / "archive")[0].unlink()
    await home.open()
    said = capfd.readouterr().err
    assert "suppressions from before may be missing" in said
    assert "templates of campaigns" in said


async def pruned(home: Any, before: str) -> None:
    """Time goes until that file has left the archive."""
    for _ in range(10):
        home.clock.now_s += 86_400
        home.queue.core.disk.ledger.rotate()
        await home.queue.ask("stop", kind="zone", name="default", cause=str(home.clock.now_s))
        await home.rest()
        await home.queue.position()
        for path in segments.files(home.folder / "archive"):
            os.utime(path, (0, 0))
        if not (home.folder / "archive" / before).exists():
            return
    raise AssertionError("the archive keeps it")


async def test_what_the_archive_loses_is_told_again_before(house: Make, capfd: Any) -> None:
    """More people than one record names, in two scopes; then the segments that named them pass their time, twice."""
    home = await house()
    await suppress(home, *(f"p{number}@x.test" for number in range(1_201)))
    await home.queue.ask("suppress", rows=[["s@x.test", "manual", "", "", "", "", 0, "campaigns"]])
    await home.queue.ask("unsuppress", addresses=["p0@x.test", "p1@x.test"])
    await home.rest()
    everybody = await listed(home)
    assert len(everybody) == 1_200
    for _ in range(2):
        await pruned(home, segments.every_file(home.folder / "journal", home.folder / "archive")[0].name)
    home.folder, _ = home.image(), home.abandon()
    shutil.rmtree(home.folder / "store")
    capfd.readouterr()
    await home.open()
    assert "suppressions from before may be missing" not in capfd.readouterr().err
    assert await listed(home) == everybody

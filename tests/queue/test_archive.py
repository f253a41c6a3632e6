"""Finished segments go to the archive, where reports read them: when they are full, and when their time has come."""

from collections.abc import Awaitable, Callable
from typing import Any

from zonemta_py.disk import journal
from zonemta_py.disk.records import Type

Make = Callable[..., Awaitable[Any]]


async def test_a_quiet_queue_closes_its_segment_in_time(house: Make) -> None:
    """What is told reaches the archive within `segment_s`, however little it is; a segment without news stays open."""
    home = await house(queue={"segment_s": 3600})
    await home.put("bob@x.test")
    await home.settle((await home.lease())[0])
    await home.rest()
    archive = home.folder / "archive"
    await home.queue.core.rotate_old()
    await home.queue.position()
    assert not archive.exists(), "its time has not come"
    await home.move(3601)
    await home.queue.core.rotate_old()
    await home.queue.position()
    assert len(list(archive.iterdir())) == 1
    await home.move(3601)
    await home.queue.core.rotate_old()
    await home.queue.position()
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
    newest = list(journal.read(home.folder / "journal"))[-1]
    assert newest.type == Type.POSITION
    assert b"x.test" not in newest.body
    await home.sound()

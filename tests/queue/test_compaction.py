"""What has ended leaves the disk within the hour, and what lives stays."""

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]
SECRET = b"Subject: x\r\n\r\nthe password is %d\r\n"


def traces(home: Any, text: bytes = b"the password is") -> int:
    """How often it stands in any file of the store."""
    return sum(path.read_bytes().count(text) for path in (home.folder / "store").iterdir())


async def send(home: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        await home.put(f"r{number}@x.test", body=SECRET % number)
        (delivery,) = await home.lease()
        await home.settle(delivery)
    await home.rest()


@pytest.mark.parametrize("crash", [False, True])
async def test_bodies_do_not_outlive_their_mail_for_days(house: Make, crash: bool) -> None:
    """They are in LevelDB's log and tables when the mail ends; an hour later they are not, also after a restart."""
    home = await house()
    await home.queue.ask("stop", kind="destination", name="stays.test", seconds=None, cause="a test")
    await home.put("one@stays.test", body=b"Subject: x\r\n\r\nthis stays\r\n")
    for round_ in range(3):
        await send(home, 20 * round_, 20)
        assert traces(home) >= 20
        if crash:
            await home.queue.position()
            await home.crash()
        await home.queue.maintenance.cleanse()
        assert traces(home) >= 20  # it is not time yet
        await home.move(3601)
        await home.queue.maintenance.cleanse()
        assert traces(home) == 0
    assert traces(home, b"this stays") == 1
    await home.sound()


async def test_it_is_done_at_once_when_space_is_short(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not again within the minute."""
    home = await house()
    await home.move(100)
    await send(home, 0, 20)
    monkeypatch.setattr(home.queue.core.disk.space, "room", lambda now: -1)
    await home.queue.maintenance.cleanse()
    assert traces(home) == 0
    monkeypatch.undo()
    await send(home, 20, 1)
    monkeypatch.setattr(home.queue.core.disk.space, "room", lambda now: -1)
    await home.queue.maintenance.cleanse()
    assert traces(home) > 0
    await home.move(61)
    await home.queue.maintenance.cleanse()
    assert traces(home) == 0


async def test_a_queue_at_rest_is_left_alone(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has ended: nothing is written anew."""
    home = await house()
    await home.queue.maintenance.cleanse()
    await home.move(3601)
    await home.queue.maintenance.cleanse()
    await home.put("bob@x.test")
    await home.queue.position()
    await home.crash()
    assert home.queue.core.disk.compaction.slice == ()
    await home.move(36_000)
    monkeypatch.setattr(home.queue.core.disk.store, "compact", None)
    await home.queue.maintenance.cleanse()


async def test_values_of_recipients_go_too(house: Make) -> None:
    """An address is no more a secret of the disk than a body, once all is over."""
    home = await house()
    await send(home, 0, 5)
    assert traces(home, b"r3@x.test") > 0
    await home.queue.maintenance.cleanse()
    await home.move(3601)
    await home.queue.maintenance.cleanse()
    assert traces(home, b"r3@x.test") == 0

"""Large bodies that are never ended, or only in part: bounded, and gone without a trace."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.large import NOISE, TRICKLE, begin, bodies, disk_bytes, mail, put
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.bodies import THREADS

Make = Callable[..., Any]


async def refused(queue: Any, client: str = "") -> tuple[int, str]:
    """What a client is told in the middle of a body that is never ended; a queue behind a socket says it later."""
    with pytest.raises(QueueRefusal) as refusal:
        await begin(queue, 100, client)
    return refusal.value.reply.code, refusal.value.reply.enhanced


async def test_a_body_broken_off_while_the_disk_is_busy_takes_no_room_from_others(house: Make, front: Make) -> None:
    """However often: whoever waited for the disk is answered, and the next large body gets through."""
    home = await house()
    queue = await front(home)
    for _ in range(20):
        go = threading.Event()
        for _ in range(THREADS):
            home.queue.core.disk.bodies.run(go.wait)
        one = queue.begin()
        writing = asyncio.ensure_future(_write(one, 40))
        await asyncio.sleep(0.01)  # by then several frames wait for the first one's job
        one.abort()
        await asyncio.sleep(0.01)
        go.set()
        with pytest.raises(QueueRefusal):
            await asyncio.wait_for(writing, 60)
    await asyncio.wait_for(put(queue), 60)
    await home.rest()
    await home.sound()


async def test_a_message_of_which_a_part_was_refused_is_never_taken(house: Make, front: Make) -> None:
    """Though there is room again when its end comes: it would be stored, and sent, without that part."""
    home = await house(queue={"arriving_bytes_per_client": 16 * CHUNK_BYTES})
    queue = await front(home)
    other, counted = await begin(queue, 16), home.queue.core.disk.bodies.uncommitted
    await until(lambda: counted.total > 14 * CHUNK_BYTES)
    one = queue.begin()
    with contextlib.suppress(QueueRefusal):
        await _write(one, 8)
    await asyncio.sleep(0.05)
    other.abort()
    await until(lambda: counted.total < 9 * CHUNK_BYTES)
    with pytest.raises(QueueRefusal):
        await one.accept(mail(), NOISE)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def until(true: Callable[[], bool]) -> None:
    """Waits for what the disk's threads do after they were told, and fails if they never do it."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what is looked at tells nobody that it has changed
            await asyncio.sleep(0.01)


async def _write(one: Any, chunks: int) -> None:
    for _ in range(chunks):
        await one.write(NOISE)


async def test_broken_off_bodies_leave_nothing(house: Make, front: Make) -> None:
    """Many of them, many times: the disk has what living mail needs, and a little more."""
    home = await house(queue={"write_buffer_bytes": 65_536})
    queue = await front(home)
    await put(queue, "keeps@x.test")
    await home.rest()
    before = disk_bytes(home.folder)
    for _ in range(5):
        many = await asyncio.gather(*(begin(queue, 20) for _ in range(10)))
        await until(lambda: disk_bytes(home.folder) > before)
        for one in many:
            one.abort()
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    await home.rest()
    assert len(bodies(home)) == 1
    assert home.queue.core.arriving == set()
    assert home.queue.core.disk.bodies.uncommitted.total == 0
    assert disk_bytes(home.folder) < before + 1024 * 1024
    await home.sound()


async def test_what_is_begun_is_bounded_for_each_client_and_in_all(house: Make, front: Make) -> None:
    """The next byte is told 452; others go on; what was let go counts no more. IPv6 counts by its network."""
    home = await house(queue={"arriving_bytes": 6 * 1024**2, "arriving_bytes_per_client": 2 * 1024**2})
    queue = await front(home)
    kept = [await begin(queue, 24, "2001:db8::1")]
    assert await refused(queue, "2001:db8::ffff") == (452, "4.3.1")
    kept += [await begin(queue, 24, f"192.0.2.{number}") for number in range(2)]
    assert await refused(queue, "192.0.2.9") == (452, "4.3.1")
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    for one in kept:
        one.abort()
    await home.rest()
    await put(queue)


async def test_half_of_the_disk_is_for_other_mail(
    house: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However large the bounds: bodies that are begun fill what is free to a half. That is logged once, and load
    balancers are told until there is room."""
    home = await house()
    free = 8 * 1024**2
    core = home.queue.core
    monkeypatch.setattr(core.disk.space, "room", lambda now: free - disk_bytes(core.disk.bodies.folder))
    one = await begin(home.queue, 56)
    with pytest.raises(QueueRefusal, match="the queue's disk is nearly full, try again later"):
        await begin(home.queue, 56)
    with pytest.raises(QueueRefusal, match="nearly full"):
        await begin(home.queue, 56)
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    (said,) = [line.getMessage() for line in caplog.records if "refused with 452" in line.getMessage()]
    assert "large mail is refused until there is room" in said
    assert ["large mail is refused" in one for one in await home.queue.ask("ready")] == [True]
    one.abort()
    await home.rest()
    free *= 8
    assert await home.queue.ask("ready") == []
    assert "there is room again for large mail" in caplog.text

"""Large bodies: written once to a file of their own, gone with their message, and never in the way of other mail."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.large import LARGE, TRICKLE, bodies, body_of, disk_bytes, mail, put
from zonemta_py.disk import body_file, keys, packing
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import DEFERRED, DELIVERED, QueueRefusal

Make = Callable[..., Any]


async def test_a_large_body_is_in_its_file_and_goes_with_the_message(house: Make, front: Make) -> None:
    """The store has the keys and no chunk; a deferral keeps the file, the end removes it."""
    home = await house()
    queue = await front(home)
    message_id = await put(queue)
    assert bodies(home) == [message_id]
    names = [key.rsplit(b" ", 1)[1] for key in home.queue.core.disk.store.keys(b"message ", b"message!")]
    assert names == [b"#", b"*"]
    (delivery,) = await home.lease()
    assert await body_of(queue, delivery) == LARGE
    with pytest.raises(QueueRefusal):
        await queue.chunk(delivery.id, delivery.chunks + 1)
    await home.settle(delivery, DEFERRED)
    await home.crash()
    await home.sound()
    await home.move(3600)
    (delivery,) = await home.lease()
    assert await body_of(home.queue, delivery) == LARGE
    await home.settle(delivery)
    await home.sound()
    assert bodies(home) == []


@pytest.mark.parametrize(
    "size", [CHUNK_BYTES + 1, 8 * CHUNK_BYTES, 8 * CHUNK_BYTES + 1, 9 * CHUNK_BYTES, 12 * CHUNK_BYTES]
)
async def test_bodies_of_any_size_come_back(house: Make, front: Make, size: int) -> None:
    """On both sides of the bound; what is small enough is in the store, in the batch that accepts it."""
    home = await house()
    queue = await front(home)
    body = LARGE[:size]
    message_id = await put(queue, body=body)
    assert bodies(home) == ([message_id] if size > 8 * CHUNK_BYTES else [])
    for _ in range(2):
        (delivery,) = await home.lease()
        assert await body_of(home.queue, delivery) == body
        await home.crash()
        queue = home.queue
    await home.sound()


async def test_a_body_that_compresses_stays_in_the_store(house: Make) -> None:
    """What counts is what it is kept in."""
    home = await house()
    await put(home.queue, body=b"Subject: x\r\n\r\n" + b"a" * 30 * CHUNK_BYTES)
    assert bodies(home) == []
    (delivery,) = await home.lease()
    assert len(await body_of(home.queue, delivery)) == delivery.size


async def test_delivered_large_mail_leaves_nothing(house: Make) -> None:
    """Thirty times 0.8 MB came and went; what is there is what lives, three times at most, and a little more."""
    home = await house(queue={"write_buffer_bytes": 65_536})
    await home.queue.ask("stop", kind="destination", name="stays.test", seconds=None, cause="a test")
    await put(home.queue, "one@stays.test")
    for _ in range(30):
        await put(home.queue)
        (delivery,) = await home.lease()
        await home.settle(delivery, DELIVERED)
    await home.rest()
    assert disk_bytes(home.folder) < 3 * len(LARGE)
    await home.sound()


async def test_a_queue_whose_large_bodies_are_in_the_store(house: Make) -> None:
    """As older programs kept them: they are delivered, deferred, and gone in the end."""
    home = await house()
    message_id = await put(home.queue)
    await home.rest()
    core = home.queue.core
    message = core.messages.look(message_id)
    chunks = core.messages.chunks(message, 1, 100)
    del message.metadata["file"]
    operations = [(keys.chunk(message_id, number), chunk) for number, chunk in enumerate(chunks, 1)]
    operations.append((keys.metadata(message_id), packing.pack(message.metadata)))
    core.disk.lines.submit(operations, lambda _: None, sync=True, keep=True)
    await home.rest()
    body_file.remove(core.disk.bodies.folder, message_id)
    await home.crash()
    await home.sound()
    (delivery,) = await home.lease()
    assert await body_of(home.queue, delivery) == LARGE
    await home.settle(delivery)
    await home.sound()
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []


async def test_bodies_are_read_off_the_loop(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes its time with one body holds up nobody else."""
    home = await house()
    await put(home.queue)
    (delivery,) = await home.lease()
    loop, held = asyncio.get_running_loop(), asyncio.Event()
    real = body_file.read
    go = threading.Event()

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(held.set)
        assert go.wait(60)
        return real(*arguments)

    monkeypatch.setattr(body_file, "read", slow)
    reading = asyncio.ensure_future(home.queue.chunk(delivery.id, 1))
    await held.wait()
    await home.queue.accept(mail("small@x.test", TRICKLE), TRICKLE)
    assert not reading.done()
    go.set()
    assert (await reading)[:20] == LARGE[:20]


async def test_reading_ahead_of_a_message_that_ends_is_no_damage(house: Make) -> None:
    """A sender asks for more than it needs, the server ends the transaction: nothing goes to quarantine."""
    home = await house()
    await put(home.queue)
    (delivery,) = await home.lease()
    message = home.queue.core.messages.get(delivery.id)
    await home.settle(delivery)
    await home.rest()
    home.queue.core.messages._known[delivery.id] = message
    with pytest.raises(QueueRefusal):
        await home.queue.chunk(delivery.id, 1)
    del home.queue.core.messages._known[delivery.id]
    assert not home.queue.core.disk.quarantine.cases()

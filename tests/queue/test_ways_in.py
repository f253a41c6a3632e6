"""Whatever way a message comes, in one frame, in parts, with a request's key, past plugins: the same rules hold."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.lifecycle.incoming import IN_STORE_BYTES_MAX
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.frames import Operation

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"


class Asked(NoHooks):
    """Plugins that let everything pass."""

    routes = True


async def whole(queue: Any, envelope: Envelope) -> Receipt:
    return Receipt(*await queue.accept(envelope, BODY))


async def requested(queue: Any, envelope: Envelope) -> Receipt:
    envelope.request, envelope.digest = "key one", b"digest"
    return await whole(queue, envelope)


async def in_parts(queue: Any, envelope: Envelope, chunks: int = 2) -> Receipt:
    incoming = queue.begin()
    try:
        for _ in range(chunks):
            await incoming.write(os.urandom(CHUNK_BYTES))
        return Receipt(*await incoming.accept(envelope, b"end"))
    except QueueRefusal:
        incoming.abort()
        raise


async def in_a_file(queue: Any, envelope: Envelope) -> Receipt:
    return await in_parts(queue, envelope, IN_STORE_BYTES_MAX // CHUNK_BYTES + 1)


async def without_a_task(queue: Any, envelope: Envelope) -> Receipt:
    taken: asyncio.Future[Receipt | Reply] = asyncio.get_running_loop().create_future()
    queue._queue.acceptance.admit(envelope, [BODY], taken.set_result)
    found = await taken
    if isinstance(found, Reply):
        raise QueueRefusal(found)
    return found


async def by_id_alone(queue: RemoteQueue, envelope: Envelope) -> Receipt:
    """PUT does not say how many are left out."""
    name = await queue._asked(Operation.PUT, envelope.to_wire(), BODY)
    assert isinstance(name, str)
    suppressed_by = sum(recipient.address == "listed@x.test" for recipient in envelope.recipients)
    return Receipt(name, len(envelope.recipients) - suppressed_by, suppressed_by)


SHARED = (whole, requested, in_parts, in_a_file)
WAYS = [("local", way) for way in (*SHARED, without_a_task)] + [("remote", way) for way in (*SHARED, by_id_alone)]


ASKED = [(*one, Asked()) for one in WAYS if one[1] is not without_a_task]
"""A way without a task may not be used where somebody has to be waited for."""


@pytest.mark.parametrize(
    ("front", "way", "hooks"), [(*one, None) for one in WAYS] + ASKED, indirect=["front"],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", "plugins" * bool(value)),
)  # fmt: skip
async def test_the_same_rules(
    house: Make, front: Any, way: Callable[..., Awaitable[Receipt]], hooks: NoHooks | None
) -> None:
    """Who is suppressed is left out, and named; a message of which nobody is left is taken; what cannot be sent as it
    is, or not be judged now, is refused; and of what is not taken nothing stays.
    """
    home = await house(hooks=hooks)
    queue = await front(home)
    await home.queue.ask("suppress", rows=[["listed@x.test", "manual", "", "", "tester", ""]])

    async def give(*addresses: str, **more: Any) -> Receipt:
        people = [Recipient(address) for address in addresses]
        return await asyncio.wait_for(way(queue, Envelope("ann@src.test", people, len(BODY), **more)), 60)

    with pytest.raises(QueueRefusal, match=r"554 5\.5\.0 .*does not send from 127\.0\.0\.9"):
        await give("bob@x.test", source="127.0.0.9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home.queue.core.disk.store, "fenced", True)
        with pytest.raises(QueueRefusal, match=r"451 4\.3\.0"):
            await give("bob@x.test")
    assert (await home.sizes())["messages"] == 0
    receipt = await give("bob@x.test", "listed@x.test")
    assert receipt == (receipt.id, 1, 1, False)
    if way is not requested:
        assert (await give("listed@x.test"))[1:] == (0, 1, False)
    else:
        assert await give("bob@x.test", "listed@x.test") == receipt._replace(repeated=True)
    assert (await home.sizes())["messages"] == 1
    assert [row["recipient"] for row in (await home.queue.ask("list"))["rows"]] == ["bob@x.test"]
    await home.sound()

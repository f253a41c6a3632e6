"""What serves mail and questions refers to nothing in a circle: it is given back as soon as nobody needs it, without a
search for garbage, which would have to stop all mail to be thorough (`queue/maintenance/garbage.py`)."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Outcome, QueueRefusal, Result
from zonemta_py.wire import channel, client
from zonemta_py.wire.blocking_client import ask
from zonemta_py.wire.client import RemoteQueue

BODY = b"Subject: x\r\n\r\nHi\r\n"
TIMES = 20
_numbers = count()


@pytest.fixture
def circles() -> Iterator[Callable[[], Counter[str]]]:
    """What of ours only a search for garbage finds, by class."""

    def found() -> Counter[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = Counter(type(one).__qualname__ for one in gc.garbage if _ours(type(one).__module__))
        gc.garbage.clear()
        return kinds

    gc.collect()
    gc.freeze()  # what other tests have left is theirs
    gc.disable()
    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def _ours(module: str) -> bool:
    """The clients are in other processes, where nobody waits for anybody else."""
    return module.startswith("zonemta_py.") and module not in (client.__name__, channel.__name__)


async def send(remote: RemoteQueue, domain: str, verdict: int, code: int) -> None:
    people = [Recipient(f"{number}@{domain}") for number in range(TIMES)]
    await asyncio.gather(*(remote.accept(Envelope("", [one], len(BODY)), BODY) for one in people))
    left = TIMES
    while left:
        for delivery in await remote.lease(20):
            outcome = Outcome(verdict, Reply(code, f"{code // 100}.0.0", "as it is"), "dot", [0])
            await remote.settle(Result(delivery.lease, [outcome]))
            left -= 1


async def deliveries(service: Any) -> None:
    remote = await service.connect("sender")
    for verdict, code in ((DELIVERED, 250), (DEFERRED, 451), (BOUNCED, 550), (HELD, 451)):
        await send(remote, f"{next(_numbers)}.test", verdict, code)


async def questions(service: Any) -> None:
    for question, about in (("size", {}), ("list", {"limit": 10}), ("qshape", {}), ("tasks", {}), ("standing", {})):
        await asyncio.to_thread(ask, service.folder, question, **about)


async def refused(service: Any) -> None:
    for about, words in (({"what": "nobody.test"}, "nothing called"), ({"nonsense": 1}, "takes no 'nonsense'")):
        with pytest.raises(ValueError, match=words):
            await asyncio.to_thread(ask, service.folder, "explain", **about)


async def gone(service: Any) -> None:
    """Those who wait for mail, and disconnect."""
    for _ in range(3):
        remote = await service.connect("sender", reconnect=False)
        waiting = asyncio.ensure_future(remote.lease(5)), asyncio.ensure_future(remote.pull("jobs", wait_s=60))
        await asyncio.sleep(0.02)
        remote._protocol._transport.abort()
        await asyncio.gather(*waiting, return_exceptions=True)


async def pulled(service: Any) -> None:
    remote = await service.connect("pull")
    for wait_s in (0, 0.02):
        with suppress(QueueRefusal, ValueError):
            assert await remote.pull("jobs", wait_s=wait_s) == []


@pytest.mark.parametrize("work", [deliveries, questions, refused, gone, pulled])
async def test_nothing_is_left_in_circles(
    work: Callable[[Any], Awaitable[None]], service: Any, circles: Callable[[], Counter[str]]
) -> None:
    """By mail, whatever comes of it; by questions, wrong ones too; by those who pull, wait and disconnect."""
    await work(service)
    circles()  # what is made once only
    await work(service)
    await asyncio.sleep(0.05)
    assert circles() == {}

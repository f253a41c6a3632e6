"""Sessions of accounts, counted over real sockets: exact in parallel, and for as long as who has them is there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.reload import apply
from zonemta_py.wire.client import RemoteQueue


@pytest.fixture
async def two(service: Any) -> tuple[Any, RemoteQueue, RemoteQueue]:
    """Two receivers, and an account that may have three sessions."""
    accounts = [{"name": "shop", "sessions": 3}, {"name": "press", "sessions": 1}]
    service.config = Config.model_validate(service.config.model_dump() | {"accounts": accounts})
    apply.take(service.queue, apply.prepare(service.config, service.queue.core.hooks, None))
    return service, await service.connect(), await service.connect()


async def tried(*sessions: tuple[RemoteQueue, str], account: str = "shop") -> list[str]:
    """Which of them are let in, at once."""
    async with asyncio.timeout(60):
        asked = [remote.enter(session, account) for remote, session in sessions]
        results = await asyncio.gather(*asked, return_exceptions=True)
    odd = [one for one in results if one is not None and not isinstance(one, QueueRefusal)]
    assert not odd
    return [session for (_, session), result in zip(sessions, results, strict=True) if result is None]


async def used(service: Any) -> dict[str, int]:
    return {row["account"]: row["used"] for row in await service.queue.ask("accounts")}


async def test_no_more_than_the_quota_in_all_receivers(two: Any) -> None:
    service, one, other = two
    entered = await tried(*[(remote, f"{number}{id(remote)}") for number in range(5) for remote in (one, other)])
    assert len(entered) == 3
    with pytest.raises(
        QueueRefusal, match=r"421 4\.7\.0 account 'shop' has as many sessions open as it may, 3; end one, or try again"
    ):
        await one.enter("late", "shop")
    [row, _] = await service.queue.ask("accounts")
    assert row == {"account": "shop", "what": "sessions", "quota": "3", "used": 3, "left": 0, "anew_ms": None}


async def test_a_session_that_ends_makes_room_once(two: Any) -> None:
    """Ended twice, or before it was let in, it is counted out once; one that logs in as another counts there only."""
    service, one, other = two
    assert len(await tried((one, "a"), (one, "b"), (other, "c"))) == 3
    for _ in range(2):
        one.leave("a")
        one.leave("unknown")
    assert len(await tried((other, "d"), (other, "e"))) == 1
    await one.enter("b", "press")
    assert await used(service) == {"shop": 2, "press": 1}
    assert await tried((other, "c"), account="press") == []
    assert await used(service) == {"shop": 2, "press": 1}


async def test_the_sessions_of_a_dead_receiver_end_with_it(two: Any) -> None:
    service, one, other = two
    assert len(await tried((one, "a"), (one, "b"), (other, "c"))) == 3
    one._reconnect, one._sessions = False, {}
    one._protocol._transport.abort()
    async with asyncio.timeout(60):
        while (await used(service))["shop"] != 1:  # noqa: ASYNC110 (the other end of a socket is waited for)
            await asyncio.sleep(0.01)
    assert len(await tried(*[(other, f"n{number}") for number in range(4)])) == 2


async def test_a_new_queue_process_hears_of_those_that_are_open(two: Any) -> None:
    """Those that ask at once wait until all are back, and one that ended meanwhile is not counted."""
    service, one, other = two
    assert len(await tried((one, "a"), (one, "b"), (other, "c"))) == 3
    await service.stop()
    one.leave("b")
    waiting = asyncio.ensure_future(tried((other, "d"), (other, "e"), (one, "f")))
    await service.start()
    assert len(await waiting) == 1
    assert (await used(service))["shop"] == 3
    service.queue.core.counters.sessions.settled_at = asyncio.get_running_loop().time() + 60
    late = asyncio.ensure_future(one.enter("g", "press"))
    await asyncio.sleep(0.05)
    one.leave("g")
    service.queue.core.counters.sessions.settled_at = 0.0
    assert (await used(service))["press"] == 0
    late.cancel()

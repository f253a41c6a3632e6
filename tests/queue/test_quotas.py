"""Quotas of accounts: exact whatever is in parallel, refused, undone or killed, and kept over restarts and reloads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.reload import apply

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"
NOON_S = 1_700_000_000 // 86_400 * 86_400 + 43_200


def mail(recipients: int = 1, account: str = "shop") -> Envelope:
    return Envelope("a@src.test", [Recipient(f"r{n}@x.test") for n in range(recipients)], len(BODY), account=account)


async def many(home: Any, count: int, recipients: int = 1, account: str = "shop") -> tuple[int, list[str]]:
    """How many of so many at once are accepted, and the replies to the others."""
    tried = [home.queue.accept(mail(recipients, account), BODY) for _ in range(count)]
    results = await asyncio.gather(*tried, return_exceptions=True)
    return sum(not isinstance(one, Exception) for one in results), [
        str(one) for one in results if isinstance(one, QueueRefusal)
    ]


def shop(**quotas: Any) -> dict[str, Any]:
    return {"accounts": [{"name": "shop", **quotas}]}


async def at_noon(house: Make, **options: Any) -> Any:
    home = await house(**options)
    home.clock.now_s = float(NOON_S)
    return home


async def test_no_more_than_the_quota_is_taken(house: Make) -> None:
    """Twenty at once: five are accepted, the others hear which quota, whose, and when to come again."""
    home = await at_noon(house, **shop(messages=["5/h"]))
    taken, replies = await many(home, 20)
    assert taken == 5
    assert set(replies) == {"450 4.7.1 account 'shop' has used its quota of messages, 5/h; try again in 3,600 s"}
    assert await many(home, 3, account="") == (3, [])
    await home.sound()


async def test_a_window_begins_anew(house: Make) -> None:
    """At the full hour; a day's quota goes on meanwhile."""
    home = await at_noon(house, **shop(messages=["5/h", "8/day"]))
    assert (await many(home, 9))[0] == 5
    await home.move(3600)
    taken, replies = await many(home, 9)
    assert taken == 3
    assert "8/day" in replies[0]


async def test_recipients_count_by_themselves(house: Make) -> None:
    """A message with more than a whole quota can never be taken: it is refused for good."""
    home = await at_noon(house, **shop(recipients=["10/h"]))
    assert (await many(home, 3, recipients=4))[0] == 2
    _, replies = await many(home, 1, recipients=11)
    assert replies == ["550 5.7.1 11 recipients are more than the 10/h of account 'shop'; split the message"]
    assert (await many(home, 1, recipients=2))[0] == 1


async def test_suppressed_recipients_do_not_count(house: Make) -> None:
    home = await at_noon(house, **shop(recipients=["2/h"]))
    await home.queue.ask("suppress", rows=[["r0@x.test", "manual"]])
    assert (await many(home, 1, recipients=3))[0] == 1
    assert (await home.queue.ask("accounts"))[0]["used"] == 2


@pytest.mark.parametrize("seed", range(8))
async def test_a_crash_grants_nothing_twice(house: Make, seed: int) -> None:
    """Killed, or without power, at any moment: what was accepted is counted."""
    home, die = await at_noon(house, **shop(messages=["40/day"])), random.Random(seed)
    accepted = 0
    for _ in range(4):
        accepted += (await many(home, die.randrange(1, 12)))[0]
        await home.crash(power=bool(die.randrange(2)), die=die)
        [row] = await home.queue.ask("accounts")
        assert row["used"] >= accepted
        assert row["used"] == (await home.sizes())["messages"]
    while (await many(home, 5))[0]:
        pass
    assert (await home.sizes())["messages"] == 40


async def test_a_refused_batch_is_not_charged(house: Make) -> None:
    """The disk said no: neither mail nor use."""
    home = await at_noon(house, **shop(messages=["5/h"]))
    store, write, failures = home.queue.core.disk.store, home.queue.core.disk.store.write, iter([True])

    def failing(operations: Any, sync: bool) -> None:
        if sync and next(failures, False):
            store.fenced = True
            raise StoreFailed("IO error: the disk said no")
        write(operations, sync)

    store.write = failing
    assert (await many(home, 2))[0] == 0
    await taken_again(home)
    assert (await home.queue.ask("accounts"))[0]["used"] == (await home.sizes())["messages"] == 1


async def taken_again(home: Any) -> None:
    """After the disk had said no: one message is taken."""
    for _ in range(1200):
        if (await many(home, 1))[0]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("nothing is taken any more")


async def test_what_is_taken_back_too_late_lowers_nothing(house: Make) -> None:
    """Charged before the full hour, refused by the disk after it, when others have been charged already."""
    home = await at_noon(house, **shop(messages=["5/h"], recipients=["90/day"]))
    quotas = home.queue.core.counters.quotas
    before = quotas.charge("shop", 3)
    await home.move(3600)
    assert (await many(home, 4))[0] == 4
    quotas.take_back(before)
    await taken_again(home)
    assert [row["used"] for row in await home.queue.ask("accounts")] == [5, 5]
    assert (await many(home, 1))[0] == 0


async def test_a_repeated_request_is_charged_once(house: Make) -> None:
    home = await at_noon(house, **shop(messages=["5/h"]))
    for _ in range(4):
        envelope = mail()
        envelope.request, envelope.digest = "key one", b"same"
        await home.queue.accept(envelope, BODY)
    assert (await home.queue.ask("accounts"))[0]["used"] == 1


async def test_the_clock_begins_no_window(house: Make) -> None:
    """Set by a day, either way: only time that passes counts."""
    home = await at_noon(house, **shop(messages=["5/h"]))
    assert (await many(home, 5))[0] == 5
    for days in (1, -1):
        home.clock.set_s = days * 86_400.0
        assert (await many(home, 2))[0] == 0


def configure(home: Any, *accounts: dict[str, Any]) -> None:
    row = home.config.model_dump() | {"accounts": list(accounts)}
    apply.take(home.queue, apply.prepare(Config.model_validate(row), home.queue.core.hooks, None))


async def stored(home: Any) -> list[bytes]:
    await home.queue.core.disk.lines.stable()
    return list(home.queue.core.disk.store.keys(keys.QUOTAS, keys.end(keys.QUOTAS)))


async def test_a_reload_keeps_what_was_used(house: Make) -> None:
    """A raised quota goes on from there; one that was gone comes back with what it had used, as long as its window
    lasts, and leaves nothing in the store after that."""
    home = await at_noon(house, **shop(messages=["5/h"]))
    assert (await many(home, 9))[0] == 5
    configure(home, {"name": "shop", "messages": ["7/h"]})
    assert (await many(home, 9))[0] == 2
    configure(home)
    assert (await many(home, 9))[0] == 9
    configure(home, {"name": "shop", "messages": ["8/h"]})
    assert (await many(home, 9))[0] == 1
    configure(home)
    assert await stored(home) == [b"quota shop messages 3600000"]
    await home.move(3600)
    configure(home)
    assert (await many(home, 1))[0] == 1
    assert await stored(home) == []
    await home.sound()


async def test_an_account_that_was_gone_over_a_restart_comes_back_with_what_it_used(house: Make) -> None:
    """Its hour is over, its day is not."""
    home = await house(**shop(messages=["5/h", "6/day"]))
    await home.move(NOON_S + 86_400 - home.clock.now_s)
    assert (await many(home, 9))[0] == 5
    configure(home)
    home.options["accounts"] = []
    await home.crash(power=False, die=random.Random(1))
    assert len(await stored(home)) == 2
    await home.move(3600)
    configure(home, {"name": "shop", "messages": ["5/h", "6/day"]})
    assert (await many(home, 9))[0] == 1


async def test_of_two_quotas_for_the_same_time_each_message_counts_once(house: Make) -> None:
    home = await at_noon(house, **shop(messages=["5/h", "8/h"], recipients=["90/min", "90/60s"]))
    assert (await many(home, 20))[0] == 5
    assert [row["used"] for row in await home.queue.ask("accounts")] == [5, 5, 5, 5]

"""Idempotency keys: whatever is repeated, whenever it crashes, each request is stored exactly once."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queue.lifecycle.requests import key_of

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"
LARGE = b"Subject: hello\r\n\r\n" + b"x" * 98 + b"\r\n" * (CHUNK_BYTES // 2 + 1000)


def request(key: str = "key one", *addresses: str, content: bytes = b"the same") -> Envelope:
    recipients = [Recipient(address) for address in addresses or ("bob@x.test", "cid@y.test")]
    digest = hashlib.sha256(content).digest()
    return Envelope("ann@src.test", recipients, len(BODY), request=key, digest=digest)


async def messages(home: Any) -> int:
    return int((await home.sizes())["messages"])


def request_keys(home: Any) -> list[bytes]:
    store = home.queue.core.disk.store
    return [key for prefix in (b"request ", b"request-end ") for key in store.keys(prefix, keys.end(prefix))]


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["one chunk", "several chunks"])
async def test_a_repeated_request_is_answered_as_the_first(house: Make, front: Any, body: bytes) -> None:
    """The same key with the same digest gets the first receipt, marked as repeated, and nothing is stored."""
    home = await house()
    intake = await front(home)
    first = await intake.accept(request(), body)
    assert first == Receipt(first.id, accepted=2, suppressed=0, repeated=False)
    assert await intake.accept(request(), body) == first._replace(repeated=True)
    assert await messages(home) == 1
    await home.sound()


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["one chunk", "several chunks"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
async def test_a_crash_does_not_make_a_request_new(house: Make, body: bytes, power: bool) -> None:
    """The key was in the batch with the mail: after a crash the first answer is given again."""
    home = await house()
    first = await home.queue.accept(request(), body)
    await home.crash(power=power)
    assert await home.queue.accept(request(), body) == first._replace(repeated=True)
    assert await messages(home) == 1
    await home.sound()


async def test_put_returns_the_first_id_again(house: Make, front: Any) -> None:
    """Callers who only want the id get the same one."""
    home = await house()
    intake = await front(home)
    first = (await intake.accept(request(), BODY)).id
    assert (await intake.accept(request(), BODY)).id == first


async def test_the_same_key_for_other_content_is_refused(house: Make, front: Any) -> None:
    """A key speaks of one request: with another digest it is a mistake of the client, 554, and nothing is stored."""
    home = await house()
    intake = await front(home)
    await intake.accept(request(), BODY)
    with pytest.raises(QueueRefusal, match=r"554 5\.5\.0 this key was used for other content"):
        await intake.accept(request(content=b"other"), BODY)
    assert await messages(home) == 1


async def test_other_keys_are_other_requests(house: Make) -> None:
    """Only the whole key counts, its scope included."""
    home = await house()
    for key in ("key one", "key  one", "campaign spring 1", "campaign summer 1", "campaign 1"):
        assert not (await home.queue.accept(request(key), BODY)).repeated
    assert await messages(home) == 5
    assert len({key_of(key) for key in ("campaign spring 1", "campaign 1", "- 1")}) == 3


async def test_the_second_waits_for_the_first(house: Make, front: Any) -> None:
    """Several at once with one key: one is stored, and all hear of that one."""
    home = await house()
    intake = await front(home)
    receipts = await asyncio.gather(*(intake.accept(request(), BODY) for _ in range(5)))
    assert len({receipt.id for receipt in receipts}) == 1
    assert sorted(receipt.repeated for receipt in receipts) == [False, True, True, True, True]
    assert await messages(home) == 1


async def test_if_the_first_fails_the_second_tries_itself(house: Make) -> None:
    """A refused batch takes its key along; whoever waited for it tries again, and so may anybody later."""
    home = await house()
    store, write = home.queue.core.disk.store, home.queue.core.disk.store.write
    failures = iter([True])

    def failing(operations: Any, sync: bool) -> None:
        write(operations, sync)
        if sync and next(failures, False):  # it is there all the same: what failed may be
            store.fenced = True
            raise StoreFailed("IO error: the disk said no")

    store.write = failing
    tasks = [asyncio.ensure_future(home.queue.accept(request(), BODY)) for _ in range(2)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, QueueRefusal) for result in results)
    receipt = await retried(home)
    assert not receipt.repeated
    assert await messages(home) == 1
    await home.sound()


async def retried(home: Any) -> Receipt:
    """As a client does it: again, until it is taken."""
    while True:
        try:
            return await home.queue.accept(request(), BODY)  # type: ignore[no-any-return]
        except QueueRefusal:
            await asyncio.sleep(0.05)


async def test_a_client_that_hangs_up_changes_nothing(house: Make) -> None:
    """The batch may be on its way when nobody waits for it any more: the next one with the key hears of it."""
    home = await house()
    task = asyncio.ensure_future(home.queue.accept(request(), BODY))
    await asyncio.sleep(0)
    task.cancel()
    receipt = await home.queue.accept(request(), BODY)
    assert receipt.repeated
    assert await messages(home) == 1


async def test_an_aborted_large_message_is_not_stored_in_part(house: Make) -> None:
    """Its client goes while another with the same key is under way: what it had sent is deleted, and not committed."""
    home = await house()
    first = asyncio.ensure_future(home.queue.accept(request(content=b"a"), BODY))
    await asyncio.sleep(0)
    incoming = home.queue.begin()
    await incoming.write(LARGE[:CHUNK_BYTES])
    second = asyncio.ensure_future(incoming.accept(request("another"), LARGE[CHUNK_BYTES:]))
    incoming.abort()
    await first
    with pytest.raises(QueueRefusal):
        await second
    await home.rest()
    assert await messages(home) == 1
    await home.sound()


async def test_keys_are_forgotten_when_their_time_is_over(house: Make) -> None:
    """After queue.request_h hours a key is new again, and maintenance deletes what is left of the old one."""
    home = await house(queue={"request_h": 1})
    await home.queue.accept(request(), BODY)
    await home.queue.accept(request("another"), BODY)
    await home.move(3601)
    assert not (await home.queue.accept(request(), BODY)).repeated
    assert len(request_keys(home)) == 5  # of the first one two ends
    await home.queue.sweep()
    await home.rest()
    assert len(request_keys(home)) == 2
    assert (await home.queue.accept(request(), BODY)).repeated
    await home.move(3601)
    await home.queue.sweep()
    await home.rest()
    assert request_keys(home) == []


async def test_keys_of_a_campaign_live_as_long_as_it(house: Make) -> None:
    """ "campaign <name> …" is of that campaign: its keys go when the campaign is gone, however many there are."""
    home = await house()
    home.queue.core.campaigns._arriving["spring"] = asyncio.get_running_loop().create_future()
    for number in range(3):
        await home.queue.accept(request(f"campaign spring {number}"), BODY)
        await home.queue.accept(request(f"campaign gone {number}"), BODY)
    await home.move(30 * 86_400)
    await home.queue.sweep()
    await home.rest()
    assert len(request_keys(home)) == 3
    assert (await home.queue.accept(request("campaign spring 1"), BODY)).repeated
    del home.queue.core.campaigns._arriving["spring"]
    await home.queue.sweep()
    await home.rest()
    assert request_keys(home) == []


async def test_neither_store_nor_journal_keep_the_words_of_a_key(house: Make) -> None:
    """A key is the client's own word, and may name a person: only its hash is kept."""
    home = await house()
    await home.queue.accept(request("for bob@secret.test"), BODY)
    await home.rest()
    for path in (*home.folder.glob("store/*.log"), *home.folder.glob("journal/*")):
        assert b"secret.test" not in path.read_bytes()


@pytest.mark.parametrize("seed", range(10))
async def test_each_request_is_stored_once_whatever_happens(house: Make, seed: int) -> None:
    """Any interleaving of retries at once, of several requests, of kills and power cuts stores each exactly once.

    Those whose answer a crash cost are repeated, as a client does it; nobody ever hears two answers for one key.
    """
    home, die = await house(), random.Random(seed)
    wanted: set[int] = set()
    answers: dict[int, set[str]] = {}
    for _ in range(6):
        chosen = [die.randint(0, 3) for _ in range(die.randint(1, 4))]
        wanted.update(chosen)
        tasks = {asyncio.ensure_future(home.queue.accept(request(f"key {n}"), BODY)): n for n in chosen}
        if die.random() < 0.6:
            for _ in range(die.randint(1, 6)):
                await asyncio.sleep(die.choice((0, 0, 0.002)))
            heard = {task: n for task, n in tasks.items() if task.done()}  # with the process its clients' waiting ends
            await home.crash(power=die.random() < 0.5, die=die, drop=die.random() < 0.5)
            for task in tasks:
                task.cancel()
        else:
            await asyncio.wait(tasks)
            heard = tasks
        await asyncio.gather(*tasks, return_exceptions=True)
        for task, n in heard.items():
            answers.setdefault(n, set()).add(task.result().id)
    for n in wanted:
        answers.setdefault(n, set()).add((await home.queue.accept(request(f"key {n}"), BODY)).id)
    assert all(len(ids) == 1 for ids in answers.values())
    assert await messages(home) == len(wanted)
    await home.sound()

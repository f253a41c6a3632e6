"""The log as its writer has it: the quorum comes first, answers may get lost, others may replace it; and what a queue
says while most servers are away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.houses import KeptHouse
from tests.cluster.memory import MemoryStream
from zonemta_py.cluster import blocks, restore
from zonemta_py.cluster import log as log_module
from zonemta_py.cluster.blocks import BlockKind, Joiner
from zonemta_py.cluster.log import Replaced, ReplicatedLog, blocks_of
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.trouble import NO_QUORUM
from zonemta_py.journal import segments
from zonemta_py.queue.api import QueueRefusal


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RESTS": 0.0, "TRY_S": 0.05, "TICK_S": 0.01, "AGAIN_S": 0.002, "LOST_S": 0.1}.items():
        monkeypatch.setattr(log_module, name, value)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (what is waited for tells nobody)
            await asyncio.sleep(0.002)


async def cut(home: KeptHouse, after: int) -> None:
    """Until the log begins behind that message; a batch asks whether a copy is due."""
    async with asyncio.timeout(30):
        while home.stream.first <= after:
            await home.queue.position()
            await home.rest()


async def kept(stream: MemoryStream) -> list[tuple[BlockKind, Any]]:
    joiner = Joiner()
    found = [(block.kind, block.value) async for block in blocks_of(stream, stream.first, stream.last, joiner)]
    assert joiner.faults == []
    return found


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0.0, 0.002]), st.integers(1, 60))
def test_each_block_is_there_once_whatever_gets_lost(seed: int, faulty: float, lag_s: float, count: int) -> None:
    """In order, and `then` is called for each, in order, once it is."""

    async def life() -> None:
        stream = MemoryStream(seed, 0.001, 0.0, lag_s)
        log = await ReplicatedLog.fenced(stream, 0, 1, "a", _never)
        stream.faulty = faulty
        told: list[int] = []

        def then(number: int, _: bytes) -> None:
            assert number == len(told)
            assert stream.last >= first + number
            told.append(number)

        first = log.last + 1
        for number in range(count):
            log.store(number, [(b"key", b"%d" % number)], lambda mark, number=number: then(number, mark))
            if number % 7 == 0:
                await asyncio.sleep(0.001)
        async with asyncio.timeout(30):
            await log.stable()
        assert told == list(range(count))
        assert [value[0] for kind, value in await kept(stream) if kind == BlockKind.STORE] == told
        log.close()

    asyncio.run(life())


def _never(error: Replaced) -> None:
    raise AssertionError(error)


async def test_who_was_replaced_is_told_nothing_any_more() -> None:
    """What it had on its way is void, also what follows the other's TAKEOVER by its number."""
    stream, replaced, told = MemoryStream(lag_s=0.02), list[Replaced](), list[int]()
    one = await ReplicatedLog.fenced(stream, 0, 1, "a", replaced.append)
    other = asyncio.ensure_future(ReplicatedLog.fenced(stream, 0, 2, "b", _never))
    for number in range(100_000):
        one.store(number, [], lambda _, number=number: told.append(number))  # type: ignore[misc]
        await asyncio.sleep(0.0002)
        if replaced:
            break
    second = await other
    assert "another owner" in str(replaced[0])
    found = await kept(stream)
    assert len(told) > 0
    fence = found.index((BlockKind.TAKEOVER, [2, "b"]))
    before = [value[0] for kind, value in found[:fence] if kind == BlockKind.STORE]
    assert told == before[: len(told)], "whatever it was told of the other one has too"
    assert {kind for kind, _ in found[fence:]} == {BlockKind.TAKEOVER}
    with pytest.raises(Replaced):
        await ReplicatedLog.fenced(stream, 0, 1, "a", _never)
    one.close()
    second.close()


async def test_a_log_that_has_lost_what_it_had_is_not_written_any_more() -> None:
    """Its process ends; the next one makes it anew."""
    stream, replaced = MemoryStream(), list[Replaced]()
    log = await ReplicatedLog.fenced(stream, 0, 1, "a", replaced.append)
    log.store(1, [], lambda _: None)
    await log.stable()
    stream.messages.clear()
    stream.first, stream.last = 1, 0
    log.store(2, [], lambda _: None)
    await until(lambda: replaced)
    assert "has lost" in str(replaced[0])
    log.close()


async def test_a_leader_that_answers_nothing_does_not_lead_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is alive for the other servers, such as one whose disk stands still, so that these elect no other one."""
    monkeypatch.setattr("zonemta_py.cluster.log.UNSEAT_S", 0.2)
    stream = MemoryStream()
    log = await ReplicatedLog.fenced(stream, 0, 1, "a", _never)
    stream.down = stream.leader_hangs = True
    log.store(1, [], lambda _: None)
    await log.stable()
    assert not stream.down
    log.close()


async def test_mail_is_refused_while_most_servers_are_away(memory: Path) -> None:
    """After a while, then at once; what was refused is gone when they are back, and what waited goes on."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.put("first@x.test", sender="")
    [delivery] = await home.lease()
    before = (await home.sizes())["messages"]
    home.log.patience_s = 0.1
    home.stream.down = True
    settling = asyncio.ensure_future(home.settle(delivery))
    for _ in range(2):
        with pytest.raises(QueueRefusal) as refused:
            await home.put("second@x.test", sender="")
        assert refused.value.reply is NO_QUORUM
    assert not settling.done()
    home.stream.down = False
    await settling
    await home.put("third@x.test", sender="")
    await home.rest()
    assert (await home.sizes())["messages"] == before
    assert {row["recipient"] for row in await home.listed()} == {"third@x.test"}
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == {"third@x.test"}
    await home.sound()
    home.abandon()


async def crowd(home: KeptHouse, name: str, clients: int, each: int = 1) -> list[Any]:
    """So many hand in mail, while what is queued is leased and settled; returns what they got."""

    async def client(number: int) -> list[Any]:
        puts = [home.put(f"{name}-{number}-{turn}@x.test", sender="") for turn in range(each)]
        return [(await asyncio.gather(put, return_exceptions=True))[0] for put in puts]

    async def sender() -> None:
        while not done.done():
            for delivery in await home.leases():
                await home.settle(delivery)
            await asyncio.sleep(0)

    done = asyncio.gather(*(client(number) for number in range(clients)))
    senders = [asyncio.create_task(sender()) for _ in range(3)]
    found = [one for rows in await done for one in rows]
    await asyncio.gather(*senders)
    return found


async def test_a_crowd_has_one_message_for_store_and_journal(memory: Path) -> None:
    """Who waits for the next batch and who waits for a record go to the log together; all of it is there again."""
    home = KeptHouse(memory / "house", MemoryStream(1, delay_s=0.004))
    await home.open()
    assert not [one for one in await crowd(home, "t", 20, 10) if isinstance(one, Exception)]
    await home.put("last@x.test", sender="")
    await home.rest()
    found = [blocks.head(data) for data in home.stream.messages.values()]
    assert any(one is not None and one.kind & 0x7F == BlockKind.BOTH for one in found)
    left = {row["recipient"] for row in await home.listed()}
    assert left
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == left
    await home.sound()
    home.abandon()


async def test_a_crowd_goes_on_when_servers_are_back(memory: Path) -> None:
    """Whatever store and journal wait for when most servers go away: neither waits for the other for ever."""
    home = KeptHouse(memory / "house", MemoryStream(2, delay_s=0.002))
    await home.open()
    home.log.patience_s = 0.05
    for turn in range(6):
        await crowd(home, f"before{turn}", 10)
        under_way = asyncio.ensure_future(crowd(home, f"while{turn}", 10))
        for _ in range(turn):
            await asyncio.sleep(0.001)
        home.stream.down = True
        await until(lambda: home.log.is_late)
        home.stream.down = False
        async with asyncio.timeout(30):
            assert all(isinstance(one, QueueRefusal) or not isinstance(one, Exception) for one in await under_way)
            await until(lambda: home.queue.core.disk.lines.trouble is None)
    await home.rest()
    left = {row["recipient"] for row in await home.listed()}
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == left
    await home.sound()
    home.abandon()


async def test_what_was_refused_is_gone_though_the_log_had_it(memory: Path) -> None:
    """The batch may have been kept, and its answer was lost: the next one deletes it."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.rest()
    home.log.patience_s = 0.05
    home.stream.faulty = 0.0
    answer, home.stream._keep = home.stream._keep, lambda data, expected, done: home.stream.put(data, expected) and None
    info, home.stream.info = home.stream.info, _away  # type: ignore[method-assign]
    with pytest.raises(QueueRefusal):
        await home.put("refused@x.test", sender="")
    home.stream._keep, home.stream.info = answer, info  # type: ignore[method-assign]
    await home.rest()
    assert await home.listed() == []
    await home.crash()
    assert await home.listed() == []
    await home.sound()
    home.abandon()


async def _away() -> Any:
    raise log_module.NotReached("away")


async def test_the_log_is_cut_behind_a_copy(memory: Path) -> None:
    """It does not grow with what has ended."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    for number in range(30):
        await home.put(f"r{number}@x.test", sender="", body=b"Subject: x\r\n\r\n" + b"%d" % number * 1000)
    while deliveries := await home.leases():
        for delivery in deliveries:
            await home.settle(delivery)
    await home.put("left@x.test", sender="")
    await home.rest()
    await home.queue.position()
    before = sum(map(len, home.stream.messages.values()))
    home.log.mark = home.log.mark._replace(appended=1 << 40)
    await cut(home, 5)
    assert sum(map(len, home.stream.messages.values())) < before
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == {"left@x.test"}
    await home.sound()
    home.abandon()


async def test_files_that_were_changed_without_the_log_begin_it_anew(memory: Path) -> None:
    """As after `zonemta fsck --repair`; and a store that is older than what the log still has is made again of it."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.put("one@x.test", sender="")
    await home.rest()
    home.abandon()
    base = home.log.pen.base
    assert home.check(repair=True).problems == []
    await home.open()
    assert home.log.pen.base != base
    await until(lambda: home.log.copies)
    await home.rest()
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == {"one@x.test"}
    home.abandon()


async def test_a_queue_that_has_lost_its_files_has_them_again(memory: Path) -> None:
    """Or that was put back from an older copy."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.put("one@x.test", sender="")
    await home.rest()
    old = home.image()
    await home.put("two@x.test", sender="")
    await home.rest()
    home.log.mark = home.log.mark._replace(appended=1 << 40)
    await cut(home, 3)
    for folder in (memory / "fresh", old):
        home.abandon()
        home.folder = folder
        await home.open()
        assert {row["recipient"] for row in await home.listed()} == {"one@x.test", "two@x.test"}
        await home.sound()
    assert segments.files(home.folder / "journal")
    assert home.queue.core.disk.store.get(keys.LOG) is not None
    home.abandon()


@pytest.mark.parametrize("fails", range(5))
async def test_files_that_are_made_again_may_be_broken_off(
    fails: int, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two of the steps that put them in their place."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.put("one@x.test", sender="", body=b"Subject: x\r\n\r\n" + b"large" * 200_000)
    await home.put("two@x.test", sender="")
    await home.rest()
    home.abandon()
    home.folder = memory / "fresh"
    rename, left = Path.rename, fails

    def breaks(path: Path, target: Path) -> Path:
        nonlocal left
        if path.parent.name == "from-log":
            left -= 1
            if left < 0:
                raise OSError("the machine is gone")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", breaks)
        with suppress(OSError):
            await home.begin()
            home.abandon()
    home.log.close()
    await home.open()
    assert {row["recipient"] for row in await home.listed()} == {"one@x.test", "two@x.test"}
    await home.sound()
    home.abandon()


async def test_a_last_message_that_cannot_be_read_hides_no_log(memory: Path) -> None:
    """Who takes it over has all the rest, and names it."""
    home = KeptHouse(memory / "house", MemoryStream())
    await home.open()
    await home.put("one@x.test", sender="")
    await home.rest()
    home.abandon()
    home.stream.put(b"nothing that can be read", home.stream.last)
    log = await ReplicatedLog.fenced(home.stream, 0, 2, "b", _never)
    assert log.pen.base == home.log.pen.base
    log.close()
    made = await restore.restored(home.stream, 0, log.first, log.last, memory / "there")
    assert made.counts["messages"] == 1
    assert made.sentences == [
        f"message {log.last - 1} of the log cannot be read: its checksum is wrong",
    ]

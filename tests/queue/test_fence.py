"""A disk that gets into trouble in the middle of a turn: nothing is taken for damaged, bounced or lost for that."""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store, StoreFailed, StoreFenced
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import DELIVERED, Feedback, QueueRefusal
from zonemta_py.queue.core import commit
from zonemta_py.queue.lifecycle import leasing as leasing

Make = Callable[..., Any]
READS = range(1, 26)


def fence_at(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Fences the store at its n-th read from now on, for a moment, as its writing thread does. The list: reads seen."""
    check, seen = store._not_fenced, [0]
    loop = asyncio.get_running_loop()

    def counted() -> None:
        seen[0] += 1
        if seen[0] == number:
            store.fenced = True
            loop.call_later(0.01, setattr, store, "fenced", False)
        check()

    monkeypatch.setattr(store, "_not_fenced", counted)
    monkeypatch.setattr(commit, "RETRY_S", 0.02)
    monkeypatch.setattr(leasing, "FENCED_S", 0.01)
    return seen


async def _deliver_all(home: Any, most: int = 20) -> list[str]:
    seen: list[str] = []
    while len(seen) < most:
        for delivery in await home.lease(5):
            seen += [recipient.address for recipient in delivery.recipients]
            await home.settle(delivery, DELIVERED)
    return seen


@pytest.mark.parametrize("limits", [{}, {"throttles": [{"name": "b", "bytes": "99MB/s"}]}])
async def test_afence_at_any_read_puts_mail_off_and_nothing_else(
    house: Make, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]
) -> None:
    reached = 0
    for number in READS:
        home = await house(**limits)
        wanted = {f"r{i}@{'abcd'[i % 4]}.test" for i in range(20)}
        for address in sorted(wanted):
            await home.put(address)
        await home.crash()  # so that all is read from the store again
        seen = fence_at(home.queue.core.disk.store, monkeypatch, number)
        assert sorted(await _deliver_all(home)) == sorted(wanted)
        reached += seen[0] >= number
        monkeypatch.undo()
        assert not home.damages
        assert not home.queue.core.disk.quarantine.cases()
        await home.sound()
    assert reached > len(READS) / 2, "the fence hardly ever came"


async def test_an_expiry_waits_for_the_fence(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = 0
    for number in range(1, 16):
        home = await house(retry={"life_h": 1})
        home.queue.core.schedule.policy.stop("destination", "x.test", 86_400, "a rule's answer")
        await home.queue.core.disk.journal.stable()
        for name in "abcd":
            await home.put(f"{name}@x.test", sender="")
        await home.crash()
        assert await home.idle()
        await home.move(3601)
        seen = fence_at(home.queue.core.disk.store, monkeypatch, number)
        with contextlib.suppress(StoreFenced):
            await home.queue.sweep()
        while home.queue.core.disk.store.fenced:  # noqa: ASYNC110 (nobody says when)
            await asyncio.sleep(0.005)
        reached += seen[0] >= number
        await home.queue.sweep()
        monkeypatch.undo()
        await home.rest()
        assert (await home.sizes())["messages"] == 0
        assert not home.damages
        assert not home.queue.core.disk.quarantine.cases()
        await home.sound()
    assert reached > 5, "the fence hardly ever came"


async def test_damage_found_on_a_full_disk_waits_for_space(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quarantine needs space: until there is some the message stays where it is, and afterwards it is named once."""
    home = await house()
    broken = await home.put("broken@a.test")
    await home.put("whole@b.test")
    await home.crash()
    store, quarantine = home.queue.core.disk.store, home.queue.core.disk.quarantine
    store.write([(keys.metadata(broken), b"\xc1")], True)
    assert (await home.sizes())["bytes"] > 0
    fresh, tries = quarantine._fresh, [0]

    def full(what: str) -> Any:
        tries[0] += 1
        if tries[0] <= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return fresh(what)

    monkeypatch.setattr(quarantine, "_fresh", full)
    seen = await _deliver_all(home, 1)
    assert seen == ["whole@b.test"]
    while not quarantine.cases():
        assert await home.idle()
        await asyncio.sleep(0.05)
    assert tries[0] == 4
    assert [case.name.split("-", 1)[1] for case in quarantine.cases()] == ["messages"]
    assert broken in (quarantine.cases()[0] / "note.json").read_text()
    assert not [place for place in quarantine.folder.iterdir() if not (place / "note.json").exists()]
    await home.rest()
    assert (await home.sizes())["bytes"] == 0, "what it counted for went with it"


async def test_a_disk_in_trouble_is_said_once_and_its_end_too(
    house: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads the log learns why mail is refused, however often the queue tries again."""
    home = await house()
    core, tries = home.queue.core, [0]
    monkeypatch.setattr(commit, "RETRY_S", 0.02)

    def refuse(*_: Any) -> None:
        tries[0] += 1
        raise OSError(errno.EROFS, "Read-only file system", "journal/1")

    def reopen() -> None:
        tries[0] += 1
        raise StoreFailed("store: Read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(core.disk.journal._writer, "write", refuse)
        broken.setattr(core.disk.store, "reopen", reopen)
        broken.setattr(core.disk.store, "write", lambda *_: reopen())
        core.disk.journal.when_stable(lambda: None)
        with pytest.raises(QueueRefusal):
            await home.put("bob@x.test")
        while tries[0] < 12:  # noqa: ASYNC110 (nobody says when)
            await asyncio.sleep(0.005)
    await home.rest()
    said = [record.getMessage() for record in caplog.records]
    assert sum("mail is refused with 451" in line for line in said) == 2, "store and journal, once each"
    assert sum("mail is accepted" in line for line in said) == 2
    await home.put("bob@x.test")


async def test_mail_between_a_full_disk_and_the_word_of_it_is_told_of_that(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is fenced in its thread, and the loop hears of it later, much later on a busy machine: 452 meanwhile.

    Nor is a store that is fenced when feedback comes taken for damaged.
    """
    home = await house()
    await home.queue.ask("suppress", rows=[["dee@x.test", "manual", "", "", "", ""]])
    core = home.queue.core
    heard, finish = list[Any](), core.disk.lines._finish
    monkeypatch.setattr(core.disk.lines, "_finish", lambda *said: heard.append(said))

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(core.disk.store, "_sync_older_logs", full)
        first = asyncio.ensure_future(home.put("ann@x.test"))
        while not heard:  # noqa: ASYNC110 (nobody says when)
            await asyncio.sleep(0.005)
    assert core.disk.store.fenced
    assert core.disk.lines.trouble is None
    request = Envelope("ann@src.test", [Recipient("cid@x.test")], 9, request="1")
    row = Feedback("bounce", "cid@x.test", message=f"{1:016x}", code=550, enhanced="5.1.1", genuine="token", via="smtp")
    for late in (home.put("bob@x.test"), home.put_envelope(request), home.queue.feedback([row])):
        with pytest.raises(QueueRefusal, match=r"452 4\.3\.1 the queue's disk is full"):
            await late
    assert not home.damages
    monkeypatch.undo()
    finish(*heard[0])
    with pytest.raises(QueueRefusal, match=r"452 4\.3\.1"):
        await first
    await core.disk.lines.stable()
    assert await home.put("bob@x.test")
    await home.sound()

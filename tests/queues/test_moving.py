"""Mail and state that go from queue to queue: nothing is lost, nothing is there twice, whatever ends the process that
moves it; and the journal alone says the same of it."""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import BODY
from tests.queue.conftest import house as house
from tests.queue.test_families import contents, lived, repaired, wrong
from zonemta_py.config import Config
from zonemta_py.disk import identity, keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.disk.notes import Note
from zonemta_py.events.derive import events_of
from zonemta_py.journal import families, segments
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.lifecycle import moved
from zonemta_py.queue.lifecycle.moved import Contents
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import offline, owed
from zonemta_py.queues import layout, moving
from zonemta_py.queues.client import Queues
from zonemta_py.queues.member import noted
from zonemta_py.queues.orders import OrderLog
from zonemta_py.queues.placement import Placement
from zonemta_py.wire.server import serve

Make = Callable[..., Any]
WAITING = ("delivery-zone", "deferred", "parked", "held", "deleted", "bounced")


async def stopped(home: Any) -> Config:
    """Its queue has ended, as a drain ends it."""
    await home.rest()
    await home.queue.position()
    await home.rest()
    home.abandon()
    config: Config = home.config
    return config


async def rebalanced(home: Any, config: Config, count: int) -> None:
    """As the supervisor lets it be done."""
    there, wanted = layout.known(config.folder), list(range(count))
    layout.write(config.folder, layout.numbers(config.folder), sorted({*there, *wanted}))
    await moving.rebalance(config, there, wanted, clock=home.clock)
    layout.write(config.folder, wanted)


def stores(config: Config) -> dict[int, dict[str, dict[bytes, bytes]]]:
    return {number: contents(layout.folder_of(config.folder, number)) for number in layout.numbers(config.folder)}


def recipients(rows: dict[str, dict[bytes, bytes]]) -> dict[bytes, Note]:
    """By key, without the number of a record of their own journal."""
    return {key: Note.of(value)._replace(seq=0) for name in WAITING for key, value in rows[name].items()}


def joined(config: Config) -> dict[str, Any]:
    """What there is in all queues together: each recipient once."""
    found: dict[str, Any] = {"recipients": {}, "messages": {}, "sizes": Counter(), "in-doubt": {}}
    found |= {"campaigns": {}, "suppressed": {}, "state": Counter(), "at": set()}
    for rows in stores(config).values():
        mine = recipients(rows)
        assert not mine.keys() & found["recipients"].keys()
        found["recipients"] |= mine
        found["messages"] |= rows["message"]
        found["in-doubt"] |= rows["in-doubt"]
        found["at"] |= rows["at"].keys()
        found["suppressed"] |= rows["suppressed"] | rows["suppressed-in"]
        for name in ("size", "size-flow"):
            for key, value in rows[name].items():
                found["sizes"] += Counter({(key, place): n for place, n in enumerate(packing.unpack(value))})
        for key, value in rows["campaign"].items():
            if key.endswith(b" #"):
                figures = found["campaigns"].setdefault(key, [0] * 15)
                for place, n in enumerate(packing.unpack(value)):
                    figures[place] += n if place not in (8, 9) else 0
        state = packing.unpack(rows["state"][keys.STATE])
        found["state"] += Counter({"messages": state[2], "bytes": state[3]})
    return found


async def sound(home: Any, config: Config) -> None:
    for number in layout.numbers(config.folder):
        report = await offline.check(layout.config_of(config, number), clock=home.clock)
        assert [one for one in report.problems if one.severity != "harmless"] == []


def test_every_family_has_a_row() -> None:
    """What becomes of it, when there are more queues or fewer."""
    assert [one.family for one in moving.FAMILIES if not (one.more and one.fewer)] == []
    assert sorted(one.family for one in moving.FAMILIES) == sorted(one.name for one in families.FAMILIES)


async def test_more_queues_and_fewer(house: Make) -> None:
    """1, 3, 2, 1: all that there was is there, once."""
    home = await lived(house)
    config = await stopped(home)
    before = joined(config)
    for count in (3, 2, 1):
        await rebalanced(home, config, count)
        assert layout.numbers(config.folder) == list(range(count))
        after = joined(config)
        for name, value in before.items():
            assert after[name] == value, (count, name)
        await sound(home, config)
    assert len(layout.gone(config.folder)) == 2
    assert not [key for key in contents(config.folder)["taken"] if b" - " not in key]


async def test_what_all_have_does_not_grow(house: Make) -> None:
    """However often there are more queues, and fewer: what a new queue is given is what it leaves."""
    home = await lived(house)
    config = await stopped(home)
    same = ("guard", "guard-day", "evidence", "suppressed", "suppressed-in", "request", "quota")
    before = contents(config.folder)
    assert before["guard"]
    assert before["guard-day"]
    for count in (3, 1, 2, 3, 1):
        await rebalanced(home, config, count)
    after = contents(config.folder)
    for name in same:
        assert after[name] == before[name], name


async def test_a_receiver_that_lost_its_answer_gets_it_wherever_the_message_is(house: Make) -> None:
    """Its queue dies before it answers, mail is moved, and any queue that is there then is asked: else it would store
    the message again."""
    home = await house()
    message = Envelope("ann@src.test", [Recipient("bob@b.test")], len(BODY))
    message.token = "lost"
    message_id = await home.put_envelope(message)
    home.abandon()  # it is killed
    config = home.config
    for count in (3, 1, 3):
        await rebalanced(home, config, count)
        for number in range(count):
            queue = await moving.resting(layout.config_of(config, number), home.clock)
            assert queue.core.known["lost"] == (message_id, 1, 0), (count, number)
            await moving.closed(queue)
    home.clock.now_s += owed.KEPT_MS / 1000
    queue = await moving.resting(config, home.clock)
    assert queue.core.known == {}
    moving.abandon(queue)


async def test_it_gets_it_after_the_second_death_too(house: Make) -> None:
    """The process between had written a position, and was not asked. A file that is damaged counts as none."""
    home = await house()
    message = Envelope("ann@src.test", [Recipient("bob@b.test")], len(BODY))
    message.token = "lost"
    message_id = await home.put_envelope(message)
    for _ in range(3):
        home.abandon()
        await home.open()
        assert home.queue.core.known == {"lost": (message_id, 1, 0)}
        await home.queue.position()
        await home.rest()
    home.abandon()
    (home.folder / owed.NAME).write_bytes(b"\xc1 no rows")
    await home.open()
    assert home.queue.core.known == {}


async def test_another_queue_is_asked_where_there_is_none_any_more(house: Make) -> None:
    """By a process that still knows of it: it need not wait until its client has gone."""
    home = await house()
    message = Envelope("ann@src.test", [Recipient("bob@b.test")], len(BODY))
    message.token = "lost"
    message_id = await home.put_envelope(message)
    home.abandon()
    await home.open()
    server = await serve(home.queue, home.folder)
    queues = Queues(home.folder, Placement([0, 1]), "receiver")
    try:
        gone = queues._queues[1]
        assert await asyncio.wait_for(gone.known("lost"), 10) == [message_id, 1, 0]
        assert await asyncio.wait_for(gone.known("other"), 10) is None
    finally:
        server.close()


async def one_of_two(home: Any) -> Config:
    """An MTA with two queues, of which the second one has all that there is, and the first one nothing."""
    config = await stopped(home)
    base = home.base / "mta"
    home.folder = base
    second = layout.folder_of(base, 1)
    second.parent.mkdir(parents=True)
    shutil.copytree(config.folder, second, ignore=shutil.ignore_patterns("LOCK"))
    await moving.closed(await moving.resting(home.config, home.clock))
    layout.write(base, [0, 1])
    result: Config = home.config
    return result


def of_tasks(rows: dict[bytes, bytes]) -> dict[bytes, Any]:
    return {key: packing.unpack(value) | {"seq": 0} for key, value in rows.items()}


def of_campaigns(rows: dict[bytes, bytes]) -> dict[bytes, Any]:
    """Settings, templates and figures; not the history."""
    own = {"seq": 0, "first": "", "base": []}
    return {
        key: packing.unpack(value) | own if key.endswith(b" *") else value
        for key, value in rows.items()
        if not key.endswith(b" ~")
    }


SAME = (
    "message", "in-doubt", "at", "size", "size-flow", "quota", "request", "request-end", "suppressed", "suppressed-in",
    "sent", "sent-as", "sent-to", "evidence", "guard", "guard-day",
)  # fmt: skip


async def test_a_queue_that_goes_leaves_everything_to_the_other(house: Make) -> None:
    """Each family of keys as it was; and what the journal alone has of it comes back, or is named."""
    home = await lived(house)
    standing = await home.queue.ask("standing")
    config = await one_of_two(home)
    before = stores(config)[1]
    await rebalanced(home, config, 1)
    after = contents(config.folder)
    for name in SAME:
        assert after[name] == before[name], name
    assert recipients(after) == recipients(before)
    assert of_tasks(after["task"]) == of_tasks(before["task"])
    assert of_campaigns(after["campaign"]) == of_campaigns(before["campaign"])
    for name in ("feedback", "lesson"):  # under new numbers
        assert sorted(after[name].values()) == sorted(before[name].values())
    assert {packing.unpack(value) for value in after["feedback-of"].values()} == {
        int(key.split(b" ")[1]) for key in after["feedback"]
    }
    await sound(home, config)
    await home.open()
    assert await home.queue.ask("standing") == standing
    home.abandon()
    lost = dict[str, str]()
    for name in (one.name for one in families.FAMILIES):
        copy = home.base / f"without-{name}"
        shutil.copytree(config.folder, copy, ignore=shutil.ignore_patterns("queues", "LOCK"))
        store = Store(copy / "store")
        store.write([(key, None) for key in after[name]], sync=True)
        store.close()
        said = repaired(home, copy)
        if (found := wrong(name, after, contents(copy), said)) != "[]":
            lost[name] = found
        shutil.rmtree(copy)
    assert lost == {}


async def test_one_message_is_moved_once(house: Make) -> None:
    """Whatever it is offered again; also after the other queue has sent it, as long as the first one may offer it."""
    home, other = await house(), await house()
    ids = [await home.put("ann@a.test", "bob@b.test", body=b"x" * 100), await home.put("cat@c.test", body=LARGE)]
    other.clock = home.clock
    giver, taker = await resting(home, 0), await resting(other, 1)
    for message_id in ids:
        before = giver.core.disk.store.get(keys.metadata(message_id))
        body = await giver.chunks(message_id, 1, 99)
        assert await moving.move(giver, taker, message_id)
        await moving.take_mail(taker)
        assert not await moving.move(giver, taker, message_id)
        await giver.core.disk.lines.stable()
        await taker.core.disk.lines.stable()
        assert giver.core.disk.store.get(keys.existence(message_id)) is None
        assert taker.core.disk.store.get(keys.metadata(message_id)) == before
        assert await taker.chunks(message_id, 1, 99) == body
        assert taker.core.disk.store.get(keys.taken(message_id)) is None
    assert giver.core.counters.message_count == 0
    assert taker.core.counters.message_count == 2
    # It was sent there, and a crash has kept that from the first one.
    await moving.closed(giver)
    again = await moving.resting(home.config, home.clock)
    found = moved.contents(taker.core, ids[0])
    mark = (keys.taken(ids[0]), packing.pack([0, b""]))
    assert found is not None
    gone: list[Operation] = [(keys.existence(ids[0]), None), (keys.metadata(ids[0]), None)]
    taker.core.disk.store.write([mark, *gone, *((part.key, None) for part in found.parts)], True)
    await moved_back(again, found)
    assert await moving.move(again, taker, ids[0])
    for queue in (again, taker):
        await queue.core.disk.lines.stable()
    assert taker.core.disk.store.get(keys.existence(ids[0])) is None
    assert again.core.disk.store.get(keys.existence(ids[0])) is None
    assert taker.core.disk.store.get(keys.taken(ids[0])) is None
    for queue in (again, taker):
        moving.abandon(queue)


async def test_a_story_goes_on_in_the_other_queue(house: Make) -> None:
    """Both journals say where it came from, and where it went; nothing of it is told as an event."""
    home, other = await house(), await house()
    message_id = await home.put("ann@a.test")
    giver, taker = await resting(home, 0), await resting(other, 1)
    before = events(home.folder)
    assert before
    await moving.move(giver, taker, message_id)
    await moving.take_mail(taker)
    first, second = await giver.ask("trace", what=message_id), await taker.ask("trace", what=message_id)
    assert [row["what"] for row in first["rows"]] == ["accepted", "moved"]
    assert [(row["what"], row["queue"]) for row in second["rows"]] == [("taken over", 0)]
    assert first["rows"][-1]["queue"] == 1
    assert events(home.folder) == before
    assert events(other.folder) == []
    for queue in (giver, taker):
        moving.abandon(queue)


def events(folder: Path) -> list[str]:
    records = segments.read_files(segments.every_file(folder / "journal", folder / "archive"))
    return [event.type for record in records for event in events_of(record)]


LARGE = b"Subject: large\r\n\r\n" + random.Random(1).randbytes(700_000)


async def resting(home: Any, number: int) -> LocalQueue:
    """Its queue, with that number, at rest."""
    await stopped(home)
    return await moving.resting(home.config.for_queue(number, home.folder), home.clock)


async def moved_back(queue: LocalQueue, what: Contents) -> None:
    """As if its end had never reached the disk."""
    await moved.take(queue.core, queue.core, [moved.arrival(queue.core, queue.core, what)])
    await queue.core.disk.lines.stable()
    queue.core.disk.store.write([(keys.taken(what.message.id), None)], sync=True)


async def test_all_have_the_same_orders_before_anything_is_moved(house: Make) -> None:
    """One that a queue had not carried out when it ended; a new queue counts as having carried out all."""
    home = await house()
    await home.put("ann@a.test")
    config = await stopped(home)
    log = OrderLog(config.folder / layout.FOLDER / layout.ORDERS)
    log.given(log.write(home.clock.ms(), "stop", {"kind": "destination", "name": "a.test"}))
    await rebalanced(home, config, 2)
    for number in (0, 1):
        one = layout.config_of(config, number)
        assert noted(one.folder) == 1
        queue = await moving.resting(one, home.clock)
        assert [row["name"] for row in await queue.ask("standing")] == ["a.test"]
        moving.abandon(queue)


async def test_a_copy_of_an_mta_is_not_moved(house: Make) -> None:
    """What it sends would be sent twice; a queue that is new would not know."""
    home = await house()
    config = await stopped(home)
    assert not identity.copied(config.folder, identity.this_machine())
    copy = home.base / "copy"
    shutil.copytree(config.folder, copy)
    home.folder = copy
    with pytest.raises(ValueError, match="is a copy of a queue"):
        await rebalanced(home, home.config, 2)

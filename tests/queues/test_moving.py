"""Mail and state that go from queue to queue: nothing is lost, nothing is there twice, whatever ends the process that
moves it; and the journal alone says the same of it."""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import BODY
from tests.queue.conftest import house as house
from tests.queue.tasks.test_tasks import done as task_done
from tests.queue.test_families import contents, lived, repaired, wrong
from zonemta_py.config import Config
from zonemta_py.disk import identity, keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.disk.notes import Note
from zonemta_py.events.derive import events_of
from zonemta_py.journal import families, segments
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.commit import Inline
from zonemta_py.queue.core.tasks import WORK, Task
from zonemta_py.queue.lifecycle import moved
from zonemta_py.queue.lifecycle.moved import Contents
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import offline, owed
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.queues import layout, moving
from zonemta_py.queues.answers import Merged
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
    found |= {"campaigns": {}, "suppressed": {}, "state": Counter(), "at": set(), "tasks": {}}
    for rows in stores(config).values():
        mine = recipients(rows)
        assert not mine.keys() & found["recipients"].keys()
        found["recipients"] |= mine
        found["messages"] |= rows["message"]
        found["in-doubt"] |= rows["in-doubt"]
        found["at"] |= rows["at"].keys()
        found["suppressed"] |= rows["suppressed"] | rows["suppressed-in"]
        for key, value in rows["task"].items():
            row, known = packing.unpack(value), found["tasks"].get(key, [0, 0, 0, 0])
            figures = [row[name] + n for name, n in zip(("done", "undone", "suppressed"), known, strict=False)]
            found["tasks"][key] = [*figures, max(row["until_ms"], known[3])]
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
    "sent", "sent-as", "sent-to", "evidence", "guard", "guard-day", "spooled",
    "plugin", "plugin-done",
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


class Whole:
    """All queues of an MTA, open and not sending. As `Merged` answers of them."""

    def __init__(self, queues: dict[int, LocalQueue], now_ms: Callable[[], int]) -> None:
        self.queues, self._merged = queues, Merged({n: one.ask for n, one in queues.items()}, self._order, now_ms)

    async def ask(self, question: str, **given: Any) -> Any:
        return await self._merged.answer(question, given)

    def total(self, place: int) -> int:
        """Recipients, of those that `sizes` counts there."""
        return sum(queue.core.counters.sizes.total[place] for queue in self.queues.values())

    async def _order(self, question: str, given: dict[str, Any]) -> dict[int, Any]:
        """Refused where all refuse it."""
        found, refusals = dict[int, Any](), list[Refused]()
        for number, queue in self.queues.items():
            try:
                found[number] = await queue.ask(question, **given)
            except Refused as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[0]
        return found

    async def at_rest(self) -> None:
        """No task has anything to do."""
        for queue in self.queues.values():
            tasks = queue.core.tasks.by_number
            await comes(lambda: all(task.state not in WORK for task in tasks.values()))  # noqa: B023
            await queue.core.disk.journal.stable()
            await queue.core.disk.lines.stable()

    async def over(self) -> None:
        """The time of all undos is over, and what it leaves is done."""
        for queue in self.queues.values():
            tasks = queue.core.tasks.by_number
            await comes(lambda: not any(task.until_ms for task in tasks.values()))  # noqa: B023
        await self.at_rest()


async def comes(found: Callable[[], bool]) -> None:
    for _ in range(6000):
        if found():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come")


@asynccontextmanager
async def whole(home: Any, config: Config) -> AsyncIterator[Whole]:
    numbers = layout.numbers(config.folder)
    configs = {number: layout.config_of(config, number) for number in numbers}
    queues = {number: await open_queue(one, clock=home.clock, hire=Inline) for number, one in configs.items()}
    yield Whole(queues, home.clock.ms)
    for queue in queues.values():
        await moving.closed(queue)


DEAD = [f"u{number}.dead.test" for number in range(6)]


async def with_tasks(home: Any, verb: str, config: Config, numbers: list[int]) -> dict[str, Any]:
    """Six tasks, each about one domain, which one queue has, the last also the first one; as they are seen. They end at
    other times in other queues."""
    async with whole(home, config) as mta:
        for place, domain in enumerate(DEAD):
            to = [f"bob@{domain}", f"cat@{domain}"]
            for number in [numbers[place % len(numbers)], *(numbers[:1] if domain == DEAD[-1] else [])]:
                message = Envelope("ann@src.test", [Recipient(one) for one in to], len(BODY))
                message.received_ms = home.clock.ms()
                await mta.queues[number].accept(message, BODY)
        for place, domain in enumerate(DEAD):
            for queue in mta.queues.values():
                order = {"verb": verb, "where": {"domain": domain}, "undo_s": 600.0, "number": place + 10**15}
                await queue.ask("task", **order)
                await mta.at_rest()
                home.clock.now_s += 1
        return await seen_tasks(mta)


async def seen_tasks(mta: Whole) -> dict[str, Any]:
    """What is told of all tasks; until: the latest time of all queues."""
    found = dict[str, Any]()
    for row in await mta.ask("tasks"):
        id = row["id"]
        tasks = [queue.core.tasks.by_number[int(id)] for queue in mta.queues.values()]
        kept = ("state", "count", "done", "undone", "undoable", "zones", "examples")
        found[id] = {name: row[name] for name in kept} | {"until": max(task.until_ms for task in tasks)}
    return found


TIMES = [(3, 1), (3, 2), (4, 1), (1, 3), (1, 3, 1, 3), (3, 2, 1, 4), (2, 4, 3)]


@pytest.mark.parametrize("counts", TIMES)
@pytest.mark.parametrize("verb", ["delete", "hold"])
async def test_a_task_can_be_undone_wherever_its_mail_is(house: Make, verb: str, counts: tuple[int, ...]) -> None:
    """Until the time that the queue said which had it longest: a queue that had nothing to do for it, and is done with
    it, has its mail now."""
    home = await house()
    config = await stopped(home)
    await rebalanced(home, config, counts[0])
    seen = await with_tasks(home, verb, config, list(range(counts[0])))
    assert [row["state"] for row in seen.values()] == ["undoable"] * 6
    for count in counts[1:]:
        await rebalanced(home, config, count)
        await sound(home, config)
        for number, rows in stores(config).items():
            alone = without_tasks(home, layout.folder_of(config.folder, number))
            assert of_undo(alone) == of_undo(rows["task"]), (count, number)
        async with whole(home, config) as mta:
            assert await seen_tasks(mta) == seen, count
    later, taken = home.base / "later", {"delete": sizes.DELETED, "hold": sizes.HELD}[verb]
    shutil.copytree(config.folder, later, ignore=shutil.ignore_patterns("LOCK", "identity"))
    async with whole(home, config) as mta:
        assert mta.total(taken) == 14
        for id in seen:
            assert (await mta.ask("task-undo", id=id))["undoable"] is False
        await mta.at_rest()
        now = await seen_tasks(mta)
        assert [(row["state"], row["undone"] == row["done"]) for row in now.values()] == [("undone", True)] * 6
        assert (mta.total(taken), mta.total(sizes.DEFERRED)) == (0, 14)
    await sound(home, config)
    home.folder = later
    await when_it_is_over(home, 0 if verb == "delete" else 14)


async def when_it_is_over(home: Any, left: int) -> None:
    """What was deleted is removed, in the end."""
    home.clock.now_s += 3_600
    async with whole(home, home.config) as mta:
        await mta.over()
        assert (mta.total(sizes.DELETED), mta.total(sizes.HELD)) == (0, left)
        assert {row["state"] for row in await mta.ask("tasks")} == {"done"}
        assert sum(queue.core.counters.message_count for queue in mta.queues.values()) == left // 2
    await sound(home, home.config)


def of_undo(rows: dict[bytes, bytes]) -> dict[bytes, Any]:
    names = ("state", "until_ms", "done", "undone", "count", "zones", "stopped")
    return {key: [packing.unpack(value)[name] for name in names] for key, value in rows.items()}


def without_tasks(home: Any, folder: Path) -> dict[bytes, bytes]:
    """What the journal alone says of them."""
    copy = home.base / "without"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("queues", "LOCK"))
    store = Store(copy / "store")
    store.write([(key, None) for key in store.keys(keys.TASKS, keys.end(keys.TASKS))], sync=True)
    store.close()
    repaired(home, copy)
    found = contents(copy)["task"]
    shutil.rmtree(copy)
    return found


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (("done", 0), ("undoable", 9), ("undoable", 9)),
        (("undoable", 5), ("undoable", 9), ("undoable", 9)),
        (("ending", 0), ("undoable", 9), ("undoable", 9)),
        (("ending", 0), ("done", 0), ("ending", 0)),
        (("canceled", 0), ("undoable", 9), ("canceled", 9)),
        (("canceled", 5), ("done", 0), ("canceled", 5)),
        (("canceled", 5), ("undone", 0), ("canceled", 5)),
        (("canceled", 0), ("done", 0), ("canceled", 0)),
        (("undone", 0), ("done", 0), ("undone", 0)),
        (("undoing", 5), ("undoable", 9), ("undoing", 9)),
    ],
)
async def test_what_two_queues_say_of_a_task(house: Make, one: Any, other: Any, both: Any) -> None:
    """Whichever of them goes: it can be undone while it can be in one of them, and is done to its end."""
    tasks = (await house()).queue.core.tasks
    for number, (first, second) in enumerate([(one, other), (other, one)], start=1):
        made = (
            Task(
                number, "delete", {}, {}, "", "", "", [], 0, 0, 600, state, until_ms=until, stopped=state == "canceled"
            )
            for state, until in (first, second)
        )
        tasks.add(next(made))
        second_one = next(made)
        tasks.take_over(second_one)
        assert not tasks.turns(second_one)
        found = tasks.by_number.pop(number)
        assert (found.state, found.until_ms) == both
        tasks.unwritten.clear()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("over", [False, True])
async def test_one_message_takes_its_undo_with_it(house: Make, known: bool, over: bool) -> None:
    """To a queue that does not know of the task, or is done with it."""
    home, other = await house(), await house()
    message_id = await home.put("ann@a.test")
    number, row = 10**15, await task_done(home, "delete", undo_s=600, number=10**15)
    other.clock = home.clock
    if known:
        await task_done(other, "delete", where={"domain": "a.test"}, undo_s=600, number=number)
    giver, taker = await resting(home, 0), await resting(other, 1)
    assert await moving.move(giver, taker, message_id)
    await moving.take_mail(taker)
    for queue in (giver, taker):
        await moving.closed(queue)
    until_ms = giver.core.tasks.by_number[number].until_ms
    await other.open()
    task = other.queue.core.tasks.by_number[number]
    assert (task.state, task.until_ms, task.done) == ("undoable", until_ms, 0)
    if over:
        home.clock.now_s += 601
        await comes(lambda: task.state == "done")
    else:
        await other.queue.ask("task-undo", id=row["id"])
        await comes(lambda: task.state == "undone")
    await other.rest()
    total = other.queue.core.counters.sizes.total
    assert (total[sizes.DELETED], total[sizes.DEFERRED]) == (0, 0 if over else 1)
    other.abandon()


LARGE = b"Subject: large\r\n\r\n" + random.Random(1).randbytes(700_000)


async def resting(home: Any, number: int) -> LocalQueue:
    """Its queue, with that number, at rest."""
    await stopped(home)
    return await moving.resting(home.config.for_queue(number, home.folder), home.clock)


async def moved_back(queue: LocalQueue, what: Contents) -> None:
    """As if its end had never reached the disk."""
    await moved.take(queue.core, [moved.arrival(queue.core, moved.origin(queue.core, what.message.id), what)], str)
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

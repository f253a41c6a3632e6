"""Series: several merged messages as one lease, for a destination that was quick; each is settled for itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import pytest

from zonemta_py.mail.dsn import Failed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED, Delivery, Outcome, Result
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.schedule.admission.zone_share import SERIES_MAX

Make = Callable[..., Any]
TEMPLATE = prepare(TemplateSource("t", Text("Hi {{ name }}"), Text("news@src.test"), text=Text("Hi {{ name }}"))).pack()
REPLIES = {
    DELIVERED: Reply(250, "2.0.0", "taken"),
    DEFERRED: Reply(451, "4.3.0", "later"),
    BOUNCED: Reply(550, "5.1.1", "no such user"),
    RELEASED: Reply(451, "4.3.2", "the connection ended before it was its turn"),
}


async def quick(house: Make, count: int, took_ms: int = 10, **options: Any) -> Any:
    """A house whose destination x.test has answered once, with `count` recipients of a campaign that wait for it."""
    home = await house(**options)
    await home.put("first@x.test")
    (first,) = await home.leases()
    await home.settle(first, took_ms=took_ms)
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=TEMPLATE)
    people = [Recipient(f"r{number}@x.test", values=[f"N{number}"]) for number in range(count)]
    await home.queue.accept(Envelope("", people, columns=["name"], campaign="spring"), b"")
    return home


def sizes(leases: list[Delivery]) -> list[int]:
    return [len(lease.recipients) for lease in leases]


def settled(lease: Delivery, verdicts: list[int], first: int = 0, more: bool = False) -> Result:
    """One outcome for each recipient from `first` on, as a sender reports them."""
    outcomes = [
        Outcome(verdict, REPLIES[verdict], "limit" if verdict == RELEASED else "dot", [index])
        for index, verdict in enumerate(verdicts, first)
    ]
    return Result(lease.lease, outcomes, remote="mx.test[127.0.0.9]:25", took_ms=10, more=more)


async def test_a_quick_destination_gets_series(house: Make) -> None:
    """Each recipient with his own values, in order; as many as it takes in a quarter of a second."""
    home = await quick(house, 45)
    leases = await home.leases()
    assert sizes(leases) == [SERIES_MAX, SERIES_MAX, 5]
    for lease in leases:
        assert lease.values == [["N" + one.address[1:].partition("@")[0]] for one in lease.recipients]
        assert len(lease.attempts) == len(lease.recipients)
        await home.settle(lease)
    await home.sound()
    assert (await home.sizes())["messages"] == 0


@pytest.mark.parametrize(("took_ms", "expected"), [(60, 4), (250, 1), (6000, 1)])
async def test_a_slow_one_gets_fewer(house: Make, took_ms: int, expected: int) -> None:
    """What is under way when a sender dies is never much more than a quarter of a second's mail."""
    home = await quick(house, 8, took_ms)
    assert set(sizes(await home.leases())) == {expected}


async def test_a_server_that_ends_connections_early_gets_fewer(house: Make) -> None:
    """As many as went the last time, and twice as many each time that all went."""
    home, found = await quick(house, 60), []
    for went in (3, 3, 6, 9, 20):
        (lease, *others) = await home.leases()
        found.append(len(lease.recipients))
        count = min(went, len(lease.recipients))
        await home.queue.settle(settled(lease, [DELIVERED] * count + [RELEASED] * (len(lease.recipients) - count)))
        for other in others:
            home.queue.leases.take_back(home.queue.leases.out[other.lease])
    assert found == [20, 3, 6, 12, 9]
    await home.sound()


async def test_a_newcomer_gets_one(house: Make) -> None:
    """Nothing is known of it."""
    home = await house()
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=TEMPLATE)
    people = [Recipient(f"r{number}@x.test", values=["N"]) for number in range(3)]
    await home.queue.accept(Envelope("", people, columns=["name"], campaign="spring"), b"")
    assert sizes(await home.leases()) == [1, 1, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"throttles": [{"name": "t", "messages": "100/s"}]},
        {"throttles": [{"name": "t", "recipients": "100/s"}]},
        {"throttles": [{"name": "t", "bytes": "1MB/s"}]},
        {"zones": [{"name": "z", "default": True, "in_doubt": "hold"}]},
    ],
)
async def test_where_each_message_counts_they_go_one_by_one(house: Make, options: dict[str, Any]) -> None:
    """Limits on mail are exact, and where doubt means to be held by hand, as little as possible is in doubt."""
    home = await quick(house, 4, **options)
    assert sizes(await home.leases()) == [1, 1, 1, 1]


async def test_a_limit_on_connections_is_no_hindrance(house: Make) -> None:
    """A series is one connection."""
    home = await quick(house, 30, throttles=[{"name": "t", "connections": 1}])
    home.hang_up()  # the first message's connection has ended
    (lease,) = await home.leases()
    assert sizes([lease]) == [SERIES_MAX]
    await home.settle(lease)
    assert sizes(await home.leases()) == [10]


async def test_messages_with_a_body_are_as_before(house: Make) -> None:
    """All recipients of one message on a destination are one transaction, whatever the destination's pace."""
    home = await house()
    await home.put(*(f"r{number}@x.test" for number in range(30)))
    (lease,) = await home.leases()
    assert (sizes([lease]), lease.values) == ([30], None)


async def test_each_is_settled_for_himself(house: Make) -> None:
    """Delivered, deferred, bounced; who was not tried may go at once, and that was no attempt."""
    home = await quick(house, 5)
    (lease,) = await home.leases()
    await home.queue.settle(settled(lease, [DELIVERED, DEFERRED, BOUNCED, RELEASED, RELEASED]))
    (again,) = [one for one in await home.leases() if one.values is not None]
    assert [one.address for one in again.recipients] == ["r3@x.test", "r4@x.test"]
    assert (again.attempts, again.values) == ([0, 0], [["N3"], ["N4"]])
    await home.settle(again)
    assert await figures(home) == (3, 1, 1, 1)
    await home.sound()


async def test_an_answer_is_recorded_while_others_are_awaited(house: Make) -> None:
    """Part by part; the lease ends with its last, which may have nothing to add."""
    home = await quick(house, 3)
    (lease,) = await home.leases()
    home.queue.settle_part(settled(lease, [DELIVERED], more=True))
    home.queue.settle_part(settled(lease, [BOUNCED], 1, more=True))
    await home.rest()
    assert (await figures(home))[:2] == (1, 1)
    assert (await home.queue.ask("size"))["zones"]["default"]["leased"] == 1
    home.queue.settle_part(settled(lease, [DELIVERED], 2, more=True))
    await home.queue.settle(settled(lease, []))
    assert await figures(home) == (2, 1, 0, 0)
    assert lease.lease not in home.queue.leases.out
    await home.sound()


async def test_what_was_said_stays_said(house: Make) -> None:
    """A sender that meets a fault defers all of its lease: those that were answered are not touched."""
    home = await quick(house, 3)
    (lease,) = await home.leases()
    home.queue.settle_part(settled(lease, [DELIVERED], more=True))
    home.queue.settle_part(settled(lease, [BOUNCED], more=True))
    await home.queue.settle(settled(lease, [DEFERRED] * 3))
    assert await figures(home) == (1, 0, 2, 2)
    await home.sound()


async def test_only_who_was_not_answered_is_in_doubt(house: Make) -> None:
    """When the sender dies in the middle of a series: they are listed, and sent again."""
    home = await quick(house, 4)
    (lease,) = await home.queue.lease(10, "one")
    home.queue.settle_part(settled(lease, [DELIVERED, DEFERRED], more=True))
    home.queue.lost("one")
    await home.rest()
    assert await doubtful(home) == ["r2@x.test", "r3@x.test"]
    (again,) = await home.leases()
    assert [one.address for one in again.recipients] == ["r2@x.test", "r3@x.test"]
    await home.settle(again)
    assert await figures(home) == (3, 0, 1, 1)
    await home.sound()


@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("power", [False, True])
async def test_nor_after_a_crash_of_the_queue(house: Make, power: bool, position: bool) -> None:
    """However the restart finds the lease: in a position record that was written meanwhile, or as its own record."""
    home = await quick(house, 4)
    (lease,) = await home.leases()
    home.queue.settle_part(settled(lease, [DELIVERED, DEFERRED], more=True))
    await home.rest()
    if position:
        await home.queue.maintenance.position()
        await home.rest()
    await home.crash(power)
    assert await doubtful(home) == ["r2@x.test", "r3@x.test"]
    assert await figures(home) == (1, 0, 1, 3)
    assert sorted(one.recipients[0].address for one in await home.leases()) == ["r2@x.test", "r3@x.test"]


class Slow(NoHooks):
    """A plugin that looks at notifications of failure, and takes its time."""

    bounces = True

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        await self.go.wait()
        return failed


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    hooks = Slow()
    yield hooks
    hooks.go.set()


async def test_a_lease_ends_behind_its_last_answer(house: Make, slow: Slow) -> None:
    """While a plugin is asked about a bounce, what came later of the lease waits with its end; then all is recorded."""
    home = await quick(house, 4, hooks=slow)
    (lease,) = await home.leases()
    home.queue.settle_part(settled(lease, [BOUNCED], more=True))
    home.queue.settle_part(settled(lease, [BOUNCED], 1, more=True))
    home.queue.settle_part(settled(lease, [DELIVERED], 2, more=True))
    end = asyncio.ensure_future(home.queue.settle(settled(lease, [RELEASED], 3)))
    assert await figures(home) == (1, 0, 0, 3)
    assert (end.done(), (await home.queue.ask("size"))["zones"]["default"]["leased"]) == (False, 3)
    slow.go.set()
    await asyncio.wait_for(end, 60)
    assert await figures(home) == (1, 2, 0, 1)
    await home.settle((await home.leases())[-1])
    assert lease.lease not in home.queue.leases.out
    await home.sound()


@pytest.mark.parametrize("parts", [1, 2])
async def test_who_has_the_message_waits_for_no_plugin(house: Make, slow: Slow, parts: int) -> None:
    """One result for several recipients, of whom a plugin is asked about one: the others are on record, and in no doubt
    when the queue dies meanwhile. Without a death the lease ends when the plugin has spoken."""
    for dies in (False, True):
        slow.go.clear()
        home = await house(hooks=slow)
        await home.put("a@x.test", "b@x.test", "c@x.test")
        (lease,) = await home.leases()
        both = settled(lease, [DELIVERED, BOUNCED, DELIVERED])
        if parts == 2:
            home.queue.settle_part(settled(lease, [DELIVERED], more=True))
            both = settled(lease, [BOUNCED, DELIVERED], 1)
        end = asyncio.ensure_future(home.queue.settle(both))
        await home.rest()
        assert not end.done()
        if dies:
            await home.crash()
            assert await doubtful(home) == ["b@x.test"]
            end.cancel()
            assert [one.address for lease in await home.leases() for one in lease.recipients] == ["b@x.test"]
        else:
            slow.go.set()
            await asyncio.wait_for(end, 60)
            assert await doubtful(home) == []
            assert lease.lease not in home.queue.leases.out
            await home.sound()


@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("end", ["settled", "lost", "open"])
async def test_an_answer_that_is_not_recorded_is_in_doubt(house: Make, slow: Slow, end: str, position: bool) -> None:
    """The queue dies while a plugin is asked about it: he is listed, whatever became of the lease and its sender; who
    had the message by then is not."""
    home = await quick(house, 2, hooks=slow)
    (lease,) = await home.queue.lease(10, "one")
    home.queue.settle_part(settled(lease, [BOUNCED], more=True))
    if end == "settled":
        task = asyncio.ensure_future(home.queue.settle(settled(lease, [DELIVERED], 1)))
    elif end == "lost":
        home.queue.lost("one")
    await home.rest()
    if position:
        await home.queue.maintenance.position()
        await home.queue.maintenance.position()
    await home.crash()
    assert await doubtful(home) == (["r0@x.test"] if end == "settled" else ["r0@x.test", "r1@x.test"])
    if end == "settled":
        task.cancel()


async def test_a_sender_that_dies_while_a_plugin_is_asked(house: Make, slow: Slow) -> None:
    """What it had answered counts; who was under way is in doubt, and sent again."""
    home = await quick(house, 3, hooks=slow)
    (lease,) = await home.queue.lease(10, "one")
    home.queue.settle_part(settled(lease, [BOUNCED], more=True))
    home.queue.lost("one")
    await home.rest()
    assert await doubtful(home) == []
    slow.go.set()
    again = [one for one in await home.leases() if one.values is not None]
    assert [one.address for one in again[0].recipients] == ["r1@x.test", "r2@x.test"]
    assert await doubtful(home) == ["r1@x.test", "r2@x.test"]
    await home.settle(again[0])
    assert await figures(home) == (2, 1, 0, 0)
    await home.sound()


async def test_421_rests_the_destination_whenever_it_comes(house: Make) -> None:
    """Also as the last answer, when there is nothing more to say at the end; the reason is what the server said."""
    home = await quick(house, 2)
    (lease,) = await home.leases()
    await home.put("other@x.test")
    home.queue.settle_part(settled(lease, [DELIVERED], more=True))
    leaving = settled(lease, [DEFERRED], 1, more=True)
    leaving.outcomes[0].reply, leaving.down_s = Reply(421, "4.3.2", "closing"), 0
    home.queue.settle_part(leaving)
    await home.queue.settle(settled(lease, []))
    assert await home.idle()
    (path,) = {flow_queue.path for flow_queue in home.queue.core.schedule.flow_queues()}
    assert (path.failures, path.reason) == (1, "421 4.3.2 closing")


async def test_who_was_not_tried_says_nothing_of_the_pace(house: Make) -> None:
    """A destination that has turned slow in the middle of a series is slow, however soon the others came back."""
    home = await quick(house, 3)
    (lease,) = await home.leases()
    taken = settled(lease, [DELIVERED], more=True)
    taken.took_ms = 10_000
    home.queue.settle_part(taken)
    rest = settled(lease, [RELEASED, RELEASED], 1)
    rest.took_ms = 0
    await home.queue.settle(rest)
    pace = home.queue.core.schedule.zones["default"]._pace
    assert not pace.may("x.test", 1, pace._connections - pace.reserve - 1, False)


async def test_who_was_not_tried_is_no_part_of_the_share(house: Make) -> None:
    """A tenant whose connections end after each message has as many messages as one who is sent to one by one."""
    home = await quick(house, 40, zones=[{"name": "z", "default": True, "connections": 1}])
    for number in range(20):
        await home.put(f"s{number}@x.test", tenant="other")
    sent = {"": 0, "other": 0}
    for _ in range(20):
        (lease,) = await home.leases()
        sent[lease.tenant] += 1
        untried = [RELEASED] * (len(lease.recipients) - 1)
        await home.queue.settle(settled(lease, [DELIVERED, *untried]))
    assert abs(sent[""] - sent["other"]) <= 2
    await home.sound()


async def test_who_is_forgotten_in_the_middle_of_it_is_found(house: Make) -> None:
    """Put off a moment ago: he leaves; under way still: he is counted."""
    home = await quick(house, 3)
    (lease,) = await home.leases()
    home.queue.settle_part(settled(lease, [DEFERRED], more=True))
    found = [await home.queue.ask("forget", address=f"r{number}@x.test") for number in range(2)]
    assert [(row["removed"], row["under_way"]) for row in found] == [(1, 0), (0, 1)]
    await home.queue.settle(settled(lease, [DELIVERED] * 2, 1))
    assert await figures(home) == (2, 0, 1, 0)
    await home.sound()


async def doubtful(home: Any) -> list[str]:
    return sorted(row["recipient"] for row in await home.queue.ask("in-doubt"))


async def figures(home: Any) -> tuple[int, ...]:
    """Delivered, bounced, deferrals, and how many still wait."""
    await home.rest()
    row = await home.queue.ask("campaign", name="spring")
    return row["delivered"], row["bounced"], row["deferred"], row["waiting"]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_tally_and_recipients_agree_after_any_crash(house: Make, power: bool, seed: int) -> None:
    """Whatever each of a series came to, and whenever the queue dies: nobody is lost or counted twice."""
    die = random.Random(seed)
    home = await quick(house, 120)
    expected = {"delivered": 0, "deferred": 0, "bounced": 0}
    names = {DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced"}
    for _ in range(4):
        for lease in await home.leases(die.randint(1, 4)):
            if lease.values is None or die.random() < 0.2:  # a notification; no answer
                continue
            verdicts = die.choices([DELIVERED, DEFERRED, BOUNCED, RELEASED], [6, 1, 1, 2], k=len(lease.recipients))
            parts = die.randint(0, len(verdicts) - 1)  # told one by one; then the rest, unless the sender dies
            for index in range(parts):
                home.queue.settle_part(settled(lease, verdicts[index : index + 1], index, more=True))
            if die.random() < 0.3:
                verdicts = verdicts[:parts]
            else:
                await home.queue.settle(settled(lease, verdicts[parts:], parts))
            await home.rest()
            for verdict in verdicts:
                if verdict != RELEASED:
                    expected[names[verdict]] += 1
        await home.crash(power, die, drop=die.random() < 0.5)
        await home.put("again@x.test")
        for lease in await home.leases():
            if lease.values is None:
                await home.settle(lease, took_ms=10)
    found = asdict(home.queue.core.campaigns.tally("spring"))
    assert {name: found[name] for name in expected} == expected
    await home.rest()
    row = await home.queue.ask("campaign", name="spring")
    assert (row["accepted"], row["waiting"]) == (120, 120 - expected["delivered"] - expected["bounced"])
    await home.sound()

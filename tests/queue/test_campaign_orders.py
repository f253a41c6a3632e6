"""Orders to campaigns: pause, cancel, complete, and what they end, whatever instant a crash picks."""

import asyncio
from typing import Any

import pytest

from tests.queue.test_campaigns import Make, batch, opened, row, template, tick
from zonemta_py.disk import keys, packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.queue.api import DEFERRED, HELD, QueueRefusal


def removed(home: Any) -> list[list[Any]]:
    rows = segments.read(home.folder / "journal", 0, [], home.folder / "archive")
    return [packing.unpack(one.body) for one in rows if one.type == Type.REMOVED]


async def test_a_paused_campaign_waits_and_others_go(house: Make) -> None:
    """Also after a crash; resumed, it goes on where it was."""
    home = await opened(house, "ann@x.test", "bob@x.test")
    await home.queue.ask("campaign-pause", name="spring", cause="the subject is wrong")
    await home.put("eve@x.test")
    assert [one.recipients[0].address for one in await home.leases()] == ["eve@x.test"]
    await home.crash(power=True)
    assert await row(home, "state", "cause", "waiting") == ("paused", "the subject is wrong", 2)
    resumed = await home.queue.ask("campaign-resume", name="spring", cause="it is right")
    assert resumed["state"] == "running"
    await home.move(3600)
    assert {one.campaign for one in await home.leases()} >= {"spring"}


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("hours", [49, 24 * 30])
async def test_a_paused_campaign_does_not_grow_old(house: Make, hours: int, crash: bool) -> None:
    """However long it is paused, its life goes on where it was: what was deferred is tried again, not bounced."""
    home = await opened(house, "ann@x.test", "bob@x.test")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.queue.ask("campaign-pause", name="spring", cause="the subject is wrong")
    for _ in range(7):
        await home.move(hours * 3600 / 7)
        while await home.queue.maintenance.sweep() or await home.queue.maintenance.deadlines():
            pass
        await tick(home)
    if crash:
        await home.crash(power=True)
    assert await row(home, "state", "waiting", "bounced") == ("paused", 2, 0)
    await home.queue.ask("campaign-resume", name="spring", cause="it is right")
    await home.move(60)
    await tick(home)
    found = {recipient.address for one in await home.leases() for recipient in one.recipients}
    assert found == {"ann@x.test", "bob@x.test"}


@pytest.mark.parametrize("crash", [False, True])
async def test_a_canceled_campaign_ends_wherever_it_waits(house: Make, crash: bool) -> None:
    """In the window, fresh, deferred, parked and held; what is leased comes to its own end. Nobody is told."""
    home = await opened(house, *(f"r{number}@x.test" for number in range(300)), queue={"window": 100})
    first, second, third, *_ = await home.leases(5)
    await home.settle(first, DEFERRED)
    await home.settle(second, HELD)
    await home.queue.ask("campaign-cancel", name="spring", cause="wrong list")
    if crash:
        await home.crash(power=True)
        third = None
    await tick(home)
    if third is not None:
        await home.settle(third)
        for lease in list(home.queue.leases.out.values()):
            home.queue.leases.take_back(lease)
    await home.idle()
    await tick(home)
    state, waiting, delivered, gone = await row(home, "state", "waiting", "delivered", "removed")
    assert (state, waiting, delivered + gone) == ("canceled", 0, 300)
    assert {reason for _, _, _, reason, *_ in removed(home)} == {"campaign spring was canceled: wrong list"}
    total = await home.sizes()
    assert (total["queued"], total["deferred"], total["held"], total["messages"]) == (0, 0, 0, 0)
    await home.sound()
    with pytest.raises(QueueRefusal, match=r"554 5\.5\.0 campaign 'spring' was canceled"):
        await home.queue.accept(batch("ann@x.test"), b"")


async def test_a_damaged_message_stops_no_removal(house: Make) -> None:
    """Its recipients are left to whoever leases them, which sets it aside; all others go at once."""
    home = await opened(house, *(f"r{number}@x.test" for number in range(5)))
    damaged = (await home.queue.accept(batch(*(f"s{number}@x.test" for number in range(5))), b"")).id
    await home.queue.accept(batch(*(f"t{number}@x.test" for number in range(5))), b"")
    await home.crash()  # nothing of it is in memory
    home.queue.core.disk.store.write([(keys.metadata(damaged), None)], True)
    await home.queue.ask("campaign-cancel", name="spring", cause="wrong list")
    await tick(home)
    assert await row(home, "removed", "waiting") == (10, 5)
    assert await home.idle()
    assert await row(home, "removed", "waiting") == (15, 0)
    assert [case.name.split("-")[1] for case in home.queue.core.disk.quarantine.cases()] == ["messages"]
    await home.rest()
    assert [(await home.sizes())[name] for name in ("queued", "messages", "bytes")] == [0, 0, 0]


async def test_a_canceled_recipient_is_never_leased(house: Make) -> None:
    """From the answer on, also before anything was removed."""
    home = await opened(house, "ann@x.test", "bob@y.test")
    await home.queue.ask("campaign-cancel", name="spring")
    await home.put("eve@x.test")
    assert [one.recipients[0].address for one in await home.leases()] == ["eve@x.test"]
    assert await row(home, "removed", "waiting") == (2, 0)
    await home.sound()


@pytest.mark.parametrize("drop", [False, True])
async def test_removals_that_the_store_has_not_seen_are_made_up_for(house: Make, drop: bool) -> None:
    """Whether the crash comes before or behind the store's batch: each is removed once, and counted once."""
    home = await opened(house, *(f"r{number}@x.test" for number in range(50)))
    await home.queue.ask("campaign-cancel", name="spring")
    home.queue.campaign_commands.tick()
    await home.queue.core.disk.journal.stable()
    await home.crash(drop=drop)
    await tick(home)
    assert await row(home, "removed", "waiting") == (50, 0)
    await home.sound()


async def test_a_complete_campaign_ends_with_its_last_recipient(house: Make) -> None:
    """Then it takes no more, is listed for a week, and goes with its template."""
    home = await opened(house, "ann@x.test")
    assert (await home.queue.ask("campaign-complete", name="spring"))["state"] == "complete"
    (delivery,) = await home.leases()
    await home.settle(delivery)
    await tick(home)
    assert await row(home, "state", "delivered") == ("ended", 1)
    with pytest.raises(QueueRefusal, match="has ended"):
        await home.queue.accept(batch("ann@x.test"), b"")
    for order in ("pause", "resume", "cancel"):
        with pytest.raises(ValueError, match="has ended"):
            await home.queue.ask(f"campaign-{order}", name="spring")
    await home.crash(power=True)
    assert (await row(home, "state"))[0] == "ended"
    await home.move(8 * 86_400)
    await tick(home)
    assert await home.queue.ask("campaigns") == []
    assert list(home.queue.core.disk.store.keys(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS))) == []


async def test_orders_about_nothing_say_so(house: Make) -> None:
    """With where to look."""
    home = await house()
    for question in ("campaign", "campaign-pause", "campaign-resume", "campaign-cancel", "campaign-complete"):
        with pytest.raises(ValueError, match="there is no campaign 'spring'; `zonemta campaign list` shows"):
            await home.queue.ask(question, name="spring")


async def test_the_journal_tells_of_its_orders(house: Make) -> None:
    """Begun, paused, resumed, complete, canceled: each once, however often it is ordered, with its cause."""
    home = await opened(house, "ann@x.test", settings={"planned": 5})
    for _ in range(2):
        await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=template(), planned=5)
        await home.queue.ask("campaign-pause", name="spring", cause="wait")
    await home.queue.ask("campaign-resume", name="spring", cause="go")
    for _ in range(2):
        await home.queue.ask("campaign-complete", name="spring")
    for _ in range(2):
        await home.queue.ask("campaign-cancel", name="spring", cause="wrong list")
    await home.crash(power=True)
    now = home.clock.ms()
    begun = {"created_ms": now, "sender": "news@src.test", "tenant": "", "zone": "", "planned": 5}
    found = policy(home)
    assert found[0][2].pop("template")
    assert found[0][2].pop("record")["life_h"] == 168, "from which it is made again if the store loses it"
    assert found == [
        ["begin", ["campaign", "spring"], begun, ""],
        ["stop", ["campaign", "spring"], [0, now, True, now], "wait"],
        ["lift", ["campaign", "spring"], now, "go"],
        ["complete", ["campaign", "spring"], [now, now], "all batches are in"],
        ["cancel", ["campaign", "spring"], [now, now], "wrong list"],
    ]


@pytest.mark.parametrize("order", ["cancel", "complete"])
async def test_an_order_holds_from_its_record_on(house: Make, order: str) -> None:
    """Answered, and not in the store yet: a crash then changes nothing; nor does a campaign that has taken the name."""
    home = await opened(house, "ann@x.test")
    await home.rest()
    home.queue.core.disk.lines._start = lambda: None  # nothing more reaches the store
    await home.queue.ask(f"campaign-{order}", name="spring")
    await home.crash()
    assert await row(home, "state") == ({"cancel": "canceled", "complete": "complete"}[order],)
    await home.sound()
    body = [order, ["campaign", "spring"], [1, 2], "of another"]
    assert home.queue.core.campaigns.again(StandingRecord(*body)) == []


async def test_a_campaign_whose_record_a_crash_cost_gets_one(house: Make) -> None:
    """The batch with its template is what counts; the journal hears of it at the next start, once."""
    home = await house()
    await home.rest()
    home.queue.core.disk.journal._start = lambda: None  # nothing more reaches the journal
    ask = {"name": "spring", "sender": "news@src.test", "template": template()}
    task = asyncio.ensure_future(home.queue.ask("campaign-put", **ask))
    while not home.queue.core.campaigns.by_name:  # noqa: ASYNC110 (nobody says when)
        await asyncio.sleep(0)
    for _ in range(2):
        await home.crash()
        assert [one[0] for one in policy(home)] == ["begin"]
    task.cancel()
    assert await home.queue.ask("campaign-put", **ask) == {"created": False}


def policy(home: Any) -> list[list[Any]]:
    rows = segments.read(home.folder / "journal", 0, [], home.folder / "archive")
    return [packing.unpack(one.body) for one in rows if one.type == Type.STANDING]


async def test_parked_recipients_of_a_canceled_campaign_go(house: Make) -> None:
    """Those behind a destination that is down; another campaign's there stay."""
    home = await opened(house)
    await home.queue.ask("campaign-put", name="other", sender="news@src.test", template=template())
    await home.queue.accept(batch("first@x.test"), b"")
    (first,) = await home.leases()
    await home.settle(first, DEFERRED, down_s=600, stage="connect")
    for name in ("spring", "other"):
        await home.queue.accept(batch(*(f"r{number}@x.test" for number in range(20)), campaign=name), b"")
    await home.rest()
    assert len(list(home.queue.core.disk.store.keys(b"parked ", b"parked!"))) == 40
    await home.queue.ask("campaign-cancel", name="spring")
    await tick(home)
    assert await row(home, "removed", "waiting") == (21, 0)
    assert len(list(home.queue.core.disk.store.keys(b"parked ", b"parked!"))) == 20
    await home.crash(power=True)
    await home.move(7200)
    assert {one.campaign for one in await home.leases()} == {"other"}
    await home.sound()

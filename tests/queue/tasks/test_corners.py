"""Tasks where they are seldom met: pull zones, merged mail, recipients in doubt, zones that are gone, copies of a
queue, other tasks, a clock that is set."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.pull.test_pulling import pop, push
from tests.queue.tasks.test_tasks import ZONES, begun, counts, defer, done, ended, sent_now
from tests.queue.test_campaigns import batch, opened, template, tick
from tests.queue.test_reload import other, reload
from zonemta_py.queue.api import DEFERRED, DELIVERED
from zonemta_py.queue.reload import apply

Make = Callable[..., Any]
HOUR = 3600
JOBS = {"zone": "jobs"}


async def undo(home: Any, row: dict[str, Any]) -> dict[str, Any]:
    await home.queue.ask("task-undo", id=row["id"])
    return await ended(home, row, "undone")


async def again(home: Any) -> None:
    """Found sound, killed, and found sound again."""
    await home.sound()
    await home.crash(drop=True)
    await home.sound()


@pytest.mark.parametrize("verb", ["delete", "hold", "set"])
async def test_what_waits_in_a_pull_zone(house: Make, verb: str) -> None:
    """It is not handed out while a task has it, one that is reserved is taken once it comes back, and what comes back
    by the undo is handed out, once each."""
    home = await house(zones=ZONES)
    for number in range(6):
        await push(home.queue, b"%d" % number)
    (taken,) = await home.queue.pull("jobs", reserve_s=60)
    change = {"set": {"priority": 3}} if verb == "set" else {}
    row = await home.queue.ask("task", verb=verb, where=JOBS, **change)
    assert await begun(home, row, 5)
    if verb != "set":
        assert await pop(home.queue) is None
    assert await home.queue.nack(taken.lease, taken.id)
    row = await ended(home, row)
    assert row["done"] == 6
    await again(home)
    if verb != "set":
        assert await pop(home.queue) is None
    row = await undo(home, row)
    assert row["undone"] == 6
    await again(home)
    await home.move(1)
    assert sorted([await pop(home.queue) or b"" for _ in range(6)]) == [b"%d" % number for number in range(6)]
    assert await pop(home.queue) is None
    await home.sound()


async def test_mail_is_moved_to_a_pull_zone_and_back(house: Make) -> None:
    home = await house(zones=ZONES)
    await home.put("a@one.test", "b@two.test")
    row = await done(home, "move", where={"domain": "one.test"}, set=JOBS)
    assert row["done"] == 1
    await again(home)
    assert await sent_now(home) == ["b@two.test"]
    row = await undo(home, row)
    assert row["undone"] == 1
    await home.move(1)
    assert await home.queue.pull("jobs") == []
    assert await sent_now(home) == ["a@one.test"]
    await home.sound()
    await push(home.queue, b"1")
    row = await done(home, "move", where=JOBS, set={"zone": "bulk"})
    assert row["done"] == 0, "what was pushed stays in its queue"


@pytest.mark.parametrize("verb", ["delete", "hold", "move", "set"])
async def test_merged_mail(house: Make, verb: str) -> None:
    """Each gets his own text after the undo, and the campaign's figures are what they were."""
    home = await opened(house, "a@one.test", "b@one.test", "c@two.test", zones=ZONES)
    change = {"set": {"set": {"priority": 3}}, "move": {"set": {"zone": "bulk"}}}.get(verb, {})
    row = await done(home, verb, where={"domain": "one.test"}, **change)
    assert row["done"] == 2
    await again(home)
    row = await undo(home, row)
    assert row["undone"] == 2
    await again(home)
    await home.move(1)
    values: dict[str, list[str]] = {}
    while deliveries := await home.leases():
        for each in deliveries:
            assert each.zone == "default"
            values |= dict(zip([one.address for one in each.recipients], each.values, strict=True))
            await home.settle(each)
    assert values == {"a@one.test": ["A"], "b@one.test": ["B"], "c@two.test": ["C"]}
    campaign = await home.queue.ask("campaign", name="spring")
    assert (campaign["delivered"], campaign["removed"], campaign["waiting"]) == (3, 0, 0)
    await home.sound()
    await home.queue.accept(batch("d@one.test"), b"")
    assert (await done(home, "move", where={"campaign": "spring"}, set=JOBS))["done"] == 0, "senders make it"


@pytest.mark.parametrize("verb", ["delete", "release", "move"])
async def test_what_is_in_doubt(house: Make, verb: str) -> None:
    """Held since a crash; a task does to it what it does to all that is held, and after its undo it is held again."""
    home = await house(zones=[{"name": "default", "in_doubt": "hold"}, {"name": "bulk", "in_doubt": "hold"}])
    await home.put("a@one.test", "b@one.test")
    await home.leases()
    await home.crash()
    assert await counts(home) == {"held": 2}
    row = await done(home, verb, where={"state": "held"}, **({"set": {"zone": "bulk"}} if verb == "move" else {}))
    assert row["done"] == 2
    await again(home)
    assert len(await home.queue.ask("in-doubt")) == 2
    row = await undo(home, row)
    assert (row["undone"], await counts(home)) == (2, {"held": 2})
    await again(home)
    await done(home, "release")
    await home.move(1)
    assert await sent_now(home) == ["a@one.test", "b@one.test"]
    await home.crash(drop=True)
    assert await home.idle()
    await home.sound()


async def test_in_doubt_while_it_can_be_undone(house: Make) -> None:
    """Released by a task, handed out, killed: it may have been sent, so the undo leaves it alone."""
    home = await house(zones=[{"name": "default", "in_doubt": "hold"}])
    await home.put("a@one.test")
    await done(home, "hold")
    row = await done(home, "release")
    await home.move(1)
    (delivery,) = await home.leases()
    await home.crash()
    assert await counts(home) == {"held": 1}
    row = await undo(home, row)
    await home.sound()
    assert await counts(home) == {"held": 1}
    assert delivery.id in {one["id"] for one in await home.queue.ask("in-doubt")}


async def test_a_zone_that_a_reload_takes_away(house: Make) -> None:
    """What a task has deleted or holds in it is mail that waits; what it has moved away stays away, and goes."""
    home = await house(zones=[{"name": "default"}, {"name": "bulk"}])
    await home.put("a@one.test", "b@two.test", sending_zone="bulk")
    held = await done(home, "hold", where={"domain": "one.test"})
    gone = await done(home, "delete", where={"domain": "two.test"})
    before = dict(home.options)
    (fault,) = apply.faults(home.queue, other(home, zones=[{"name": "default"}]))
    assert "1 recipients wait in it, and 1 more are deleted" in fault
    home.options = before
    await undo(home, gone)
    moved = await done(home, "move", where={"zone": "bulk"}, set={"zone": "default"})
    assert moved["done"] == 2
    await home.rest()
    reload(home, zones=[{"name": "default"}])
    with pytest.raises(
        ValueError, match=f"task {moved['id']} cannot be undone while the configuration has no zone 'bulk'"
    ):
        await undo(home, moved)
    held = await undo(home, held)
    assert held["undone"] == 0, "a later one has changed it"
    await again(home)
    await done(home, "release")
    await home.move(1)
    assert await sent_now(home) == ["a@one.test", "b@two.test"]
    await home.sound()


async def test_a_zone_that_comes_back_and_with_it_what_was_moved(house: Make) -> None:
    """The refusal of its undo has cost nothing."""
    both = [{"name": "default"}, {"name": "bulk"}]
    home = await house(zones=both)
    await home.put("a@one.test", sending_zone="bulk")
    moved = await done(home, "move", where={"zone": "bulk"}, set={"zone": "default"})
    await home.rest()
    reload(home, zones=[{"name": "default"}])
    with pytest.raises(ValueError, match="has no zone 'bulk'; give it back"):
        await undo(home, moved)
    reload(home, zones=both)
    assert (await undo(home, moved))["undone"] == 1
    await home.move(1)
    (delivery,) = await home.leases()
    assert delivery.zone == "bulk"
    await home.settle(delivery)
    await home.sound()


async def test_a_task_that_runs_while_its_zone_goes(house: Make) -> None:
    """It waits for what is being delivered; when that is back, and its zone gone, it ends."""
    home = await house(zones=[{"name": "default"}, {"name": "bulk"}])
    await home.put("a@one.test", sending_zone="bulk")
    (delivery,) = await home.leases()
    row = await home.queue.ask("task", verb="hold", where={"zone": "bulk"})
    await asyncio.sleep(0.05)
    (fault,) = apply.faults(home.queue, other(home, zones=[{"name": "default"}]))
    assert "bulk" in fault
    home.options["zones"] = [{"name": "default"}]
    await home.crash()
    row = await ended(home, row)
    assert row["done"] in (0, 1)
    await home.sound()
    if row["done"]:
        await undo(home, row)
    await home.move(1)
    assert await sent_now(home) == [delivery.recipients[0].address]


@pytest.mark.parametrize("verb", ["delete", "hold", "move", "set", "requeue"])
async def test_a_copy_made_while_it_can_be_undone(house: Make, verb: str) -> None:
    """The copy has the task, sends nothing before it is adopted, and can undo it as the original can."""
    home = await house(zones=ZONES, queue={"keep_bounced_s": HOUR})
    await home.put("a@one.test", "b@two.test", sender="")
    if verb == "requeue":
        for delivery in await home.leases():
            await home.settle(delivery, 3)
    where = {"state": "bounced"} if verb == "requeue" else {"all": True}
    change = {"set": {"set": {"priority": 3}}, "move": {"set": {"zone": "bulk"}}}.get(verb, {})
    before = await counts(home)
    row = await done(home, verb, where=where, **change)
    copy = Path(await home.queue.ask("backup"))
    home.abandon()
    home.folder = copy
    assert [one for one in home.check(repair=True).problems if one.severity != "harmless"] == []
    await home.open()
    row = await undo(home, row)
    assert row["undone"] == 2
    after = await counts(home)
    assert after == before if verb == "requeue" else sum(after.values()) == 2
    await home.sound()


async def test_undos_at_once(house: Make) -> None:
    """Of a hold and of the deletion that came after it: each is as it was before both, whichever is asked for first."""
    home = await house()
    await home.put("a@one.test", "b@one.test", "c@two.test")
    held = await done(home, "hold")
    gone = await done(home, "delete", where={"domain": "one.test"})
    await asyncio.gather(home.queue.ask("task-undo", id=held["id"]), home.queue.ask("task-undo", id=gone["id"]))
    assert (await ended(home, gone, "undone"))["undone"] == 2
    assert (await ended(home, held, "undone"))["undone"] == 3
    await again(home)
    await home.move(1)
    assert await sent_now(home) == ["a@one.test", "b@one.test", "c@two.test"]


@pytest.mark.parametrize("seed", range(3))
async def test_undos_that_overlap_and_crashes(house: Make, seed: int) -> None:
    """Three tasks, undone in any order while the machine dies: nobody is lost, and nobody is sent twice."""
    die = random.Random(seed)
    home = await house(zones=ZONES)
    people = [f"p{number}@d{number % 3}.test" for number in range(60)]
    for at in range(0, 60, 10):
        await home.put(*people[at : at + 10], sender="")
    await defer(home, 2)
    rows = [
        await home.queue.ask("task", verb="hold", where={"domain": ["d0.test", "d1.test"]}),
        await home.queue.ask("task", verb="move", where={"domain": ["d1.test", "d2.test"]}, set={"zone": "bulk"}),
        await home.queue.ask("task", verb="delete", where={"domain": "d1.test"}),
    ]
    for row in die.sample(rows, 3):
        await home.queue.ask("task-undo", id=row["id"])
        await asyncio.sleep(die.random() * 0.02)
        await home.crash(power=bool(die.randrange(2)), die=die)
    for row in rows:
        await ended(home, row, "undone")
    await home.sound()
    await done(home, "release")
    await home.move(36_000)
    sent = await sent_now(home)
    await home.crash(drop=True)
    assert sent + await sent_now(home) == sorted(people)
    await home.sound()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("set_s", [-HOUR, HOUR])
async def test_a_clock_that_is_set_while_it_can_be_undone(house: Make, set_s: int, restart: bool) -> None:
    """By an hour: that neither ends nor lengthens the time for the undo, and what is told of it is by the clock."""
    home = await house(zones=ZONES)
    await home.put("a@one.test")
    await home.put("b@two.test")
    gone = await done(home, "delete", where={"domain": "one.test"}, undo_s=600)
    short = await done(home, "delete", where={"domain": "two.test"}, undo_s=60)
    told = gone["undo_until_ms"]
    home.clock.set_s += set_s
    await home.move(30)
    home.queue.core.clock.ms()  # as every second
    if restart:
        await home.crash()
    gone = await home.queue.ask("task-row", id=gone["id"])
    assert gone["undoable"]
    assert abs(gone["undo_until_ms"] - told - set_s * 1000) < 3000
    await home.move(40)
    short = await ended(home, short, "done")
    await home.rest()
    assert await counts(home) == {"deleted": 1}
    gone = await undo(home, gone)
    await home.move(1)
    assert await sent_now(home) == ["a@one.test"]
    await home.sound()


async def test_template_stays_while_a_bounce_is_kept(house: Make) -> None:
    """A campaign that has ended goes on when what has bounced is queued again, and is not forgotten before."""
    home = await opened(house, "a@one.test", "b@one.test", queue={"keep_bounced_s": 20 * 86_400})
    await home.queue.ask("campaign-complete", name="spring")
    for delivery in await home.leases():
        await home.settle(delivery, 3 if delivery.recipients[0].address == "a@one.test" else DELIVERED)
    await tick(home)
    assert (await home.queue.ask("campaign", name="spring"))["state"] == "ended"
    await home.move(8 * 86_400)
    await tick(home)
    await home.crash()
    await done(home, "requeue", where={"state": "bounced"})
    await tick(home)
    campaign = await home.queue.ask("campaign", name="spring")
    assert (campaign["state"], campaign["waiting"], campaign["bounced"]) == ("complete", 1, 0)
    await home.sound()
    await home.move(1)
    (delivery,) = await home.leases()
    assert delivery.values == [["A"]]
    assert await home.queue.template("spring") == template()
    await home.settle(delivery, DEFERRED)
    await home.move(HOUR)
    assert await sent_now(home) == ["a@one.test"]
    await tick(home)
    campaign = await home.queue.ask("campaign", name="spring")
    assert (campaign["state"], campaign["delivered"], campaign["bounced"]) == ("ended", 2, 0)
    await home.move(8 * 86_400)
    await tick(home)
    assert await home.queue.ask("campaigns") == []
    await home.sound()

"""Campaigns that only their mail names (X-Campaign): figures, thresholds, course like others'; how many there are."""

import asyncio
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import done
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import BOUNCED, DEFERRED, Feedback, QueueRefusal

Make = Callable[..., Any]
DAY = 86_400.0


async def tick(home: Any, seconds: float = 1) -> None:
    await home.move(seconds)
    while home.queue.campaign_commands.tick():
        await home.rest()
    await home.rest()


async def row(home: Any, name: str) -> dict[str, Any]:
    await home.rest()
    found: dict[str, Any] = await home.queue.ask("campaign", name=name)
    return found


async def names(home: Any) -> set[str]:
    return {one["name"] for one in await home.queue.ask("campaigns")}


@pytest.mark.parametrize("crash", ["", "kill", "power"])
async def test_it_pauses_itself_and_says_when_it_ends(house: Make, crash: str) -> None:
    """By the bounds of the configuration; once it is resumed, they count from there."""
    home = await house(queue={"campaign_bounds": {"least": 4, "bounced": 0.5}})
    for number in range(12):
        await home.put(f"r{number}@x{number}.test", sender="", campaign="spring")
    await tick(home)
    for number, delivery in enumerate(await home.lease(6)):
        await home.settle(delivery, *([BOUNCED] if number < 4 else []))
    await tick(home)
    if crash:
        await home.crash(power=crash == "power")
    found = await row(home, "spring")
    assert (found["state"], found["registered"], found["waiting"]) == ("paused", False, 6)
    assert (found["accepted"], found["delivered"], found["bounced"]) == (12, 2, 4)
    assert "4 of 6 attempts bounced" in found["cause"]
    assert await home.idle()
    assert (await home.queue.ask("campaign-resume", name="spring"))["state"] == "running"
    for delivery in await home.lease(3):
        await home.settle(delivery)
    await tick(home)
    await tick(home)
    found = await row(home, "spring")
    assert (found["state"], found["delivered"], found["waiting"]) == ("running", 5, 3)
    if not crash:
        assert found["eta_ms"] > home.clock.ms()
        assert [max(point[1] for point in found["history"]), found["history"][-1][1]] == [12, 3]
    for delivery in await home.leases():
        await home.settle(delivery)
    assert (await row(home, "spring"))["state"] == "idle"
    await home.sound()


async def test_names_that_somebody_invents_push_out_nobody_elses(house: Make) -> None:
    """No more than campaign_names have figures; what is at rest is forgotten, of the tenant with most names first."""
    home = await house(queue={"campaign_names": 20})
    await home.put("a@x.test", sender="", campaign="ours", tenant="us")
    await home.put("b@y.test", sender="", campaign="waits", tenant="us")
    for delivery in await home.leases():
        await home.settle(delivery, *([DEFERRED] if delivery.recipients[0].address == "b@y.test" else []))
    for number in range(40):
        await home.move(1)
        await home.put(f"r{number}@z{number}.test", sender="", campaign=f"junk{number}", tenant="them")
    assert len(await names(home)) == 20
    assert (await row(home, "junk39"))["created_ms"] == 0  # shown, without figures
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.move(1000)
    await tick(home)
    assert await names(home) == {"ours", "waits", *(f"junk{number}" for number in range(2, 18))}
    await home.crash()
    assert len(await names(home)) == 18
    await home.put("c@x.test", sender="", campaign="junk0", tenant="them")
    assert "junk0" in await names(home)
    await home.queue.ask("campaign-pause", name="ours")
    for delivery in await home.leases():
        await home.settle(delivery)
    await tick(home)
    await tick(home, 8 * DAY)
    assert await names(home) == {"ours"}, "an order about it holds until it is taken back"
    await home.sound()


async def test_the_same_name_of_two_tenants(house: Make) -> None:
    """Each mail counts for its own tenant's campaign, and a cancel deletes no more than that."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack()}
    await home.put("a@x.test", sender="", campaign="may", tenant="one")
    await home.put("b@x.test", sender="", campaign="may", tenant="two")
    assert ((await row(home, "may"))["accepted"], (await row(home, "may"))["tenant"]) == (1, "one")
    await home.queue.ask("campaign-cancel", name="may")
    assert (await home.sizes())["messages"] == 1
    await home.queue.ask("campaign-put", name="june", tenant="one", **put)
    await home.put("a@x.test", sender="", campaign="june")
    await home.put("b@x.test", sender="", campaign="june", tenant="two")
    await home.queue.ask("campaign-cancel", name="june")
    await tick(home)
    assert ((await row(home, "june"))["accepted"], (await row(home, "june"))["state"]) == (1, "canceled")
    await home.put("c@x.test", sender="", campaign="june", tenant="two")
    assert (await home.sizes())["messages"] == 3
    await home.sound()


async def test_a_name_that_another_tenants_mail_had_is_free_when_that_has_gone(house: Make) -> None:
    """So one message keeps no name from anybody: the campaign that is made begins with nothing of the other's."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    await home.put("a@x.test", sender="", campaign="may", tenant="one")
    for delivery in await home.leases():
        await home.settle(delivery)
    await tick(home)
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    assert await home.queue.ask("campaign-put", name="may", **put) == {"created": True}
    for _ in range(2):
        found = await row(home, "may")
        assert (found["tenant"], found["accepted"], found["delivered"]) == ("two", 0, 0)
        assert {tuple(point[1:]) for point in found["history"]} == {(0, 0)}
        await home.crash(power=True)
    await home.put("b@x.test", sender="", campaign="may", tenant="one")
    await home.put("c@x.test", sender="", campaign="may", tenant="two")
    assert (await row(home, "may"))["accepted"] == 1
    await home.sound()


@pytest.mark.parametrize("crash", ["", "kill", "power"])
async def test_a_name_is_its_makers_though_mail_of_another_tenant_waits(house: Make, crash: str) -> None:
    """That mail is sent, held and canceled apart from the campaign, and is in none of its figures."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    for number in range(6):
        await home.put(f"r{number}@x{number}.test", sender="", campaign="may", tenant="one")
    assert (await row(home, "may"))["accepted"] == 6
    await tick(home)
    assert await home.queue.ask("campaign-put", name="may", **put) == {"created": True}
    if crash:
        await home.crash(power=crash == "power")
    found = await row(home, "may")
    assert (found["tenant"], found["accepted"], found["waiting"], found["removed"]) == ("two", 0, 0, 0)
    assert {tuple(point[1:]) for point in found["history"]} == {(0, 0)}
    await home.put("own@y.test", sender="", campaign="may", tenant="two")
    await home.queue.accept(Envelope("", [Recipient("m@z.test", values=[])], columns=[], campaign="may"), b"")
    await home.sound()
    for delivery in await home.leases():
        await home.settle(delivery, BOUNCED if delivery.recipients[0].address == "r0@x0.test" else DEFERRED)
    assert (await done(home, "delete", where={"recipient": ["r2@x2.test"]}))["done"] == 1
    found = await row(home, "may")
    told = [found[figure] for figure in ("accepted", "waiting", "bounced", "deferred", "removed")]
    assert told == [2, 2, 0, 2, 0]
    await home.sound()
    await home.queue.ask("campaign-cancel", name="may")
    for _ in range(3):
        await tick(home)
    found = await row(home, "may")
    assert (found["state"], found["removed"], found["waiting"]) == ("canceled", 2, 0)
    assert (await home.sizes())["messages"] == 5, "those of the other tenant; one is deleted, and can be put back"
    await home.move(3600)
    assert {delivery.tenant for delivery in await home.leases()} == {"one"}
    await home.sound()


async def test_what_becomes_later_of_mail_of_before_is_in_no_campaigns_figures(house: Make) -> None:
    """Neither what had bounced and is queued again, nor what is lost to damage."""
    home = await house(queue={"keep_bounced_s": 86_400})
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    await home.put("a@x.test", sender="", campaign="may", tenant="one")
    [delivery] = await home.leases()
    await home.settle(delivery, BOUNCED)
    torn = await home.put("b@y.test", sender="", campaign="may", tenant="one")
    await home.queue.ask("campaign-put", name="may", **put)
    assert (await done(home, "requeue", where={"state": "bounced", "tenant": "one"}))["done"] == 1
    assert ((await row(home, "may"))["bounced"], (await row(home, "may"))["waiting"]) == (0, 0)
    await home.crash()
    home.queue.core.disk.store.write([(keys.metadata(torn), b"\xc1")], True)
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.rest()
    assert home.queue.core.disk.quarantine.cases()
    found = await row(home, "may")
    assert (found["delivered"], found["removed"], found["waiting"]) == (0, 0, 0)
    await home.sound()


async def test_a_campaign_that_the_disk_refuses_takes_no_name(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the other tenant's again, whose figures begin anew; once there is space, it is made."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    await home.put("a@x.test", sender="", campaign="may", tenant="one")
    await home.rest()
    store = home.queue.core.disk.store
    write, failures = store.write, [True]

    def fail(operations: Any, sync: bool) -> None:
        write(operations, sync)
        if failures and keys.campaign("may") in dict(operations):
            failures.clear()
            store.fenced = True
            raise StoreFailed("No space left on device")

    monkeypatch.setattr(store, "write", fail)
    with pytest.raises(QueueRefusal):
        await home.queue.ask("campaign-put", name="may", **put)
    while home.queue.core.disk.lines.trouble:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await home.put("b@x.test", sender="", campaign="may", tenant="one")
    await home.put("c@x.test", sender="", campaign="may", tenant="two")
    await home.crash(power=True, fsck="look")
    found = await row(home, "may")
    assert (found["tenant"], found["registered"], found["accepted"]) == ("one", False, 1)
    assert await home.queue.ask("campaign-put", name="may", **put) == {"created": True}
    assert (await row(home, "may"))["accepted"] == 0
    await home.sound()


async def test_a_lost_store_counts_no_mail_of_before_for_a_campaign(house: Make) -> None:
    """What is made again from the journal has the figures of the campaign alone, and of its tenant's feedback."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    for number in range(3):
        await home.put(f"r{number}@x{number}.test", sender="", campaign="may", tenant="one")
    await home.settle((await home.lease(1))[0])
    await home.queue.ask("campaign-put", name="may", **put)
    for number in range(2):
        await home.put(f"own{number}@y{number}.test", sender="", campaign="may", tenant="two")
    for delivery in await home.leases():
        await home.settle(delivery, BOUNCED if delivery.recipients[0].address in ("r1@x1.test", "own1@y1.test") else 1)
    for tenant in ("one", "two"):
        said = Feedback("complaint", f"{tenant}@x.test", campaign="may", tenant=tenant, genuine="token")
        assert await home.queue.feedback([said]) == [True]
    before = await row(home, "may")
    assert [before[name] for name in ("tenant", "accepted", "bounced", "complaints")] == ["two", 2, 1, 1]
    await home.queue.position()
    await home.rest()
    copy = home.image()
    home.abandon()
    shutil.rmtree(copy / "store")
    home.folder = copy
    await home.open()
    after = await row(home, "may")
    figures = ("tenant", "accepted", "delivered", "bounced", "waiting", "complaints", "created_ms")
    assert [after[name] for name in figures] == [before[name] for name in figures]
    await home.sound()


async def test_a_pause_of_the_mail_before_is_no_pause_of_the_campaign(house: Make) -> None:
    """Who takes a name over neither takes over the suspension of its mail, nor lifts it."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "two"}
    await home.put("a@x.test", sender="", campaign="may", tenant="one")
    await home.queue.ask("campaign-pause", name="may")
    await home.queue.ask("campaign-put", name="may", **put)
    await home.put("b@y.test", sender="", campaign="may", tenant="two")
    assert (await row(home, "may"))["state"] == "running"
    await home.queue.ask("campaign-pause", name="may")
    assert (await row(home, "may"))["state"] == "paused"
    assert await home.idle()
    assert (await home.queue.ask("campaign-resume", name="may"))["state"] == "running"
    await home.crash()
    [stop] = await home.queue.ask("standing")
    assert stop["tenants"] == ["one"]
    [delivery] = await home.leases()
    assert delivery.tenant == "two"
    await home.settle(delivery)
    await home.queue.ask("campaign-complete", name="may")
    await tick(home)
    assert (await row(home, "may"))["state"] == "ended"
    [stop] = await home.queue.ask("standing")
    assert stop["tenants"] == ["one"], "the end of the one is not that of the other"
    await tick(home, 8 * DAY)
    assert "may" not in await names(home)
    await home.put("c@x.test", sender="", campaign="may", tenant="one")
    assert (await row(home, "may"))["accepted"] == 1, "the mail of before counts for none"
    await home.queue.ask("lift", kind="campaign", name="may")
    for delivery in await home.leases():
        await home.settle(delivery)
    found = await row(home, "may")
    assert (found["accepted"], found["delivered"], found["waiting"]) == (1, 1, 0)
    await home.sound()


async def test_each_tenant_gets_names_though_mail_of_another_waits_under_all_of_them(house: Make) -> None:
    """One that has fewer than its share takes over names of the one with most of them, whose mail is sent like any."""
    home = await house(queue={"campaign_names": 12})
    for number in range(15):
        await home.move(1)
        await home.put(f"r{number}@z{number}.test", sender="", campaign=f"junk{number}", tenant="them")
    await home.queue.ask("campaign-pause", name="junk1")
    await tick(home)
    for number in range(8):
        await home.put(f"o{number}@x.test", sender="", campaign=f"our{number}", tenant="us")
    ours = [(await row(home, f"our{number}"))["created_ms"] > 0 for number in range(8)]
    assert ours == [True] * 6 + [False] * 2, "a share, and no more"
    assert await names(home) == {"junk1", *(f"junk{n}" for n in range(7, 12)), *(f"our{n}" for n in range(6))}
    await home.put("late@x.test", sender="", campaign="junk0", tenant="them")
    await home.crash(power=True, fsck="look")
    assert len(await names(home)) == 12
    while sent := await home.leases():
        for delivery in sent:
            await home.settle(delivery)
    await home.put("again@x.test", sender="", campaign="third", tenant="more")
    assert (await row(home, "third"))["accepted"] == 1
    await home.sound()
    await tick(home)
    kept = home.queue.core.disk.store.keys(keys.CAMPAIGNS, keys.end(keys.CAMPAIGNS))
    assert [key for key in kept if key.endswith(b" -")] == []


async def test_another_tenants_feedback_counts_for_no_campaign_of_the_name(house: Make) -> None:
    """Neither what comes back of its mail, nor what it puts on its lists: no bound of the campaign is passed by it."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack(), "tenant": "one"}
    await home.queue.ask("campaign-put", name="may", **put)
    for number, tenant in enumerate(("one", "two", "two")):
        said = {"campaign": "may", "tenant": tenant, "genuine": "token", "name": str(number)}
        assert await home.queue.feedback([Feedback("complaint", f"r{number}@x.test", **said)]) == [True]
        scope = f"tenant:{tenant}"
        rows = [[f"s{number}@x.test", "complaint", "", "", "", "may", 0, scope]]
        assert (await home.queue.ask("suppress", rows=rows))["added"] == 1
    await home.rest()
    assert (await row(home, "may"))["complaints"] == 2


async def test_a_batch_is_of_its_campaigns_tenant(house: Make) -> None:
    """And of no other, whoever hands it in."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack()}
    await home.queue.ask("campaign-put", name="may", tenant="one", **put)
    await home.queue.ask("campaign-put", name="all", **put)
    for campaign, tenant, refused in (("may", "two", True), ("may", "one", False), ("all", "two", False)):
        envelope = Envelope("", [Recipient("a@x.test", values=[])], columns=[], campaign=campaign, tenant=tenant)
        if refused:
            with pytest.raises(QueueRefusal, match="is of the tenant 'one', not of 'two'"):
                await home.queue.accept(envelope, b"")
        else:
            assert (await home.queue.accept(envelope, b"")).accepted == 1
    await home.sound()


async def test_lost_figures_begin_anew(house: Make) -> None:
    """What damage has taken is made again by fsck: the mail does not need it."""
    home = await house()
    for number in range(3):
        await home.put(f"r{number}@x.test", sender="", campaign="spring")
    await home.rest()
    home.queue.core.disk.store.write([(b"campaign spring *", None), (b"campaign spring #", None)], True)
    home.folder, _ = home.image(), home.abandon()
    assert [found.what for found in home.check(repair=True).problems] == ["figures of a campaign are lost"]
    await home.open()
    found = await row(home, "spring")
    assert (found["accepted"], found["waiting"], found["registered"]) == (3, 3, False)
    await home.sound()


async def test_a_pause_is_about_its_own_tenants_mail(house: Make) -> None:
    """Others who use the same name go on, also those of no tenant; after a crash, too. An operator's campaign and an
    operator's suspension are about all."""
    home = await house()
    for number, tenant in enumerate(("one", "two", "")):
        await home.put(f"r{number}@x{number}.test", sender="", campaign="may", tenant=tenant or None)
    await home.queue.ask("campaign-pause", name="may")
    [stop] = await home.queue.ask("standing")
    assert (stop["name"], stop["tenants"]) == ("may", ["one"])
    await home.crash()
    sent = await home.leases()
    assert {delivery.tenant for delivery in sent} == {"two", ""}
    for delivery in sent:
        await home.settle(delivery, DEFERRED)
    await home.queue.ask("stop", kind="campaign", name="may", tenants=["two"])
    [stop] = await home.queue.ask("standing")
    assert stop["tenants"] == ["one", "two"]
    await home.move(3600)
    assert {delivery.tenant for delivery in await home.leases()} == {""}
    await home.queue.ask("stop", kind="campaign", name="may")
    await home.crash(power=True)
    assert (await home.queue.ask("standing"))[0].get("tenants") is None
    await home.move(3600)
    assert await home.idle()
    with pytest.raises(ValueError, match="suspended for all tenants"):
        await home.queue.ask("stop", kind="zone", name="default", tenants=["one"])


async def test_a_campaign_of_no_tenant_is_no_tenants(house: Make) -> None:
    """One that mail of no tenant has named, and one made by somebody who is for such mail, have nothing of tenants;
    an operator's has."""
    home = await house()
    source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
    put = {"sender": "news@src.test", "template": prepare(source).pack()}
    await home.queue.ask("campaign-put", name="alone", alone=True, **put)
    await home.queue.ask("campaign-put", name="wide", **put)
    for campaign in ("named", "alone", "wide"):
        for number, tenant in enumerate((None, "one")):
            await home.put(f"r{number}@x.test", sender="", campaign=campaign, tenant=tenant)
    counts = [(await row(home, name))["accepted"] for name in ("named", "alone", "wide")]
    assert counts == [1, 1, 2]
    assert [(await row(home, name))["of_all"] for name in ("named", "alone", "wide")] == [False, False, True]
    for name in ("named", "alone", "wide"):
        await home.queue.ask("campaign-cancel", name=name)
    await tick(home)
    assert (await home.sizes())["messages"] == 2, "those of the tenant"
    await home.sound()


@pytest.mark.parametrize("registered", [False, True])
async def test_what_a_task_has_deleted_is_deleted_in_all_figures(house: Make, registered: bool) -> None:
    """It neither waits nor is it done, as long as it can be put back, in the row, its course and the metrics."""
    home = await house()
    if registered:
        source = TemplateSource("t", Text("Hello"), Text("news@src.test"), text=Text("Hi\n"))
        await home.queue.ask("campaign-put", name="june", sender="news@src.test", template=prepare(source).pack())
    for number in range(3):
        await home.put(f"r{number}@x.test", sender="", campaign="june")

    async def told() -> tuple[int, ...]:
        found = await row(home, "june")
        gauges = (await home.queue.ask("metrics"))["gauges"]["zonemta_campaign_recipients"]
        counts = {what: count for (_, what), count in gauges}
        assert (counts["waiting"], counts["deleted"]) == (found["waiting"], found["deleted"])
        assert (found["history"][-1][1], found["registered"]) == (found["waiting"], registered)
        return found["accepted"], found["waiting"], found["deleted"], found["removed"]

    gone = await done(home, "delete", where={"recipient": ["r0@x.test", "r1@x.test"]}, undo_s=60)
    assert await told() == (3, 1, 2, 0)
    await home.queue.ask("task-undo", id=gone["id"])
    await home.rest()
    assert await told() == (3, 3, 0, 0)

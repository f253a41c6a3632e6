"""What has bounced, and is kept (queue.keep_bounced_s): queued again by a task, its undo, its end; and crashes."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.pull.test_pulling import push
from tests.queue.tasks.test_around import events
from tests.queue.tasks.test_tasks import counts, done, ended, lost_and_repaired, sent_now
from tests.queue.test_reload import other
from zonemta_py.disk import keys
from zonemta_py.events.derive import events_of
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.reload import apply

Make = Callable[..., Any]
KEPT = {"queue": {"keep_bounced_s": 3600}}
AGAIN = {"state": "bounced"}


async def bounce(home: Any) -> None:
    """All that may go; but the sender gets the notifications."""
    while deliveries := await home.leases():
        for delivery in deliveries:
            notice = delivery.recipients[0].address == "ann@src.test"
            await home.settle(delivery, DELIVERED if notice else BOUNCED)
    await home.rest()


async def people(home: Any) -> list[str]:
    return sorted(row["recipient"] for row in (await home.queue.ask("list", state="bounced"))["rows"])


async def sweep(home: Any) -> None:
    while await home.queue.maintenance.sweep():
        await home.rest()
    await home.rest()


async def told(home: Any) -> list[tuple[str, dict[str, Any]]]:
    await home.rest()
    found = segments.read(home.folder / "journal", 0, [])
    return [(event.type, event.data) for record in found for event in events_of(record)]


async def test_it_is_kept_queued_again_and_sent(house: Make) -> None:
    home = await house(**KEPT, retry={"life_h": 1, "schedule_min": [1]})
    ident = await home.put("a@one.test", "b@two.test")
    await bounce(home)
    assert await counts(home) == {"bounced": 2}
    assert await people(home) == ["a@one.test", "b@two.test"]
    assert (await home.queue.ask("list"))["rows"] == [], "nothing waits"
    await home.sound()
    (shown, _) = (await home.queue.ask("show", id=ident))["recipients"]
    assert (shown["state"], shown["cause"][:7]) == ("bounced", "nothing")
    assert (await home.queue.ask("qshape"))["all"]["total"] == 0
    of_domain = await home.queue.ask("explain", what="one.test")
    assert (of_domain["rows"], of_domain["more"]) == ([], 0)
    (row,) = (await home.queue.ask("explain", what="a@one.test"))["rows"]
    assert (row["state"], row["reasons"][0]["kind"]) == ("bounced", "bounced")
    await home.move(3500)
    row = await done(home, "requeue", where=AGAIN | {"domain": "one.test"}, by="ann")
    assert (row["state"], row["done"]) == ("undoable", 1)
    assert await counts(home) == {"deferred": 1, "bounced": 1}
    await home.sound()
    await home.move(1)
    (again,) = await home.leases()
    await home.settle(again, DEFERRED)  # its life and its retries have begun anew
    await home.move(120)
    assert await sent_now(home) == ["a@one.test"]
    await home.move(3600)
    await sweep(home)
    assert (await home.sizes())["messages"] == 0
    await home.sound()
    kinds = [(kind, data.get("recipient")) for kind, data in await told(home) if data.get("message") == ident]
    assert [kind for kind, who in kinds if who == "a@one.test" and kind != "attempted"][-4:] == [
        "bounced", "requeued", "deferred", "delivered",
    ]  # fmt: skip
    assert [kind for kind, who in kinds if who == "b@two.test"][-1] == "bounced", "its end is not told again"


async def test_nothing_is_kept_unless_that_is_said(house: Make) -> None:
    home = await house()
    await home.put("a@one.test", sender="")
    await bounce(home)
    assert await counts(home) == {}
    assert (await home.sizes())["messages"] == 0
    record = [one for one in segments.read(home.folder / "journal", 0, []) if one.type == Type.DELIVERY][-1]
    ((_, data),) = [(one.type, one.data) for one in events_of(record)]
    assert "kept_until_ms" not in data
    with pytest.raises(ValueError, match=r"is not kept; set queue\.keep_bounced_s"):
        await home.queue.ask("task-preview", verb="requeue", where=AGAIN)


async def test_the_undo_puts_it_back(house: Make) -> None:
    home = await house(**KEPT)
    await home.put("a@one.test", sender="", campaign="may")
    assert (await home.queue.ask("campaign", name="may"))["waiting"] == 1
    await bounce(home)
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["waiting"], campaign["bounced"]) == (0, 1)
    row = await done(home, "requeue", where=AGAIN)
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["waiting"], campaign["bounced"]) == (1, 0)
    await home.sound()
    await home.queue.ask("task-undo", id=row["id"])
    row = await ended(home, row, "undone")
    assert row["undone"] == 1
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["waiting"], campaign["bounced"]) == (0, 1)
    assert await counts(home) == {"bounced": 1}
    assert [kind for kind, data in await events(home) if "recipient" in data] == ["requeued", "bounced"]
    await home.sound()
    await home.crash()
    assert await people(home) == ["a@one.test"]
    await done(home, "requeue", where=AGAIN)
    await home.move(1)
    assert await sent_now(home) == ["a@one.test"]
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["waiting"], campaign["bounced"], campaign["delivered"]) == (0, 0, 1)


@pytest.mark.parametrize("how", ["time", "setting", "space"])
async def test_it_ends(house: Make, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over; before that, when nothing is to be kept any more, and when space is short."""
    home = await house(**KEPT)
    await home.put("a@one.test", sender="", campaign="may")
    await bounce(home)
    await sweep(home)
    assert await counts(home) == {"bounced": 1}
    if how == "time":
        await home.move(3601)
    elif how == "setting":
        home.options["queue"] = {}
        await home.crash()
    else:
        monkeypatch.setattr(home.queue.core.disk.space, "short", lambda _: True)
    await sweep(home)
    assert await counts(home) == {}
    assert (await home.sizes())["messages"] == 0
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["waiting"], campaign["bounced"], campaign["removed"]) == (0, 1, 0), "it is counted once"
    assert [kind for kind, _ in await events(home)] == []
    monkeypatch.undo()
    await home.sound()
    await home.crash()
    await home.sound()


async def test_it_ends_a_few_at_a_time_in_all_zones(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zonemta_py.queue.maintenance.kept.AT_ONCE", 3)
    home = await house(**KEPT, zones=[{"name": "default"}, {"name": "bulk"}])
    for zone in ("default", "bulk"):
        await home.put(*[f"p{number}@{zone}.test" for number in range(4)], sender="", sending_zone=zone)
    await bounce(home)
    await home.move(3601)
    left = []
    while more := await home.queue.maintenance.sweep():
        await home.rest()
        left.append(8 - (await counts(home))["bounced"])
    assert (left, more) == ([3, 6], False)
    await home.rest()
    assert await counts(home) == {}
    await home.sound()


async def test_a_person_is_erased_from_what_is_kept(house: Make) -> None:
    home = await house(**KEPT)
    await home.put("ann@one.test", "bob@one.test", sender="")
    await bounce(home)
    await home.queue.ask("forget", address="ann@one.test")
    await home.rest()
    assert await people(home) == ["bob@one.test"]
    await home.sound()
    await home.crash()
    assert await people(home) == ["bob@one.test"]


async def test_who_is_suppressed_is_left_as_before_until_taken_off_the_list(house: Make) -> None:
    """The preview says so, and the task does; then the same order queues him, too."""
    home = await house(**KEPT)
    await home.put("a@one.test", "b@one.test", "c@one.test")
    await bounce(home)
    await home.queue.ask("suppress", rows=[["a@one.test", "hard-bounce", ""]])
    await home.queue.ask("suppress", rows=[["c@one.test", "manual", ""]])
    await home.queue.ask("unsuppress", addresses=["c@one.test"])
    seen = await ended(home, await home.queue.ask("task-preview", verb="requeue", where=AGAIN))
    assert seen["count"] == 2
    told, left = seen["remarks"]
    assert "the sender may already have a bounce" in told
    assert left == "1 more is on the suppression list, and left as before; `zonemta suppression remove` comes first"
    row = await done(home, "requeue", where=AGAIN)
    assert (row["done"], row["remarks"]) == (2, [told, left])
    await home.move(1)
    assert await sent_now(home) == ["b@one.test", "c@one.test"]
    await home.crash()
    assert (await home.queue.ask("task-row", id=row["id"]))["remarks"] == [told, left]
    assert await people(home) == ["a@one.test"]
    await home.queue.ask("unsuppress", addresses=["a@one.test"])
    assert (await done(home, "requeue", where=AGAIN))["done"] == 1
    await home.move(1)
    assert await sent_now(home) == ["a@one.test"]
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_only_who_has_bounced_before_and_only_if_that_is_said(house: Make) -> None:
    """An order for all that waits leaves it; and what bounces after the order stays, whatever state was named."""
    home = await house(**KEPT)
    await home.put("a@one.test", sender="")
    await bounce(home)
    row = await done(home, "requeue")
    assert row["done"] == 0
    with pytest.raises(ValueError, match="it has changed nothing"):
        await home.queue.ask("task-undo", id=row["id"])
    await home.put("b@one.test", sender="")
    (delivery,) = await home.leases()
    row = await home.queue.ask("task", verb="requeue", where={"state": ["leased", "bounced"]})
    await home.settle(delivery, BOUNCED)
    assert (await ended(home, row))["done"] == 1
    assert await people(home) == ["b@one.test"]
    await home.sound()


class _Least(random.Random):
    """Of what was not synced nothing is there."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


@pytest.mark.parametrize("then", ["delivered", "deferred", "bounced", "undone", "ended"])
async def test_all_of_it_since_the_store_was_last_synced(house: Make, then: str) -> None:
    """Kept, queued again, and its end: a start does all of it from the journal, once and in that order."""
    home = await house(**KEPT)
    await home.put("a@one.test", sender="", campaign="may")
    await bounce(home)
    row = await done(home, "requeue", where=AGAIN)
    if then == "undone":
        await home.queue.ask("task-undo", id=row["id"])
        await ended(home, row, "undone")
    elif then == "ended":
        await home.queue.ask("forget", address="a@one.test")
    else:
        await home.move(1)
        (delivery,) = await home.leases()
        await home.settle(delivery, {"delivered": DELIVERED, "deferred": DEFERRED, "bounced": BOUNCED}[then])
    await home.rest()
    before = await counts(home), await home.queue.ask("campaign", name="may"), (await home.sizes())["messages"]
    for _ in range(2):
        await home.crash(power=True, die=_Least())
        after = await counts(home), await home.queue.ask("campaign", name="may"), (await home.sizes())["messages"]
        assert after == before
        assert await home.idle()
        await home.sound()


async def test_what_expired_in_a_pull_zone_is_handed_out_again(house: Make) -> None:
    home = await house(**KEPT, zones=[{"name": "out"}, {"name": "jobs", "delivery": "pull"}], retry={"life_h": 1})
    await home.put("a@one.test", sender="", sending_zone="jobs")
    await home.move(3700)
    await sweep(home)
    assert await people(home) == ["a@one.test"]
    (row,) = await home.queue.ask("queues")
    assert (row["ready"], row["bounced"]) == (0, 1)
    await done(home, "requeue", where=AGAIN)
    await home.sound()
    await home.move(1)
    (delivery,) = await home.queue.pull("jobs")
    assert await home.queue.ack(delivery.lease, delivery.id)
    assert (await home.sizes())["messages"] == 0
    await home.sound()


@pytest.mark.parametrize("name", ["jobs", "queue/made"])
async def test_what_was_pushed_and_expired_is_handed_out_again(house: Make, name: str) -> None:
    """Of a pull zone, and of a queue that the push made: also over a restart, and its life begins anew."""
    zones = [{"name": "out"}, {"name": "jobs", "delivery": "pull"}]
    home = await house(**KEPT, zones=zones, pull={"enabled": True, "life_h": 1})
    queue = name.removeprefix("queue/")
    ident = await push(home.queue, b"work", queue)
    await home.move(3700)
    await sweep(home)
    assert await people(home) == [f"{queue}@queue"]
    assert await home.queue.pull(queue) == []
    await home.crash()
    await home.rest()
    await done(home, "requeue", where={**AGAIN, "zone": name})
    await home.move(1800)
    await sweep(home)
    (delivery,) = await home.queue.pull(queue)
    assert (delivery.id, delivery.zone) == (ident, name)
    assert await home.queue.ack(delivery.lease, delivery.id)
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_a_zone_that_only_keeps_bounces_is_not_taken_away_by_a_reload(house: Make) -> None:
    home = await house(**KEPT, zones=[{"name": "default"}, {"name": "bulk"}])
    await home.put("a@one.test", sender="", sending_zone="bulk")
    await bounce(home)
    (fault,) = apply.faults(home.queue, other(home, zones=[{"name": "default"}]))
    assert "1 recipients that have bounced are kept in it (queue.keep_bounced_s)" in fault


async def test_a_lost_key_comes_back_as_what_it_was(house: Make) -> None:
    home = await house(**KEPT)
    ident = await home.put("a@one.test", sender="")
    until_ms = home.queue.core.clock.steady_ms() + 3_600_000
    await bounce(home)
    await done(home, "requeue", where=AGAIN)
    row = (await home.queue.ask("tasks"))[0]
    await home.queue.ask("task-undo", id=row["id"])
    await ended(home, row, "undone")
    await home.rest()
    key = keys.bounced("default", until_ms, ident, "a@one.test")
    assert "a@one.test has bounced and is kept" in await lost_and_repaired(home, key)
    assert await people(home) == ["a@one.test"]


async def test_a_zone_that_is_gone_takes_it_along(house: Make) -> None:
    home = await house(**KEPT, zones=[{"name": "default"}, {"name": "bulk"}])
    await home.put("a@one.test", sender="", sending_zone="bulk")
    await bounce(home)
    home.options["zones"] = [{"name": "default"}]
    await home.crash()
    assert (await home.queue.ask("size"))["zones"]["default"]["bounced"] == 1
    await home.sound()
    await done(home, "requeue", where=AGAIN)
    await home.move(1)
    assert await sent_now(home) == ["a@one.test"]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "no power"])
@pytest.mark.parametrize("seed", range(2))
async def test_each_moment_survives_a_crash(house: Make, seed: int, power: bool) -> None:
    """Bounced, queued again, put back, queued again and sent, ended: killed after each, each is sent once."""
    die, sent = random.Random(seed), list[str]()
    home = await house(**KEPT)
    everybody = [f"p{number}@d{number % 3}.test" for number in range(60)]
    for at in range(0, 60, 10):
        await home.put(*everybody[at : at + 10], sender="")

    async def crash() -> None:
        if die.random() < 0.5:
            await home.rest()
        await home.crash(power=power, die=die)
        await home.sound()

    await bounce(home)
    await crash()
    assert await people(home) == sorted(everybody)
    row = await home.queue.ask("task", verb="requeue", where=AGAIN | {"domain": ["d0.test", "d1.test"]})
    await crash()
    row = await ended(home, row)
    assert row["done"] == 40
    await crash()
    await home.queue.ask("task-undo", id=row["id"])
    await crash()
    row = await ended(home, row, "undone")
    assert (row["undone"], await people(home)) == (40, sorted(everybody))
    await done(home, "requeue", where=AGAIN | {"domain": "d0.test"}, undo_s=0)
    await home.move(1)
    sent += await sent_now(home)
    await crash()
    assert sorted(sent) == sorted(one for one in everybody if one.endswith("d0.test"))
    await home.move(3601)
    await home.queue.maintenance.sweep()
    await crash()
    await sweep(home)
    assert (await home.sizes())["messages"] == 0
    assert await home.idle()
    await home.sound()


async def test_only_a_task_that_queues_it_again_is_taken(house: Make) -> None:
    home = await house(**KEPT)
    with pytest.raises(ValueError, match="can only be queued again"):
        await home.queue.ask("task", verb="delete", where=AGAIN)

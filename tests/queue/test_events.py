"""Events as a real queue makes them: each type from what leads to it, in order, whatever becomes of the process."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.queue.test_campaigns import batch, template, tick
from tests.queue.test_manners import ten_only
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event, encoded
from zonemta_py.events.schema import TYPES, json_schema
from zonemta_py.journal.records import Type
from zonemta_py.journal.tail import JournalTail
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED, RELEASED
from zonemta_py.queue.maintenance import configuration

VALID = Draft202012Validator(json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)


class Watch:
    """All events of a house's queue, each checked."""

    def __init__(self, home: Any) -> None:
        self.home, self.seq, self.all = home, 1, list[Event]()

    async def new(self) -> list[tuple[str, dict[str, Any]]]:
        await self.home.rest()
        tail = JournalTail(self.home.folder, self.seq)
        stable = await self.home.queue.ask("stable")
        found = [event for record in tail.read(stable, 10_000) for event in events_of(record)]
        tail.close()
        self.seq, self.all = tail.next_seq, self.all + found
        for event in found:
            VALID.validate(json.loads(encoded(event, "0a")))
            kind = TYPES[event.type]
            assert set(event.data) <= {*kind.certain, *kind.others}, event
        return [(event.type, event.data) for event in found]

    async def types(self) -> list[str]:
        return [kind for kind, _ in await self.new()]


@pytest.fixture
async def home(house: Callable[..., Any]) -> Any:
    zones = [{"name": "default", "default": True, "in_doubt": "retry"}, {"name": "bulk", "in_doubt": "hold"}]
    return await house(zones=zones, retry={"life_h": 1})


@pytest.fixture
def watch(home: Any) -> Watch:
    return Watch(home)


async def test_every_verdict(home: Any, watch: Watch) -> None:
    await home.put("a@x.test", "b@x.test", sender="", headers={"subject": "Hi"}, tenant="shop", campaign="spring")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, stage="rcpt")
    (accepted, about), (_, queued), (_, second), (_, tried), _, (deferred, first), _ = await watch.new()
    assert (accepted, about["recipients"], about["subject"], about["zones"]) == ("accepted", 2, "Hi", ["default"])
    assert (queued["recipient"], second["recipient"], tried["site"]) == ("a@x.test", "b@x.test", "x.test")
    assert (deferred, first["code"], first["campaign"], first["tenant"]) == ("deferred", 451, "spring", "shop")
    assert first["due_ms"] > home.clock.ms()
    for verdict, expected in [
        (RELEASED, "requeued"), (POSTPONED, "postponed"), (HELD, "held"),
    ]:  # fmt: skip
        await home.move(3000 if verdict == RELEASED else 0)
        (delivery,) = await home.leases()
        await home.settle(delivery, verdict, stage="limit", delay_s=0 if verdict == POSTPONED else None)
        assert (await watch.types()) == ["attempted"] * 2 + [expected] * 2
    await home.queue.ask("release", id=delivery.id)
    (released, about), _ = await watch.new()
    assert (released, about["campaign"], about["tenant"]) == ("released", "spring", "shop")
    (delivery,) = await home.leases()
    await home.settle(delivery, DELIVERED)
    *_, (_, first), (_, second), (_, last) = found = await watch.new()
    assert [kind for kind, _ in found] == ["attempted"] * 2 + ["delivered"] * 2 + ["finished"]
    assert (first["attempts"], second["attempts"], last["campaign"]) == (3, 3, "spring"), "deferred, held, delivered"
    assert {event.data["message"] for event in watch.all} == {delivery.id}


async def test_bounced_is_not_expired(home: Any, watch: Watch) -> None:
    await home.put("a@x.test", sender="")
    await home.settle((await home.leases())[0], BOUNCED, stage="rcpt", reply=Reply(550, "5.4.7", "we gave up"))
    assert (await watch.types())[-2:] == ["bounced", "finished"]
    await home.put("b@x.test", sender="")
    await home.move(2 * 3600)
    await home.settle((await home.leases())[0], DEFERRED, stage="connect")
    kinds = await watch.new()
    assert [kind for kind, _ in kinds[-2:]] == ["expired", "finished"]
    assert kinds[-2][1]["code"] == 451
    await home.queue.ask("stop", kind="zone", name="default")
    await home.put("c@x.test", sender="", deadline_ms=home.clock.ms() + 60_000, deadline_mode="R")
    await home.move(120)
    await home.queue.maintenance.deadlines()
    (kind, data), _ = (await watch.new())[-2:]
    assert (kind, data["enhanced"], data["stage"]) == ("expired", "5.4.7", "queue")


async def test_in_doubt_held_and_dropped(home: Any, watch: Watch) -> None:
    await home.put("a@x.test", sender="", sending_zone="bulk")
    await home.leases()
    await home.crash()
    kinds = await watch.new()
    (doubt, first), (held, second) = kinds[-2:]
    about = {"zone": "bulk", "recipient": "a@x.test", "site": "x.test"}
    assert (doubt, held) == ("in_doubt", "held")
    assert first.items() >= (about | {"action": "hold"}).items()
    assert second.items() >= (about | {"reason": "in doubt"}).items()
    await home.queue.ask("drop", id=kinds[-1][1]["message"])
    (removed, data), (finished, _) = await watch.new()
    assert (removed, finished, data["reason"]) == ("removed", "finished", "dropped by an operator")


async def test_people_and_policy(home: Any, watch: Watch) -> None:
    ask = home.queue.ask
    await ask("suppress", rows=[["eve@x.test", "complaint", "she called", "", "ann", "", 0, ""]])
    await ask("suppress", rows=[["dan@x.test", "manual", "", "", "ann", "", 0, "zone:bulk"]])
    assert await watch.new() == [
        ("suppressed", watch.all[0].data), ("feedback", watch.all[0].data), ("suppressed", watch.all[2].data),
    ]  # fmt: skip
    assert watch.all[2].data["zone"] == "bulk"
    await home.put("eve@x.test", sender="ann@src.test", tenant="shop")
    ((kind, data),) = await watch.new()
    assert (kind, data["sender"], data["tenant"]) == ("removed", "ann@src.test", "shop")
    assert data["reason"].startswith("suppressed")
    await ask("unsuppress", addresses=["eve@x.test"])
    await home.queue.suppression.tell_all()
    assert [kind for kind, _ in await watch.new()] == ["unsuppressed"], "the list that is written again is no news"
    await ask("stop", kind="destination", name="x.test", seconds=60, cause="they asked")
    await ask("lift", kind="destination", name="x.test")
    (stopped, data), (resumed, _) = await watch.new()
    assert (stopped, resumed, data["cause"], data["name"]) == ("suspended", "resumed", "they asked", "x.test")


async def test_campaigns(home: Any, watch: Watch) -> None:
    ask = home.queue.ask
    await ask("campaign-put", name="spring", sender="news@src.test", template=template(), tenant="shop", planned=5)
    assert await watch.new() == [
        ("campaign_begun", {"campaign": "spring", "tenant": "shop", "sender": "news@src.test", "planned": 5})
    ]
    await home.put_envelope(batch("ann@x.test", "bob@x.test"), b"")
    kinds = await watch.new()
    assert [(kind, data.get("campaign")) for kind, data in kinds] == [
        (kind, "spring") for kind in ("accepted", "queued", "queued")
    ]
    await ask("campaign-pause", name="spring", cause="wait")
    await ask("campaign-resume", name="spring")
    await ask("campaign-complete", name="spring")
    await ask("campaign-cancel", name="spring", cause="no")
    await tick(home)
    kinds = await watch.new()
    assert [kind for kind, _ in kinds][:4] == ["suspended", "resumed", "campaign_completed", "campaign_canceled"]
    assert [kind for kind, _ in kinds][4:] == ["removed", "removed", "finished"]
    assert all(data["campaign"] == "spring" for _, data in kinds)


async def test_what_is_learned(house: Callable[..., Any]) -> None:
    pool = {"name": "p", "sources": [{"address": "127.0.0.2", "warmup": "w"}]}
    home = await house(
        zones=[{"name": "default", "pool": "p", "connections": 500}],
        pools=[pool],
        warmups=[{"name": "w", "caps": [3000, 6000], "least": 1}],
    )
    watch = Watch(home)
    await home.put(*(f"r{number}@x.test" for number in range(20)), sender="")
    (delivery,) = await home.leases()
    await home.queue.settle(ten_only(delivery, stalled=True))
    for number in range(300):
        await home.put(f"s{number}@x.test", sender="")
    leased = await home.leases()
    for number, delivery in enumerate(leased[:-2]):
        await home.settle(delivery, DELIVERED)
        if number % 10 == 0:
            await home.move(1)
    for delivery, text in zip(leased[-2:], ("too many concurrent connections", "rate limit exceeded"), strict=True):
        await home.settle(delivery, DEFERRED, stage="rcpt", reply=Reply(451, "4.7.1", text))
    await home.queue.ask("warm", source="127.0.0.2", provider="x.test", step=2)
    await home.queue.ask("lift", kind="rate", name="127.0.0.2 x.test")
    found = await watch.new()
    by_type = dict(reversed(found))
    assert by_type["manner_changed"]["site"] == "x.test"
    assert by_type["warmup_changed"].items() >= {"source": "127.0.0.2", "provider": "x.test", "good_days": 1}.items()
    assert by_type["rate_changed"]["source"] == "127.0.0.2"
    assert (
        by_type["concurrency_changed"].items() >= {"zone": "default", "site": "x.test", "source": "127.0.0.2"}.items()
    )


async def test_a_damaged_message_and_a_clock_that_is_set(home: Any, watch: Watch) -> None:
    await watch.new()
    home.clock.set_s += 5000
    await home.move(1)
    await home.put("a@x.test", sender="")
    home.queue.core.clock.ms()
    kinds = await watch.types()
    assert "clock_set" in kinds
    assert "accepted" in kinds


async def test_a_configuration_that_has_changed(house: Callable[..., Any]) -> None:
    """Names only: no value, and no secret, is in the record or in the file."""
    home = await house(limits={"connections": 77})
    watch = Watch(home)
    assert await configuration.note(home.queue.core) == [], "the first start has nothing to compare"
    assert await watch.new() == []
    path = home.folder / configuration.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert await configuration.note(home.queue.core) == []
    home.options |= {"limits": {"connections": 78}, "zones": [{"name": "default", "default": True, "connections": 9}]}
    await home.crash()
    changed = await configuration.note(home.queue.core)
    assert "limits.connections" in changed
    assert "zones.default.connections" in changed
    (found,) = [data for kind, data in await watch.new() if kind == "configuration_changed"]
    assert found == {"changed": changed}
    assert set(json.loads(path.read_text())) == {"key", "hashes"}
    assert all(len(value) == 24 for value in json.loads(path.read_text())["hashes"].values())
    await home.crash()
    assert await configuration.note(home.queue.core) == ["server.folder"], "each crash here opens a copy elsewhere"
    path = home.folder / configuration.FILE
    path.write_text("{")
    assert await configuration.note(home.queue.core) == []
    assert json.loads(path.read_text())["hashes"]
    await home.sound()


async def test_stable_is_told_when_there_is_more(home: Any) -> None:
    """A question that waits costs no sync, but what nobody syncs is synced within a second or so."""
    await home.rest()
    core = home.queue.core
    before = core.disk.journal.stable_seq
    waiting = asyncio.ensure_future(home.queue.ask("stable", after=before, wait_s=20))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    core.disk.ledger.append(Type.FINISH, b"\x91\xa1x")
    assert await asyncio.wait_for(waiting, 60) == before + 1
    assert await home.queue.ask("stable", after=before) == before + 1
    assert await home.queue.ask("stable", after=before + 1, wait_s=0.1) == before + 1


async def test_a_crash_that_loses_what_was_not_stable_tells_no_event_of_it(home: Any, watch: Watch) -> None:
    """A power cut while a START was not on disk: its number goes to another record, and every id means one event."""
    for number in range(8):
        await home.put(f"a{number}@x.test", sender="")
        leases = await home.leases()
        if number % 2 and leases:
            await home.settle(leases[0], DELIVERED)
        await watch.new()
        await home.crash(power=True)
    await watch.new()
    again = JournalTail(home.folder)
    replayed = [event for record in again.read(watch.seq - 1, 10_000) for event in events_of(record)]
    again.close()
    assert replayed == watch.all, "a replay gives the same events with the same places"

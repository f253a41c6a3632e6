"""Recipients that a plugin drops at routing: accepted, removed at once, counted once, and named wherever mail is."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.test_campaigns import opened, row
from zonemta_py.disk import packing
from zonemta_py.events.derive import events_of
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import DELIVERED
from zonemta_py.queue.hooks import NoHooks, Routed

Make = Callable[..., Any]
WHY = "dropped: unwanted (plugin choosy, hook queue_route)"
BODY = b"Subject: hello\r\n\r\nHi\r\n"


class Choosy(NoHooks):
    """Drops by the recipient's local part."""

    routes = True

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        if routed.recipient.address.startswith("drop"):
            return dataclasses.replace(routed, drop=("choosy", "queue_route", "unwanted"))
        return routed


def of_journal(home: Any, kind: Type) -> list[Any]:
    """Bodies of the records of this type; the disk must be at rest."""
    found = segments.read(home.folder / "journal", 0, [], home.folder / "archive")
    return [packing.unpack(record.body) for record in found if record.type == kind]


def events(home: Any) -> list[Any]:
    found = segments.read(home.folder / "journal", 0, [], home.folder / "archive")
    return [event for record in found for event in events_of(record)]


async def counted(home: Any) -> dict[str, int]:
    """By the names of docs/METRICS.md, since the process began."""
    counters = (await home.queue.ask("metrics"))["counters"]

    def total(name: str, **labels: str) -> int:
        return sum(n for found, n in counters.get(name, []) if all(value in found for value in labels.values()))

    return {
        "accepted": total("zonemta_recipients_accepted_total"),
        "removed": total("zonemta_recipients_removed_total", reason="dropped"),
        "delivered": total("zonemta_answers_total", verdict="delivered"),
        "waiting": sum((await home.sizes()).values()),
    }


async def test_who_is_dropped_is_accepted_and_removed(house: Make) -> None:
    """The rest is sent. Counts, journal, event and story have who was dropped, by which plugin, at which hook, and
    why."""
    home = await house(hooks=Choosy())
    message = await home.put("ok@x.test", "drop1@x.test", "drop2@y.test")
    (delivery,) = await home.leases()
    assert [one.address for one in delivery.recipients] == ["ok@x.test"]
    await home.settle(delivery, DELIVERED)
    await home.rest()
    assert await counted(home) == {"accepted": 3, "removed": 2, "delivered": 1, "waiting": 0}
    removed = [(row[0], row[2], row[3], row[4]["by"]) for row in of_journal(home, Type.REMOVED)]
    by = ["choosy", "queue_route"]
    assert removed == [(message, ["drop1@x.test", "drop2@y.test"], WHY, by)]
    told = [one.data for one in events(home) if one.type == "removed"]
    assert {(one["recipient"], one["plugin"], one["hook"], one["reason"]) for one in told} == {
        ("drop1@x.test", *by, WHY), ("drop2@y.test", *by, WHY)
    }  # fmt: skip
    story = (await home.queue.ask("trace", what=message))["rows"]
    assert [row["what"] for row in story] == ["accepted", "removed", "attempt", "delivered", "ended"]
    assert story[1]["reason"] == WHY
    await home.sound()


async def test_all_of_a_message_are_dropped(house: Make) -> None:
    """The client hears of success; the message has its id, its story and its end, and nothing of it stays."""
    home = await house(hooks=Choosy())
    envelope = Envelope("a@b.test", [Recipient("drop@x.test")], len(BODY), request="k", digest="d", tenant="acme")
    receipt = await home.queue.accept(envelope, BODY)
    assert (receipt.accepted, receipt.repeated) == (1, False)
    await home.rest()
    again = await home.queue.accept(dataclasses.replace(envelope), BODY)
    assert (again.id, again.accepted, again.repeated) == (receipt.id, 1, True)
    assert await counted(home) == {"accepted": 1, "removed": 1, "delivered": 0, "waiting": 0}
    kinds = Counter(one.type for one in events(home))
    assert kinds == {"accepted": 1, "queued": 1, "removed": 1, "finished": 1}
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.sound()


async def test_who_is_dropped_and_suppressed_is_one_of_them(house: Make) -> None:
    """A plugin's word comes first; a message may have both, and nobody else."""
    home = await house(hooks=Choosy())
    rows = [[address, "manual", "", "", "", ""] for address in ("drop@x.test", "bob@x.test")]
    await home.queue.ask("suppress", rows=rows)
    envelope = Envelope("a@b.test", [Recipient("drop@x.test"), Recipient("bob@x.test")], len(BODY))
    receipt = await home.queue.accept(envelope, BODY)
    assert (receipt.accepted, receipt.suppressed) == (1, 1)
    await home.rest()
    assert {row[3]: row[2] for row in of_journal(home, Type.REMOVED)} == {
        WHY: ["drop@x.test"], "suppressed: manual": ["bob@x.test"]
    }  # fmt: skip
    await home.sound()


async def test_who_is_dropped_of_a_campaign(house: Make) -> None:
    """Of merged mail too; the campaign counts them as accepted and removed, so it can be complete."""
    home = await opened(house, "ok@x.test", "drop@x.test", hooks=Choosy())
    (delivery,) = await home.leases()
    await home.settle(delivery)
    await home.rest()
    assert await row(home, "accepted", "delivered", "removed", "waiting") == (2, 1, 1, 0)
    await home.sound()


async def test_what_is_dropped_is_no_account_s_mail(house: Make) -> None:
    """A quota is charged for what is sent."""
    home = await house(hooks=Choosy(), accounts=[{"name": "shop", "messages": ["2/d"]}])
    for _ in range(3):
        await home.put("drop@x.test", account="shop")
    await home.put("a@x.test", "drop@x.test", account="shop")
    await home.rest()
    [found] = await home.queue.ask("accounts")
    assert found["used"] == 1


@pytest.mark.parametrize("more", [{}, {"hold_until_ms": 1_700_000_600_000}])
async def test_who_is_dropped_does_not_wait(house: Make, more: dict[str, Any]) -> None:
    """Its zone may be suspended, or the message be for later: it is removed at once; the others wait."""
    home = await house(hooks=Choosy())
    await home.put("first@x.test")
    await home.queue.ask("stop", kind="zone", name="default", seconds=None, cause="rest")
    await home.put("ok@x.test", "drop@x.test", **more)
    await home.rest()
    assert [row["recipient"] for row in await home.listed()] == ["first@x.test", "ok@x.test"]
    assert [row[2] for row in of_journal(home, Type.REMOVED)] == [["drop@x.test"]]
    await home.sound()
    await home.crash()
    await home.queue.ask("lift", kind="zone", name="default")
    await home.move(1000)
    sent = {one.address for delivery in await home.leases() for one in delivery.recipients}
    assert sent == {"first@x.test", "ok@x.test"}


@pytest.mark.parametrize("recorded", [False, True])
async def test_a_crash_before_it_is_removed(house: Make, recorded: bool) -> None:
    """Whoever was dropped is never sent to, even if there are no plugins any more, and is removed and told once.
    recorded: the journal has the message and who was removed; else the batch alone is on disk."""
    home = await house(hooks=Choosy())
    await home.rest()
    writer = home.queue.core.disk.journal._writer
    write = writer.write

    def last(*arguments: Any) -> None:
        if recorded:
            write(*arguments)
        home.dead = True  # the store gets nothing more

    writer.write = last
    people = [Recipient("ok@x.test"), Recipient("drop@x.test")]
    await home.queue.accept(Envelope("a@b.test", people, len(BODY)), BODY)
    home.hooks = None
    await home.crash(drop=True)
    (delivery,) = await home.leases()
    assert [one.address for one in delivery.recipients] == ["ok@x.test"]
    await home.settle(delivery)
    for _ in range(2):
        await home.rest()
        assert [(row[2], row[3]) for row in of_journal(home, Type.REMOVED)] == [(["drop@x.test"], WHY)]
        assert Counter(one.type for one in events(home) if one.type != "attempted") == {
            "accepted": 1, "queued": 2, "removed": 1, "delivered": 1, "finished": 1
        }  # fmt: skip
        assert (await home.sizes())["messages"] == 0
        await home.sound()
        await home.crash()

"""What follows from what came back: figures, bounds, suppression, events; and nothing from what nothing proves."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.events.derive import events_of
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.logs.recorded import RecordedLines
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.feedback.consequences import FIGURES

Make = Callable[..., Any]
PATH = {"verp": "ret.src.test", "secret": "a secret of twenty or so"}
NOBODY = {"code": 550, "enhanced": "5.1.1", "text": "no such user"}


@pytest.fixture
async def home(house: Make) -> Any:
    return await house(return_path=PATH, suppression={"automatic": True})


async def sent(home: Any, *recipients: str, campaign: str = "spring", **more: Any) -> str:
    """Delivered."""
    message_id = await home.put(*recipients, campaign=campaign, tenant="acme", **more)
    for delivery in await home.leases():
        await home.settle(delivery)
    return str(message_id)


def came(message: str, kind: str = "bounce", recipient: str = "bob@x.test", **more: Any) -> Feedback:
    row = {"genuine": "token", "via": "smtp"} | (NOBODY if kind == "bounce" else {}) | more
    return Feedback(kind, recipient, message, **row)


async def listed(home: Any, address: str = "bob@x.test") -> dict[str, Any]:
    """The person's entries, by scope, once there is nothing left to decide."""
    await home.rest()
    for _ in range(1000):
        if not home.queue.policy._at_work:
            break
        await asyncio.sleep(0)
        await home.rest()
    return {row.scope: row for row in home.queue.suppression.every(address)}


async def figures(home: Any, name: str = "spring") -> dict[str, int]:
    row = await home.queue.ask("campaign", name=name)
    return {figure: row[figure] for figure in FIGURES.values() if row[figure]}


def happened(home: Any, *kinds: Type) -> list[Any]:
    rows = segments.read(home.folder / "journal", 0, [])
    return [row for row in rows if row.type in kinds]


async def test_each_kind_has_a_figure_and_counts_once(home: Any) -> None:
    """Whatever comes again; what nothing proves does not count, nor does what is only known to be of no campaign."""
    one = await sent(home, "bob@x.test")
    rows = [came(one, kind) for kind in FIGURES]
    assert await home.queue.feedback(rows) == [True] * len(FIGURES)
    assert await home.queue.feedback(rows) == [False] * len(FIGURES)
    await home.queue.feedback([came(one, kind, "cid@x.test", genuine="") for kind in FIGURES])
    await home.queue.feedback([came(one, "delay"), came(one, "other"), came("", "complaint", "dan@x.test")])
    assert await figures(home) == dict.fromkeys(FIGURES.values(), 1)
    await home.sound()


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
async def test_a_crash_counts_each_once(home: Any, power: bool) -> None:
    """Figures and names are in one batch: whichever reached the disk, the journal makes up for."""
    one = await sent(home, *(f"r{number}@x.test" for number in range(30)))
    await home.rest()
    for turn in range(3):
        rows = [came(one, "complaint", f"r{turn * 10 + number}@x.test") for number in range(10)]
        await home.queue.feedback(rows[:5])
        tasks = [asyncio.ensure_future(home.queue.feedback([row])) for row in rows]
        for _ in range(turn * 3):
            await asyncio.sleep(0)
        await home.crash(power=power, drop=bool(turn % 2))
        for task in tasks:
            task.cancel()
        await home.queue.feedback(rows)
        assert await figures(home) == {"complaints": (turn + 1) * 10}
    assert len(await listed(home, "r7@x.test")) == 1
    await home.sound()


async def test_bounces_that_come_later_pass_the_bound_on_bounces(house: Make) -> None:
    """And pause what is still to go: the recipients were delivered, and count as attempts once."""
    home = await house(return_path=PATH, queue={"campaign_bounds": {"least": 10, "bounced": 0.2}})
    one = await sent(home, *(f"r{number}@x.test" for number in range(20)))
    await home.put("later@x.test", campaign="spring", tenant="acme", hold_until_ms=home.clock.ms() + 3_600_000)
    await home.queue.feedback([came(one, recipient=f"r{number}@x.test") for number in range(4)])
    home.queue.campaign_commands.tick()
    assert (await home.queue.ask("campaign", name="spring"))["state"] == "running"
    await home.queue.feedback([came(one, recipient="r4@x.test")])
    home.queue.campaign_commands.tick()
    row = await home.queue.ask("campaign", name="spring")
    assert (row["state"], row["cause"]) == ("paused", "5 of 20 attempts bounced (25.0%), the bound is 20.0%")


async def test_a_bounce_that_is_agreed_suppresses_and_stops_what_waits(home: Any) -> None:
    """The entry's evidence names the record; mail that waited is removed when its turn comes."""
    one = await sent(home, "bob@x.test")
    waits = await home.put("bob@x.test", "cid@x.test", campaign="spring")
    assert await home.queue.feedback([came(one)]) == [True]
    (entry,) = (await listed(home)).values()
    assert (entry.kind, entry.scope, entry.by) == ("hard-bounce", "all", "policy")
    (record,) = happened(home, Type.FEEDBACK)
    assert f"journal:{record.seq} 550 5.1.1 no such user" in entry.evidence
    assert [one.address for delivery in await home.leases() for one in delivery.recipients] == ["cid@x.test"]
    assert home.queue.core.messages.get(waits).left == 1


async def test_bounces_come_back_while_a_campaign_goes_out(home: Any) -> None:
    """In short what scripts/trials/loop does: between two leases some people bounce, and none of them is leased."""
    people = [f"ann@p{number}.test" for number in range(120)]
    first = await sent(home, *people)
    for at in range(0, len(people), 20):
        await home.put(*people[at : at + 20], campaign="spring", sender="news@src.test")
    bounced, got = set[str](), list[str]()
    for turn in range(12):
        some = people[119 - 5 * turn : 114 - 5 * turn : -1]
        await asyncio.gather(*(home.queue.feedback([came(first, recipient=one)]) for one in some))
        assert await listed(home, some[-1])
        bounced |= set(some)
        for delivery in await home.lease(3):
            found = [one.address for one in delivery.recipients]
            assert not bounced.intersection(found)
            got += found
            await home.settle(delivery)
    for delivery in await home.leases():
        got += [one.address for one in delivery.recipients]
        await home.settle(delivery)
    assert len(got) == len(set(got))
    assert set(people) - bounced <= set(got)
    assert await figures(home) == {"bounced_later": 60}
    await home.sound()


async def test_a_complaint_and_an_unsubscribe_suppress_at_once(home: Any) -> None:
    """The one from all mail, the other from its scope; a delay, an absence and a soft bounce nobody."""
    one = await sent(home, "bob@x.test")
    await home.queue.feedback([came(one, "complaint"), came(one, "unsubscribe", "cid@x.test")])
    await home.queue.feedback([came(one, "unsubscribe", "dan@x.test", scope="campaign:spring")])
    full = {"code": 452, "enhanced": "4.2.2", "text": "mailbox full"}
    await home.queue.feedback([came(one, kind, "eve@x.test", **full) for kind in ("delay", "auto-reply", "bounce")])
    assert list(await listed(home)) == ["all"]
    assert list(await listed(home, "cid@x.test")) == ["campaigns:acme"]
    assert list(await listed(home, "dan@x.test")) == ["campaign:spring"]
    assert await listed(home, "eve@x.test") == {}


@pytest.mark.parametrize("kind", ["bounce", "complaint", "unsubscribe"])
async def test_what_nothing_proves_is_recorded_and_followed_by_nothing(home: Any, kind: str) -> None:
    """Anybody can write a report."""
    one = await sent(home, "bob@x.test")
    assert await home.queue.feedback([came(one, kind, genuine="")]) == [True]
    assert await listed(home) == {}
    assert await figures(home) == {}
    assert len(home.queue.feedback_register.of(one)) == 1


async def test_who_unsubscribes_again_by_the_same_link_is_unsubscribed(home: Any) -> None:
    """Although that was known: an operator had taken them off. It is not counted again, nor told."""
    one = await sent(home, "bob@x.test")
    row = came(one, "unsubscribe", via="link")
    assert await home.queue.feedback([row]) == [True]
    assert list(await listed(home)) == ["campaigns:acme"]
    assert await home.queue.feedback([row]) == [False]
    assert len(happened(home, Type.FEEDBACK)) == 1
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    assert await listed(home) == {}
    assert await home.queue.feedback([row]) == [False]
    assert list(await listed(home)) == ["campaigns:acme"]
    assert await figures(home) == {"unsubscribes": 1}
    assert [len(events_of(record)) for record in happened(home, Type.FEEDBACK)] == [1, 0]
    await home.sound()


async def test_it_is_told_once_as_an_event_and_as_a_line(home: Any) -> None:
    """The suppression that follows from it is told as that alone; one that an operator enters, as both."""
    one = await sent(home, "bob@x.test")
    await home.queue.feedback([came(one, "complaint", reporter="mx.x.test", form="arf")])
    await home.queue.ask("suppress", rows=[["eve@x.test", "complaint", "she called", "", "ann", "", 0, ""]])
    await listed(home)
    rows = happened(home, Type.FEEDBACK, Type.SUPPRESS)
    told = [(event.type, event.data["recipient"]) for row in rows for event in events_of(row)]
    assert sorted(told) == [
        ("feedback", "bob@x.test"), ("feedback", "eve@x.test"),
        ("suppressed", "bob@x.test"), ("suppressed", "eve@x.test"),
    ]  # fmt: skip
    (event,) = events_of(happened(home, Type.FEEDBACK)[0])
    assert event.data == {
        "kind": "complaint", "message": one, "zone": "default", "campaign": "spring", "tenant": "acme",
        "reporter": "mx.x.test", "form": "arf", "via": "smtp", "genuine": "token", "tied": "token",
        "recipient": "bob@x.test", "domain": "x.test",
    }  # fmt: skip
    ((message, fields),) = RecordedLines().of(happened(home, Type.FEEDBACK)[0])
    assert message == "came back"
    assert fields == {
        "id": one, "zone": "default", "recipient": "bob@x.test", "kind": "complaint", "campaign": "spring",
        "reporter": "mx.x.test", "via": "smtp", "genuine": "token",
    }  # fmt: skip


async def test_a_person_who_is_erased_is_forgotten_here_too(home: Any) -> None:
    """Row and names; and a check makes nothing of it again from the journal."""
    one = await sent(home, "bob@x.test", "cid@x.test")
    rows = [came(one), came(one, recipient="cid@x.test"), came(one, recipient="", text="<Bob@x.test> is unknown")]
    await home.queue.feedback(rows)
    await home.rest()
    await home.queue.ask("forget", address="bob@x.test")
    await home.rest()
    store = home.queue.core.disk.store
    left = [value for key, value in store.scan(b"feedback", b"feedback~") if b"bob@x.test" in value.lower()]
    assert left == []
    assert [row["recipient"] for row in home.queue.feedback_register.of(one)] == ["cid@x.test"]
    await home.sound()
    await home.move(22 * 86_400)
    await home.queue.sweep()
    await home.rest()
    assert store.first(keys.FEEDBACK, keys.end(keys.FEEDBACK_OF)) is None


def test_a_record_of_a_newer_queue_is_read() -> None:
    """And one that is none gives no event."""
    record = FeedbackRecord("bounce", "bob@x.test")
    assert FeedbackRecord.of([*record, "more"]) == record
    with pytest.raises(ValueError, match="not feedback"):
        FeedbackRecord.of(["bounce"])


@pytest.mark.parametrize(
    "more",
    [
        {"text": "no such user (reported for leaver@y.test)"},  # who is one of those to whom bob's mail goes
        {"text": "no such user <news@src.test>"},  # our own address
        {"quoted": False},  # in words alone: the reader has made up the code
    ],
)
async def test_one_bounce_is_not_enough_where_it_quotes_no_code_or_names_somebody_else(
    home: Any, more: dict[str, Any]
) -> None:
    await home.queue.feedback([came(await sent(home, "bob@x.test"), **more)])
    assert await listed(home) == {}
    assert (await figures(home))["bounced_later"] == 1

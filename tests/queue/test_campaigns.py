"""Campaigns: one template, many recipients, counters that are exact at whatever instant it crashes."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD, POSTPONED, Delivery, Outcome, QueueRefusal, Result

Make = Callable[..., Any]
BLOCKED = Reply(550, "5.7.1", "Message rejected as spam")


def template(text: str = "Hi {{ name }}\n") -> bytes:
    return prepare(TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text(text))).pack()


def batch(*addresses: str, campaign: str = "spring", **more: Any) -> Envelope:
    people = [Recipient(address, values=[address.partition("@")[0].title()]) for address in addresses]
    return Envelope("", people, columns=["name"], campaign=campaign, received_ms=1_700_000_000_000, **more)


async def opened(house: Make, *addresses: str, settings: dict[str, Any] | None = None, **options: Any) -> Any:
    """A house with a campaign, and a batch for these addresses."""
    home = await house(**options)
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=template(), **(settings or {}))
    if addresses:
        await home.queue.accept(batch(*addresses), b"")
    return home


async def row(home: Any, *figures: str) -> tuple[Any, ...]:
    await home.rest()
    found = await home.queue.ask("campaign", name="spring")
    return tuple(found[figure] for figure in figures)


def refused(home: Any, delivery: Delivery, verdict: int, reply: Reply) -> Result:
    outcome = Outcome(verdict, reply, "mail", list(range(len(delivery.recipients))))
    return Result(delivery.lease, [outcome], remote="mx.test[127.0.0.9]:25")


async def tick(home: Any) -> None:
    """A second's chores, until nothing is left of them."""
    while home.queue.campaign_commands.tick():
        await home.rest()
    await home.rest()


# -- put


async def test_the_same_campaign_twice_is_one(house: Make) -> None:
    """Put again with the same content it is a success; with any other a sentence says so."""
    home = await house()
    ask = {"name": "spring", "sender": "news@src.test", "template": template()}
    first, second = await asyncio.gather(*(home.queue.ask("campaign-put", **ask) for _ in range(2)))
    assert [first, second] == [{"created": True}, {"created": False}]
    settings, text = "other settings, which stay; choose another name", "another template, which stays; suspend it"
    for other, said in (
        ({"sender": "other@src.test"}, settings),
        ({"template": template("Bye {{ name }}\n")}, text),
        ({"planned": 5}, settings),
    ):
        with pytest.raises(ValueError, match=f"already exists with {said}"):
            await home.queue.ask("campaign-put", **ask | other)
    assert [one["name"] for one in await home.queue.ask("campaigns")] == ["spring"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "a b"}, "not a valid name; use up to 63 letters"),
        ({"tenant": "a~b"}, "not a valid name; use up to 63 letters"),
        ({"zone": "nowhere"}, "there is no zone 'nowhere'; there are default"),
        ({"priority": 10}, "the priority is 10; use -9 to 9"),
        ({"life_h": 0}, "life_h is 0"),
        ({"template": b"\x90"}, "this is not a template"),
        ({"template": b""}, "this is not a template"),
        ({"template": TemplateSource("t", Text("s"), Text("a@b.c"), text=Text("x")).pack()}, "not prepared"),
        ({"notify": "often"}, "there is no notify 'often'; use remote, never, failure"),
        ({"bounds": {"soft": 1}}, "there is no bound 'soft'; use least, deferred"),
        ({"bounds": {"blocked": 5}}, "write a share from 0 to 1"),
        ({"bounds": {"blocked": "5"}}, "write a number"),
    ],
)
async def test_a_campaign_that_makes_no_sense_is_refused(house: Make, wrong: dict[str, Any], sentence: str) -> None:
    """Each with one sentence that says what to do; nothing is kept."""
    home = await house()
    with pytest.raises(ValueError, match=sentence):
        await home.queue.ask("campaign-put", **{"name": "spring", "sender": "a@b.c", "template": template()} | wrong)
    assert await home.queue.ask("campaigns") == []


async def test_a_large_template_comes_back_as_it_was(house: Make) -> None:
    """In as many chunks as it takes, also after a crash."""
    home = await house()
    large = template("".join(f"{random.Random(n).randbytes(50).hex()}\n" for n in range(9000)))
    await home.queue.ask("campaign-put", name="spring", sender="a@b.c", template=large)
    await home.crash(power=True)
    assert await home.queue.template("spring") == large
    with pytest.raises(QueueRefusal):
        await home.queue.template("summer")


# -- merged messages


async def test_each_recipient_is_delivered_alone(house: Make) -> None:
    """However many share a destination: each with its own values, and all that rendering needs; no body is stored."""
    home = await opened(house, "ann@x.test", "bob@x.test", settings={"tenant": "shop", "priority": 3})
    first, second = await home.leases()
    assert [(one.recipients[0].address, one.values, len(one.recipients)) for one in (first, second)] == [
        ("ann@x.test", [["Ann"]], 1), ("bob@x.test", [["Bob"]], 1),
    ]  # fmt: skip
    assert (first.columns, first.chunks, first.body, first.received_ms) == (["name"], 0, None, 1_700_000_000_000)
    assert (first.sender, first.tenant, first.campaign, first.priority) == ("news@src.test", "shop", "spring", 3)
    assert first.template == home.queue.core.campaigns.get("spring").template
    assert [key for key in home.queue.core.disk.store.keys(b"message ", b"message!") if key[-1:].isdigit()] == []
    for delivery in (first, second):
        await home.settle(delivery)
    await home.sound()
    assert (await home.sizes())["messages"] == 0


async def test_a_template_without_fields_is_merged_too(house: Make) -> None:
    """No columns and no values are what it is filled with."""
    home = await opened(house)
    await home.queue.accept(Envelope("", [Recipient("ann@x.test", values=[])], campaign="spring"), b"")
    (delivery,) = await home.leases()
    assert (delivery.values, delivery.columns, delivery.chunks) == ([[]], [], 0)
    await home.settle(delivery)
    await home.sound()


@pytest.mark.parametrize(
    ("envelope", "sentence"),
    [
        (batch("ann@x.test", campaign="summer"), "there is no campaign 'summer', create it first"),
        (batch("ann@x.test", source="127.0.0.7"), "zone 'default' does not send from 127.0.0.7"),
        (Envelope("", [Recipient("ann@x.test", values=["a", "b"])], columns=["name"], campaign="spring"), "1 values"),
        (Envelope("", [Recipient("ann@x.test")], columns=["name"], campaign="spring"), "needs 1 values"),
    ],
)
async def test_a_batch_that_cannot_be_merged_is_refused(house: Make, envelope: Envelope, sentence: str) -> None:
    """554 5.5.0 with the reason, and nothing of it is counted."""
    home = await opened(house)
    with pytest.raises(QueueRefusal, match=f"554 5.5.0 .*{sentence}"):
        await home.queue.accept(envelope, b"")
    assert await row(home, "accepted", "waiting") == (0, 0)


async def test_a_source_that_the_zone_has_is_taken(house: Make) -> None:
    """Every recipient goes out from there."""
    zones = [{"name": "default", "sources": ["127.0.0.7", "127.0.0.8"]}]
    home = await opened(house, zones=zones)
    await home.queue.accept(batch("ann@x.test", "bob@y.test", source="127.0.0.8"), b"")
    assert {delivery.source for delivery in await home.leases()} == {"127.0.0.8"}


async def test_the_values_are_not_in_the_journal(house: Make) -> None:
    """The archive is kept for weeks and read by many: it names who got mail, and not what was known of them."""
    home = await opened(house)
    people = [Recipient("ann@x.test", values=["Geheim"])]
    await home.queue.accept(Envelope("", people, columns=["name"], campaign="spring", request="r1", digest=b"d"), b"")
    (delivery,) = await home.leases()
    await home.settle(delivery)
    await home.rest()
    written = b"".join(path.read_bytes() for path in (home.folder / "journal").iterdir())
    assert b"Geheim" not in written
    rows = [packing.unpack(r.body) for r in segments.read(home.folder / "journal") if r.type == Type.ENVELOPE]
    assert {name: rows[0][1][name] for name in ("campaign", "columns")} == {"campaign": "spring", "columns": ["name"]}


async def test_a_life_shorter_than_the_queues_ends_its_recipients(house: Make) -> None:
    """life_h after they came they are given up, and counted as bounced."""
    home = await opened(house, "ann@x.test", settings={"life_h": 2})
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.move(3 * 3600)
    await home.rest()
    await home.leases()
    assert await row(home, "deferred", "bounced", "waiting") == (1, 1, 0)


# -- the counters


async def test_the_tally_counts_every_result_once(house: Make) -> None:
    """Attempts put off, blocks by class, recipients that ended: and what is accepted less what ended, waits."""
    home = await opened(house, *(f"r{number}@x{number}.test" for number in range(7)))
    leased = await home.leases()
    await home.settle(leased[0])
    await home.settle(leased[1], DEFERRED)
    await home.settle(leased[2], BOUNCED)
    await home.queue.settle(refused(home, leased[3], BOUNCED, BLOCKED))
    await home.settle(leased[4], HELD)
    await home.settle(leased[5], POSTPONED, delay_s=60)
    figures = "accepted", "delivered", "deferred", "bounced", "blocked", "removed", "waiting"
    assert await row(home, *figures) == (7, 1, 1, 2, 1, 0, 4)
    await home.queue.ask("drop", id=leased[4].id)
    assert await row(home, *figures) == (7, 1, 1, 2, 1, 1, 3)
    await home.sound()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_the_tally_is_exact_after_any_crash(house: Make, power: bool, seed: int) -> None:
    """Whatever had reached the store: counters and recipients agree, and no result is counted twice or not at all."""
    die = random.Random(seed)
    home = await opened(house, *(f"r{number}@x{number % 7}.test" for number in range(60)))
    expected = {"delivered": 0, "deferred": 0, "bounced": 0, "blocked": 0}
    for _ in range(4):
        for delivery in await home.leases(die.randint(1, 15)):
            kind = die.choice(["delivered", "deferred", "bounced", "blocked", "lost"])
            if kind == "lost" or delivery.values is None:  # no answer; a notification
                continue
            if kind == "blocked":
                expected["bounced"] += 1
                await home.queue.settle(refused(home, delivery, BOUNCED, BLOCKED))
            else:
                verdict = {"delivered": 1, "deferred": DEFERRED, "bounced": BOUNCED}[kind]
                await home.settle(delivery, verdict)
            expected[kind] += 1
        await home.crash(power, die, drop=die.random() < 0.5)
    found = asdict(home.queue.core.campaigns.tally("spring"))
    assert {name: found[name] for name in expected} == expected
    ended = expected["delivered"] + expected["bounced"]
    assert await row(home, "accepted", "waiting") == (60, 60 - ended)
    await home.sound()


async def test_a_batch_that_the_crash_cost_is_not_counted(house: Make) -> None:
    """It was never acknowledged: neither recipients nor counters include it."""
    home = await opened(house, "ann@x.test")
    await home.rest()
    home.dead = True
    put = asyncio.ensure_future(home.queue.accept(batch("bob@x.test"), b""))
    await asyncio.sleep(0)
    await home.crash(drop=True)
    put.cancel()
    assert await row(home, "accepted", "waiting") == (1, 1)
    await home.sound()


# -- thresholds and history


async def test_a_bound_pauses_by_itself(house: Make) -> None:
    """With figure and bound as its cause; after it is resumed it counts afresh."""
    bounds = {"least": 4, "blocked": 0.25}
    home = await opened(house, *(f"r{number}@x{number}.test" for number in range(9)), settings={"bounds": bounds})
    leased = await home.leases(4)
    for delivery in leased[:2]:
        await home.queue.settle(refused(home, delivery, BOUNCED, BLOCKED))
    await tick(home)
    assert await row(home, "state") == ("running",)
    for delivery in leased[2:4]:
        await home.settle(delivery)
    await tick(home)
    cause = "2 of 4 attempts were blocked (50.0%), the bound is 25.0%"
    assert await row(home, "state", "cause") == ("paused", cause)
    await home.crash(power=True)
    assert await row(home, "state", "cause") == ("paused", cause)
    await home.queue.ask("campaign-resume", name="spring", cause="mended")
    await tick(home)
    assert await row(home, "state") == ("running",)


async def test_the_course_is_followed_and_bounded(house: Make) -> None:
    """Waiting and delivered over time: at most 240 points, however long it takes; some survive a crash."""
    home = await opened(house, *(f"r{number}@x{number}.test" for number in range(600)))
    while leased := await home.leases():
        for delivery in leased:
            await home.settle(delivery)
            await home.move(1)
            home.queue.campaign_commands.tick()
    await home.rest()
    found = await home.queue.ask("campaign", name="spring")
    assert 100 < len(found["history"]) <= 240
    assert [point[1:] for point in (found["history"][0], found["history"][-1])] == [[0, 0], [0, 600]]
    assert found["history"][0][0] == found["created_ms"]
    assert found["rate_per_s"] == pytest.approx(1, abs=0.1)
    await home.crash()
    again = (await home.queue.ask("campaign", name="spring"))["history"]
    assert len(again) > 50
    assert again[0] == found["history"][0]


async def test_the_course_begins_with_the_campaign(house: Make) -> None:
    """Not with the first look at it, which may be as late as a busy machine makes it: one point says nobody waits."""
    home = await opened(house, "ann@x.test", "bob@x.test")
    begun_ms = home.clock.ms()
    await home.move(60)
    before = (await home.queue.ask("campaign", name="spring"))["history"]
    await tick(home)
    found = (await home.queue.ask("campaign", name="spring"))["history"]
    assert before == [[begun_ms, 0, 0], [begun_ms + 60_000, 2, 0]]
    assert found[:2] == [[begun_ms, 0, 0], [begun_ms + 60_000, 2, 0]]


# -- fsck


async def test_fsck_finds_a_wrong_tally_and_a_torn_template(house: Make) -> None:
    """Both are reported; the counters are recounted."""
    home = await opened(house, "ann@x.test", "bob@x.test")
    await home.rest()
    home.queue.core.campaigns.counters.add("spring", "delivered")
    home.queue.core.disk.lines.submit([(keys.template("spring", 1), None)], lambda _: None, sync=True, keep=True)
    await home.rest()
    home.abandon()
    found = [problem.what for problem in home.check(repair=True).problems]
    assert found == ["a campaign has lost 1 chunks of its template", "the counters say 1 wait, 2 found"]
    assert home.check().problems == [], "it has been said, and the campaign stands still until it has a text again"
    await home.open()
    assert await row(home, "waiting", "accepted", "state") == (2, 3, "paused")


async def test_a_bounce_tells_the_sender_where_that_was_asked_for(house: Make) -> None:
    """As of any message; there is no copy of what was sent to return."""
    home = await opened(house, "ann@x.test", "bob@x.test", settings={"notify": "failure"})
    leased = await home.leases()
    await home.settle(leased[0], BOUNCED)
    (notice,) = [one for one in await home.leases() if one.values is None]
    assert (notice.sender, notice.recipients[0].address) == ("", "news@src.test")
    assert b"ann@x.test" in notice.body
    await home.settle(notice)
    await home.settle(leased[1])
    assert await row(home, "accepted", "bounced", "delivered", "waiting") == (2, 1, 1, 0)
    await home.sound()


@pytest.mark.parametrize(("notify", "asked"), [("remote", 0), ("never", int(Notify.NEVER)), ("failure", 0)])
async def test_who_tells_the_return_path(house: Make, notify: str, asked: int) -> None:
    """Results are in the journal: we are silent unless asked; others are asked for silence with never."""
    home = await opened(house, "ann@x.test", settings={"notify": notify})
    await home.crash()
    (delivery,) = await home.leases()
    assert delivery.recipients[0].notify == asked
    await home.settle(delivery, BOUNCED)
    assert len(await home.leases()) == (notify == "failure")
    await home.crash()
    assert (await home.queue.ask("campaign", name="spring"))["notify"] == notify
    assert await row(home, "bounced", "waiting") == (1, 0)


async def test_what_a_recipient_asks_for_stands(house: Make) -> None:
    """A batch that says itself who wants to hear is obeyed."""
    home = await opened(house)
    people = [Recipient("ann@x.test", int(Notify.FAILURE), values=[])]
    await home.queue.accept(Envelope("", people, campaign="spring"), b"")
    (delivery,) = await home.leases()
    assert delivery.recipients[0].notify == Notify.FAILURE
    await home.settle(delivery, BOUNCED)
    assert [one.sender for one in await home.leases()] == [""]


async def test_show_says_that_each_has_his_own(house: Make) -> None:
    """There is no header that would be everybody's."""
    home = await opened(house)
    message_id = (await home.queue.accept(batch("ann@x.test"), b"")).id
    shown = await home.queue.ask("show", id=message_id)
    assert shown["header"] == "(each recipient's own, made from the template of campaign spring)"


async def test_fsck_names_a_merged_recipient_whose_key_is_gone(house: Make) -> None:
    """The values were nowhere else: the request must be repeated, and the counters show the loss."""
    home = await opened(house)
    message_id = (await home.queue.accept(batch("ann@x.test", "bob@x.test", "cid@x.test"), b"")).id
    await home.rest()
    home.queue.core.disk.lines.submit(
        [(keys.fresh("default", message_id, "bob@x.test"), None)], lambda _: None, sync=True, keep=True
    )
    await home.rest()
    home.abandon()
    problems = home.check(repair=True).problems
    (damage,) = [str(problem) for problem in problems if problem.severity == "damage"]
    assert damage == f"bob@x.test is lost from a merged message ({message_id}): make its request again"
    assert "the counters say 3 wait, 2 found" in [problem.what for problem in problems]
    await home.open()
    for delivery in await home.leases():
        await home.settle(delivery)
    assert await row(home, "accepted", "delivered", "removed", "waiting") == (3, 2, 1, 0)


async def test_what_says_when_a_campaign_has_ended(house: Make) -> None:
    """Of those that were put: when, with what, and what has come back since."""
    home = await opened(house, "ann@x.test")
    before = await home.queue.ask("campaign-ends")
    assert [(one["name"], one["accepted"], one["ended_ms"], one["returned"]) for one in before] == [("spring", 1, 0, 0)]
    await home.queue.ask("campaign-cancel", name="spring")
    await tick(home)
    (after,) = await home.queue.ask("campaign-ends", name="spring")
    assert after["ended_ms"] >= after["created_ms"]
    assert after["seq"] <= home.queue.core.disk.journal.next_seq
    assert after["tenant"] == "*"
    assert await home.queue.ask("campaign-ends", name="winter") == []

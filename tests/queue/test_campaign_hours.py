"""Campaigns that keep their time: each recipient in their own hours, whatever is paused, killed or set meanwhile."""

import datetime
import random
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.queue.lives import seeds
from tests.queue.test_campaigns import opened, row, template, tick
from tests.queue.test_clock import HOUR, lived, swept
from zonemta_py.disk import keys
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import DEFERRED, QueueRefusal

Make = Callable[..., Any]
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
MARCH = datetime.datetime(2024, 3, 28, 20, tzinfo=datetime.UTC).timestamp()
"""A Thursday; in the night to Sunday clocks go forward in Berlin."""
BY_COLUMN = {"time_zone": "UTC", "time_zone_column": "zone"}


def batch(**people: str) -> Envelope:
    """name → time zone, as it is in the list."""
    rows = [Recipient(f"{name}@x.test", values=[name, zone]) for name, zone in people.items()]
    return Envelope("", rows, columns=["name", "zone"], campaign="spring")


async def timed(house: Make, at_s: float = MARCH, life_h: float = 168, options: Any = None, **hours: str) -> Any:
    """A house at that time with a campaign of these hours."""
    home = await house(**(options or {}))
    await home.move(at_s - home.clock.now_s)
    settings = {"name": "spring", "sender": "news@src.test", "template": template(), "life_h": life_h}
    await home.queue.ask("campaign-put", hours=hours, **settings)
    return home


def local(home: Any, zone: str) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(home.clock.ms() / 1000, ZoneInfo(zone))


async def sent(home: Any, most: int = 1000) -> list[str]:
    """Delivers what may go now; their names."""
    found = (await home.leases(most))[:most]
    for delivery in found:
        await home.settle(delivery)
    return sorted(one.address.partition("@")[0] for delivery in found for one in delivery.recipients)


async def until(home: Any, text: str) -> None:
    """Time passes until then, UTC."""
    await home.rest()
    await home.move(datetime.datetime.fromisoformat(f"{text}+00:00").timestamp() - home.clock.now_s)


# -- the promise


@pytest.mark.parametrize("seed", seeds(1))
async def test_four_time_zones_and_a_pause_of_three_days(house: Make, seed: int) -> None:
    """Each between nine and five of their own clocks, also where these go forward meanwhile; nobody expires, although
    they live for 12 hours of being allowed to go; nobody gets it twice; a kill or power cut every few hours."""
    die = random.Random(seed)
    home = await timed(house, at="2024-03-29", window="09:00-17:00", life_h=12, **BY_COLUMN)
    people = {f"r{number}": ZONES[number % 4] for number in range(60)}
    for first in range(0, 60, 20):
        await home.queue.accept(batch(**dict(list(people.items())[first : first + 20])), b"")
    got = list[str]()
    for hour in range(6 * 24):
        if hour in (16, 16 + 72):
            await home.queue.ask("campaign-pause" if hour == 16 else "campaign-resume", name="spring")
        leased = await home.leases(3)
        for delivery in leased[:2]:
            names = [one.address.partition("@")[0] for one in delivery.recipients]
            assert not 16 <= hour < 88, "it is paused"
            for name in names:
                there = local(home, people[name])
                assert 9 <= there.hour < 17, f"{name} at {there}"
            if die.random() < 0.3:
                await home.settle(delivery, DEFERRED)
            else:
                await home.settle(delivery)
                got += names
        for delivery in leased[2:]:
            home.queue.leases.take_back(home.queue.leases.out[delivery.lease])
        await home.rest()
        await home.move(HOUR)
        if die.random() < 0.2:
            await home.crash(power=die.random() < 0.5, die=die)
        await swept(home)
        await tick(home)
    assert sorted(got) == sorted(people)
    assert await row(home, "delivered", "bounced", "removed", "waiting") == (60, 0, 0, 0)
    await home.sound()


async def test_nine_oclock_is_nine_oclock_everywhere(house: Make) -> None:
    """From 20:00 UTC on, the next nine o'clock of each: first in Sydney, which has next morning already."""
    home = await timed(house, at="09:00", **BY_COLUMN)
    await home.queue.accept(batch(**{zone.rpartition("/")[2]: zone for zone in ZONES}, lost="Nowhere/At_All"), b"")
    went = {}
    for _ in range(26):
        for name in await sent(home):
            went[name] = datetime.datetime.fromtimestamp(home.clock.ms() / 1000, datetime.UTC).strftime("%d %H:%M")
        await home.rest()
        await home.move(HOUR / 2 if home.clock.now_s < MARCH + 8 * HOUR else HOUR)
    assert went == {
        "Sydney": "28 22:00", "Kolkata": "29 03:30", "Berlin": "29 08:00", "lost": "29 09:00", "New_York": "29 13:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("day", "at", "goes"),
    [
        ("2024-03-31", "02:30", "01:00"),  # clocks go from 02:00 to 03:00: when they do so
        ("2024-10-27", "02:30", "00:30"),  # and from 03:00 back to 02:00: the first time
        ("2024-10-27", "03:30", "02:30"),
    ],
)
async def test_hours_left_out_and_hours_that_come_twice(house: Make, day: str, at: str, goes: str) -> None:
    """In Berlin; times are UTC. Once each."""
    start = datetime.datetime.fromisoformat(f"{day}T00:00+00:00").timestamp() - 3 * HOUR
    home = await timed(house, at_s=start, at=f"{day} {at}", time_zone="DE")
    await home.queue.accept(batch(ann=""), b"")
    went = []
    for _ in range(16):
        if await sent(home):
            went.append(datetime.datetime.fromtimestamp(home.clock.ms() / 1000, datetime.UTC).strftime("%H:%M"))
        await home.rest()
        await home.move(HOUR / 2)
    assert went == [goes]


async def test_after_its_end_nobody_gets_it(house: Make) -> None:
    """Each until eleven o'clock of their own clocks; what has not gone by then is removed when that is over everywhere,
    nobody is told, and no bound counts it. It holds for what was down, and over a kill."""
    home = await timed(house, until="2024-03-29 11:00", **BY_COLUMN)
    await home.queue.ask("campaign-pause", name="spring", cause="wait")
    await home.queue.accept(batch(berlin="DE", newyork="US", kolkata="IN"), b"")
    await until(home, "2024-03-29T10:30")
    await home.queue.ask("campaign-resume", name="spring", cause="go")
    assert await sent(home) == ["newyork"]
    assert await row(home, "state", "waiting") == ("running", 2)
    await home.crash()
    await until(home, "2024-03-29T22:59")
    assert await sent(home) == []
    await tick(home)
    assert await row(home, "state", "waiting") == ("running", 2)
    await until(home, "2024-03-29T23:00")
    await tick(home)
    assert await row(home, "state", "cause") == ("canceled", "it was to go until 2024-03-29 11:00")
    assert await row(home, "waiting", "delivered", "bounced", "removed") == (0, 1, 0, 2)
    with pytest.raises(QueueRefusal, match="was canceled"):
        await home.queue.accept(batch(late="DE"), b"")
    await home.sound()


async def test_whose_mail_has_all_gone_has_ended(house: Make) -> None:
    """At its end nothing is left to cancel, though nobody has said that all batches are in."""
    home = await timed(house, until="2024-03-29", time_zone="UTC")
    await home.queue.accept(batch(ann=""), b"")
    assert await sent(home) == ["ann"]
    await until(home, "2024-03-30T12:00")
    await tick(home)
    await tick(home)
    assert await row(home, "state", "cause", "delivered") == ("ended", "", 1)


# -- what makes mail older, and what does not


async def test_a_pause_of_49_hours_bounces_nobody(house: Make) -> None:
    """Whatever its life, and whoever ordered it; over a restart; and afterwards it has all of its life."""
    home = await opened(house, "ann@x.test", settings={"life_h": 24})
    await home.queue.ask("campaign-pause", name="spring", cause="wait")
    await lived(home, 20)
    await home.crash()
    await lived(home, 29)
    await home.queue.ask("campaign-resume", name="spring", cause="go")
    for _ in range(23):
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED)
        await lived(home, 1)
    assert await row(home, "waiting", "bounced") == (1, 0)
    await lived(home, 2)
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    assert await row(home, "waiting", "bounced") == (0, 1)


async def test_a_life_is_as_long_as_its_campaign_says(house: Make) -> None:
    """168 hours of trying, not the 48 of [retry]; a destination that is down makes older."""
    home = await opened(house, "ann@x.test", retry={"life_h": 48})
    tried = 0
    while (await row(home, "waiting"))[0]:
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, down_s=1800, stage="connect")
        await home.rest()
        await lived(home, 1)
        tried += 1
        assert tried < 180
    assert tried >= 167


async def test_closed_hours_make_nobody_older(house: Make) -> None:
    """Two hours of life, one open hour a day: it lives for two of these hours, and explain says until when."""
    options = {"windows": [{"name": "early", "hours": "06:00-07:00"}]}
    home = await timed(house, window="early", time_zone="UTC", life_h=2, options=options)
    await home.queue.accept(batch(ann=""), b"")
    told = (await home.queue.ask("explain", what="ann@x.test"))["rows"][0]
    assert datetime.datetime.fromtimestamp(told["life"]["until_ms"] / 1000, datetime.UTC).isoformat() == (
        "2024-03-30T07:00:00+00:00"
    )
    days = set()
    for _ in range(60):
        for delivery in await home.leases():
            days.add(local(home, "UTC").day)
            await home.settle(delivery, DEFERRED, delay_s=1200)
        await home.rest()
        await home.move(HOUR / 3)
        await swept(home)
        if not (await row(home, "waiting"))[0]:
            break
        await home.move(0 if local(home, "UTC").hour == 6 else HOUR / 3)
    assert days <= {29, 30}
    assert await row(home, "waiting", "bounced") == (0, 1)


# -- what it costs


async def test_who_waits_for_an_hour_is_neither_read_nor_written(house: Make) -> None:
    """Between two hours nothing is leased, kept in memory or journalled, and the next look is when the next is due."""
    home = await timed(house, at="09:00", **BY_COLUMN)
    for first in range(0, 400, 200):
        await home.queue.accept(batch(**{f"r{n}": ZONES[n % 4] for n in range(first, first + 200)}), b"")
    assert await home.idle()
    await home.rest()
    core = home.queue.core
    records = core.disk.journal.next_seq
    assert len(list(core.disk.store.keys(b"deferred ", keys.end(b"deferred ")))) == 400
    assert sum(zone.loaded for zone in core.schedule.zones.values()) == 0
    assert core.schedule.next_wake(core.clock.steady()) == 60
    await home.move(HOUR)
    await swept(home)
    assert core.disk.journal.next_seq == records


# -- what is asked


async def test_who_waits_for_which_hour(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time zone, the next first; not those who were tried; explain says whose hour it is, and until when."""
    monkeypatch.setattr("zonemta_py.queue.campaigns.waiting_hours.AT_ONCE", 2)
    home = await timed(house, at="09:00", until="2024-03-30", **BY_COLUMN)
    await home.queue.accept(batch(a="AU", b="AU", c="DE", d="US", e="en_US"), b"")
    await home.rest()
    found = await home.queue.ask("campaign-hours", name="spring")
    names = "Australia/Sydney", "Europe/Berlin", "America/New_York"
    assert [(row["time_zone"], row["waiting"]) for row in found["zones"]] == list(zip(names, (2, 1, 2), strict=True))
    assert [(row["next_ms"] / 1000 - MARCH) / HOUR for row in found["zones"]] == [2, 12, 17]
    assert (found["last_ms"] / 1000 - MARCH, found["counted"]) == (17 * HOUR, True)
    told = (await home.queue.ask("explain", what="d@x.test"))["rows"][0]
    assert [reason["cause"] for reason in told["reasons"]] == [
        "held until then, as its sender asked (its campaign's time, in America/New_York)",
        "its campaign is sent until then (in America/New_York), and removed after it",
    ]
    assert told["life"] == {"until_ms": 0, "chosen_ms": 0, "life_h": 168}, "its campaign ends before"
    await until(home, "2024-03-29T08:00")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.rest()
    found = await home.queue.ask("campaign-hours", name="spring")
    assert [row["time_zone"] for row in found["zones"]] == ["America/New_York"]
    monkeypatch.setattr("zonemta_py.queue.campaigns.waiting_hours.LOOKED_MAX", 2)
    assert not (await home.queue.ask("campaign-hours", name="spring"))["counted"]


@pytest.mark.parametrize(
    ("hours", "sentence"),
    [
        ({"at": "soon"}, "at 'soon' is not a time; write 09:00, 2026-11-24"),
        ({"at": "2024-02-30"}, "at '2024-02-30' is not a time"),
        ({"at": "2025-01-01"}, "mail is held for 30 days at most"),
        ({"window": "9-17"}, "there is no window '9-17'; write hours such as 09:00-17:00"),
        ({"window": "25:00-26:00"}, "are no hours; write 09:00-17:00 or 'mon-fri 09:00-17:00'"),
        ({"window": "foo 09:00-17:00"}, "are no hours"),
        ({"time_zone": "Mars"}, "'Mars' is not a time zone; give an IANA name such as Europe/Berlin"),
        ({"until": "2024-03-27"}, "until '2024-03-27' is in the past"),
        ({"until": "18:00"}, "names no day"),
        ({"at": "2024-04-02", "until": "2024-04-01"}, "only until '2024-04-01'; give a later end"),
        ({"at_column": "best", "at": "2024-04-02"}, "times of a column need one for those who have none"),
    ],
)
async def test_hours_that_make_no_sense_are_refused(house: Make, hours: dict[str, str], sentence: str) -> None:
    """Each with one sentence that says what to write."""
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        await timed(house, **hours)


@pytest.mark.parametrize("crash", ["", "at once", "while they move"])
async def test_other_hours_for_who_waits(house: Make, monkeypatch: pytest.MonkeyPatch, crash: str) -> None:
    """Sooner as well as later, in effect before it is answered, also if it is killed then; put again as it was made, it
    is the same campaign; a column cannot be changed."""
    monkeypatch.setattr("zonemta_py.queue.campaigns.monitor.READ_AT_ONCE", 7)
    home = await timed(house, at="2024-04-20", **BY_COLUMN)
    people = {f"r{number}": ZONES[number % 4] for number in range(40)}
    await home.queue.accept(batch(**people), b"")
    said = await home.queue.ask("campaign-schedule", name="spring", at="09:00", until="2024-03-30")
    assert (said["hours"]["at"], said["hours"]["time_zone_column"]) == ("09:00", "zone")
    waits = (await home.queue.ask("campaign-hours", name="spring"))["zones"]
    assert [(row["next_ms"] / 1000 - MARCH) / HOUR for row in waits] == [2, 7.5, 12, 17], "told at once"
    if crash == "while they move":
        home.queue.campaign_commands.tick()
    if crash:
        await home.crash(power=crash == "at once")
    for _ in range(9):
        await tick(home)
        await home.idle()
        await home.rest()
    assert not home.queue.core.campaigns.get("spring").moving
    waits = (await home.queue.ask("campaign-hours", name="spring"))["zones"]
    assert [(row["waiting"], (row["next_ms"] / 1000 - MARCH) / HOUR) for row in waits] == [
        (10, 2), (10, 7.5), (10, 12), (10, 17),
    ]  # fmt: skip
    await until(home, "2024-03-29T03:30")
    assert await sent(home) == sorted(name for name, zone in people.items() if zone in ZONES[2:])
    await home.queue.ask("campaign-schedule", name="spring", at="", until="")
    for _ in range(9):
        await tick(home)
        await home.rest()
    assert await sent(home) == sorted(name for name, zone in people.items() if zone in ZONES[:2])
    same = {"name": "spring", "sender": "news@src.test", "template": template()}
    again = await home.queue.ask("campaign-put", hours={"at": "2024-04-20", **BY_COLUMN}, **same)
    assert again == {"created": False}
    for wrong, sentence in (
        ({"time_zone_column": "x"}, "takes no"),
        ({"at": "noon"}, "is not a time"),
    ):
        with pytest.raises(ValueError, match=sentence):
            await home.queue.ask("campaign-schedule", name="spring", **wrong)
    await home.sound()


async def test_one_time_for_all_instead_of_their_own(house: Make) -> None:
    """Whoever has an hour of their own goes by it, until another time is ordered."""
    home = await timed(house, at="09:00", time_zone="UTC", at_column="best")
    people = [Recipient(f"r{at[:2]}@x.test", values=[at]) for at in ("07:00", "", "12:00")]
    await home.queue.accept(Envelope("", people, columns=["best"], campaign="spring"), b"")
    await until(home, "2024-03-29T08:00")
    assert await sent(home) == ["r07"]
    said = await home.queue.ask("campaign-schedule", name="spring", at="08:30")
    assert (said["hours"]["at"], said["hours"]["at_column"]) == ("08:30", "")
    await tick(home)
    await home.idle()
    await until(home, "2024-03-29T08:30")
    assert await sent(home) == ["r", "r12"]


async def test_put_again_it_is_the_same_also_when_its_time_has_passed(house: Make) -> None:
    """So a send that is continued late does not fail; with other hours it is another campaign."""
    home = await timed(house, until="2024-03-29", at="09:00")
    ask = {"name": "spring", "sender": "news@src.test", "template": template()}
    await home.move(3 * 24 * HOUR)
    await home.crash()
    same = await home.queue.ask("campaign-put", hours={"until": "2024-03-29", "at": "09:00"}, **ask)
    assert same == {"created": False}
    with pytest.raises(ValueError, match="other settings"):
        await home.queue.ask("campaign-put", **ask)


async def test_a_batch_without_the_column_is_refused(house: Make) -> None:
    """Rather than sent at some other hour."""
    home = await timed(house, at="09:00", **BY_COLUMN)
    with pytest.raises(QueueRefusal, match="goes by the column 'zone', which this batch lacks"):
        await home.queue.accept(
            Envelope("", [Recipient("a@x.test", values=["Ann"])], columns=["name"], campaign="spring"), b""
        )

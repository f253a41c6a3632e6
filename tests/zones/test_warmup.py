"""Warm-up: caps climb by good days only, nothing exceeds them, and where an address stands survives a restart."""

import datetime

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config import ConfigError
from zonemta_py.config.sources import Source, Warmup
from zonemta_py.zones.warmup import DAY_MS, UNLIMITED, Days, Warmups

SCHEDULE = Warmup(name="slow", caps=[50, 100, 200], deferred_max=0.1, blocked_max=0.01, least=20)
START = 1_780_000_000_000 // DAY_MS


def at(day: int, hour: float = 12) -> int:
    """UNIX milliseconds on the so-manieth day of the test."""
    return (START + day) * DAY_MS + int(hour * 3_600_000)


def live(days: Days, day: int, delivered: int, deferred: int = 0, blocked: int = 0) -> None:
    """A day on which so many attempts were made and answered."""
    days.room(at(day))
    days.take(delivered + deferred + blocked)
    days.result(delivered, deferred, blocked)


def test_good_days_climb_the_caps_until_there_is_none() -> None:
    """50, 100, 200, and then no limit."""
    days, caps = Days(SCHEDULE), []
    for day in range(4):
        caps.append(days.room(at(day)))
        live(days, day, delivered=40)
    assert caps == [50, 100, 200, UNLIMITED]
    assert days.warm
    assert days.cap is None


@pytest.mark.parametrize(
    ("sent", "delivered", "blocked", "verdict"),
    [
        (10, 10, 0, "good"),
        (10, 9, 0, "good"),  # the whole cap is used; the last answer comes tomorrow
        (9, 9, 0, "quiet"),
        (10, 0, 0, "quiet"),
        (10, 9, 1, "bad: 10.0% blocked, more than 1.0%"),
    ],
)
def test_a_cap_below_least_can_be_left(sent: int, delivered: int, blocked: int, verdict: str) -> None:
    """A day that used its whole cap counts, however small that is: otherwise the plan would never advance."""
    days = Days(Warmup(name="small", caps=[10, 50]))
    days.room(at(0))
    days.take(sent)
    days.result(delivered, 0, blocked)
    assert days.verdict == verdict
    days.room(at(1))
    assert days.cap == (50 if verdict == "good" else 10)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 100))
@settings(max_examples=50)
def test_every_plan_can_be_lived_to_its_end(caps: list[int], least: int) -> None:
    """Whatever its caps and `least`: as many good days as it has caps, and the address is warm."""
    days = Days(Warmup(name="any", caps=sorted(caps), least=least))
    for day in range(len(caps)):
        live(days, day, delivered=days.room(at(day)))
    days.room(at(len(caps)))
    assert days.warm


@pytest.mark.parametrize(("caps", "said"), [([], "caps is empty"), ([10, 50, 20], "falls from 50 to 20")])
def test_plans_that_are_none(caps: list[int], said: str) -> None:
    """No day at all, or a day with less than the one before; equal days may be."""
    with pytest.raises(ValueError, match=said):
        Warmup(name="w", caps=caps)
    assert Warmup(name="w", caps=[10, 10, 20]).caps == [10, 10, 20]


@pytest.mark.parametrize(
    ("delivered", "deferred", "blocked", "verdict", "next_day"),
    [
        (45, 5, 0, "good", 100),
        (44, 6, 0, "bad: 12.0% deferred, more than 10.0%", 50),
        (49, 0, 1, "bad: 2.0% blocked, more than 1.0%", 50),
        (99, 0, 1, "good", 100),
        (1, 18, 0, "quiet", 50),
        (2, 18, 0, "bad: 90.0% deferred, more than 10.0%", 50),
        (20, 0, 0, "good", 100),
        (0, 0, 0, "quiet", 50),
    ],
)
def test_only_a_day_that_went_well_advances(
    delivered: int, deferred: int, blocked: int, verdict: str, next_day: int
) -> None:
    """Bounds are shares of attempts, and may be met exactly; fewer than `least` attempts say nothing."""
    days = Days(SCHEDULE)
    live(days, 0, delivered, deferred, blocked)
    assert days.verdict == verdict
    assert days.room(at(1)) == next_day
    assert days.verdict == "quiet"


def test_a_bad_day_repeats_the_cap_it_had() -> None:
    """It does not go back; the next good day goes on from there."""
    days = Days(SCHEDULE)
    live(days, 0, 40)
    live(days, 1, 40, deferred=40)
    assert days.room(at(2)) == 100
    live(days, 2, 40)
    assert days.room(at(3)) == 200


def test_days_without_mail_change_nothing() -> None:
    """A weekend, or a month, is no good day."""
    days = Days(SCHEDULE)
    live(days, 0, 40)
    assert days.room(at(30)) == 100
    assert days.step == 1


def test_a_day_is_a_utc_day() -> None:
    """The last millisecond is of the old one, midnight of the new one; a clock that goes back starts nothing anew."""
    days = Days(SCHEDULE)
    days.room(at(0, 0))
    days.take(50)
    assert days.room(at(1, 0) - 1) == 0
    assert days.next_ms() == at(1, 0)
    assert days.room(at(1, 0)) == 50
    days.take(30)
    assert days.room(at(0, 12)) == 20
    assert days.room(at(1, 1)) == 20


def test_what_was_not_sent_is_given_back_to_its_own_day() -> None:
    """A lease of yesterday that comes to nothing makes no room today."""
    days = Days(SCHEDULE)
    days.room(at(0))
    yesterday = days.take(50)
    days.give(10, yesterday)
    assert days.room(at(0)) == 10
    days.room(at(1))
    today = days.take(50)
    days.give(10, yesterday)
    assert days.room(at(1)) == 0
    days.give(5, today)
    days.give(5)
    assert days.room(at(1)) == 10


def test_each_change_says_its_cause_once() -> None:
    """For the journal: which day, how it was, what holds now."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow")])
    days = warmups.of("192.0.2.1", "google")
    assert days is not None
    live(days, 0, 40)
    assert warmups.changes(at(0, 23)) == []
    [(source, provider, cause)] = warmups.changes(at(1))
    assert (source, provider) == ("192.0.2.1", "google")
    assert cause == f"{datetime.date(1970, 1, 1) + datetime.timedelta(days=START)} was good; now 100 a day"
    assert warmups.changes(at(1)) == []
    live(days, 1, 40, blocked=10)
    assert "bad: 20.0% blocked, more than 1.0%; now 100 a day" in warmups.changes(at(2))[0][2]


def test_where_nothing_was_learnt_nothing_is_kept() -> None:
    """A site that gets a message now and then is forgotten overnight; not one with a good or a bad day behind it."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow")])
    for provider, delivered, deferred in (("rare", 19, 0), ("good", 40, 0), ("bad", 0, 40), ("asked", 0, 0)):
        days = warmups.of("192.0.2.1", provider)
        assert days is not None
        live(days, 0, delivered, deferred)
    warmups.changes(at(1))
    assert [row["provider"] for row in warmups.describe()] == ["bad", "good"]


def test_an_operator_may_set_the_step() -> None:
    """Forth and back, within the schedule; it is in the history, and kept though nothing was sent."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow")])
    days = warmups.of("192.0.2.1", "google")
    assert days is not None
    days.set_step(99, at(0))
    assert days.room(at(0)) == UNLIMITED
    days.set_step(0, at(0))
    assert days.room(at(0)) == 50
    days.set_step(1, at(0))
    assert days.room(at(0)) == 100
    assert warmups.changes(at(1)) == []
    again = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow")])
    again.restore(msgpack.unpackb(msgpack.packb(warmups.state())))
    [row] = again.describe()
    assert (row["step"], row["cap"]) == (1, 100)
    assert [line.partition(" ")[2] for line in row["history"]] == [
        "set to warm by order", "set to step 1 of 3 by order", "set to step 2 of 3 by order",
    ]  # fmt: skip


def test_an_order_ends_the_day_before_first() -> None:
    """A good day that is over is counted before the order, not on top of it; what was sent today stays counted."""
    days = Days(SCHEDULE)
    live(days, 0, delivered=40)
    days.set_step(2, at(1))
    assert days.room(at(1)) == 200
    live(days, 1, delivered=190)
    days.set_step(0, at(1))
    assert days.room(at(1)) == 0
    assert days.room(at(2)) == 100, "today was good"


def test_a_new_beginning_ends_what_was_ordered_before_it() -> None:
    """warmup_since, set to a later day than the order's: the order is of the warm-up before."""
    first, later = (datetime.date(1970, 1, 1) + datetime.timedelta(days=START + n) for n in (3, 10))
    old = Days(SCHEDULE, first)
    old.set_step(2, at(0))
    for since, step in ((first, 2), (later, 0)):
        days = Days(SCHEDULE, since)
        days.restore(old.state())
        assert days.step == step


def test_an_address_that_is_warm_has_no_schedule() -> None:
    """One sentence that says which have."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow"), Source(address="192.0.2.2")])
    assert warmups.schedule_of("192.0.2.1") is SCHEDULE
    with pytest.raises(ValueError, match=r"no source '192\.0\.2\.2' is warming up; use 192\.0\.2\.1"):
        warmups.schedule_of("192.0.2.2")
    with pytest.raises(ValueError, match="give it a `warmup` in its pool"):
        Warmups([], []).schedule_of("192.0.2.2")


def test_each_provider_is_climbed_by_itself() -> None:
    """What one of them thinks of an address tells nothing of another; other addresses are warm."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow"), Source(address="192.0.2.2")])
    days = warmups.of("192.0.2.1", "google")
    assert days is not None
    live(days, 0, 50)
    assert warmups.room("192.0.2.1", "google", at(0)) == 0
    assert warmups.room("192.0.2.1", "yahoo", at(0)) == 50
    assert warmups.room("192.0.2.2", "google", at(0)) == UNLIMITED
    assert warmups.of("192.0.2.2", "google") is None


def test_a_restart_grants_no_second_helping() -> None:
    """State passes through msgpack; what is no longer warmed up is left out."""
    sources = [Source(address="192.0.2.1", warmup="slow"), Source(address="192.0.2.2", warmup="slow")]
    warmups = Warmups([SCHEDULE], sources)
    for source in sources:
        days = warmups.of(source.address, "google")
        assert days is not None
        live(days, 0, 40)
        live(days, 1, 70, deferred=3)
    saved = msgpack.unpackb(msgpack.packb(warmups.state()))
    again = Warmups([SCHEDULE], sources[:1])
    again.restore(saved)
    assert again.room("192.0.2.1", "google", at(1, 23)) == 27
    assert again.describe() == warmups.describe()[:1]


def test_a_later_first_day_begins_the_warm_up_again() -> None:
    """warmup_since: nothing goes before that day, and what was learnt before it does not count."""
    old = Days(SCHEDULE)
    live(old, 0, 40)
    live(old, 1, 40)
    since = datetime.date(1970, 1, 1) + datetime.timedelta(days=START + 10)
    same, later = Days(SCHEDULE, since - datetime.timedelta(days=10)), Days(SCHEDULE, since)
    for days in (same, later):
        days.restore(old.state())
    assert same.room(at(2)) == 200
    assert later.room(at(2)) == 0
    assert later.next_ms() == at(10, 0)
    assert later.room(at(10)) == 50


def test_one_address_has_one_schedule() -> None:
    """Two pools that disagree are refused, in one sentence with the remedy."""
    once = Source(address="192.0.2.1", warmup="slow")
    Warmups([SCHEDULE], [once, once])
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is warmed up in two ways; give it the same"):
        Warmups([SCHEDULE], [once, Source(address="192.0.2.1", warmup="slow", warmup_since="2026-01-01")])


def test_the_table_shows_where_each_stands() -> None:
    """Step, cap, what was sent, shares, how today goes and what would be next."""
    warmups = Warmups([SCHEDULE], [Source(address="192.0.2.1", warmup="slow")])
    days = warmups.of("192.0.2.1", "google")
    assert days is not None
    live(days, 0, 40)
    live(days, 1, 76, deferred=4)
    [row] = warmups.describe()
    assert row == {
        "source": "192.0.2.1", "provider": "google", "schedule": "slow", "first": "2026-05-28", "day": "2026-05-29",
        "step": 1, "steps": 3, "cap": 100, "sent": 80, "attempts": 80, "deferred": 0.05, "blocked": 0.0,
        "today": "good", "next": 200, "warm": False, "history": ["2026-05-28 cap 50 sent 40 good"],
    }  # fmt: skip


day = st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(1, 60), st.sampled_from("ddddtb")), max_size=12))


@settings(max_examples=100, deadline=None)
@given(st.lists(day, max_size=12), st.integers(0, 200))
def test_no_day_exceeds_its_cap_and_the_step_counts_the_good_days(
    life: list[tuple[int, list[tuple[int, str]]]], restart: int
) -> None:
    """Whatever the answers, with days left out, and with a restart at any point."""
    days, today, good, leases = Days(SCHEDULE), 0, 0, 0
    for pause, wanted in life:
        today += 1 + pause
        sent = 0
        for recipients, answer in wanted:
            granted = min(recipients, days.room(at(today)))
            days.take(granted)
            sent += granted
            days.result(**{{"d": "delivered", "t": "deferred", "b": "blocked"}[answer]: granted})
            leases += 1
            if leases == restart:
                saved, days = days.state(), Days(SCHEDULE)
                days.restore(saved)
        days.room(at(today))
        assert days.step == min(good, 3)
        assert days.warm or sent <= SCHEDULE.caps[good]
        good += days.verdict == "good" and not days.warm


@given(cap=st.integers(1, 50), queues=st.integers(1, 7), day=st.integers(20_000, 20_400))
def test_several_queues_have_parts_of_a_cap_that_add_up_to_it(cap: int, queues: int, day: int) -> None:
    """Also where it does not divide; and in so many days each has had a part of the smallest one."""
    schedule = Warmup(name="slow", caps=[cap])
    rooms = [
        [Days(schedule, part=(number, queues)).room(date * DAY_MS) for number in range(queues)]
        for date in range(day, day + queues)
    ]
    assert all(sum(row) == cap for row in rooms)
    assert all(sum(column) == cap for column in zip(*rooms, strict=True))

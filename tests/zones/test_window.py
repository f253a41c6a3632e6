"""Sending windows: open exactly while the local clock is within the hours, over every change of the clocks."""

import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config.limits import DAYS, Window
from zonemta_py.zones.window import NEVER_MS, _span, is_open, opens

MINUTE_MS = 60_000


def closes(window: Window, time_zone: str, now_ms: int) -> int:
    """When it closes; if it is closed, when it will close after it has been open. NEVER_MS: it does not."""
    span = _span(window, time_zone, now_ms)
    return span.until_ms if span.is_open else _span(window, time_zone, span.until_ms).until_ms


def ms(text: str) -> int:
    """ISO 8601 with an offset → UNIX milliseconds."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def iso(at_ms: int, zone: str) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(timespec="minutes")


def shows_open(window: Window, zone: str, at_ms: int) -> bool:
    """The rule itself, in another way: does some day's window, in local time without offsets, hold the local clock?"""
    local = datetime.datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    first, last = window.hours.split("-")
    for begins in (local.date(), local.date() - datetime.timedelta(days=1)):
        midnight = datetime.datetime.combine(begins, datetime.time())
        start, end = (
            midnight + datetime.timedelta(hours=int(hour), minutes=int(minute))
            for hour, minute in (time.split(":") for time in (first, last))
        )
        if end <= start:
            end += datetime.timedelta(days=1)
        if DAYS[begins.weekday()] in window.days and start <= local < end:
            return True
    return False


OFFICE = Window(name="office", days=["mon", "tue", "wed", "thu", "fri"])


@pytest.mark.parametrize(
    ("now", "opening", "closing"),
    [
        ("2026-06-01T08:59:59+02:00", "2026-06-01T09:00+02:00", "2026-06-01T18:00+02:00"),
        ("2026-06-01T09:00:00+02:00", "2026-06-01T09:00+02:00", "2026-06-01T18:00+02:00"),
        ("2026-06-01T17:59:00+02:00", "2026-06-01T17:59+02:00", "2026-06-01T18:00+02:00"),
        ("2026-06-01T18:00:00+02:00", "2026-06-02T09:00+02:00", "2026-06-02T18:00+02:00"),
        ("2026-06-05T18:00:00+02:00", "2026-06-08T09:00+02:00", "2026-06-08T18:00+02:00"),
        ("2026-03-27T18:00:00+01:00", "2026-03-30T09:00+02:00", "2026-03-30T18:00+02:00"),
    ],
)
def test_office_hours(now: str, opening: str, closing: str) -> None:
    """Open from the first minute on, closed at the last; weekends are left out; summer time comes in between."""
    assert iso(opens(OFFICE, "Europe/Berlin", ms(now)), "Europe/Berlin") == opening
    assert iso(closes(OFFICE, "Europe/Berlin", ms(now)), "Europe/Berlin") == closing


def test_a_window_past_midnight_belongs_to_the_day_it_begins_on() -> None:
    """Friday's goes on into Saturday morning, and there is none on Saturday night."""
    night = Window(name="night", days=["fri"], hours="22:00-06:00", time_zone="UTC")
    assert not is_open(night, "", ms("2026-06-05T05:00+00:00"))  # Thursday's would be
    assert is_open(night, "", ms("2026-06-05T22:00+00:00"))
    assert is_open(night, "", ms("2026-06-06T05:59+00:00"))
    assert closes(night, "", ms("2026-06-05T23:00+00:00")) == ms("2026-06-06T06:00+00:00")
    assert opens(night, "", ms("2026-06-06T06:00+00:00")) == ms("2026-06-12T22:00+00:00")


@pytest.mark.parametrize(
    ("hours", "zone", "now", "changes"),
    [
        # clocks go from 02:00 to 03:00
        ("02:30-04:00", "Europe/Berlin", "2026-03-29T00:00+01:00", ["03:00+02:00", "04:00+02:00"]),
        ("01:00-02:30", "Europe/Berlin", "2026-03-29T00:00+01:00", ["01:00+01:00", "03:00+02:00"]),
        ("02:00-03:00", "Europe/Berlin", "2026-03-29T00:00+01:00", ["02:00+02:00", "03:00+02:00"]),  # the next day
        ("01:30-03:30", "Europe/Berlin", "2026-03-29T00:00+01:00", ["01:30+01:00", "03:30+02:00"]),
        ("02:15-05:00", "America/New_York", "2026-03-08T00:00-05:00", ["03:00-04:00", "05:00-04:00"]),
        # clocks go from 03:00 back to 02:00
        ("02:30-04:00", "Europe/Berlin", "2026-10-25T00:00+02:00",
         ["02:30+02:00", "02:00+01:00", "02:30+01:00", "04:00+01:00"]),
        ("01:00-02:30", "Europe/Berlin", "2026-10-25T00:00+02:00",
         ["01:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"]),
        ("02:10-02:20", "Europe/Berlin", "2026-10-25T00:00+02:00",
         ["02:10+02:00", "02:20+02:00", "02:10+01:00", "02:20+01:00"]),
        ("02:00-03:00", "Europe/Berlin", "2026-10-25T00:00+02:00", ["02:00+02:00", "03:00+01:00"]),
        ("22:00-06:00", "Europe/Berlin", "2026-10-24T12:00+02:00", ["22:00+02:00", "06:00+01:00"]),
        ("00:00-01:30", "America/New_York", "2026-11-01T00:00-04:00",
         ["01:30-04:00", "01:00-05:00", "01:30-05:00", "00:00-05:00"]),
        # half an hour, and clocks that change at midnight
        ("01:45-03:00", "Australia/Lord_Howe", "2026-04-05T00:00+11:00",
         ["01:45+11:00", "01:30+10:30", "01:45+10:30", "03:00+10:30"]),
        ("00:00-06:00", "Africa/Cairo", "2026-04-23T12:00+02:00", ["01:00+03:00", "06:00+03:00"]),
        # nearly the whole day
        ("02:30-02:15", "Europe/Berlin", "2026-10-25T02:20+02:00",
         ["02:30+02:00", "02:15+01:00", "02:30+01:00", "02:15+01:00"]),
    ],
)  # fmt: skip
def test_where_clocks_change(hours: str, zone: str, now: str, changes: list[str]) -> None:
    """An hour that is left out is not waited for, one that comes twice counts twice: as the local clock shows."""
    window, at, found = Window(name="x", hours=hours), ms(now), []
    for _ in changes:
        at = closes(window, zone, at) if is_open(window, zone, at) else opens(window, zone, at)
        found.append(iso(at, zone)[11:])
    assert found == changes


def test_a_weekly_window_in_the_hour_left_out_waits_a_week() -> None:
    """There is no 02:00 to 03:00 on that Sunday."""
    window = Window(name="x", days=["sun"], hours="02:00-03:00", time_zone="Europe/Berlin")
    assert opens(window, "", ms("2026-03-23T00:00+01:00")) == ms("2026-04-05T02:00+02:00")


def test_always_open() -> None:
    """All day on all days: now, and no end; one day of it ends at midnight."""
    always = Window(name="always", hours="00:00-24:00")
    assert opens(always, "Asia/Tokyo", 1) == 1
    assert closes(always, "Asia/Tokyo", 1) == NEVER_MS
    sunday = Window(name="sunday", days=["sun"], hours="00:00-24:00", time_zone="UTC")
    assert closes(sunday, "", ms("2026-06-07T12:00+00:00")) == ms("2026-06-08T00:00+00:00")


def test_whose_time_zone() -> None:
    """A window with a time zone of its own does not ask for the recipient's."""
    now = ms("2026-06-01T00:00+00:00")
    assert opens(Window(name="x"), "Asia/Tokyo", now) == now
    assert opens(Window(name="x", time_zone="Europe/Berlin"), "Asia/Tokyo", now) == ms("2026-06-01T07:00+00:00")


@pytest.mark.parametrize("name", ["", "Nowhere/City", "../../etc/passwd", "Europe", "a\0b", "x" * 5000, "\udc80", "/"])
def test_an_unknown_time_zone_is_utc(name: str) -> None:
    """Whatever comes with a recipient, its mail does go."""
    assert opens(Window(name="x"), name, ms("2026-06-01T00:00+00:00")) == ms("2026-06-01T09:00+00:00")


def test_a_clock_that_goes_back_gets_the_right_answer_too() -> None:
    """What is kept holds for its own time only."""
    late, early = ms("2026-06-01T12:00+00:00"), ms("2026-06-01T03:00+00:00")
    assert opens(OFFICE, "UTC", late) == late
    assert opens(OFFICE, "UTC", early) == ms("2026-06-01T09:00+00:00")
    assert opens(OFFICE, "UTC", late) == late


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata", "UTC"]
CHANGES = [
    "2026-03-29T01:00+00:00", "2026-10-25T01:00+00:00", "2026-03-08T07:00+00:00", "2026-11-01T06:00+00:00",
    "2026-04-04T15:00+00:00", "2026-10-03T15:30+00:00", "2026-04-23T22:00+00:00", "2026-06-01T12:00+00:00",
]  # fmt: skip
clock = st.builds("{:02}:{:02}".format, st.integers(0, 23) | st.integers(0, 3), st.sampled_from([0, 15, 30, 59]))
hours = st.tuples(clock, clock | st.just("24:00")).filter(lambda pair: pair[0] != pair[1]).map("-".join)
windows = st.builds(
    Window, name=st.just("x"), hours=hours, days=st.lists(st.sampled_from(DAYS), min_size=4, max_size=7, unique=True)
)


@settings(max_examples=60, deadline=None)
@given(windows, st.sampled_from(ZONES), st.sampled_from(CHANGES), st.integers(-1500, 1500), st.integers(0, 59_999))
def test_nothing_is_open_before_it_opens_or_closed_before_it_closes(
    window: Window, zone: str, near: str, minutes: int, rest_ms: int
) -> None:
    """Looked at minute by minute, around changes of the clocks, against the rule in another form."""
    now = ms(near) + minutes * MINUTE_MS + rest_ms
    opening, closing = opens(window, zone, now), closes(window, zone, now)
    assert opening >= now
    assert is_open(window, zone, opening)
    assert opening == now or not shows_open(window, zone, opening - 1)
    for at in range(now, min(opening, now + 4000 * MINUTE_MS), MINUTE_MS):
        assert not shows_open(window, zone, at)
    assert closing > opening
    for at in range(opening, min(closing, opening + 4000 * MINUTE_MS), MINUTE_MS):
        assert shows_open(window, zone, at)
    assert closing == NEVER_MS or not shows_open(window, zone, closing)

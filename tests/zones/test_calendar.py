"""Time zones that texts name, hours that are written, and moments in time zones."""

import datetime
import random
import zoneinfo
from zoneinfo import ZoneInfo

import pytest

from zonemta_py.config.limits import Window
from zonemta_py.zones import campaign_hours, window
from zonemta_py.zones.campaign_hours import CampaignHours

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"), (" DE ", "Europe/Berlin"), ("de_AT", "Europe/Vienna"),
        ("uk", "Europe/London"),
        ("us", "America/New_York"), ("RU", "Europe/Moscow"), ("br", "America/Sao_Paulo"), ("AU", "Australia/Sydney"),
        ("CA", "America/Toronto"), ("UA", "Europe/Kyiv"),
        ("zh-Hant-TW", "Asia/Taipei"), ("pt_BR.UTF-8", "America/Sao_Paulo"),
        ("UTC", "UTC"), ("", ""), ("Mars", ""), ("ZZ", ""), ("en", ""), ("../../etc/passwd", ""), ("Europe", ""),
    ],
)  # fmt: skip
def test_what_a_text_names(text: str, zone: str) -> None:
    """An IANA name, a country, a locale with one; of a country with several zones the one with the most people."""
    assert campaign_hours.named(text) == zone


def test_every_country_has_a_time_zone_that_exists() -> None:
    """Also those of our own table."""
    countries = campaign_hours._countries()
    assert len(countries) > 240
    assert set(countries.values()) <= zoneinfo.available_timezones()


def test_days_of_a_window() -> None:
    """Ranges go past the end of the week; none are all."""
    assert campaign_hours.window("mon-fri 09:00-17:00").days == ["mon", "tue", "wed", "thu", "fri"]
    assert campaign_hours.window("SAT-mon,wed 22:00-06:00").days == ["sat", "sun", "mon", "wed"]
    assert len(campaign_hours.window("09:00-17:00").days) == 7


def test_a_day_alone() -> None:
    """From its beginning on, until its end; the end of all is where days end last."""
    hours = CampaignHours(at="2024-03-31", until="2024-03-31", time_zone="Europe/Berlin")
    times = campaign_hours.of(hours, 0, [], [])
    assert times.until_ms - times.from_ms == 23 * HOUR_MS  # clocks go forward
    assert campaign_hours.ends_ms(hours) - times.until_ms == 14 * HOUR_MS


def test_an_offset_is_the_same_moment_everywhere() -> None:
    """Whatever the recipient's time zone is."""
    hours = CampaignHours(at="2024-03-31T09:00:00+02:00", time_zone_column="tz")
    moments = {campaign_hours.of(hours, 0, ["tz"], [zone]).from_ms for zone in ("DE", "JP", "US")}
    assert moments == {1_711_868_400_000}


def test_an_own_hour() -> None:
    """By a column; those without one go at the campaign's."""
    hours = CampaignHours(at="09:00", time_zone="UTC", at_column="best")
    since = 1_711_843_200_000  # midnight
    at = [(campaign_hours.of(hours, since, ["best"], [own]).from_ms - since) / HOUR_MS for own in ("17:30", "", "soon")]
    assert at == [17.5, 9, 9]


@pytest.mark.parametrize("seed", range(3))
def test_closed_hours_against_a_clock_that_is_looked_at(seed: int) -> None:
    """Every quarter of an hour of some weeks with changes of clocks: closed exactly while the window is not open."""
    die = random.Random(seed)
    zone = die.choice(("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"))
    found = Window(
        name="w", hours=die.choice(("09:00-17:00", "22:00-06:00", "02:30-03:15")), days=["mon", "tue", "sun"]
    )
    since = 1_711_000_000_000 + die.randrange(86_400_000)
    until = since + 25 * 86_400_000
    spans = window.closed(found, zone, since, until)
    assert spans == sorted(spans)
    for at in range(since, until, HOUR_MS // 4):
        assert any(begin <= at < end for begin, end in spans) is not window.is_open(found, zone, at)


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"])
def test_local_times(name: str) -> None:
    """Each that the clock shows once is that moment; there and back for every half hour of a year."""
    zone, at = ZoneInfo(name), datetime.datetime(2024, 1, 1)
    while at.year == 2024:
        ms = window.local_ms(name, at)
        shown = datetime.datetime.fromtimestamp(ms / 1000, zone).replace(tzinfo=None)
        assert shown >= at
        if shown == at:
            assert at.replace(tzinfo=zone).timestamp() * 1000 == ms, "the first time"
        else:
            before = datetime.datetime.fromtimestamp(ms / 1000 - 1, zone).replace(tzinfo=None)
            assert before < at, "it is left out, and this is when the clock jumps over it"
        at += datetime.timedelta(minutes=30)


def test_in_words() -> None:
    """As `campaign status` and the dashboard say it."""
    hours = CampaignHours("09:00", "mon-fri 09:00-17:00", "2026-12-01", "DE", "tz")
    said = "from 09:00, in mon-fri 09:00-17:00, until 2026-12-01, by their own clocks (column tz, else DE)"
    assert campaign_hours.words(hours._asdict()) == said
    assert campaign_hours.words(CampaignHours(until="2026-12-01")._asdict()) == "until 2026-12-01, by the clocks of UTC"
    own = CampaignHours("10:00", time_zone="FR", at_column="best_hour")
    said = "from each recipient's own hour (column best_hour), else 10:00, by the clocks of FR"
    assert campaign_hours.words(own._asdict()) == said
    assert campaign_hours.words(None) == campaign_hours.words(CampaignHours(time_zone="FR")._asdict()) == ""

"""Limits in the configuration: how rates are written, and mistakes that are told with their remedy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from zonemta_py.config import Learning, SharesSection, Throttle, Window, rate
from zonemta_py.config.limits import SECONDS


@pytest.mark.parametrize(
    ("text", "amount", "seconds"),
    [
        ("100/s", 100, 1),
        ("5000/min", 5000, 60),
        ("300/10min", 300, 600),
        ("300 / 10 min", 300, 600),
        (" 1/day ", 1, 86400),
        ("0.5/s", 0.5, 1),
        ("2K/h", 2000, 3600),
        ("1.5M/d", 1_500_000, 86400),
        ("10MB/s", 10_000_000, 1),
        ("10 MB/s", 10_000_000, 1),
        ("10 mb/S", 10_000_000, 1),
        ("64KB/2s", 64_000, 2),
        ("1GB/hour", 1_000_000_000, 3600),
        ("500B/s", 500, 1),
        ("7/minute", 7, 60),
        ("7/second", 7, 1),
        ("7/hr", 7, 3600),
    ],
)
def test_a_rate_is_an_amount_per_time(text: str, amount: float, seconds: float) -> None:
    """K, M and G are powers of 1,000; blanks and the case of letters do not matter."""
    assert rate(text) == (amount, seconds)


@given(st.integers(1, 10**9), st.sampled_from(["", "K", "M"]), st.integers(1, 300), st.sampled_from(sorted(SECONDS)))
def test_every_rate_so_written_is_read(amount: int, factor: str, count: int, unit: str) -> None:
    """Amount, factor, number of units and unit."""
    read = rate(f"{amount}{factor}/{count}{unit}")
    assert read.seconds == count * SECONDS[unit]
    assert read.amount == amount * {"": 1, "K": 1000, "M": 1_000_000}[factor]


@pytest.mark.parametrize(
    "text", ["", "100", "/s", "-5/s", "1,000/s", "1_000/s", "1e3/s", "5/s/s", "five/s", "٣/s", "5 per s"]
)
def test_what_is_no_rate_is_told_how_one_is_written(text: str) -> None:
    """The message quotes it and shows examples."""
    with pytest.raises(ValueError, match="write it like 100/s, 5000/min, 300/10min or 10MB/s") as caught:
        rate(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["5/month", "5/ms", "5/10w"])
def test_an_unknown_unit_of_time_is_named(text: str) -> None:
    """And those there are."""
    with pytest.raises(ValueError, match="is not a unit of time; write s, min, h or day"):
        rate(text)


@pytest.mark.parametrize("text", ["0/s", "0.0/min", "0K/s", "1" * 400 + "/s"])
def test_nothing_and_everything_are_no_limits(text: str) -> None:
    """0 would stop all mail for ever, infinity is said by an empty text."""
    with pytest.raises(ValueError, match="leave it empty for none"):
        rate(text)


@pytest.mark.parametrize("text", ["1/0s", "1/00min", "1/999999d", "1/" + "9" * 5000 + "s"])
def test_the_time_is_between_a_second_and_a_year(text: str) -> None:
    """Anything else is a slip."""
    with pytest.raises(ValueError, match="between a second and a year"):
        rate(text)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({}, "limits nothing; set messages"),
        ({"only": {"provider": "google"}}, "limits nothing; set messages"),
        ({"messages": "10MB/s"}, "counts messages; omit the B, or set bytes"),
        ({"new_connections": "10KB/s"}, "counts new connections; omit the B"),
        ({"recipients": "10"}, "write it like 100/s"),
        ({"bytes": "10MB"}, "write it like 100/s"),
        ({"messages": "10/s", "bytes": "1MB/s", "burst": 20}, "move bytes to a throttle of its own"),
        ({"connections": 3, "burst": 20}, "has a burst but no rate"),
        ({"connections": -1}, "greater than or equal to 0"),
        ({"messages": "1/s", "per": ["domain"]}, "'site', 'provider'"),
        ({"messages": "1/s", "only": {"domain": "x"}}, "'site', 'provider'"),
        ({"message": "1/s"}, "Extra inputs"),
    ],
)
def test_a_mistake_in_a_throttle_is_told_with_its_remedy(values: dict[str, Any], remedy: str) -> None:
    """Before the start, not when the limit fails to hold."""
    with pytest.raises(ValidationError, match=remedy):
        Throttle(name="t", **values)


@pytest.mark.parametrize(
    "values",
    [
        {"connections": 1},
        {"bytes": "10MB/s", "burst": 1e6},
        {"messages": "10/s", "recipients": "100/s", "burst": 20},
        {"messages": "5K/h"},
        {"idle_s": 0},
        {"messages_per_connection": 1},
        {"recipients_per_delivery": 1, "per": ["source", "site"], "only": {"campaign": "news-*"}},
    ],
)
def test_one_limit_of_any_kind_is_enough(values: dict[str, Any]) -> None:
    """It is kept as it was written, and nothing else is limited."""
    assert Throttle(name="t", **values).model_dump(exclude_defaults=True) == {"name": "t"} | values


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"rate_min": ""}, "write the slowest useful rate"),
        ({"rate_min": "10/s", "rate_max": "600/min"}, "not below rate_max"),
        ({"rate_max": "10MB/s"}, "counts messages"),
        ({"rate_decrease": 1}, "less than 1"),
        ({"rate_increase": 0}, "greater than 0"),
    ],
)
def test_a_mistake_in_learning_is_told_with_its_remedy(values: dict[str, Any], remedy: str) -> None:
    """Bounds that cross, bounds of bytes, steps that never end."""
    with pytest.raises(ValidationError, match=remedy):
        Learning(**values)


@pytest.mark.parametrize("weight", [0, -1])
def test_a_share_is_more_than_nothing(weight: float) -> None:
    """Weight 0 would mean never; that is what suspending is for."""
    with pytest.raises(ValidationError, match="greater than 0"):
        SharesSection(tenants={"a": weight})


@pytest.mark.parametrize("hours", ["09:00-18:00", "22:00-06:00", "00:00-24:00", "18:00-24:00"])
def test_hours_may_go_past_midnight_and_to_its_end(hours: str) -> None:
    """24:00 is the end of a day."""
    assert Window(name="w", hours=hours).hours == hours


@pytest.mark.parametrize(
    "hours", ["9-18", "09:00-09:00", "24:00-06:00", "09:00-24:30", "25:00-26:00", "09:60-10:00", "09:00 - 18:00", ""]
)
def test_what_are_no_hours_is_told_how_they_are_written(hours: str) -> None:
    """No time of day that a clock does not show, no window without length."""
    with pytest.raises(ValidationError, match="not hours such as 09:00-18:00"):
        Window(name="w", hours=hours)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"time_zone": "Mars/Olympus"}, "not a time zone such as Europe/Berlin"),
        ({"time_zone": "../etc/passwd"}, "not a time zone such as Europe/Berlin"),
        ({"time_zone": ""}, "not a time zone such as Europe/Berlin"),
        ({"days": []}, "name some, or omit days"),
        ({"days": ["monday"]}, "'mon'"),
    ],
)
def test_a_mistake_in_a_window_is_told_with_its_remedy(values: dict[str, Any], remedy: str) -> None:
    """Days and time zones that do not exist."""
    with pytest.raises(ValidationError, match=remedy):
        Window(name="w", **values)

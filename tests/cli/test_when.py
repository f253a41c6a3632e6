"""Moments as people write them: one grammar for every option that takes one, and local time with its offset back."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.cli.send.options import asked
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import moment

NOW_MS = int(datetime(2026, 3, 28, 13, 0, tzinfo=UTC).timestamp() * 1000)
"""14:00 in Berlin; the clocks go forward in the night to come."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2h", "2026-03-28 16:00:00+01:00"),
        ("in 90s", "2026-03-28 14:01:30+01:00"),
        ("+3600", "2026-03-28 15:00:00+01:00"),
        ("3600", "2026-03-28 15:00:00+01:00"),
        ("1d12h", "2026-03-30 03:00:00+02:00"),
        ("14:30", "2026-03-28 14:30:00+01:00"),
        ("14:00", "2026-03-29 14:00:00+02:00"),
        ("9:00", "2026-03-29 09:00:00+02:00"),
        ("today 23:59", "2026-03-28 23:59:00+01:00"),
        ("tomorrow 9:00", "2026-03-29 09:00:00+02:00"),
        ("Tomorrow at 9:00:30", "2026-03-29 09:00:30+02:00"),
        ("2026-12-01", "2026-12-01 00:00:00+01:00"),
        ("2026-12-01 09:00", "2026-12-01 09:00:00+01:00"),
        ("2026-12-01 09:00-05:00", "2026-12-01 15:00:00+01:00"),
        ("2026-12-01T09:00:00Z", "2026-12-01 10:00:00+01:00"),
        ("Sat, 21 Nov 2026 08:00:00 +0000", "2026-11-21 09:00:00+01:00"),
    ],
)
def test_moments(text: str, meant: str) -> None:
    """Spans from now, times of day, dates; local time where no offset is said, summer time where it is summer."""
    assert moment(when.at(text, "--at", NOW_MS)) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2h", "2026-03-28 12:00:00+01:00"),
        ("2h ago", "2026-03-28 12:00:00+01:00"),
        ("14:30", "2026-03-27 14:30:00+01:00"),
        ("9:00", "2026-03-28 09:00:00+01:00"),
        ("yesterday 9:00", "2026-03-27 09:00:00+01:00"),
        ("2026-03-28 12:00:00+01:00", "2026-03-28 12:00:00+01:00"),
    ],
)
def test_moments_that_were(text: str, meant: str) -> None:
    """For options that look back."""
    assert moment(when.past(text, "--since", NOW_MS)) == meant


@pytest.mark.parametrize("text", ["", "soon", "25:00", "tomorrow", "2026-13-01", "2026-03-29 02:30", "2h ago", "é"])
def test_what_is_no_moment(text: str) -> None:
    """Among them a time that the clocks leave out. One sentence names the option and what is understood."""
    with pytest.raises(
        CommandError, match=r"--at: .* is not a moment in time; write it like 2h, 14:30, tomorrow 9:00, 2026-12-01"
    ) as caught:
        when.at(text, "--at", NOW_MS)
    assert caught.value.code == Exit.USAGE


@given(
    st.text(max_size=20)
    | st.from_regex(r"(tomorrow )?\d{1,4}[-:.]\d{1,2}[-: T]?\d{0,2}([+-]\d\d:\d\d)?", fullmatch=True)
)
def test_any_text_is_a_moment_or_a_sentence(text: str) -> None:
    """Never anything else."""
    try:
        found: object = when.at(text, "--at", NOW_MS)
    except CommandError as stop:
        found = 0 if stop.sentence.startswith("--at: ") else stop
    assert isinstance(found, int)


@given(st.integers(1_000_000_000, 4_000_000_000))
def test_what_is_printed_can_be_typed(seconds: int) -> None:
    """A moment that a table shows is one that an option takes."""
    assert when.at(moment(seconds * 1000), "--at", NOW_MS) == seconds * 1000


def test_hold_and_deadline_take_the_same() -> None:
    """`send --at` and `--by` read what `stop --for` reads, and moments."""
    assert asked(NOW_MS, at="2h").parameters == {"FUTURERELEASE": "HOLDFOR=7200"}
    assert asked(NOW_MS, at="tomorrow 9:00").parameters == {"FUTURERELEASE": "HOLDUNTIL=2026-03-29T07:00:00Z"}
    assert asked(NOW_MS, by="1d12h").parameters == {"DELIVERBY": "BY=129600;R"}

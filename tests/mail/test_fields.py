"""What all header fields have in common: one line, dates as others write them."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail import fields


@given(st.integers(0, 4_102_444_800))
def test_dates_are_those_of_the_standard_library(seconds: int) -> None:
    assert fields.date(seconds) == format_datetime(datetime.fromtimestamp(seconds, UTC))


@given(st.text(st.characters(codec="utf-8")))
def test_one_line(text: str) -> None:
    """Nothing is left that ends a line anywhere, what may stand in one stays, and a second time changes nothing."""
    line = fields.one_line(text)
    assert line.splitlines() in ([], [line])
    assert fields.one_line(line) == line
    stays = [c for c in text if not c.isspace() and c >= " " and not "\x7f" <= c <= "\x9f"]
    assert [c for c in line if not c.isspace()] == stays

"""Texts with `*`: they match what they say, in time in proportion to what is read."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.glob import expression


@settings(max_examples=300, deadline=None)
@given(st.text("ab.*", max_size=8), st.text("ab.\n", max_size=12))
def test_it_matches_what_any_split_would(pattern: str, text: str) -> None:
    plain = ".*".join(map(re.escape, pattern.split("*")))
    assert bool(re.fullmatch(expression(pattern), text, re.DOTALL)) == bool(re.fullmatch(plain, text, re.DOTALL))


def test_no_pattern_takes_long() -> None:
    """As a plain expression this one would go on for years, and the queue would wait for it."""
    assert not re.fullmatch(expression("*a" * 100 + "*b"), "a" * 1000)
    assert re.fullmatch(expression("*a" * 100 + "*b"), "a" * 1000 + "b")

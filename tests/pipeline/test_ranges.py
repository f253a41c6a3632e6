"""Sets of numbers as ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.pipeline.journal.ranges import Ranges

ROWS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def numbers(rows: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in rows for number in range(first, last + 1)}


@given(ROWS, st.integers(0, 330))
def test_it_holds_what_was_put_in(rows: list[tuple[int, int]], number: int) -> None:
    """A number is in the set if one of the ranges has it."""
    assert (number in Ranges(rows)) == (number in numbers(rows))


@given(ROWS, ROWS)
def test_equal_sets_have_equal_texts(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    """Order and portions leave no trace, so two offsets that mean the same are the same text."""
    one, other = Ranges(first).plus(second), Ranges(second).plus(reversed(first))
    assert one == other
    assert one.text() == other.text()
    assert hash(one) == hash(other)


@given(ROWS)
def test_text_comes_back(rows: list[tuple[int, int]]) -> None:
    """What was written into an offset is read again."""
    assert Ranges.parse(Ranges(rows).text()) == Ranges(rows)


def test_neighbours_join() -> None:
    """A run of segments takes one range, whatever their number; each gap takes one more."""
    assert Ranges((n * 10, n * 10 + 9) for n in range(1000)).text() == "0-9999"
    assert Ranges([(1, 5), (7, 9), (6, 6)]).text() == "1-9"
    assert Ranges([(1, 5), (7, 9)]).text() == "1-5,7-9"
    assert Ranges().text() == ""


def test_what_is_no_offset() -> None:
    """A checkpoint of something else is refused."""
    with pytest.raises(ValueError, match="invalid literal"):
        Ranges.parse("abc")

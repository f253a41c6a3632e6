"""Ids by the column."""

from datetime import date

import numpy as np
import pyarrow as pa

from zonemta_py.pipeline.journal import ids

DAYS = {
    "18bcfe5680000000": date(2023, 11, 14), "18bd0470ffffffff": date(2023, 11, 14),
    "18bd047100000000": date(2023, 11, 15), "not an id": ids.NO_DAY, "18BCFE5680000000": ids.NO_DAY,
    "18bcfe5680000000a": ids.NO_DAY, "": ids.NO_DAY, "18bcfe568000000é": ids.NO_DAY,
}  # fmt: skip


def column(values):
    return pa.chunked_array([pa.array(values, pa.string())])


def test_the_day_is_in_the_id():
    """Ids of 16 lower-case hexadecimal digits begin with their time; others are of no day."""
    assert dict(zip(DAYS, ids.born(column(list(DAYS))).to_pylist(), strict=True)) == DAYS
    assert ids.born(column([])).to_pylist() == []


def test_ranges_hold_all_ids_of_their_days():
    """Neighbouring days are one range; where ids without a day are asked for, there is none that holds them."""
    for day in set(DAYS.values()) - {ids.NO_DAY}:
        ((first, last),) = ids.within([day])
        assert all(first <= one <= last for one, its in DAYS.items() if its == day)
    assert len(ids.within([date(2023, 11, 15), date(2023, 11, 14), date(2023, 11, 17)])) == 2
    assert ids.within([ids.NO_DAY, date(2023, 11, 14)]) is None
    assert ids.within([]) == []


def test_characters_of_a_slice_are_its_own():
    """Columns may be parts of others."""
    whole = pa.array(["0123456789abcdef", "fedcba9876543210", "ab"])
    assert ids.octets(pa.chunked_array([whole[1:]])).tobytes() == b"fedcba9876543210ab" + b" " * 14
    assert ids.octets(pa.chunked_array([whole])).dtype == np.uint8

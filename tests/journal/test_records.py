"""Bodies: they come back as they were, and readers take more fields than they know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.notes import Existence, Note
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED, RELEASED
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX

notes = st.builds(
    Note,
    notify=st.integers(0, 15),
    orcpt=st.none() | st.text(),
    attempts=st.integers(0, 1000),
    first_ms=st.integers(0, 2**44),
    last_ms=st.integers(0, 2**44),
    last=st.text(),
    noticed=st.booleans(),
    routing=st.none() | st.dictionaries(st.text(), st.text() | st.integers(0, 65535)),
    deadline_ms=st.integers(0, 2**44),
    put_off_ms=st.integers(0, 2**44),
    values=st.none() | st.lists(st.text()),
    kept_ms=st.integers(-(2**44), 2**44),
    seq=st.integers(0, 2**50),
    away=st.booleans(),
    done=st.none() | st.lists(st.lists(st.integers(0, 9))),
    life_h=st.integers(0, 99),
    notes=st.none() | st.dictionaries(st.text(), st.text() | st.integers(0, 9)),
    meta=st.none() | st.dictionaries(st.text(), st.text() | st.integers(0, 9)),
)


@given(notes)
def test_a_note_comes_back(note: Note) -> None:
    """And one that says nothing is an empty value."""
    assert Note.of(note.value()) == note
    assert (note.value() == b"") == (note == Note())


def test_a_try_is_counted() -> None:
    """First and latest time, the latest reply to a bounded length."""
    once = Note().tried(1000, "451 4.2.0 busy")
    twice = once.tried(2000, "x" * 10_000)
    assert once == Note(attempts=1, first_ms=1000, last_ms=1000, last="451 4.2.0 busy")
    assert (twice.attempts, twice.first_ms, twice.last_ms) == (2, 1000, 2000)
    assert len(twice.last) == REPLY_TEXT_STORED_MAX


def test_existence_comes_back() -> None:
    """Creation time, recipients in all, recipients left."""
    assert Existence.of(Existence(1, 2, 3).value()) == (1, 2, 3)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\x01\x02", b"\xa1\xff"])
def test_what_is_not_msgpack_is_a_value_error(data: bytes) -> None:
    """One kind of error, whatever is wrong."""
    with pytest.raises(ValueError, match="not msgpack"):
        unpack(data)


def test_type_numbers_are_for_ever() -> None:
    """Old journals are read by new code: a number is never given another meaning."""
    assert {kind.name: int(kind) for kind in Type} == {
        "SEGMENT": 0, "ENVELOPE": 1, "OPEN": 2, "START": 3, "DELIVERY": 4, "FINISH": 5, "POSITION": 6, "IN_DOUBT": 7,
        "REMOVED": 8, "MOVED": 9, "END": 10, "LOST": 11,
        "STANDING": 12, "SUPPRESS": 13, "UNSUPPRESS": 14, "TASK": 15, "FEEDBACK": 16, "TAKEN": 17,
    }  # fmt: skip
    assert unpack(pack({"a": [1, None, b"x", "y"]})) == {"a": [1, None, b"x", "y"]}


def test_verdict_numbers_are_for_ever() -> None:
    """They are in every DELIVERY record."""
    verdicts = (DELIVERED, DEFERRED, BOUNCED, HELD, RELEASED, POSTPONED)
    assert verdicts == (1, 2, 3, 4, 5, 6)


def test_maps_of_any_keys_are_read() -> None:
    """Also those whose keys are numbers or bytes, which msgpack would refuse by itself."""
    assert unpack(pack({1: b"x", b"y": "z"})) == {1: b"x", b"y": "z"}

"""Keys: they come apart as they were put together, lie in their ranges, and sort by age."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk import keys

ODD = (
    "a@b.test",
    "a b@c.test",
    '"x y" z@c.test',
    "jürgen@exämple.test",
    "用户@例子.广告",
    "a@[IPv6:::1]",
    "#",
    "*",
    "x!y@z",
)
addresses = st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
zones = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
ids = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
dues = st.integers(0, 2**47)


@given(zones, ids, addresses, dues)
def test_recipient_keys_come_apart(zone: str, message_id: str, address: str, due: int) -> None:
    """Whatever the address is: spaces, quotes, UTF-8."""
    assert keys.place(keys.fresh(zone, message_id, address)) == (
        "delivery-zone",
        zone,
        message_id,
        address,
        0,
        "",
        0,
        0,
    )
    assert keys.place(keys.held(zone, message_id, address)) == ("held", zone, message_id, address, 0, "", 0, 0)
    assert keys.place(keys.deferred(zone, due, message_id, address))[:5] == ("deferred", zone, message_id, address, due)
    assert keys.place(keys.deleted(zone, due, message_id, address)) == (
        "deleted",
        zone,
        message_id,
        address,
        0,
        "",
        due,
        0,
    )
    bounced = keys.place(keys.bounced(zone, due, message_id, address))
    assert bounced == ("bounced", zone, message_id, address, 0, "", 0, due)
    parked = keys.place(keys.parked(zone, "mx.test:25", message_id, address))
    assert parked == ("parked", zone, message_id, address, 0, "mx.test:25", 0, 0)


@pytest.mark.parametrize("key", [keys.STATE, keys.existence("0" * 16), keys.size("a", "b"), b"other x y z w"])
def test_other_keys_are_no_recipient_keys(key: bytes) -> None:
    """They raise ValueError, and nothing else."""
    with pytest.raises(ValueError, match=r"not a recipient key|not enough values"):
        keys.place(key)


@given(zones, zones, ids, addresses, dues)
def test_a_key_lies_in_the_range_of_its_zone_only(
    zone: str, other: str, message_id: str, address: str, due: int
) -> None:
    """Also when one zone's name begins like another's."""
    for key, span in (
        (keys.fresh(zone, message_id, address), keys.fresh_range),
        (keys.deferred(zone, due, message_id, address), keys.deferred_range),
        (keys.held(zone, message_id, address), keys.held_range),
        (keys.parked(zone, "d.test", message_id, address), keys.parked_range),
        (keys.bounced(zone, due, message_id, address), keys.bounced_range),
    ):
        assert span(zone) <= key < keys.end(span(zone))
        assert (span(other) <= key < keys.end(span(other))) == (zone == other)


@given(zones, ids, ids, addresses, addresses, dues, dues)
def test_keys_sort_by_age(zone: str, one: str, two: str, a: str, b: str, early: int, late: int) -> None:
    """Fresh ones by id, deferred ones by due time: the oldest is the first of its range."""
    if one < two:
        assert keys.fresh(zone, one, a) < keys.fresh(zone, two, b)
        assert keys.parked(zone, "d.test", one, a) < keys.parked(zone, "d.test", two, b)
    if early < late:
        assert keys.deferred(zone, early, one, a) < keys.deferred(zone, late, two, b)


@given(st.integers(1, 999_999), st.integers(1, 999_999), ids)
def test_chunks_sort_by_number_within_their_message(first: int, second: int, message_id: str) -> None:
    """And existence and metadata lie in the same range."""
    assert (keys.chunk(message_id, first) < keys.chunk(message_id, second)) == (first < second)
    prefix = keys.message_range(message_id)
    for key in (keys.chunk(message_id, first), keys.existence(message_id), keys.metadata(message_id)):
        assert prefix <= key < keys.end(prefix)


@given(st.lists(st.integers(0, 2**43), min_size=1, max_size=50), st.integers(0, 2**43))
def test_ids_grow_also_when_the_clock_goes_back(times: list[int], start: int) -> None:
    """Never the same, never smaller, and never below what the last process gave out."""
    source = keys.Ids(keys.id_at(start))
    given_out = [source.next(ms) for ms in times]
    assert [keys.id_at(start), *given_out] == sorted({keys.id_at(start), *given_out})
    assert source.last == given_out[-1]
    assert all(keys.id_ms(one) >= ms for one, ms in zip(given_out, times, strict=True))


def test_a_slice_of_time_is_a_range_of_ids() -> None:
    """The smallest id of a millisecond lies behind every id of the millisecond before."""
    assert keys.id_at(5) > keys.Ids(keys.id_at(4)).next(4)
    assert keys.id_ms(keys.id_at(1_700_000_000_123)) == 1_700_000_000_123

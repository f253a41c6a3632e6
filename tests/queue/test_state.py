"""The table of states says all: what is counted goes by it, and what is not in it is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal.records import Type
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.sizes import BOUNCED, DEFERRED, DELETED, HELD, QUEUED, Sizes
from zonemta_py.queue.core.state import COUNTED, COUNTED_MOVES, FAMILY, MOVES, State, counted_as

ENDS = (State.DELIVERED, State.REMOVED, State.ELSEWHERE)


@pytest.fixture
def counts(tmp_path: Path) -> Sizes:
    return Sizes(Store(tmp_path / "store"))


def test_a_life_begins_once_and_ends_once() -> None:
    """Every state can be reached, from NEW alone; nothing leaves an end, and nothing goes back to NEW."""
    reached = {State.NEW}
    for _ in MOVES:
        reached |= {move.after for move in MOVES if move.before in reached}
    assert reached == set(State)
    assert not [move for move in MOVES if move.before in ENDS or move.after == State.NEW]
    assert {move.before for move in MOVES} == set(State) - {*ENDS}


def test_only_what_is_held_needs_an_order() -> None:
    """A recipient leaves HELD by an order, or with its zone; every end and every lease is in the journal."""
    assert {(move.cause, move.record) for move in MOVES if move.before == State.HELD} == {
        ("release", Type.MOVED),
        ("removed", Type.REMOVED),
        ("its zone is gone", None),
        ("deleted", Type.TASK),
        ("hold undone", Type.TASK),
        ("given to another queue", Type.FINISH),
    }
    assert all(move.record for move in MOVES if move.after in (*ENDS, State.LEASED) or move.before == State.LEASED)


def test_what_may_be_counted() -> None:
    """As the page draws it; a lease changes nothing, for the key stays."""
    assert sorted(COUNTED_MOVES, key=str) == sorted(
        {
            (None, QUEUED), (None, DEFERRED), (None, HELD), (None, DELETED), (None, BOUNCED), (None, None),
            (QUEUED, QUEUED), (QUEUED, DEFERRED), (QUEUED, HELD), (QUEUED, None),
            (DEFERRED, QUEUED), (DEFERRED, DEFERRED), (DEFERRED, HELD), (DEFERRED, None),
            (HELD, DEFERRED), (HELD, HELD), (HELD, None), (QUEUED, DELETED), (DEFERRED, DELETED), (HELD, DELETED),
            (DELETED, DEFERRED), (DELETED, HELD), (DELETED, DELETED), (DELETED, None),
            (QUEUED, BOUNCED), (DEFERRED, BOUNCED), (BOUNCED, DEFERRED), (BOUNCED, BOUNCED), (BOUNCED, None),
        },
        key=str,
    )  # fmt: skip


def test_places_in_a_size_are_for_ever() -> None:
    """They are on disk."""
    assert (QUEUED, DEFERRED, HELD, DELETED, BOUNCED) == (0, 1, 2, 3, 4)
    assert sizes.NAMES == ("queued", "deferred", "held", "deleted", "bounced")
    assert [str(state) for state in State] == [state.name.lower() for state in State], "as users read them"


@pytest.mark.parametrize(
    "key",
    [
        keys.fresh("held", "18bcfe5680000001", "deferred @x.test"),
        keys.parked("held", "deferred", "18bcfe5680000001", "held @x.test"),
        keys.deferred("held", 5, "18bcfe5680000001", "held @x.test"),
        keys.held("deferred", "18bcfe5680000001", "deferred @x.test"),
    ],
)
def test_a_key_says_how_it_is_counted(key: bytes) -> None:
    """By its family, whatever the names in it."""
    assert counted_as(key) == COUNTED[FAMILY[keys.place(key).family]]


PLACES = st.sampled_from((None, QUEUED, DEFERRED, HELD))


@given(before=PLACES, after=PLACES, count=st.sampled_from((1, -1)))
def test_every_move_is_counted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, before: int | None, after: int | None, count: int
) -> None:
    """Taken from where it was, put where it is, of the domain and of its zone; a wrong one changes nothing."""
    store = Store(tmp_path_factory.mktemp("sizes") / "store")
    counted = Sizes(store)
    if (before, after) not in COUNTED_MOVES:
        with pytest.raises(ValueError, match=r"x\.test in z: no recipient goes from state"):
            counted.move("z", "x.test", before, after, count)
        with pytest.raises(ValueError, match=r"x\.test in z: no recipient goes from state"):
            counted.rezone("z", "y", "x.test", before, after)  # type: ignore[arg-type]
        assert (counted.domains, counted.zones, counted.changes()) == ({}, {}, [])
    else:
        counted.move("z", "x.test", before, after, count)
        expected = [
            count * ((state == after) - (state == before)) for state in (QUEUED, DEFERRED, HELD, DELETED, BOUNCED)
        ]
        assert (counted.domains, counted.zones) == ({("z", "x.test"): expected}, {"z": expected})
    store.close()


def test_who_changes_its_zone_is_counted_in_the_other(counts: Sizes) -> None:
    """In both, of the domain and in all."""
    counts.move("old", "x.test", None, QUEUED)
    counts.rezone("old", "new", "x.test", QUEUED, DEFERRED)
    assert counts.domains == {("old", "x.test"): [0, 0, 0, 0, 0], ("new", "x.test"): [0, 1, 0, 0, 0]}
    assert counts.zones == {"old": [0, 0, 0, 0, 0], "new": [0, 1, 0, 0, 0]}
    assert {key for key, _ in counts.changes()} == {keys.size("old", "x.test"), keys.size("new", "x.test")}


def test_who_is_held_is_held_in_the_other_zone_too(counts: Sizes) -> None:
    """However it gets there."""
    counts.move("old", "x.test", None, DEFERRED)
    counts.move("old", "x.test", DEFERRED, HELD)
    counts.rezone("old", "new", "x.test", HELD, HELD)
    assert counts.zones == {"old": [0, 0, 0, 0, 0], "new": [0, 0, 1, 0, 0]}


def test_what_a_lost_batch_had_goes_into_the_next(counts: Sizes) -> None:
    """Beside what has changed since; a counter that has come to nothing loses its key."""
    counts.move("z", "x.test", None, QUEUED)
    counts.move("z", "y.test", None, QUEUED)
    counts.changes()
    counts.move("z", "y.test", QUEUED, None)
    counts.not_written()
    written = dict(counts.changes())
    assert written[keys.size("z", "x.test")] is not None
    assert written == {keys.size("z", "x.test"): written[keys.size("z", "x.test")], keys.size("z", "y.test"): None}


def test_what_was_counted_is_read_again(tmp_path: Path) -> None:
    """The sums of a zone are made of its domains."""
    store = Store(tmp_path / "store")
    counts = Sizes(store)
    for domain, state in (("x.test", QUEUED), ("x.test", DEFERRED), ("y.test", DEFERRED)):
        counts.move("z", domain, None, state)
    store.write(counts.changes(), sync=False)
    again = Sizes(store)
    assert again.domains == {("z", "x.test"): [1, 1, 0, 0, 0], ("z", "y.test"): [0, 1, 0, 0, 0]}
    assert again.zones == counts.zones == {"z": [1, 2, 0, 0, 0]}
    assert again.changes() == []

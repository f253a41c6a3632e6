"""Caps and the order of chunks: arithmetic, without Spark."""

import json
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.pipeline.prepare.assign import overflow
from zonemta_py.pipeline.prepare.chunks import head, key
from zonemta_py.pipeline.prepare.order import Group, places
from zonemta_py.pipeline.prepare.settings import Cap, Lane, Settings

LANES = (Lane("a", "192.0.2.1"), Lane("a", "192.0.2.2"), Lane("a", "192.0.2.3"), Lane("b", "192.0.2.4"))
caps = st.dictionaries(
    st.sampled_from([lane.source for lane in LANES]), st.lists(st.integers(0, 50), min_size=1, max_size=3)
)
wanted = st.lists(st.integers(0, 200), min_size=4, max_size=4)


@given(caps, wanted, st.integers(1, 4))
def test_no_cap_is_passed_and_nobody_is_lost(limits: dict[str, list[int]], n: list[int], days: int) -> None:
    """Every recipient gets a way of its zone, or is left out; each source's day stays within its cap; room is used."""
    settings = Settings(
        "x", lanes=LANES, days=days, caps=tuple(Cap(source, "p", tuple(per)) for source, per in limits.items())
    )
    counts = {(lane, "p"): number for lane, number in enumerate(n)}
    ways = overflow(counts, settings)
    had = Counter[tuple[int, int]]()
    for lane, number in enumerate(n):
        parts = ways.get((lane, "p"))
        if parts is None:
            had[lane, 0] += number
            continue
        assert sum(part.n for part in parts) == number
        for part in parts:
            assert part.lane < 0 or settings.lanes[part.lane].zone == settings.lanes[lane].zone
            had[part.lane, part.day] += part.n
    known = {cap.source: cap for cap in settings.caps}
    for (lane, day), number in had.items():
        if lane >= 0 and (cap := known.get(LANES[lane].source)):
            assert number <= cap.on(day)
    if had[-1, 0]:
        zones = {LANES[lane].zone for (lane, _), parts in ways.items() if any(part.lane < 0 for part in parts)}
        full = [lane for lane in range(4) if LANES[lane].zone in zones]
        assert all(had[lane, day] == known[LANES[lane].source].on(day) for lane in full for day in range(days))


groups = st.builds(
    Group, st.booleans(), st.integers(0, 2), st.integers(0, 1), st.integers(0, 3), st.integers(1, 9000),
    st.integers(1, 10**7),
)  # fmt: skip


@given(st.lists(groups, max_size=8, unique_by=lambda group: group[:4]))
def test_places(found: list[Group]) -> None:
    """Every chunk has one place and one key; the canary comes first, then day by day, openers first."""
    settings = Settings("x", lanes=LANES)
    made = places(found, settings)
    assert sorted(place.number for place in made) == list(range(len(made)))
    assert [place.position for place in made] == list(range(len(made)))
    assert len({key(place, settings) for place in made}) == len(made)
    ranks = [(not place.group.canary, place.group.day, place.group.tier) for place in made]
    assert ranks == sorted(ranks)
    assert Counter(place.group for place in made) == {group: group.chunks(settings) for group in found}


def test_ways_out_go_side_by_side() -> None:
    """A small lane is spread over the whole campaign, not sent at its end or beginning."""
    made = places([Group(False, 0, 1, 0, 50_000, 1), Group(False, 0, 1, 1, 5_000, 1)], Settings("x", lanes=LANES))
    at = [place.position for place in made if place.group.lane == 1]
    assert [after - before for before, after in pairwise(at)] == [11] * 9


def test_a_key_says_what_is_in_it_and_the_head_is_json() -> None:
    """Group and bucket make the key; campaign, columns and way are in every body."""
    settings = Settings("Mai é", fields={"name": "n"}, lanes=LANES)
    place = places([Group(True, 0, 1, 3, 10, 100)], settings)[0]
    assert key(place, settings) == "canary-0-1-b-192.0.2.4-000000"
    assert json.loads(head(place, settings) + "]}") == {
        "campaign": "Mai é", "columns": ["name"], "zone": "b", "source": "192.0.2.4", "recipients": [],
    }  # fmt: skip

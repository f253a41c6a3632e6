"""Fair queueing: shares follow weights at each level, and neither absence nor haste earns anything."""

import gc
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config.limits import SharesSection
from zonemta_py.zones.fair import DEBTORS_MAX, Fair, Flow, Weights


def serve(fair: Fair, picks: int, cost: float = 1) -> Counter[tuple[str, ...]]:
    """What each path gets of so many picks, each of that cost."""
    got: Counter[tuple[str, ...]] = Counter()
    for _ in range(picks):
        flow = fair.pick()
        assert flow is not None
        fair.charge(flow, cost)
        got[flow.path] += 1
    return got


def ready(fair: Fair, path: str, *weights: float) -> Flow:
    flow = fair.add(tuple(path.split("/")), weights)
    flow.ready = True
    return flow


@pytest.mark.parametrize("level", [0, 1, 2])
def test_weights_1_2_4_get_shares_of_1_2_4_at_each_level(level: int) -> None:
    """Whether they are priorities, tenants or campaigns: within one per cent over a thousand picks."""
    fair, flows = Fair(), []
    for name, weight in (("a", 1.0), ("b", 2.0), ("c", 4.0)):
        path, weights = ["x", "x", "x"], [1.0, 1.0, 1.0]
        path[level], weights[level] = name, weight
        flows.append(ready(fair, "/".join(path), *weights))
    got = serve(fair, 1000)
    for flow, weight in zip(flows, (1, 2, 4), strict=True):
        assert abs(got[flow.path] / 1000 - weight / 7) < 0.01


def test_a_tenant_with_many_campaigns_gets_no_more_than_one_with_few() -> None:
    """Shares are divided level by level."""
    fair = Fair()
    flows = [ready(fair, f"+0/many/{n}", 1, 1, 1) for n in range(9)] + [ready(fair, "+0/one/0", 1, 1, 1)]
    got = serve(fair, 900)
    assert got[flows[-1].path] == 450
    assert {got[flow.path] for flow in flows[:-1]} == {50}


def test_shares_are_of_recipients_not_of_picks() -> None:
    """Whose deliveries are ten times as large has a tenth of the turns."""
    fair = Fair()
    large, small = ready(fair, "large", 1), ready(fair, "small", 1)
    got = {large: 0, small: 0}
    for _ in range(1100):
        flow = fair.pick()
        assert flow is not None
        got[flow] += 1
        fair.charge(flow, 10 if flow is large else 1)
    assert abs(got[large] - 100) <= 1


def test_a_new_flow_has_its_turn_at_once() -> None:
    """A receipt is not behind the newsletter that has been running for an hour."""
    fair = Fair()
    for n in range(20):
        ready(fair, f"+0/news/{n}", 1, 1, 1)
    serve(fair, 10_000, cost=100)
    receipt = ready(fair, "+4/shop/receipt", 16, 1, 1)
    assert fair.pick() is receipt
    got = serve(fair, 3200)
    assert abs(got[receipt.path] - (1600 + 1600 * 16 / 17)) <= 20  # 1600: the newsletter's last 100, times the weight


@pytest.mark.parametrize("level", ["campaign", "tenant"])
def test_time_away_earns_nothing(level: str) -> None:
    """Who comes back after a long while gets its share from then on, not what it missed."""
    fair = Fair()
    here = ready(fair, "+0/t/here", 1, 1, 1)
    away = ready(fair, "+0/t/away" if level == "campaign" else "+0/u/away", 1, 1, 1)
    serve(fair, 10)
    away.ready = False
    assert serve(fair, 1000) == {here.path: 1000}
    away.ready = True
    got = serve(fair, 100)
    assert abs(got[away.path] - 50) <= 1


def test_going_away_for_a_moment_pays_no_debt() -> None:
    """A flow that empties and fills after each delivery has no more than its weight gives it."""
    fair = Fair()
    usual, hasty = ready(fair, "+0/a/usual", 1, 1, 3), ready(fair, "+0/a/hasty", 1, 1, 1)
    got = {usual: 0, hasty: 0}
    for _ in range(1000):
        flow = fair.pick()
        assert flow is not None
        got[flow] += 1
        hasty.ready = usual.ready = False  # so does a zone that has all its connections in use
        fair.charge(flow, 1)
        hasty.ready = usual.ready = True
    assert abs(got[hasty] - 250) <= 2


def test_a_debt_outlives_the_flow() -> None:
    """Nor does it help to be forgotten by the caller: the same path owes what it owed."""
    fair = Fair()
    usual = ready(fair, "t/usual", 1, 1)
    hasty = 0
    for _ in range(1000):
        flow = ready(fair, "t/hasty", 1, 1)
        chosen = fair.pick()
        assert chosen is not None
        fair.charge(chosen, 1)
        hasty += chosen is flow
        flow.ready = False
        del flow, chosen
    assert abs(hasty - 500) <= 2
    assert usual.ready


def test_pick_changes_nothing() -> None:
    """It may be asked again; a flow that turns out not to be able to go is skipped once it says so."""
    fair = Fair()
    first, second = ready(fair, "a/x", 1, 1), ready(fair, "b/x", 1, 1)
    assert fair.pick() is fair.pick() is first
    first.ready = False
    assert fair.pick() is fair.pick() is second
    second.ready = False
    assert fair.pick() is None
    second.ready = first.ready = True
    assert fair.pick() in (first, second)


def test_a_path_has_one_flow_and_the_weights_named_last() -> None:
    """add finds what is there; new weights hold from the next charge on."""
    fair = Fair()
    a, b = ready(fair, "t/a", 1, 1), ready(fair, "t/b", 1, 1)
    assert fair.add(("t", "a"), (1, 9)) is a
    got = serve(fair, 1000)
    assert abs(got[a.path] - 900) <= 2
    assert b.ready


def test_what_was_not_used_is_given_back() -> None:
    """A charge below 0 undoes one: a lease that came to nothing costs its flow nothing."""
    fair = Fair()
    a, b = ready(fair, "t/a", 1, 1), ready(fair, "t/b", 1, 1)
    got = {a: 0, b: 0}
    for turn in range(1000):
        flow = fair.pick()
        assert flow is not None
        fair.charge(flow, 10)
        if flow is a and turn % 2:
            fair.charge(flow, -10)
        else:
            got[flow] += 1
    assert abs(got[a] - got[b]) <= 1


def test_memory_is_only_for_who_is_ready_or_owes() -> None:
    """A campaign of its own for each of many messages leaves no more behind than the deepest debts."""
    fair = Fair()
    standing = ready(fair, "t/standing", 1, 1)
    for n in range(4 * DEBTORS_MAX):
        flow = ready(fair, f"t/{n}", 1, 1)
        fair.charge(flow, 1)
        flow.ready = False
    del flow
    gc.collect()
    assert len(fair) <= 2 * (DEBTORS_MAX + 1) + 1
    serve(fair, 10)
    assert fair.pick() is standing
    gc.collect()
    assert len(fair) == 1


def test_toggling_does_not_fill_the_memory() -> None:
    """However often readiness and charges come and go between two picks."""
    fair = Fair()
    a, b = ready(fair, "t/a", 1, 1), ready(fair, "t/b", 1, 1)
    for _ in range(3 * DEBTORS_MAX):
        a.ready = False
        fair.charge(b, 3)
        a.ready = True
        fair.charge(b, -2)
    assert a.parent is not None
    assert len(a.parent.heap) <= 2 * (DEBTORS_MAX + 2) + 1
    assert fair.pick() is a


def test_however_many_there_are_each_has_its_turn() -> None:
    """Nobody is left out, and nobody comes twice before all came once."""
    fair = Fair()
    flows = [ready(fair, f"t{n % 7}/{n}", 1, 1) for n in range(7 * 2_000)]
    got = serve(fair, len(flows))
    assert set(got.values()) == {1}


steps = st.lists(
    st.tuples(st.sampled_from(["on", "off", "serve", "serve", "back"]), st.integers(0, 5), st.integers(1, 50)),
    max_size=200,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_whatever_happens_a_pick_is_ready_and_the_ready_are_found(history: list[tuple[str, int, int]]) -> None:
    """pick gives None exactly when nothing is ready, never one that is not; virtual times never go back."""
    fair = Fair()
    flows = [fair.add((f"+{n % 2}", f"t{n % 3}", str(n)), (1, 2, n + 1)) for n in range(6)]
    virtual = 0.0
    for what, number, cost in history:
        if what in ("on", "off"):
            flows[number].ready = what == "on"
        elif what == "back":
            fair.charge(flows[number], -cost)
        elif (flow := fair.pick()) is not None:
            fair.charge(flow, cost)
        picked = fair.pick()
        assert (picked is not None) == any(flow.ready for flow in flows)
        assert picked is None or picked.ready
        root = flows[0].parent.parent.parent  # type: ignore[union-attr]
        assert root is not None
        assert root.virtual >= virtual
        virtual = root.virtual


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), min_size=2, max_size=6),
    st.lists(st.integers(1, 100), min_size=200, max_size=400),
)
def test_two_who_always_have_something_are_never_further_apart_than_a_delivery(
    weights: list[float], costs: list[int]
) -> None:
    """The bound of start-time fair queueing (theorem 1): |Wa/a − Wb/b| ≤ largest of a / a + largest of b / b."""
    fair = Fair()
    flows = [ready(fair, f"t/{n}", 1, weight) for n, weight in enumerate(weights)]
    got = dict.fromkeys(flows, 0)
    for cost in costs:
        flow = fair.pick()
        assert flow is not None
        got[flow] += cost
        fair.charge(flow, cost)
        for a, b in pairwise(flows):
            assert abs(got[a] / a.weight - got[b] / b.weight) <= 100 / a.weight + 100 / b.weight


def test_the_exact_name_wins_then_the_longest_beginning() -> None:
    """Shares by name; 1 where nothing is said."""
    weights = Weights(SharesSection(tenants={"shop": 5, "sh*": 2, "*": 0.5}, campaigns={"news-*": 3, "news-vip*": 6}))
    assert [weights.tenant(name) for name in ("shop", "shopping", "other", "")] == [5, 2, 0.5, 0.5]
    assert [weights.campaign(name) for name in ("news-vip-1", "news-1", "receipt")] == [6, 3, 1]


def test_each_step_of_priority_doubles_the_share() -> None:
    """place gives path and weights as `Fair.add` takes them."""
    weights = Weights(SharesSection(tenants={"a": 3}))
    assert weights.place(4, "a", "c") == (("+4", "a", "c"), (16.0, 3, 1.0))
    assert weights.place(-9, "", "") == (("-9", "", ""), (2**-9, 1.0, 1.0))
    fair = Fair()
    flows = [fair.add(*weights.place(priority, "a", "c")) for priority in (0, 1)]
    for flow in flows:
        flow.ready = True
    assert abs(serve(fair, 300)[flows[1].path] - 200) <= 1

"""Pools: the same message finds the same address, shares follow weights, and only what must move moves."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config.sources import Source
from zonemta_py.zones.pool import choose, disabled

EVER = ["1", "3", "4", "2"]
POOL = [Source(address=f"192.0.2.{n}", weight=n) for n in (1, 2, 3, 4)]


def always(source: Source) -> bool:
    return True


def test_shares_follow_the_weights() -> None:
    """Within two per cent over 50,000 keys."""
    got: Counter[float] = Counter()
    for n in range(50_000):
        chosen = choose(POOL, f"{n:x}", always)
        assert chosen is not None
        got[chosen.weight] += 1
    for source in POOL:
        assert abs(got[source.weight] / 50_000 - source.weight / 10) < 0.02


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8"), max_size=40), st.permutations(POOL))
def test_the_order_in_the_file_does_not_matter(key: str, pool: list[Source]) -> None:
    """The same key finds the same address."""
    assert choose(pool, key, always) is choose(POOL, key, always)


@pytest.mark.parametrize("removed", POOL)
def test_removing_an_address_moves_only_its_own_keys(removed: Source) -> None:
    """So does blocking it; and both move them to the same others."""
    rest = [source for source in POOL if source is not removed]
    moved: Counter[str] = Counter()
    for n in range(2000):
        before, after = choose(POOL, str(n), always), choose(rest, str(n), always)
        assert after is choose(POOL, str(n), lambda source: source is not removed)
        if before is removed:
            assert after is not None
            moved[after.address] += 1
        else:
            assert after is before
    assert len(moved) == len(rest)


def test_where_addresses_go_is_fixed_for_all_time() -> None:
    """A restart or a new version must not move a message to another address: these are the ones it has always had."""
    chosen = [choose(POOL, key, always) for key in ("0001", "0002", "0003", "0004")]
    assert [source and source.address[-1] for source in chosen] == EVER


def test_the_next_best_takes_over() -> None:
    """Each key has an order in which they stand in for each other, whichever of them may be used."""
    for n in range(200):
        order: list[Source] = []
        while (best := choose(POOL, str(n), lambda source, taken=order: source not in taken)) is not None:
            order.append(best)
        assert sorted(map(id, order)) == sorted(map(id, POOL))
        for first in order:
            usable = [source for source in POOL if order.index(source) >= order.index(first)]
            assert choose(POOL[::-1], str(n), usable.__contains__) is first


def test_none_is_usable() -> None:
    """Then there is none; nor is there in an empty pool."""
    assert choose(POOL, "a", lambda source: False) is None
    assert choose([], "a", always) is None


@pytest.mark.parametrize(
    ("rules", "domain", "answer"),
    [
        ([], "example.com", False),
        (["example.com"], "example.com", True),
        (["Example.COM."], "eXample.com", True),
        (["example.com"], "a.example.com", False),
        (["*.example.com"], "a.b.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "notexample.com", False),
        (["*"], "anything.test", True),
        (["x.test", "bücher.example"], "xn--bcher-kva.example", True),
        (["*.xn--bcher-kva.example"], "www.Bücher.example", True),
        (["x.test"], "", False),
    ],
)
def test_disabled_domains(rules: list[str], domain: str, answer: bool) -> None:
    """A wildcard matches subdomains only; case, final dots and U-labels make no difference."""
    assert disabled(Source(address="192.0.2.1", disabled_domains=rules), domain) is answer

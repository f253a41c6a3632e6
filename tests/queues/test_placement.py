"""Which queue takes a message: the same in each process, evenly, and moved only where it must be."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queues.placement import DOMAINS_MAX, Placement
from zonemta_py.zones.pull import PUSHED

NUMBERS = st.sets(st.integers(0, 1023), min_size=2, max_size=12)
NAMES = [f"d{number}.test" for number in range(300)]


def mail(*addresses: str, **more: str) -> Envelope:
    return Envelope("ann@src.test", [Recipient(one) for one in addresses], **more)  # type: ignore[arg-type]


@given(numbers=NUMBERS, more=st.integers(0, 1023))
def test_only_what_a_queue_takes_or_had_moves(numbers: set[int], more: int) -> None:
    before, after = Placement(numbers - {more}), Placement(numbers | {more})
    for name in NAMES:
        old, new = before.of_domain(name), after.of_domain(name)
        assert [one for one in new if one != more] == list(old)
        assert after.of_key(name) in (before.of_key(name), more)
        assert after.of_queue(name) in (before.of_queue(name), more)


@given(numbers=NUMBERS, domain=st.text(max_size=20), key=st.text(min_size=1))
def test_every_queue_is_there_once_or_only_one_is(numbers: set[int], domain: str, key: str) -> None:
    placement = Placement(numbers)
    assert sorted(placement.order(mail(f"bob@{domain}"))) == sorted(numbers)
    assert list(placement.order(mail(f"bob@{domain}", request=key))) == [placement.of_key(key)]
    assert list(placement.order(mail("Jobs@queue", protocol=PUSHED, request=key))) == [placement.of_queue("jobs")]
    assert placement.of_key(key) in numbers


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_shares_are_even(count: int) -> None:
    placement, names = Placement(range(count)), [f"name{number}" for number in range(20_000)]
    for of in (lambda name: placement.of_domain(f"{name}.test")[0], placement.of_key, placement.of_queue):
        shares = Counter(map(of, names))
        assert all(0.85 < shares[number] * count / len(names) < 1.15 for number in range(count)), shares
    seconds = Counter(placement.of_domain(f"{name}.test")[1] for name in names)
    assert len(seconds) == count, "what one refuses is spread over the others"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bob@Example.TEST", "eve@example.test"),
        ("bob@bücher.test", "bob@xn--bcher-kva.test"),
        ("bob@BÜCHER.test", "bob@xn--bcher-kva.test"),
        ("bob@[IPv6:2001:DB8::1]", "bob@[ipv6:2001:db8::1]"),
        ('"a@b"@x.test', "bob@x.test"),
    ],
)
def test_one_destination_has_one_order(one: str, other: str) -> None:
    for count in range(2, 30):
        placement = Placement(range(count))
        assert placement.order(mail(one)) == placement.order(mail(other, "other@y.test"))


@pytest.mark.parametrize(
    "address", ["postmaster", "bob@[127.0.0.1]", "bob@", "bob@a..b", "bob@\udcff", "bob@" + "x" * 500]
)
def test_whatever_is_no_domain_is_placed_too(address: str) -> None:
    assert sorted(Placement((0, 1, 2)).order(mail(address))) == [0, 1, 2]


def test_a_message_to_nobody_is_placed_too() -> None:
    assert sorted(Placement((0, 1, 2)).order(mail())) == [0, 1, 2]


def test_another_process_finds_the_same() -> None:
    """Hashes of texts differ from process to process; these do not. Nor may they from version to version."""
    placement = Placement(range(7))
    said = [placement.of_domain(name) for name in NAMES[:5]], [placement.of_key(name) for name in NAMES[:20]]
    code = (
        "from zonemta_py.queues.placement import Placement as P;p=P(range(7));"
        f"print(([p.of_domain(n) for n in {NAMES[:5]}],[p.of_key(n) for n in {NAMES[:20]}]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(said)
    assert said[1][:10] == [2, 3, 5, 0, 2, 4, 2, 6, 3, 1]


def test_what_is_remembered_of_domains_is_bounded() -> None:
    placement = Placement((0, 1))
    for number in range(DOMAINS_MAX + 10):
        placement.of_domain(f"d{number}.test")
    assert len(placement._domains) <= DOMAINS_MAX

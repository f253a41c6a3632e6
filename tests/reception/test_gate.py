"""Counting connections, and networks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import Limits
from zonemta_py.reception.connection_limits import ConnectionLimits, Networks, plain_ip


class _Guest:
    def cut_off_if_late(self, now: float) -> None:
        """Nobody is cut off here."""


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=40))
def test_counts_are_exact_whatever_comes_and_goes(moves: list[tuple[str, int]]) -> None:
    """Never more than the limits, in all and per client; each place is given back exactly once."""
    gate = ConnectionLimits(Limits(connections=4, connections_per_client=3), share=1)
    inside: list[tuple[_Guest, str]] = []
    for client, leaver in moves:
        guest = _Guest()
        here = sum(other == client for _, other in inside)
        let_in = gate.enter(guest, client)
        assert let_in == (len(inside) < 4 and here < 3)
        if let_in:
            inside.append((guest, client))
        else:
            gate.leave(guest, client)
        if leaver < len(inside):
            gate.leave(*inside[leaver])
            gate.leave(*inside.pop(leaver))
        assert len(gate) == len(inside)


def test_every_receiver_gets_its_share_but_at_least_one_place() -> None:
    """Limits are for the machine."""
    gate = ConnectionLimits(Limits(connections=10, connections_per_client=1), share=4)
    assert [gate.enter(_Guest(), client) for client in ("a", "b", "b", "c")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("address", "inside"),
    [("192.0.2.7", True), ("192.0.3.7", False), ("2001:db8::7", True), ("::1", False), ("", False), ("x", False)],
)
def test_networks(address: str, inside: bool) -> None:
    """Of both families; what is no address is in none."""
    assert Networks(["192.0.2.0/24", "2001:db8::/32"]).contain(address) is inside


@pytest.mark.parametrize(
    ("raw", "plain"), [("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1"), ("192.0.2.1", "192.0.2.1")]
)
def test_plain_addresses(raw: str, plain: str) -> None:
    """A mapped IPv4 client counts as what it is."""
    assert plain_ip(raw) == plain


def test_an_ipv6_client_is_its_network() -> None:
    """One subscriber has 2^64 addresses, and must not have as many places."""
    gate = ConnectionLimits(Limits(connections_per_client=2), share=1)
    clients = ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2")
    assert [gate.enter(_Guest(), client) for client in clients] == [True, True, False, True, True, True]

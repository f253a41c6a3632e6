"""Counting connections, and networks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import Limits
from zonemta_py.metrics.connections import ConnectionTable
from zonemta_py.reception.connection_limits import ConnectionLimits, Networks, plain_ip


class _Guest:
    def cut_off_if_late(self, now: float) -> None:
        """Nobody is cut off here."""


class _Idle(_Guest):
    busy = gone = False

    def give_way(self) -> bool:
        self.gone = not self.busy
        return self.gone


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 5)), max_size=40))
def test_counts_are_exact_whatever_comes_and_goes(moves: list[tuple[int, str, int]]) -> None:
    """Never more than the limits in all processes together, in all and per client, and never fewer; each place is given
    back exactly once, and those of a process that has ended all at once."""
    table, limits = ConnectionTable(4), Limits(connections=4, connections_per_client=3)
    gates = [_gate(table, limits, pid) for pid in range(3)]
    table.forked(table.reserve("http"), 9)  # another service, which has limits of its own
    inside: list[tuple[int, _Guest, str]] = []
    for process, client, leaver in moves:
        guest = _Guest()
        here = sum(other == client for _, _, other in inside)
        let_in = gates[process].enter(guest, client)
        assert let_in == (len(inside) < 4 and here < 3)
        if let_in:
            inside.append((process, guest, client))
        else:
            gates[process].leave(guest, client)
        if leaver < len(inside):
            its, *one = inside.pop(leaver)
            gates[its].leave(*one)
            gates[its].leave(*one)
        elif leaver == 5:
            table.gone(process + 1)
            gates[process] = _gate(table, limits, process)
            inside = [one for one in inside if one[0] != process]
        assert sum(map(len, gates)) == len(inside) == sum(one.connections for one in table.rows())


def _gate(table: ConnectionTable, limits: Limits, number: int) -> ConnectionLimits:
    """Of a process of its own."""
    row = table.reserve(f"receiver-{number + 1}")
    opened = table.mine()
    table.forked(row, number + 1)
    return ConnectionLimits(limits, opened)


def test_strangers_leave_a_quarter_to_those_that_are_known() -> None:
    """In all processes together; who logs in is none any more."""
    table, limits = ConnectionTable(2), Limits(connections=8)
    one, other = (_gate(table, limits, pid) for pid in range(2))
    guests = [_Guest() for _ in range(6)]
    assert all((one, other)[number % 2].enter(guest, "a", stranger=True) for number, guest in enumerate(guests))
    assert not one.enter(_Guest(), "b", stranger=True)
    assert other.enter(_Guest(), "b")
    one.know(guests[0])
    one.know(guests[0])
    assert other.enter(_Guest(), "b", stranger=True)
    assert not other.enter(_Guest(), "b")


def test_who_has_most_places_and_asks_nothing_gives_way() -> None:
    """A few addresses that only connect do not keep everybody else out; who is being answered stays, and nobody gets
    more places than others by it."""
    gate = ConnectionLimits(Limits(connections=6, connections_per_client=4))
    idle = [(_Idle(), client) for client in "aaabbb"]
    idle[0][0].busy = True
    assert all(gate.enter_or_replace(*one) for one in idle)
    assert gate.enter_or_replace(_Idle(), "c")
    assert [guest.gone for guest, _ in idle] == [False, True, False, False, False, False]
    assert gate.enter_or_replace(_Idle(), "c")
    assert [guest.gone for guest, _ in idle] == [False, True, False, True, False, False]
    assert not gate.enter_or_replace(_Idle(), "c"), "all have two"
    assert len(gate) == 6
    for guest, client in idle:
        gate.leave(guest, client)
    assert len(gate) == 2


def test_many_clients_that_come_and_go_are_told_apart() -> None:
    """The table of clients does not fill up with those that have gone, and one that fits no more is still counted."""
    table = ConnectionTable(2)
    one, other = (_gate(table, Limits(connections=10**6, connections_per_client=1), pid) for pid in range(2))
    clients = [f"192.0.{number // 256}.{number % 256}" for number in range(3000)]
    for _ in range(2):
        guests = [(_Guest(), client) for client in clients]
        assert all(one.enter(*row) for row in guests)
        assert not any(other.enter(_Guest(), client) for client in clients)
        for row in guests:
            one.leave(*row)


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
    gate = ConnectionLimits(Limits(connections_per_client=2))
    clients = ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2")
    assert [gate.enter(_Guest(), client) for client in clients] == [True, True, False, True, True, True]

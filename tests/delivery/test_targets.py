"""Which addresses an attempt tries: permitted, reachable, alive."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.config.sources import Source
from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.delivery.dns.reachability import LocalIdentity
from zonemta_py.delivery.dns.routes import DEAD_S, REMEMBERED_MAX, SILENT_S, AddressTarget, Choice, DeadHosts, Routes
from zonemta_py.mail.classify import ConnectionLost, NoRoute, ReplyRefused, ReplyTimeout, Unreachable
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED

GOOD, OTHER, SIX = "8.8.8.8", "9.9.9.9", "2606:4700::1"


@pytest.fixture
def roads() -> Routes:
    return Routes(LocalIdentity(Config()), DeadHosts())


def narrowed(roads: Routes, *targets: AddressTarget, free: bool = False, source: str = "", now: float = 0) -> list[Any]:
    egress = Egress(Source(address=source)) if source else Egress()
    found = Choice(roads, 25, free).narrowed(targets, egress, source, now)
    return [(target.host, target.addresses) for target in found]


def test_strange_addresses_are_left_out(roads: Routes) -> None:
    """What DNS may not name is not tried, unless the host is named or the zone allows it."""
    targets = AddressTarget("a", ("10.0.0.1", GOOD)), AddressTarget("b", ("127.0.0.1",))
    assert narrowed(roads, *targets) == [("a", (GOOD,))]
    assert narrowed(roads, *targets, free=True) == [("a", ("10.0.0.1", GOOD)), ("b", ("127.0.0.1",))]


def test_dead_hosts_are_skipped_while_one_lives(roads: Routes) -> None:
    """A dead host is passed over for the next one; where all are dead, all are tried."""
    targets = AddressTarget("a", (GOOD,)), AddressTarget("b", (OTHER,))
    roads.learn("", GOOD, 25, Unreachable("connect"), 0)
    assert narrowed(roads, *targets, now=1) == [("b", (OTHER,))]
    roads.learn("", OTHER, 25, Unreachable("connect"), 0)
    assert narrowed(roads, *targets, now=1) == [("a", (GOOD,)), ("b", (OTHER,))]
    roads.learn("", GOOD, 25, None, 1)
    assert narrowed(roads, *targets, now=1) == [("a", (GOOD,))]


def test_living_addresses_that_we_cannot_use_do_not_count(roads: Routes) -> None:
    """A dead address is tried if those alive are private, or of a family that our source has not."""
    roads.learn("", GOOD, 25, Unreachable("connect"), 0)
    assert narrowed(roads, AddressTarget("a", (GOOD, "10.0.0.1"))) == [("a", (GOOD,))]
    roads.learn("127.0.0.1", GOOD, 25, Unreachable("connect"), 0)
    assert narrowed(roads, AddressTarget("a", (GOOD, SIX)), source="127.0.0.1") == [("a", (GOOD,))]


def test_death_is_of_one_road(roads: Routes) -> None:
    """From another source, or at another port, the same address may well be alive."""
    roads.learn("127.0.0.1", GOOD, 25, Unreachable("connect"), 0)
    targets = AddressTarget("a", (GOOD,)), AddressTarget("b", (OTHER,))
    assert len(narrowed(roads, *targets)) == 2
    assert len(narrowed(roads, *targets, source="127.0.0.1")) == 1


@pytest.mark.parametrize(
    ("error", "kept_s"),
    [
        (Unreachable("connect"), DEAD_S),
        (ConnectionLost("banner"), DEAD_S),
        (ReplyTimeout("connect"), SILENT_S),
        (ReplyTimeout("banner"), SILENT_S),
        (ReplyRefused("banner", reply=Reply(421, "", "busy")), 0),
        (ReplyTimeout("ehlo"), 0),
    ],
)
def test_how_long(error: Any, kept_s: float, roads: Routes) -> None:
    """Two minutes; fifteen after a timeout. Who answers, if only to refuse, lives."""
    roads.learn("", GOOD, 25, error, 0)
    place = ("", GOOD, 25)
    assert roads.dead.is_dead(place, 0) is (kept_s > 0)
    assert roads.dead.is_dead(place, kept_s - 1) is (kept_s > 0)
    assert not roads.dead.is_dead(place, kept_s)
    assert len(roads.dead) == 0


def test_memory_is_bounded() -> None:
    """The oldest deaths are forgotten first."""
    dead = DeadHosts()
    for number in range(REMEMBERED_MAX + 5):
        dead.died(number, 0)
    assert (len(dead), dead.order([1, REMEMBERED_MAX], 1)) == (REMEMBERED_MAX, [1])


def test_nothing_left(roads: Routes) -> None:
    """For good if all addresses are known and barred; else it may be better later."""
    choice = Choice(roads, 25, False)
    choice.narrowed([AddressTarget("mx.test", ("10.0.0.1",))], Egress(), "", 0)
    error = choice.failure()
    assert (error.reply.code, error.reply.enhanced, error.temporary) == (550, "5.4.4", False)
    assert "mx.test is at 10.0.0.1, a private address" in error.reply.text
    choice.narrowed([AddressTarget("later.test", ())], Egress(), "", 0)
    assert (choice.failure().reply.enhanced, choice.failure().temporary) == ("4.4.4", True)
    assert isinstance(Choice(roads, 25, False).failure(), Unreachable)


class Names:
    """A resolver that knows one answer."""

    def __init__(self, *targets: AddressTarget) -> None:
        self.targets_found = list(targets)

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        return self.targets_found


async def test_private_addresses_bounce(scripted: Any, letter: Any, deliver: Any) -> None:
    """Mail for a domain whose exchangers are all on loopback bounces, and no connection is made."""
    server = await scripted()
    found = Names(AddressTarget("mx.test", ("127.0.0.1",)))
    [result] = await deliver(letter(server.port, host=""), resolver=found, allow_private=False)
    [outcome] = result.outcomes
    assert (outcome.verdict, outcome.reply.enhanced, server.connections) == (BOUNCED, "5.4.4", 0)
    assert "loopback" in outcome.reply.text


async def test_named_hosts_may_be_anywhere(scripted: Any, letter: Any, deliver: Any) -> None:
    """A smart host on loopback needs no permission."""
    server = await scripted()
    [result] = await deliver(letter(server.port), allow_private=False)
    assert result.outcomes[0].verdict == DELIVERED


async def test_the_queue_knows_the_hosts(scripted: Any, letter: Any, deliver: Any) -> None:
    """Hosts that came with the lease are tried in their order, and DNS is not asked; barred ones are refused too."""
    server = await scripted()
    hosts = [["mx1.test", ["127.0.0.77"]], ["mx2.test", ["127.0.0.1"]]]
    [result] = await deliver(letter(server.port, host="", hosts=hosts), resolver=NoRoute)
    assert (result.outcomes[0].verdict, result.remote.partition("[")[0]) == (DELIVERED, "mx2.test")
    later = [["mx1.test", ["127.0.0.77"]], ["mx2.test", []]]
    [result] = await deliver(letter(server.port, host="", hosts=later), resolver=NoRoute, allow_private=False)
    assert (result.outcomes[0].verdict, result.outcomes[0].reply.enhanced) == (DEFERRED, "4.4.4")


async def test_a_dead_host_is_asked_once(scripted: Any, letter: Any, deliver: Any) -> None:
    """The second message goes straight to the host that lives."""
    server = await scripted()
    with socket.socket() as silent:
        silent.bind(("127.0.0.3", server.port))
        silent.listen()
        found = Names(AddressTarget("m1", ("127.0.0.3",)), AddressTarget("m2", ("127.0.0.1",)))
        letters = [letter(server.port, host="") for _ in range(3)]
        results = await deliver(*letters, resolver=found, idle_s=0, connect_timeout_s=0.5)
        assert [result.outcomes[0].verdict for result in results] == [DELIVERED] * 3
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()

"""Smart hosts in order: the next one when a host cannot be used, never when it refuses mail; real servers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.delivery.conftest import Queue
from zonemta_py.config import SmartHost, Zone
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.delivery.ways import Ways
from zonemta_py.plugin.arguments import ConnectOptions
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, POSTPONED, RELEASED, Delivery
from zonemta_py.zones.admittance import Admittance
from zonemta_py.zones.site import Site


def hosts(*servers: Any) -> list[str]:
    return [f"127.0.0.1:{server if isinstance(server, int) else server.port}" for server in servers]


@pytest.mark.parametrize(
    ("script", "tried"),
    [
        ({"banner": "421"}, 1), ({"banner": "4xx"}, 1), ({"banner": "5xx"}, 1), ({"ehlo": "421"}, 1),
        ({"ehlo": "4xx"}, 1), ({"banner": "reset"}, 1), ({"banner": "silence"}, 1), (None, 0),
    ],
)  # fmt: skip
async def test_the_next_one_when_a_host_cannot_be_used(
    scripted: Any, letter: Any, deliver: Any, unused_tcp_port: int, script: Any, tried: int
) -> None:
    """At connect (None: nobody listens there), banner and EHLO; it rests then, so later messages ask it no more."""
    second = await scripted()
    first = unused_tcp_port if script is None else await scripted(script)
    port = first if isinstance(first, int) else first.port
    results = await deliver(
        letter(port), letter(port), letter(port), hosts=hosts(first, second), messages_per_connection=1
    )
    assert [result.outcomes[0].verdict for result in results] == [DELIVERED] * 3
    assert {result.down_s for result in results} == {None}
    assert (0 if script is None else first.connections, second.connections) == (tried, 3)


async def test_tls_that_fails_is_a_reason_too(scripted: Any, letter: Any, deliver: Any) -> None:
    """The first host must do TLS, and cannot; the second need not."""
    first, second = await scripted(), await scripted()
    listed = [{"host": "127.0.0.1", "port": first.port, "tls": "required"}, *hosts(second)]
    [result] = await deliver(letter(first.port), hosts=listed)
    assert result.outcomes[0].verdict == DELIVERED
    assert (len(first.bodies), len(second.bodies)) == (0, 1)


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ({"rcpt": "5xx"}, BOUNCED),
        ({"mail": "5xx", "next": "5xx"}, BOUNCED),
        ({"dot": "4xx"}, DEFERRED),
        ({"rcpt": "4xx"}, DEFERRED),
    ],
)
async def test_what_refuses_mail_has_the_last_word(
    scripted: Any, letter: Any, deliver: Any, script: dict[str, str], verdict: int
) -> None:
    """A message or recipient is not offered to the next host, and the host does not rest."""
    first, second = await scripted(script), await scripted()
    results = await deliver(letter(first.port), letter(first.port), hosts=hosts(first, second))
    assert [result.outcomes[0].verdict for result in results] == [verdict] * 2
    assert second.connections == 0


async def test_when_none_can_be_used_the_mail_waits(scripted: Any, letter: Any, deliver: Any) -> None:
    """The last error counts, and the destination rests; all are tried again the next time, though they rest."""
    first, second = await scripted({"banner": "421"}), await scripted({"banner": "421"})
    results = await deliver(letter(first.port), letter(first.port), hosts=hosts(first, second))
    assert [result.outcomes[0].verdict for result in results] == [DEFERRED] * 2
    assert {result.down_s for result in results} == {0}
    assert (first.connections, second.connections) == (2, 2)


async def test_a_host_is_tried_again_after_its_rest(scripted: Any, letter: Any, deliver: Any) -> None:
    """With a rest of next to nothing it gets mail as soon as it is well."""
    first, second = await scripted({"banner": "421"}), await scripted()
    second.script["quit"] = ""

    deliveries = [letter(first.port) for _ in range(2)]
    results = await deliver(deliveries[0], hosts=hosts(first, second), host_rest_s=0.001)
    first.script.clear()
    results += await deliver(deliveries[1], hosts=hosts(first, second), host_rest_s=0.001)
    assert [result.outcomes[0].verdict for result in results] == [DELIVERED] * 2
    assert (len(first.bodies), len(second.bodies)) == (1, 1)


async def test_connections_are_reused_in_the_same_order(scripted: Any, letter: Any, deliver: Any) -> None:
    """One connection each; without leave for a new one an idle one to any of them will do, or the mail goes back."""
    first, second = await scripted({"banner": "421"}), await scripted()
    results = await deliver(
        letter(first.port), letter(first.port, may_connect=False),
        letter(first.port, source="127.0.0.9", may_connect=False), hosts=hosts(first, second),
    )  # fmt: skip
    assert [result.outcomes[0].verdict for result in results] == [DELIVERED, DELIVERED, RELEASED]
    assert (first.connections, second.connections) == (1, 1)


def only(result: Any) -> tuple[int, str]:
    [outcome] = result.outcomes
    return outcome.verdict, outcome.stage


class Mx:
    """Says where a domain's mail goes."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self.tlsa_of: list[str] = []

    async def site(self, domain: str, now: float) -> Site:
        return Site("mx.test", "", (("mx.test", ("127.0.0.1",)),), ((1, "mx.test"),), 60, True)

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[Any]]:
        self.tlsa_of.append(host)
        return True, [(3, 1, 1, b"x" * 32)]

    async def named(self, host: str, now: float) -> tuple[str, ...]:
        return (host,)

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        self.asked.append(domain)
        return [AddressTarget("mx.test", ("127.0.0.1",))]


async def test_mx_as_the_last_resort(scripted: Any, letter: Any, deliver: Any) -> None:
    """The hosts that DNS names for the domain, at the zone's port; not while a smart host works."""
    first, mx = await scripted({"banner": "421"}), await scripted()
    resolver = Mx(mx.port)
    listed = [*hosts(first), "mx"]
    [result] = await deliver(letter(first.port), hosts=listed, port=mx.port, resolver=resolver)
    assert result.outcomes[0].verdict == DELIVERED
    assert result.remote == f"mx.test[127.0.0.1]:{mx.port}"
    assert resolver.asked == ["d.example"]
    first.script.clear()
    [result] = await deliver(letter(first.port), hosts=listed, port=mx.port, resolver=resolver)
    assert (result.outcomes[0].verdict, len(first.bodies)) == (DELIVERED, 1)


async def test_mx_as_the_last_resort_needs_a_place(scripted: Any, letter: Any, deliver: Any) -> None:
    """Without one, nothing is connected to, and no attempt counted. One that limits count is for one message."""
    first, mx = await scripted({"banner": "421"}), await scripted()
    letters = [letter(first.port) for _ in range(5)]
    queue = Queue(letters, None, 1)
    queue.places = [
        Admittance(False, wait_s=7.0, cause="t: provider=big (connections)"), Admittance(False),
        Admittance(True, limited=True), Admittance(True), Admittance(True),
    ]  # fmt: skip
    results = await deliver(
        *letters, queue=queue, hosts=[*hosts(first), "mx"], port=mx.port, resolver=Mx(mx.port), idle_s=30
    )
    [put_off], [released] = results[0].outcomes, results[1].outcomes
    assert (put_off.verdict, put_off.stage, put_off.delay_s) == (POSTPONED, "limit", 7.0)
    assert put_off.reply.text.endswith("(connections)")
    assert (released.verdict, released.stage) == (RELEASED, "limit")
    assert queue.asked == [(number, "mx.test", "") for number in range(1, 6)]
    assert [(only(one), one.opened, one.kept, one.connection) for one in results[2:]] == [
        ((DELIVERED, "dot"), True, False, 3), ((DELIVERED, "dot"), True, True, 0), ((DELIVERED, "dot"), False, True, 0),
    ]  # fmt: skip
    assert queue.closings == [3]
    assert mx.connections == 2


async def test_mx_as_the_last_resort_heeds_dane(scripted: Any, letter: Any, deliver: Any) -> None:
    """DNSSEC vouches for the hosts there, as if there were no smart host: in plain no mail goes to one with TLSA
    records; and a smart host has none."""
    first, mx = await scripted({"banner": "421"}), await scripted()
    resolver = Mx(mx.port)
    sections = {"tls": {"dane": True, "mta_sts": False}, "dns": {"dnssec": True}}
    [result] = await deliver(
        letter(first.port), hosts=[*hosts(first), "mx"], port=mx.port, resolver=resolver, sections=sections,
        tls="opportunistic",
    )  # fmt: skip
    assert (result.outcomes[0].verdict, resolver.tlsa_of, mx.bodies) == (DEFERRED, ["mx.test"], [])


def test_a_socket_needs_no_tls_and_others_do() -> None:
    """Whichever comes first."""
    zone = Zone.model_validate({"name": "z", "hosts": ["/run/lmtp", "b", "mx"], "tls": "required"})
    options = ConnectOptions("/run/lmtp", 25, source="", tls="none", hostname="h")
    delivery = Delivery(0, "m", "z", "x", "s", [], 0, 0, host="/run/lmtp")
    ways = Ways().of(zone, delivery, options, 0.0)
    assert [(way.options.host, way.options.tls) for way in ways] == [
        ("/run/lmtp", "none"), ("b", "required"), ("", "required"),
    ]  # fmt: skip


def test_weights_share_the_mail() -> None:
    """Next to each other by their weight; one without has its place."""
    options = ConnectOptions("a", 25, source="", tls="opportunistic", hostname="h")
    zone = Zone(
        name="z", hosts=[SmartHost(host="a", weight=3), SmartHost(host="b", weight=1), SmartHost(host="c")], tls="none"
    )
    delivery = Delivery(0, "m", "z", "x", "s", [], 0, 0, host="a")
    drawn = [[way.options.host for way in Ways().of(zone, delivery, options, 0.0)] for _ in range(2000)]
    assert {order[2] for order in drawn} == {"c"}
    assert 1350 < Counter(order[0] for order in drawn)["a"] < 1650


def test_a_login_that_a_plugin_has_chosen_holds_at_every_host() -> None:
    """Instead of the host's own, under validated TLS; the recipient's own servers get none."""
    secret = {"username": "u", "password": "p", "tls": "implicit"}
    zone = Zone.model_validate({"name": "z", "hosts": [{"host": "a", **secret}, "b", "mx"]})
    options = ConnectOptions("a", 25, source="", tls="opportunistic", hostname="h")
    delivery = Delivery(0, "m", "z", "x", "s", [], 0, 0, host="a", routing={"auth": ["tenant", "secret"]})
    ways = Ways().of(zone, delivery, options, 0.0)
    assert [(way.options.host, way.options.tls, way.login) for way in ways] == [
        ("a", "implicit", ("tenant", "secret")), ("b", "required", ("tenant", "secret")), ("", "opportunistic", None),
    ]  # fmt: skip


def test_a_password_goes_only_to_its_own_host() -> None:
    """And under validated TLS only, whatever else is said."""
    secret = {"username": "u", "password": "p", "tls": "required"}
    zone = Zone.model_validate({"name": "z", "hosts": [{"host": "a", **secret}, "b", "mx"]})
    options = ConnectOptions("a", 25, source="", tls="opportunistic", hostname="h")
    delivery = Delivery(0, "m", "z", "x", "s", [], 0, 0, host="a")
    ways = Ways().of(zone, delivery, options, 0.0)
    assert [(way.options.host, way.options.tls, way.login, way.mx) for way in ways] == [
        ("a", "required", ("u", "p"), False), ("b", "opportunistic", None, False), ("", "opportunistic", None, True),
    ]  # fmt: skip

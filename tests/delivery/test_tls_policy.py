"""Which TLS a delivery needs: the zone, the sender, and what domains publish, in their order of authority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.tls.failures import POLICY, TlsTrouble
from zonemta_py.delivery.tls.mta_sts import PolicyFound
from zonemta_py.delivery.tls.plan import Demands, TlsPlan
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.tls.mta_sts import Sts
from zonemta_py.queue.api import Delivery

EE = (3, 1, 1, bytes(32))
ENFORCE, TESTING, OFF = (Sts("d.test", "1", mode, ("mx.d.test",), 60) for mode in ("enforce", "testing", "none"))


class Names:
    """DNS as a test wants it: TLSA records with or without DNSSEC, or no answer."""

    def __init__(self) -> None:
        self.secure, self.records = True, [EE]
        self.answers = True

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        if not self.answers:
            raise NoRoute(451, "4.4.3", "bogus")
        assert (host, port) == ("mx.d.test", 25)
        return self.secure, self.records

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        raise AssertionError("nobody asked for it")

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        raise AssertionError("nobody asked for it")


def delivery(*domains: str, **fields: Any) -> Delivery:
    recipients = [Recipient(f"r@{domain}") for domain in domains or ("d.test",)]
    return Delivery(1, "m", "z", "d.test", fields.pop("sender", "a@b.test"), recipients, 1, 1, **fields)


def zone(**fields: Any) -> Zone:
    return Zone(name="z", **fields)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def policies(names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TlsPolicies with [tls] keys; sts: the policy of d.test."""

    def make(sts: Sts | None = None, **tls: Any) -> TlsPolicies:
        dns = {"dnssec": True} if tls.get("dane") else {}
        config = Config(server={"folder": tmp_path, "hostname": "mta.test"}, zones=[zone()], tls=tls, dns=dns)
        made = TlsPolicies(config, names)

        async def of(domain: str, now: float) -> PolicyFound:
            return PolicyFound(domain, sts if domain == "d.test" else None)

        monkeypatch.setattr(made._sts, "of", of)
        return made

    return make


@pytest.mark.parametrize("mode", ["none", "opportunistic", "required", "implicit"])
async def test_the_zone_alone(mode: Any, policies: Any) -> None:
    """Without policies nothing is looked up, and all deliveries of a zone share one answer."""
    made = policies()
    first = await made.demands(delivery(), zone(tls=mode), mode)
    assert first is await made.demands(delivery("e.test", secure=True), zone(tls=mode), mode)
    verify = "pkix" if mode in ("required", "implicit") else "none"
    assert await made.plan(first, "mx.d.test", 25) == TlsPlan(mode, verify)


@pytest.mark.parametrize("rule", ["d.test", "*.test", "*", "D.Test."])
@pytest.mark.parametrize("tls", ["none", "opportunistic"])
async def test_required_domains(rule: str, tls: Any, policies: Any) -> None:
    """tls_required_domains hold whatever the zone says, for a message to several domains too."""
    made, ours = policies(), zone(tls=tls, tls_required_domains=[rule])
    assert (await made.demands(delivery("x.other", "d.test"), ours, tls)).mode == "required"
    if rule != "*":
        assert (await made.demands(delivery("x.other"), ours, tls)).mode == tls


@pytest.mark.parametrize(("optional", "policies_of"), [(False, 1), (True, 0)])
async def test_tls_required_no(policies: Any, optional: bool, policies_of: int) -> None:
    """RFC 8689 4.2: what domains publish does not count then; what the zone asks for does."""
    made = policies(ENFORCE, mta_sts=True, dane=True)
    demands = await made.demands(delivery(tls_optional=optional, secure=True), zone(), "opportunistic")
    assert (len(demands.sts), demands.dane, demands.mode) == (policies_of, not optional, "opportunistic")
    ours = zone(tls_required_domains=["d.test"])
    assert (await made.demands(delivery(tls_optional=optional), ours, "opportunistic")).mode == "required"


async def test_require_tls(policies: Any) -> None:
    """REQUIRETLS: required and validated, in any zone (RFC 8689 4.2.1)."""
    made = policies()
    demands = await made.demands(delivery(require_tls=True, secure=True), zone(tls="none"), "none")
    assert (demands.mode, demands.require_tls) == ("required", True)
    assert (await made.plan(demands, "mx.d.test", 25)).verify == "pkix"


@pytest.mark.parametrize(
    ("domains", "secure", "sts", "host", "good"),
    [
        (("d.test",), True, None, "mx.d.test", True),
        (("d.test",), False, None, "mx.d.test", False),
        (("d.test",), False, None, "d.test", True),
        (("d.test",), False, ENFORCE, "mx.d.test", True),
        (("d.test",), False, TESTING, "mx.d.test", True),
        (("d.test",), False, TESTING, "evil.test", False),
        (("d.test",), False, OFF, "mx.d.test", False),
        (("d.test", "e.test"), False, ENFORCE, "mx.d.test", False),
        (("d.test", "e.test"), True, None, "mx.d.test", False),
    ],
)
async def test_require_tls_needs_proof(
    domains: Any, secure: bool, sts: Sts | None, host: str, good: bool, policies: Any
) -> None:
    """DNSSEC or MTA-STS says for every domain that the host is its own, or there is no MX (RFC 8689 4.2.1)."""
    made = policies(sts)
    demands = await made.demands(delivery(*domains, require_tls=True, secure=secure), zone(tls="none"), "none")
    if good:
        assert (await made.plan(demands, host, 25)).mode == "required"
    else:
        with pytest.raises(TlsTrouble, match="neither DNSSEC nor MTA-STS"):
            await made.plan(demands, host, 25)


async def test_require_tls_and_a_smart_host(policies: Any) -> None:
    """A host that is named was not found by anything that could lie."""
    made = policies()
    demands = await made.demands(delivery(require_tls=True, host="smart.test"), zone(), "none", named=True)
    assert (await made.plan(demands, "smart.test", 25)).verify == "pkix"


async def test_enforced(policies: Any) -> None:
    """MTA-STS in force: validated, never plain; a host that the policy does not name is not used at all."""
    made = policies(ENFORCE, mta_sts=True)
    demands = await made.demands(delivery(), zone(), "opportunistic")
    assert await made.plan(demands, "mx.d.test", 25) == TlsPlan("required", "mta-sts", source="sts")
    with pytest.raises(TlsTrouble, match=r"evil\.test") as raised:
        await made.plan(demands, "evil.test", 25)
    assert raised.value.kind == POLICY


async def test_tested(policies: Any) -> None:
    """Testing: looked at, and no more; a zone that requires TLS still does."""
    made = policies(TESTING, mta_sts=True)
    demands = await made.demands(delivery(), zone(), "opportunistic")
    for host in ("mx.d.test", "evil.test"):
        assert await made.plan(demands, host, 25) == TlsPlan("opportunistic", "mta-sts", soft=True, source="sts")
    demands = await made.demands(delivery(), zone(tls="required"), "required")
    assert await made.plan(demands, "mx.d.test", 25) == TlsPlan("required", "pkix")


async def test_policies_raise_only(policies: Any) -> None:
    """A rule or plugin that switched TLS off does not switch off a policy; a zone with tls = none has none."""
    made = policies(ENFORCE, mta_sts=True)
    assert (await made.plan(await made.demands(delivery(), zone(), "none"), "mx.d.test", 25)).mode == "required"
    assert await made.plan(await made.demands(delivery(), zone(tls="none"), "none"), "m", 25) == TlsPlan("none")
    made = policies(OFF, mta_sts=True)
    assert await made.plan(await made.demands(delivery(), zone(), "none"), "m", 25) == TlsPlan("none")


async def test_strictest_of_several_domains(policies: Any) -> None:
    """One delivery to two domains of a site: the policy of either holds."""
    made = policies(ENFORCE, mta_sts=True)
    demands = await made.demands(delivery("e.test", "d.test"), zone(), "opportunistic")
    assert (await made.plan(demands, "mx.d.test", 25)).mode == "required"


async def test_named_hosts_have_no_policy(policies: Any) -> None:
    """A smart host is ours to choose: neither MTA-STS nor DANE."""
    made = policies(ENFORCE, mta_sts=True, dane=True)
    demands = await made.demands(delivery(host="smart.test", secure=True), zone(), "opportunistic", named=True)
    assert await made.plan(demands, "smart.test", 25) == TlsPlan()


async def test_dane(policies: Any) -> None:
    """DANE over MTA-STS; the names are the host's and the recipient domain's (RFC 7672 3.2.2)."""
    made = policies(ENFORCE, mta_sts=True, dane=True)
    demands = await made.demands(delivery(secure=True), zone(), "opportunistic")
    plan = await made.plan(demands, "mx.d.test", 25)
    assert (plan.mode, plan.verify, plan.source) == ("required", "dane", "tlsa")
    assert (plan.tlsa, plan.names) == ((EE,), ("mx.d.test", "d.test"))


async def test_unusable_records(names: Names, policies: Any) -> None:
    """TLSA records of which none can be used: encrypted, not authenticated (RFC 7672 2.2)."""
    names.records = [(1, 1, 1, bytes(32))]
    made = policies(dane=True)
    plan = await made.plan(await made.demands(delivery(secure=True), zone(), "opportunistic"), "mx.d.test", 25)
    assert (plan.mode, plan.verify) == ("required", "none")


@pytest.mark.parametrize("what", ["way", "answer", "records"])
async def test_dane_only_with_dnssec(what: str, names: Names, policies: Any) -> None:
    """MX, address and TLSA answers must all be vouched for; else it is as if there were none."""
    names.secure, names.records = what != "answer", [] if what == "records" else [EE]
    made = policies(dane=True)
    demands = await made.demands(delivery(secure=what != "way"), zone(), "opportunistic")
    assert await made.plan(demands, "mx.d.test", 25) == TlsPlan()


async def test_bogus_answers(names: Names, policies: Any) -> None:
    """No answer, or a forged one: this host is not used now (RFC 7672 2.1.2)."""
    names.answers = False
    made = policies(dane=True)
    demands = await made.demands(delivery(secure=True), zone(), "opportunistic")
    with pytest.raises(TlsTrouble) as raised:
        await made.plan(demands, "mx.d.test", 25)
    assert (raised.value.kind, raised.value.result, raised.value.temporary) == (POLICY, "dnssec-invalid", True)


async def test_reports_go_anyway(policies: Any) -> None:
    """A report on broken TLS is not kept back by it (RFC 8460 3)."""
    made = policies(ENFORCE, mta_sts=True, dane=True, reports=True)
    report = delivery(sender="postmaster@mta.test", secure=True)
    assert await made.plan(await made.demands(report, zone(), "opportunistic"), "evil.test", 25) == TlsPlan()


def test_demands_make_connections_alike() -> None:
    """Domains do not tell connections apart, what is asked of TLS does."""
    assert Demands("none", domains=("a",)) == Demands("none", domains=("b",))
    assert Demands("none") != Demands("none", require_tls=True)
    assert len({Demands("none", sts=(ENFORCE,)), Demands("none", sts=(TESTING,)), Demands("none")}) == 3


@pytest.mark.parametrize("tls", ["none", "opportunistic"])
async def test_a_plugin_leaves_policies_out_or_asks_for_one(policies: Any, tls: Any) -> None:
    """For single recipients, whatever is configured; those with others do not share a connection."""
    on, off = policies(ENFORCE, mta_sts=True, dane=True), policies(ENFORCE)
    ignored = await on.demands(
        delivery(secure=True, routing={"sts": False}), zone(tls="opportunistic"), "opportunistic"
    )
    assert (ignored.sts, ignored.dane) == ((), False)
    usual = await on.demands(delivery(secure=True), zone(tls="opportunistic"), "opportunistic")
    assert (usual.sts, usual.dane) == ((ENFORCE,), True)
    assert usual.shared != ignored.shared
    wanted = await off.demands(delivery(routing={"sts": True}), zone(tls=tls), tls)
    assert (wanted.sts, wanted.dane) == ((ENFORCE,), False)
    assert (await off.demands(delivery(routing={"tls": tls}), zone(tls=tls), tls)).sts == ()

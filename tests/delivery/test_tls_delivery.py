"""Whole deliveries under what domains publish: MTA-STS, DANE, REQUIRETLS, and what is said of it afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.config.section import shipped
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.delivery.tls import dane
from zonemta_py.mail.rules.rule import Action
from zonemta_py.mail.rules.rules import Rules
from zonemta_py.mail.tls.reports import Seen
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Outcome, Result

KEYWORDS = ("PIPELINING", "STARTTLS", "REQUIRETLS")
MX = "mx.d.test"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


@pytest.fixture
def context(authority: trustme.CA) -> ssl.SSLContext:
    return serving(authority.issue_cert(MX))


def serving(leaf: trustme.LeafCert) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(made)
    return made


class DestinationResolver:
    """What DNS says. tlsa_records: None if it does not answer. id: of the policy, "" for none."""

    def __init__(self, hosts: tuple[str, ...] = (MX,), id: str = "", tlsa_records: Any = ()) -> None:
        self.hosts, self.id, self.tlsa_records = hosts, id, tlsa_records

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        return [AddressTarget(host, (f"127.0.0.{number}",)) for number, host in enumerate(self.hosts, 1)]

    async def named(self, host: str, now: float) -> tuple[str, ...]:
        return ("127.0.0.1",)

    addresses = named

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        return False, [f"v=STSv1; id={self.id}"] if self.id and name == "_mta-sts.d.example" else []

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        return True, list(self.tlsa_records)


@pytest.fixture
async def policy(authority: trustme.CA) -> AsyncIterator[Any]:
    """Serves a policy for d.example over HTTPS: `await policy("enforce")` returns the port."""
    servers: list[asyncio.Server] = []
    own = serving(authority.issue_cert("mta-sts.d.example"))

    async def start(mode: str, mx: str = MX) -> int:
        body = f"version: STSv1\nmode: {mode}\nmx: {mx}\nmax_age: 86400\n".encode()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own))
        return int(servers[-1].sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def sections(tmp_path: Path, ca_file: Path) -> Any:
    """[tls] with these keys, a folder of its own, and DNSSEC."""

    def make(**tls: Any) -> dict[str, Any]:
        return {"tls": {"ca_file": ca_file} | tls, "server": {"folder": tmp_path}, "dns": {"dnssec": True}}

    return make


def outcome(result: Result) -> Outcome:
    [only] = result.outcomes
    return only


async def test_enforced(context: Any, policy: Any, sections: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """Delivered under validated TLS, and the next message goes over the same connection."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    tls = sections(mta_sts=True, mta_sts_port=await policy("enforce"), reports=True)
    first, second = await deliver(
        letter(server.port, host=""), letter(server.port, host=""), resolver=DestinationResolver(id="1"), sections=tls,
        tls="opportunistic",
    )  # fmt: skip
    assert outcome(first).verdict == outcome(second).verdict == DELIVERED
    assert first.tls == second.tls
    assert first.tls.endswith(" verified=mta-sts")
    assert (server.connections, first.opened, second.opened, second.security) == (1, True, False, [])
    [row] = first.security
    seen = Seen(*row)
    assert (seen.domain, seen.kind, seen.result, seen.mx) == ("d.example", "sts", "", [MX])


@pytest.mark.parametrize(
    ("mode", "hosts", "keywords", "verdict"),
    [
        ("enforce", ("evil.test",), KEYWORDS, DEFERRED),
        ("enforce", (MX,), (), DEFERRED),
        ("testing", ("evil.test",), KEYWORDS, DELIVERED),
        ("testing", (MX,), (), DELIVERED),
        ("none", (MX,), (), DELIVERED),
    ],
)
async def test_not_as_the_policy_says(
    mode: str, hosts: Any, keywords: Any, verdict: int, context: Any, policy: Any, sections: Any, scripted: Any,
    letter: Any, deliver: Any,
) -> None:  # fmt: skip
    """In force: another host, or no TLS, gets nothing, and the hosts are not rested for it. Tested: only reported."""
    server = await scripted(keywords=keywords, tls=context)
    tls = sections(mta_sts=True, mta_sts_port=await policy(mode), reports=True)
    [result] = await deliver(
        letter(server.port, host=""), resolver=DestinationResolver(hosts, "1"), sections=tls, tls="opportunistic"
    )
    assert outcome(result).verdict == verdict
    assert len(server.bodies) == (verdict == DELIVERED)
    assert any(Seen(*row).result for row in result.security) == (mode != "none" or not keywords)
    if verdict == DEFERRED:
        assert (outcome(result).stage, result.down_s) == ("tls-policy", None)


async def test_the_host_that_the_policy_names(
    context: Any, policy: Any, sections: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """A host that a policy does not name is passed over for one that it names."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    tls = sections(mta_sts=True, mta_sts_port=await policy("enforce"))
    resolver = DestinationResolver(("evil.test", MX), "1")

    async def targets(domain: str, now: float) -> list[AddressTarget]:
        return [AddressTarget(host, ("127.0.0.1",)) for host in resolver.hosts]

    resolver.targets = targets  # type: ignore[method-assign]
    [result] = await deliver(letter(server.port, host=""), resolver=resolver, sections=tls, tls="opportunistic")
    assert (outcome(result).verdict, result.remote) == (DELIVERED, f"{MX}[127.0.0.1]:{server.port}")


@pytest.mark.parametrize("right", [True, False])
async def test_dane(right: bool, sections: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """A self-made certificate is good if the TLSA record names it, and none if not."""
    leaf = trustme.CA().issue_cert("whatever.test")
    key = dane.key_of(ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode()))
    digest = hashlib.sha256(key).digest() if right else bytes(32)
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf))
    [result] = await deliver(
        letter(server.port, host="", secure=True), resolver=DestinationResolver(tlsa_records=[(3, 1, 1, digest)]),
        sections=sections(dane=True, reports=True), tls="opportunistic",
    )  # fmt: skip
    seen = Seen(*result.security[0])
    assert seen.kind == "tlsa"
    if right:
        assert outcome(result).verdict == DELIVERED
        assert result.tls.endswith(" verified=dane")
    else:
        assert (outcome(result).verdict, outcome(result).stage, server.bodies) == (DEFERRED, "tls-policy", [])
        assert seen.result == "validation-failure"


@pytest.mark.parametrize(("mode", "rule", "under_tls"), [("opportunistic", [], False), ("required", [], True),
                                                         ("opportunistic", ["d.example"], True)])  # fmt: skip
async def test_rules_switch_off_what_may_be(
    mode: str, rule: Any, under_tls: bool, context: Any, sections: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """no_tls of a rule ends opportunistic TLS, and nothing that is required."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    [result] = await deliver(
        letter(server.port, host="", routing={"no_tls": True}), resolver=DestinationResolver(), sections=sections(),
        tls=mode, tls_required_domains=rule,
    )  # fmt: skip
    assert (outcome(result).verdict, bool(result.tls)) == (DELIVERED, under_tls)


STRICT = {
    "domain": ({}, {"tls_required_domains": ["d.example"]}),
    "plugin": ({"routing": {"tls": "required"}}, {}),
    "plugin, another port": ({"routing": {"tls": "implicit"}}, {"tls": "required"}),
}


@pytest.mark.parametrize(("mail", "zone"), STRICT.values(), ids=STRICT)
@pytest.mark.parametrize("lacks", ["certificate", "starttls", "handshake"])
async def test_who_demands_tls_has_it_alone(
    lacks: str, mail: Any, zone: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """What fails for the demand of a domain or message is put off: nobody else's mail there rests, or goes in plain."""
    script = {"starttls": "reset"} if lacks == "handshake" else {}
    server = await scripted(
        script, () if lacks == "starttls" else KEYWORDS, tls=serving(trustme.CA().issue_cert("mx.test"))
    )
    [result] = await deliver(letter(server.port, **mail), **({"tls": "opportunistic"} | zone))
    assert (outcome(result).verdict, outcome(result).stage, result.down_s) == (DEFERRED, "tls-policy", None)
    classified = Rules.load([shipped("rules.toml")]).own(outcome(result).kind, outcome(result).stage)
    assert (classified.kind, classified.action) == ("tls", Action())
    [result] = await deliver(letter(server.port, routing={"tls": "opportunistic"}), tls="opportunistic")
    assert (outcome(result).verdict, bool(result.tls)) == (DELIVERED, lacks == "certificate")


@pytest.mark.parametrize(("rule", "verdict"), [("d.example", DEFERRED), ("*.d.example", DELIVERED)])
async def test_required_domain(rule: str, verdict: int, scripted: Any, letter: Any, deliver: Any) -> None:
    """Its mail waits where TLS is not offered; that of others goes."""
    server = await scripted()
    [result] = await deliver(letter(server.port), tls="opportunistic", tls_required_domains=[rule])
    assert outcome(result).verdict == verdict


async def test_require_tls(context: Any, sections: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """REQUIRETLS is said in MAIL, under validated TLS, to a server that offers it."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    [result] = await deliver(
        letter(server.port, host="", require_tls=True, secure=True),
        resolver=DestinationResolver(),
        sections=sections(),
        tls="none",
    )
    assert outcome(result).verdict == DELIVERED
    assert any(line == "MAIL FROM:<a@b.example> REQUIRETLS" for line in server.commands)


@pytest.mark.parametrize(
    ("keywords", "name", "secure", "enhanced"),
    [
        (("STARTTLS",), MX, True, "5.7.30"),
        (("PIPELINING",), MX, True, "5.7.10"),
        (KEYWORDS, "other.test", True, "5.7.10"),
        (KEYWORDS, MX, False, "5.7.10"),
    ],
)
async def test_require_tls_cannot_be_met(
    keywords: Any, name: str, secure: bool, enhanced: str, authority: trustme.CA, sections: Any, scripted: Any,
    letter: Any, deliver: Any,
) -> None:  # fmt: skip
    """No REQUIRETLS: 5.7.30. No STARTTLS, no valid certificate, no proof of the MX: 5.7.10 (RFC 8689 4.2.1). At once,
    and the host need not rest."""
    server = await scripted(keywords=keywords, tls=serving(authority.issue_cert(name)))
    [result] = await deliver(
        letter(server.port, host="", require_tls=True, secure=secure), resolver=DestinationResolver(),
        sections=sections(), tls="opportunistic",
    )  # fmt: skip
    assert (outcome(result).verdict, outcome(result).reply.enhanced) == (BOUNCED, enhanced)
    assert result.down_s is None
    assert not any(line.startswith("MAIL") for line in server.commands)


async def test_require_tls_and_a_dead_host(sections: Any, letter: Any, deliver: Any, unused_port: int) -> None:
    """A host that cannot be reached may yet offer it: the message waits."""
    [result] = await deliver(
        letter(unused_port, host="", require_tls=True, secure=True), resolver=DestinationResolver(),
        sections=sections(), tls="opportunistic",
    )  # fmt: skip
    assert (outcome(result).verdict, outcome(result).stage) == (DEFERRED, "connect")


@pytest.mark.parametrize("mode", ["enforce", "testing"])
async def test_require_tls_by_policy(
    mode: str, context: Any, policy: Any, sections: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """An MTA-STS policy that names the host is proof too, and is looked for even where mta_sts is off."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    [result] = await deliver(
        letter(server.port, host="", require_tls=True), resolver=DestinationResolver(id="1"),
        sections=sections(mta_sts_port=await policy(mode)), tls="none",
    )  # fmt: skip
    assert outcome(result).verdict == DELIVERED


async def test_require_tls_and_a_policy_host_that_is_down(
    sections: Any, letter: Any, deliver: Any, unused_port: int
) -> None:
    """Whether the policy would be proof is not known yet: the message waits."""
    tls = sections(mta_sts_port=unused_port)
    [result] = await deliver(
        letter(25, host="", require_tls=True), resolver=DestinationResolver(id="1"), sections=tls, tls="none"
    )
    assert outcome(result).verdict == DEFERRED


@pytest.mark.parametrize(("keywords", "verdict"), [(("STARTTLS",), DELIVERED), ((), DEFERRED)])
async def test_notices_about_such_mail(
    keywords: Any, verdict: int, context: Any, sections: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """From nobody: under TLS, but without REQUIRETLS or proof, rather than never (RFC 8689 5)."""
    server = await scripted(keywords=keywords, tls=context)
    notice = letter(server.port, host="", require_tls=True)
    notice.sender = ""
    [result] = await deliver(notice, resolver=DestinationResolver(), sections=sections(), tls="none")
    assert outcome(result).verdict == verdict


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    return port


async def test_no_reports_no_rows(context: Any, sections: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """Without tls.reports nothing is written down beyond version, cipher and verification."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    [result] = await deliver(letter(server.port), sections=sections(), tls="opportunistic")
    assert (result.security, result.tls[:8], result.tls[-14:]) == ([], "TLSv1.3 ", " verified=none")


async def test_reports_without_policies(context: Any, sections: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """Domains without a policy are told of too, with both ends of the connection."""
    server = await scripted(keywords=KEYWORDS, tls=context)
    reports = sections(reports=True)
    [result] = await deliver(
        letter(server.port, host=""), resolver=DestinationResolver(), sections=reports, tls="opportunistic"
    )
    assert result.security == [list(Seen("d.example", "no-policy-found", "", MX, "127.0.0.1", "127.0.0.1", "", [], []))]
    [result] = await deliver(letter(server.port), sections=reports, tls="opportunistic")
    assert result.security == []  # a smart host says nothing of the recipient's domain

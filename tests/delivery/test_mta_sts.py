"""MTA-STS policies: fetched over real HTTPS from loopback, kept, refreshed, and kept over restarts."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.delivery.tls import mta_sts
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.mta_sts import StsPolicies
from zonemta_py.mail.classify import NoRoute

POLICY = b"version: STSv1\r\nmode: enforce\r\nmx: mx.d.test\r\nmax_age: 86400\r\n"


class Names:
    """DNS as a test wants it. id: of the record, "" for none, None if DNS does not answer."""

    def __init__(self) -> None:
        self.id: str | None = "1"

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        assert name == "_mta-sts.d.test"
        if self.id is None:
            raise NoRoute(451, "4.4.3", "no answer")
        return False, [f"v=STSv1; id={self.id};"] if self.id else []

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        assert host == "mta-sts.d.test"
        return ("127.0.0.1",)

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        return False, []


class PolicyHost:
    """An HTTPS server. status, kind, body: its answer. asked: how often, for what."""

    def __init__(self) -> None:
        self.status, self.kind, self.body = "200 OK", "text/plain; charset=utf-8", POLICY
        self.more = ""
        self.asked: list[str] = []
        self.port = 0
        self.up = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        if self.up:
            writer.write(f"HTTP/1.1 {self.status}\r\nContent-Type: {self.kind}\r\n{self.more}".encode())
            writer.write(f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n".encode() + self.body)
        writer.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
async def host(authority: trustme.CA) -> AsyncIterator[Callable[..., Awaitable[PolicyHost]]]:
    """Starts a policy host with a certificate for `name`."""
    servers: list[asyncio.Server] = []

    async def start(name: str = "mta-sts.d.test") -> PolicyHost:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        made = PolicyHost()
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
        made.port = server.sockets[0].getsockname()[1]
        servers.append(server)
        return made

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def policies(tmp_path: Path, ca_file: Path) -> Callable[..., StsPolicies]:
    """As a process that has just started has them."""
    return lambda host, names: StsPolicies(tmp_path / "tls", names, TlsContexts(ca_file), host.port, lambda _: "")


async def test_fetched_once(host: Any, policies: Any) -> None:
    """GET of the well-known path with the policy host's name; then it is known."""
    server, names = await host(), Names()
    sts = policies(server, names)
    several = await asyncio.gather(*(sts.of("D.Test.", 0) for _ in range(5)))
    found = await sts.of("d.test", 1)
    assert {one.policy for one in several} == {found.policy}
    assert (found.policy.mode, found.policy.mx, found.policy.id) == ("enforce", ("mx.d.test",), "1")
    [head] = server.asked
    assert head.startswith("GET /.well-known/mta-sts.txt HTTP/1.1\r\n")
    assert f"host: mta-sts.d.test:{server.port}\r\n" in head.lower()


async def test_no_record_no_question(host: Any, policies: Any) -> None:
    """Without the DNS record nobody is asked (RFC 8461 3.1)."""
    server, names = await host(), Names()
    names.id = ""
    assert (await policies(server, names).of("d.test", 0)).policy is None
    assert not server.asked


@pytest.mark.parametrize("id", ["", None, "2"])
async def test_a_known_policy_holds(id: str | None, host: Any, policies: Any) -> None:
    """Until max_age is over, whatever becomes of record and host (RFC 8461 5.1), also after a restart."""
    server, names = await host(), Names()
    sts = policies(server, names)
    known = (await sts.of("d.test", 0)).policy
    server.up, names.id = False, id
    assert (await sts.of("d.test", 1)).policy == known
    assert (await policies(server, names).of("d.test", 2)).policy == known


async def test_new_id(host: Any, policies: Any) -> None:
    """A changed id has the policy fetched again."""
    server, names = await host(), Names()
    sts = policies(server, names)
    await sts.of("d.test", 0)
    server.body, names.id = POLICY.replace(b"enforce", b"testing"), "2"
    found = await sts.of("d.test", 1)
    assert (found.policy.mode, found.policy.id) == ("testing", "2")
    assert (await policies(server, names).of("d.test", 2)).policy == found.policy
    assert len(server.asked) == 2


async def test_max_age_is_over(host: Any, policies: Any, tmp_path: Path) -> None:
    """A policy that is too old is none, and its file goes."""
    server, names = await host(), Names()
    await policies(server, names).of("d.test", 0)
    file = tmp_path / "tls" / "d.test.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fetched_s": 1.0}))
    names.id = ""
    assert (await policies(server, names).of("d.test", 0)).policy is None
    assert not file.exists()


@pytest.mark.parametrize("moved_s", [-50_000, 400 * 86_400])
async def test_refreshed_while_it_holds(host: Any, policies: Any, tmp_path: Path, moved_s: float) -> None:
    """A policy past half of its life, or fetched while the clock was ahead, is fetched again; nobody waits for it."""
    server, names = await host(), Names()
    await policies(server, names).of("d.test", 0)
    file = tmp_path / "tls" / "d.test.json"
    row = json.loads(file.read_text())
    moved = json.dumps(row | {"fetched_s": row["fetched_s"] + moved_s})
    file.write_text(moved)
    assert (await policies(server, names).of("d.test", 0)).policy is not None
    async with asyncio.timeout(60):
        while file.read_text() == moved:  # noqa: ASYNC110 - it is a file that changes
            await asyncio.sleep(0.01)
    assert abs(json.loads(file.read_text())["fetched_s"] - row["fetched_s"]) < 60
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"status": "404 Not Found"}, "sts-policy-fetch-error"),
        ({"status": "301 Moved", "more": "Location: https://127.0.0.1/\r\n"}, "sts-policy-fetch-error"),
        ({"status": "206 Partial"}, "sts-policy-fetch-error"),
        ({"kind": "text/html"}, "sts-policy-fetch-error"),
        ({"body": b"version: STSv1\n" + b"mx: a.test\n" * 10_000}, "sts-policy-fetch-error"),
        ({"up": False}, "sts-policy-fetch-error"),
        ({"body": b"version: STSv2\n"}, "sts-policy-invalid"),
        ({"body": b"\xff\xfe"}, "sts-policy-invalid"),
        ({"body": gzip.compress(POLICY), "more": "Content-Encoding: gzip\r\n"}, "sts-policy-invalid"),
    ],
)
async def test_bad_answers(change: dict[str, Any], result: str, host: Any, policies: Any) -> None:
    """Redirects, other media types, floods (compressed ones too) and nonsense are no policy; it is not asked again at
    once."""
    server, names = await host(), Names()
    for name, value in change.items():
        setattr(server, name, value)
    sts = policies(server, names)
    for now in (0.0, mta_sts.FAILURE_S - 1):
        found = await sts.of("d.test", now)
        assert (found.policy, found.result) == (None, result)
    assert len(server.asked) == 1
    for name, value in vars(PolicyHost()).items():
        if name in change:
            setattr(server, name, value)
    assert (await sts.of("d.test", mta_sts.FAILURE_S)).policy is not None


async def test_wrong_certificate(host: Any, policies: Any) -> None:
    """The certificate must be for mta-sts.DOMAIN (RFC 8461 3.3)."""
    server, names = await host("d.test"), Names()
    found = await policies(server, names).of("d.test", 0)
    assert (found.policy, found.result) == (None, "sts-webpki-invalid")
    assert not server.asked


async def test_unknown_authority(host: Any, tmp_path: Path) -> None:
    """Validated by tls.ca_file, not just by anybody."""
    server = await host()
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    found = await StsPolicies(tmp_path / "tls", Names(), TlsContexts(other), server.port, lambda _: "").of("d.test", 0)
    assert found.result == "sts-webpki-invalid"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "1", "fetched_s": "x", "policy": ""}'])
async def test_damaged_file(text: str, host: Any, policies: Any, tmp_path: Path) -> None:
    """A file that cannot be read is fetched anew."""
    server, names = await host(), Names()
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "d.test.json").write_text(text)
    assert (await policies(server, names).of("d.test", 0)).policy is not None


@pytest.mark.parametrize("domain", ["[127.0.0.1]", "../../etc/passwd", "", "a b.test", "x" * 300])
async def test_no_domains(domain: str, host: Any, policies: Any, tmp_path: Path) -> None:
    """What is no domain has no policy, and no file."""
    server = await host()
    assert (await policies(server, Names()).of(domain, 0)).policy is None
    assert not (tmp_path / "tls").exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_a_policy_host_may_not_be_at_home(address: str, tmp_path: Path, ca_file: Path) -> None:
    """Where DNS leads a fetch is a stranger's choice: addresses that mail may not go to are not asked."""

    class Home(Names):
        async def addresses(self, host: str, now: float) -> tuple[str, ...]:
            return (address,)

    found = await StsPolicies(tmp_path / "tls", Home(), TlsContexts(ca_file), 1).of("d.test", 0)
    assert (found.policy, found.result) == (None, "sts-policy-fetch-error")
    assert f"mta-sts.d.test is at {address}, a" in found.detail

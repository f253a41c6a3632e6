"""TLS on one connection: versions, certificates, DANE, TLS from the first byte, and what is remembered."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.delivery.smtp.session import Route, SmtpSession, open_session
from zonemta_py.delivery.tls import contexts as tls_contexts
from zonemta_py.delivery.tls import dane
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.dane import Tlsa
from zonemta_py.delivery.tls.failures import CERTIFICATE, HANDSHAKE, STARTTLS, TlsTrouble
from zonemta_py.delivery.tls.ladder import TlsMemory
from zonemta_py.delivery.tls.plan import TlsPlan, Trial
from zonemta_py.mail.classify import TlsFailed
from zonemta_py.sink import Sink, SinkOptions

KEYWORDS = ("PIPELINING", "STARTTLS")
NAME = "mx.d.test"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def leaf(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert(NAME)


@pytest.fixture
def contexts(authority: trustme.CA, tmp_path: Path) -> TlsContexts:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return TlsContexts(tmp_path / "ca.pem")


def serving(leaf: trustme.LeafCert, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    context.maximum_version = newest
    return context


def with_root(leaf: trustme.LeafCert, authority: trustme.CA, folder: Path) -> ssl.SSLContext:
    """A server that sends its authority's certificate too, as DANE-TA asks."""
    chain = [leaf.private_key_pem, *leaf.cert_chain_pems, authority.cert_pem]
    (folder / "chain.pem").write_bytes(b"".join(pem.bytes() for pem in chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain.pem")
    return context


def tlsa(usage: int, pem: trustme.Blob) -> Tlsa:
    key = dane.key_of(ssl.PEM_cert_to_DER_cert(pem.bytes().decode()))
    return Tlsa(usage, 1, 1, hashlib.sha256(key).digest())


async def opened(server: Any, plan: TlsPlan, contexts: TlsContexts, memory: TlsMemory | None = None) -> SmtpSession:
    route = Route(NAME, "127.0.0.1", server.port, tls=plan, connect_timeout_s=5, reply_timeout_s=5)
    session = await open_session(route, contexts, memory)
    session.dialogue.quit()
    return session


async def failure(server: Any, plan: TlsPlan, contexts: TlsContexts, memory: TlsMemory | None = None) -> TlsTrouble:
    with pytest.raises(TlsTrouble) as raised:
        await opened(server, plan, contexts, memory)
    return raised.value


def failing(leaf: trustme.LeafCert) -> ssl.SSLContext:
    """Has no cipher for its own kind of key: every handshake fails."""
    context = serving(leaf, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    return context


async def test_a_step_lower(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """After a failed handshake 1.2 is the newest that is offered, on a fresh connection, and it is remembered."""
    server = await scripted(keywords=KEYWORDS, tls=[failing(leaf), serving(leaf), serving(leaf)])
    memory = TlsMemory(3600)
    session = await opened(server, TlsPlan(), contexts, memory)
    assert (session.tls[:7], server.connections) == ("TLSv1.2", 2)
    session = await opened(server, TlsPlan(), contexts, memory)
    assert (session.tls[:7], server.connections) == ("TLSv1.2", 3)


async def test_down_to_plain(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """No version of TLS: in plain, and the next time at once."""
    server = await scripted(keywords=KEYWORDS, tls=failing(leaf))
    memory = TlsMemory(3600)
    for connections in (3, 4):
        session = await opened(server, TlsPlan(), contexts, memory)
        assert (session.tls, server.connections) == ("", connections)


@pytest.mark.parametrize("mode", ["required", "implicit"])
async def test_never_plain(mode: str, scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """A plan that forbids plain fails, even for a host that is remembered as plain."""
    server = await scripted(keywords=KEYWORDS, tls=failing(leaf))
    memory = TlsMemory(3600)
    await opened(server, TlsPlan(), contexts, memory)
    trouble = await failure(server, TlsPlan(mode), contexts, memory)
    assert trouble.kind == HANDSHAKE
    assert not any(line.startswith("MAIL") for line in server.commands)


async def test_least_version(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """tls_min = 1.3 does not talk to a server that ends at 1.2."""
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf, ssl.TLSVersion.TLSv1_2))
    assert (await failure(server, TlsPlan("required", least="1.3"), contexts)).kind == HANDSHAKE
    assert (await opened(server, TlsPlan("required"), contexts)).tls.startswith("TLSv1.2 ")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_validated(newest: Any, scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """Version, cipher and what validated it are told."""
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf, newest))
    version, cipher, verified = (await opened(server, TlsPlan("required", "pkix"), contexts)).tls.split()
    assert (version, verified) == (newest.name.replace("_", "."), "verified=pkix")
    assert cipher


@pytest.mark.parametrize(
    ("name", "ours", "result"),
    [("other.test", True, "certificate-host-mismatch"), (NAME, False, "certificate-not-trusted")],
)
async def test_not_valid(
    name: str, ours: bool, result: str, scripted: Any, authority: trustme.CA, contexts: TlsContexts
) -> None:
    """A certificate that is not valid is no reason to try an older version, and reported as what it is."""
    server = await scripted(keywords=KEYWORDS, tls=serving((authority if ours else trustme.CA()).issue_cert(name)))
    trouble = await failure(server, TlsPlan("required", "pkix"), contexts)
    assert (trouble.kind, trouble.result, server.connections) == (CERTIFICATE, result, 1)


async def test_testing(scripted: Any, contexts: TlsContexts) -> None:
    """A policy that is only tested: what is wrong is noted, then it goes on without looking."""
    server = await scripted(keywords=KEYWORDS, tls=serving(trustme.CA().issue_cert(NAME)))
    trials: list[Trial] = []
    route = Route(NAME, "127.0.0.1", server.port, tls=TlsPlan(verify="mta-sts", soft=True))
    session = await open_session(route, contexts, TlsMemory(0), trials=trials)
    session.dialogue.quit()
    assert session.tls.endswith(" verified=none")
    assert [trial.trouble and trial.trouble.result for trial in trials] == ["certificate-not-trusted", None]


async def test_not_offered(scripted: Any, contexts: TlsContexts) -> None:
    """No STARTTLS: 4.7.4 where it is required."""
    server = await scripted()
    trouble = await failure(server, TlsPlan("required"), contexts)
    assert (trouble.kind, trouble.result, trouble.reply.enhanced) == (STARTTLS, "starttls-not-supported", "4.7.4")


async def test_injected_replies_are_not_used(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """What comes with the 220 to STARTTLS was not said under TLS: nobody listens to it (CVE-2011-0411 and its kind)."""
    injected = b"220 go\r\n250-evil\r\n250-X-INJECTED\r\n250 AUTH PLAIN\r\n"
    server = await scripted({"starttls": injected}, KEYWORDS, serving(leaf))
    session = await opened(server, TlsPlan("required", "pkix"), contexts)
    assert session.shown().capabilities == {"PIPELINING", "STARTTLS"}
    assert [line[:4] for line in server.commands[:3]] == ["EHLO", "STAR", "EHLO"]


async def test_keywords_are_asked_anew(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """What the server offered before TLS is forgotten, even if it refuses EHLO under it (RFC 3207 4.2)."""

    class Fickle(tuple[str, ...]):
        """Offers less from the second time on."""

        times = 0

        def __iter__(self) -> Iterator[str]:
            self.times += 1
            return iter(("STARTTLS", "CHUNKING") if self.times == 1 else ("8BITMIME",))

    server = await scripted(keywords=Fickle(), tls=serving(leaf))
    session = await opened(server, TlsPlan("required", "pkix"), contexts)
    assert session.shown().capabilities == {"8BITMIME"}


# DANE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_dane_own_certificate(version: Any, scripted: Any, contexts: TlsContexts) -> None:
    """DANE-EE: any certificate of any authority for any name, if the record names it."""
    leaf = trustme.CA().issue_cert("whatever.test")
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf, version))
    plan = TlsPlan("required", "dane", tlsa=(tlsa(3, leaf.cert_chain_pems[0]),), names=(NAME,))
    assert (await opened(server, plan, contexts)).tls.endswith(" verified=dane")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_dane_authority(version: Any, scripted: Any, contexts: TlsContexts, tmp_path: Path) -> None:
    """DANE-TA: found in the chain that the server really sent; the name counts."""
    authority = trustme.CA()
    context = with_root(authority.issue_cert(NAME), authority, tmp_path)
    context.maximum_version = version
    server = await scripted(keywords=KEYWORDS, tls=context)
    record = tlsa(2, authority.cert_pem)
    session = await opened(server, TlsPlan("required", "dane", tlsa=(record,), names=(NAME,)), contexts)
    assert session.tls.endswith(" verified=dane")
    trouble = await failure(server, TlsPlan("required", "dane", tlsa=(record,), names=("other.test",)), contexts)
    assert trouble.kind == CERTIFICATE


async def test_dane_mismatch(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """No record names it: nothing is said under TLS, not even EHLO, though the system would trust the certificate."""
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf))
    plan = TlsPlan("required", "dane", tlsa=(Tlsa(3, 1, 1, bytes(32)),), names=(NAME,))
    assert (await failure(server, plan, contexts)).kind == CERTIFICATE
    assert [line[:4] for line in server.commands] == ["EHLO", "STAR"]


# client certificates


@pytest.fixture
def choosy(leaf: trustme.LeafCert, authority: trustme.CA) -> ssl.SSLContext:
    """A server's context that wants to know who comes."""
    context = serving(leaf)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    return context


async def test_client_certificate(
    scripted: Any, choosy: ssl.SSLContext, authority: trustme.CA, contexts: TlsContexts, tmp_path: Path
) -> None:
    """Shown to a server that asks; without one, that is a failure of TLS."""
    authority.issue_cert("us.test").private_key_and_cert_chain_pem.write_to_path(tmp_path / "us.pem")
    server = await scripted(keywords=KEYWORDS, tls=choosy)
    session = await opened(server, TlsPlan("required", "pkix", certificate=str(tmp_path / "us.pem")), contexts)
    assert session.tls
    assert (await failure(server, TlsPlan("required", "pkix"), contexts)).kind == HANDSHAKE


async def test_client_certificate_is_missing(scripted: Any, leaf: trustme.LeafCert, contexts: TlsContexts) -> None:
    """A file that is not there is said with its name."""
    server = await scripted(keywords=KEYWORDS, tls=serving(leaf))
    with pytest.raises(TlsFailed, match=r"client_certificate /nowhere\.pem cannot be used"):
        await opened(server, TlsPlan("required", certificate="/nowhere.pem"), contexts)


def test_renewed_files(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that changes is read again; one that is damaged leaves the one before in force."""
    monkeypatch.setattr(tls_contexts, "CHECK_S", 0.0)
    file, contexts = tmp_path / "us.pem", TlsContexts()
    authority.issue_cert("us.test").private_key_and_cert_chain_pem.write_to_path(file)
    first = contexts.of(False, certificate=str(file))
    assert contexts.of(False, certificate=str(file)) is first
    authority.issue_cert("us.test", "us2.test").private_key_and_cert_chain_pem.write_to_path(file)
    second = contexts.of(False, certificate=str(file))
    assert second is not first
    file.write_text("half a file")
    assert contexts.of(False, certificate=str(file)) is second
    file.unlink()
    assert contexts.of(False, certificate=str(file)) is second


# TLS from the first byte


@pytest.fixture
async def implicit(leaf: trustme.LeafCert, tmp_path: Path) -> AsyncIterator[Sink]:
    leaf.private_key_and_cert_chain_pem.write_to_path(tmp_path / "sink.pem")
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), implicit_tls=True, certificate=tmp_path / "sink.pem")) as sink:
        yield sink


async def test_implicit(implicit: Sink, contexts: TlsContexts) -> None:
    """The handshake comes before the banner, with the host's name, not its address."""
    session = await opened(implicit, TlsPlan("implicit", "pkix"), contexts)
    assert session.tls.startswith("TLSv1.3 ")
    assert session.tls.endswith(" verified=pkix")


async def test_implicit_not_valid(implicit: Sink) -> None:
    """Validated as with STARTTLS."""
    trouble = await failure(implicit, TlsPlan("implicit", "pkix"), TlsContexts())
    assert (trouble.kind, trouble.stage) == (CERTIFICATE, "tls-policy")


async def test_implicit_where_there_is_none(scripted: Any, contexts: TlsContexts) -> None:
    """A server that begins in plain is a failure of TLS, and nothing is said to it."""
    server = await scripted()
    assert (await failure(server, TlsPlan("implicit", "pkix"), contexts)).kind == HANDSHAKE
    assert server.commands == []

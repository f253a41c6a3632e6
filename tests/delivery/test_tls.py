"""STARTTLS: never, when it works, or always and validated."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.queue.api import DEFERRED, DELIVERED

KEYWORDS = ("PIPELINING", "STARTTLS", "AUTH PLAIN")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mx.test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_opportunistic_takes_any_certificate(server_tls: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """A self-signed certificate is better than none; EHLO is said again under TLS."""
    server = await scripted(keywords=KEYWORDS, tls=server_tls)
    [result] = await deliver(letter(server.port), tls="opportunistic")
    assert result.outcomes[0].verdict == DELIVERED
    assert result.tls.startswith("TLSv1.3 ")
    assert [line[:4] for line in server.commands] == ["EHLO", "STAR", "EHLO", "MAIL", "RCPT", "DATA"]


async def test_none_never_asks(server_tls: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """tls = none leaves an offer of STARTTLS alone."""
    server = await scripted(keywords=KEYWORDS, tls=server_tls)
    [result] = await deliver(letter(server.port), tls="none")
    assert (result.outcomes[0].verdict, result.tls) == (DELIVERED, "")


@pytest.mark.parametrize(
    "way", ["4xx", "5xx", "421", "silence", "reset", "garbage", "half", b"220 go\r\nplain text\r\n"]
)
@pytest.mark.parametrize("tls", ["opportunistic", "required"])
async def test_starttls_fails(way: Any, tls: str, scripted: Any, letter: Any, deliver: Any) -> None:
    """Opportunistic goes on in plain, on a new connection if need be; required does not, and its zone rests there.

    Where the connection broke off, TLS 1.2 is tried in between.
    """
    server = await scripted({"starttls": way}, KEYWORDS)
    [result] = await deliver(letter(server.port), tls=tls)
    if tls == "opportunistic":
        assert (result.outcomes[0].verdict, result.tls) == (DELIVERED, "")
        broke_off = way not in ("4xx", "5xx", "421", "silence", "garbage")
        assert server.connections == (1 if way in ("4xx", "5xx") else 3 if broke_off else 2)
    else:
        assert (result.outcomes[0].verdict, result.outcomes[0].stage) == (DEFERRED, "tls-policy")
        assert result.down_s == 0
        assert server.bodies == []


async def test_required_refuses_an_unknown_certificate(
    server_tls: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """Self-signed is not validated: the message stays."""
    server = await scripted(keywords=KEYWORDS, tls=server_tls)
    [result] = await deliver(letter(server.port), tls="required")
    assert (result.outcomes[0].verdict, result.outcomes[0].stage) == (DEFERRED, "tls-policy")
    assert result.outcomes[0].reply.enhanced == "4.7.5"
    assert server.bodies == []


async def test_required_not_offered(scripted: Any, letter: Any, deliver: Any) -> None:
    """No STARTTLS in EHLO: 4.7.4."""
    server = await scripted()
    [result] = await deliver(letter(server.port), tls="required")
    assert (result.outcomes[0].stage, result.outcomes[0].reply.enhanced) == ("tls-policy", "4.7.4")


async def test_required_with_the_right_certificate(
    certificate: Path, server_tls: Any, scripted: Any, letter: Any, deliver: Any
) -> None:
    """A certificate of a trusted issuer for the host's name: delivered under TLS."""
    server = await scripted(keywords=KEYWORDS, tls=server_tls)
    contexts = TlsContexts(certificate)
    [result] = await deliver(letter(server.port), tls="required", contexts=contexts)
    assert result.outcomes[0].verdict == DELIVERED
    assert result.tls


async def test_auth_needs_tls(scripted: Any, letter: Any, deliver: Any) -> None:
    """A password never travels in the clear, whatever a plugin says."""
    server = await scripted(keywords=("AUTH PLAIN",))
    [result] = await deliver(letter(server.port, routing={"auth": ("u", "p"), "tls": "none"}))
    assert (result.outcomes[0].verdict, result.outcomes[0].stage) == (DEFERRED, "auth")
    assert not any(line.startswith("AUTH") for line in server.commands)


async def test_auth_refused(server_tls: Any, scripted: Any, letter: Any, deliver: Any) -> None:
    """A refused password is our matter, not the message's: temporary."""
    server = await scripted(keywords=KEYWORDS, tls=server_tls)  # answers AUTH with 500
    [result] = await deliver(letter(server.port, routing={"auth": ["u", "p"], "tls": "opportunistic"}))
    assert (result.outcomes[0].verdict, result.outcomes[0].stage) == (DEFERRED, "auth")
    assert any(line.startswith("AUTH PLAIN") for line in server.commands)

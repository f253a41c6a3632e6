"""DANE: which records count, and which certificates they name (RFC 7671, RFC 7672)."""

from __future__ import annotations

import datetime
import hashlib
import ssl

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.delivery.tls import dane
from zonemta_py.delivery.tls.dane import Tlsa, refusal, usable

NOW = datetime.datetime.now(datetime.UTC)
NAMES = ("mx.d.test", "d.test")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def der(pem: trustme.Blob) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.bytes().decode())


def chain(authority: trustme.CA, name: str = "mx.d.test", until: datetime.datetime | None = None) -> list[bytes]:
    """The server's certificate, and the authority's."""
    leaf = authority.issue_cert(name, not_after=until)
    return [der(leaf.cert_chain_pems[0]), der(authority.cert_pem)]


def key(certificate: bytes) -> bytes:
    public = x509.load_der_x509_certificate(certificate).public_key()
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def record(usage: int, certificate: bytes, selector: int = 1, matching: int = 1) -> Tlsa:
    named = key(certificate) if selector else certificate
    digest = {0: lambda data: data, 1: lambda data: hashlib.sha256(data).digest(),
              2: lambda data: hashlib.sha512(data).digest()}[matching]  # fmt: skip
    return Tlsa(usage, selector, matching, digest(named))


def test_key_of(authority: trustme.CA) -> None:
    """The key is cut out of the certificate byte for byte, as cryptography would encode it."""
    for certificate in chain(authority):
        assert dane.key_of(certificate) == key(certificate)


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_key_of_anything(data: bytes) -> None:
    """What is no certificate is a ValueError, whatever it is."""
    with pytest.raises(ValueError, match="not"):
        dane.key_of(data)


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("matching", [0, 1, 2])
@pytest.mark.parametrize("usage", [2, 3])
def test_every_kind_matches(usage: int, selector: int, matching: int, authority: trustme.CA) -> None:
    """DANE-TA and DANE-EE, whole certificate or key, as it is or hashed."""
    sent = chain(authority)
    named = record(usage, sent[0 if usage == 3 else 1], selector, matching)
    assert usable([named]) == (named,)
    assert refusal([named], sent, NAMES, NOW) == ""
    other = record(usage, chain(trustme.CA())[0 if usage == 3 else 1], selector, matching)
    assert refusal([other], sent, NAMES, NOW)
    assert refusal([other, named], sent, NAMES, NOW) == ""


@pytest.mark.parametrize(
    "record",
    [(0, 1, 1, bytes(32)), (1, 1, 1, bytes(32)), (3, 2, 1, bytes(32)), (3, 1, 3, bytes(32)), (3, 1, 1, bytes(31)),
     (3, 1, 2, bytes(32)), (3, 0, 0, b""), (255, 1, 1, bytes(32))],
)  # fmt: skip
def test_unusable(record: tuple[int, int, int, bytes]) -> None:
    """PKIX usages, unknown numbers and digests of a wrong length count for nothing (RFC 7672 3.1.3)."""
    assert usable([record]) == ()


def test_strongest_digest() -> None:
    """SHA-512 beside SHA-256 for the same: the weaker one is not looked at (RFC 7671 9)."""
    weak, strong, other = (3, 1, 1, bytes(32)), (3, 1, 2, bytes(64)), (3, 0, 1, bytes(32))
    assert usable([weak, strong, other]) == (strong, other)


def test_own_certificate_needs_no_name_or_date(authority: trustme.CA) -> None:
    """DANE-EE: the record alone decides (RFC 7671 5.1)."""
    sent = chain(authority, "other.test", NOW - datetime.timedelta(1))
    assert refusal([record(3, sent[0])], sent, NAMES, NOW) == ""


def test_authority_needs_name_and_date(authority: trustme.CA) -> None:
    """DANE-TA: the certificate must be for the host or the domain it was found by, and valid now."""
    named = [record(2, der(authority.cert_pem))]
    assert "not for" in refusal(named, chain(authority, "other.test"), NAMES, NOW)
    assert "not valid now" in refusal(named, chain(authority, until=NOW - datetime.timedelta(1)), NAMES, NOW)
    assert refusal(named, chain(authority, "d.test"), NAMES, NOW) == ""
    assert refusal(named, chain(authority, "*.d.test"), NAMES, NOW) == ""


def test_authority_must_have_signed(authority: trustme.CA) -> None:
    """An authority that only lies in the chain proves nothing."""
    stranger = chain(trustme.CA())[0]
    assert "no authority" in refusal(
        [record(2, der(authority.cert_pem))], [stranger, der(authority.cert_pem)], NAMES, NOW
    )


def test_authority_that_is_not_sent(authority: trustme.CA) -> None:
    """2 0 0 carries the authority itself; a digest cannot (RFC 7671 5.2)."""
    sent = chain(authority)[:1]
    assert refusal([record(2, der(authority.cert_pem), 0, 0)], sent, NAMES, NOW) == ""
    assert "no authority" in refusal([record(2, der(authority.cert_pem), 0, 1)], sent, NAMES, NOW)


def test_authority_between(authority: trustme.CA) -> None:
    """The record may name an intermediate authority, or the one above it."""
    between = authority.create_child_ca()
    leaf = between.issue_cert("mx.d.test")
    sent = [der(leaf.cert_chain_pems[0]), der(between.cert_pem), der(authority.cert_pem)]
    for place in (1, 2):
        assert refusal([record(2, sent[place])], sent, NAMES, NOW) == ""


def test_a_servers_certificate_signs_nothing(authority: trustme.CA) -> None:
    """Who has a certificate of the authority is no authority."""
    sent = chain(authority)
    assert "no authority" in refusal([record(2, sent[0])], [chain(trustme.CA())[0], sent[0]], NAMES, NOW)


def test_nothing_sent() -> None:
    """No certificate, no match."""
    assert refusal([Tlsa(3, 1, 1, bytes(32))], [], NAMES, NOW)
    assert refusal([Tlsa(2, 1, 1, bytes(32))], [b"\x30\x03abc"], NAMES, NOW)

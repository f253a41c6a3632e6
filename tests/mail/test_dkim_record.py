"""What DNS says of a key, compared with the key."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from zonemta_py.mail.dkim.record import judge, parse, zone_line
from zonemta_py.mail.dkim.signature import Key


def made(private: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, identity: str = "") -> Key:
    return Key("d.example", "s", private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), identity)


PRIVATE = rsa.generate_private_key(65537, 2048)
RSA, SHORT, ED25519 = (
    made(PRIVATE), made(rsa.generate_private_key(65537, 1024)), made(ed25519.Ed25519PrivateKey.generate()),
)  # fmt: skip
OTHER = made(ed25519.Ed25519PrivateKey.generate())


@pytest.mark.parametrize("key", [RSA, ED25519])
def test_its_own_record_is_right(key: Key) -> None:
    """Also with white space and line ends in it, as zone files have them."""
    record = key.record()
    for text in (record, record.replace("; ", " ;\t") + ";", record[:60] + " " + record[60:]):
        assert judge([text, "v=spf1 -all"], key) == ("ok", ())


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ([], "missing"),
        (["v=spf1 -all"], "missing"),
        (["v=DKIM1; k=ed25519; p="], "revoked"),
        (["v=DKIM1; p=;"], "revoked"),
        ([OTHER.record()], "different"),
        ([RSA.record()], "different"),
        (["v=DKIM1; k=ed25519; p=???"], "different"),
        ([ED25519.record(), OTHER.record()], "several"),
        ([ED25519.record() + "; h=sha1"], "unusable"),
        ([ED25519.record() + "; s=tlsrpt"], "unusable"),
        ([ED25519.record().replace("DKIM1", "DKIM2")], "unusable"),
        ([ED25519.record() + "; h=sha1:sha256; s=email"], "ok"),
    ],
)
def test_status(texts: list[str], status: str) -> None:
    """Everything that can be wrong has a word."""
    assert judge(texts, ED25519).status == status


def test_rsa_without_its_envelope() -> None:
    """Some publish the bare RSAPublicKey; verifiers take it, and so do we."""
    private = PRIVATE.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)
    assert judge([f"v=DKIM1; p={base64.b64encode(private).decode()}"], RSA).status == "ok"


def test_notes() -> None:
    """Short keys, the testing flag, and t=s with an i= below the domain."""
    assert "short key: 1024" in judge([SHORT.record()], SHORT).notes[0]
    assert "testing" in judge([ED25519.record() + "; t=y:s"], ED25519).notes[0]
    pem = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    strict = made(load_pem_private_key(pem, None), "@news.d.example")  # type: ignore[arg-type]
    assert "t=s forbids" in judge([RSA.record() + "; t=s"], strict).notes[0]


def test_line_of_a_zone_file() -> None:
    """Strings of at most 255 octets that join to the record."""
    line = zone_line("s._domainkey.d.example", RSA.record())
    assert line.startswith('s._domainkey.d.example. IN TXT "v=DKIM1; k=rsa; p=')
    strings = line.split('"')[1::2]
    assert "".join(strings) == RSA.record()
    assert len(strings) == 2
    assert max(map(len, strings)) == 255


def test_tags() -> None:
    """White space around tags and values is nothing; a value may have equals signs."""
    assert parse(" v = DKIM1 ;p= a==;; x") == {"v": "DKIM1", "p": "a=="}

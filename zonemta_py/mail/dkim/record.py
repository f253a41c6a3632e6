"""The key record of a DKIM selector in DNS, as it is and as it should be (RFC 6376 3.6.1, RFC 8463 4).

`judge` compares what DNS says with a key: one word for the result, and notes on what else deserves attention.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from zonemta_py.mail.dkim.signature import Key

Status = Literal["ok", "missing", "different", "revoked", "several", "unusable"]
RSA_BITS_GOOD = 2048
_STRING_MAX = 255


class Finding(NamedTuple):
    """status: "unusable" is a record with this key that does not allow it to sign mail with SHA-256."""

    status: Status
    notes: tuple[str, ...]


def judge(texts: Sequence[str], key: Key) -> Finding:
    """texts: the TXT records under the selector, the strings of each joined."""
    notes = list(_about(key))
    records = [tags for tags in map(parse, texts) if "p" in tags or tags.get("v") == "DKIM1"]
    if not records:
        if texts:
            notes.append("there is a TXT record, but it is not a DKIM key")
        return Finding("missing", tuple(notes))
    if len(records) > 1:
        notes.append(
            f"{len(records)} records, and verifiers may use any of them; remove all but one (RFC 6376 3.6.2.2)"
        )
        return Finding("several", tuple(notes))
    [record] = records
    notes += _flags(record, key)
    return Finding(_status(record, key), tuple(notes))


def parse(text: str) -> dict[str, str]:
    """tag → value, white space around both taken off (RFC 6376 3.2)."""
    pairs = (part.partition("=") for part in text.split(";"))
    return {tag.strip(): value.strip() for tag, equals, value in pairs if equals}


def _status(record: dict[str, str], key: Key) -> Status:
    public = "".join(record.get("p", "").split())
    if not public:
        return "revoked"
    if record.get("k", "rsa") != key.algorithm.partition("-")[0] or _public(public, key) != key.public:
        return "different"
    hashes, services = record.get("h", "sha256").split(":"), record.get("s", "*").split(":")
    usable = "sha256" in map(str.strip, hashes) and not {"*", "email"}.isdisjoint(map(str.strip, services))
    return "ok" if usable and record.get("v", "DKIM1") == "DKIM1" else "unusable"


def _public(text: str, key: Key) -> bytes:
    """RSA keys may stand there with or without their envelope (RFC 6376, erratum 3017)."""
    try:
        data = base64.b64decode(text, validate=True)
        if key.algorithm != "rsa-sha256":
            return data
        return load_der_public_key(data).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (binascii.Error, ValueError, UnsupportedAlgorithm):
        return b""


def _about(key: Key) -> Iterator[str]:
    if key.algorithm == "rsa-sha256" and key.bits < RSA_BITS_GOOD:
        yield f"short key: {key.bits} bits; make one of {RSA_BITS_GOOD}"


def _flags(record: dict[str, str], key: Key) -> Iterator[str]:
    flags = [flag.strip() for flag in record.get("t", "").split(":")]
    if "y" in flags:
        yield "testing (t=y): verifiers may treat the mail as unsigned; remove the flag"
    if "s" in flags and key.identity and key.identity.rpartition("@")[2].lower() != key.domain:
        yield f"t=s forbids i={key.identity}: signatures will fail"


def zone_line(name: str, record: str) -> str:
    """The record as it stands in a zone file: strings of at most 255 octets."""
    strings = [record[at : at + _STRING_MAX] for at in range(0, len(record), _STRING_MAX)]
    return f"{name}. IN TXT " + " ".join(f'"{string}"' for string in strings)

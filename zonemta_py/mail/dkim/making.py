"""DKIM keys that are made here, or were made elsewhere and are given: selector, private key as PEM, TXT record."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import count

from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from zonemta_py.mail.dkim.signature import Key

BITS = 2048


def pem(algorithm: str, bits: int = BITS) -> bytes:
    """A new private key."""
    key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
    key = rsa.generate_private_key(65_537, bits) if algorithm == "rsa" else ed25519.Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def made(domain: str, selector: str | None, algorithm: str, taken: Collection[str]) -> list[str]:
    """A new one. selector: None: of the month, and none of `taken`."""
    private = pem(algorithm)
    return _row(domain, selector or fresh(taken), private, known=True)


def kept(domain: str, selector: str | None, private: str, taken: Collection[str]) -> list[str]:
    """One that was made elsewhere. Raises KeyUnusable."""
    return _row(domain, selector or fresh(taken), private.encode(), known=False)


def _row(domain: str, selector: str, private: bytes, known: bool) -> list[str]:
    return [selector, private.decode(), Key(domain, selector, private, known=known).record()]


def fresh(taken: Collection[str]) -> str:
    """A selector that says the month, such as z202611, and z202611-2."""
    month = time.strftime("z%Y%m")
    return next(name for number in count(1) if (name := month if number == 1 else f"{month}-{number}") not in taken)

"""DKIM signatures: rsa-sha256 (RFC 6376) and ed25519-sha256 (RFC 8463), as fields ready to be put on top of a message.

`Fields.of` chooses the fields once for all keys, `Key.sign` makes one signature of them. The body's hash is an
argument: it was computed while the body streamed in. There is no l=: anybody could add what it leaves unsigned.

Failures: KeyUnusable says in one sentence what is wrong with a key.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from zonemta_py.mail.dkim import canonical
from zonemta_py.mail.dkim.canonical import Form

RSA_BITS_MIN = 1024
"""Shorter keys are ignored by verifiers (RFC 8301 3.2)."""
_LINE = 76
_FIELD_END = re.compile(rb"\r\n(?![ \t])")
_SAFE = re.compile(rb"[!-:<>-~]")
_RSA = (PKCS1v15(), Prehashed(SHA256()))


class KeyUnusable(ValueError):
    """One sentence: what is wrong with the key."""


class Key:
    """A private key and its name in DNS. identity: i= ("" for none), an address at `domain` or below it. known: it was
    loaded before, and is not looked through once more, which takes an RSA key longer than thirty signatures."""

    __slots__ = ("_key", "algorithm", "domain", "identity", "selector")

    def __init__(self, domain: str, selector: str, pem: bytes, identity: str = "", known: bool = False) -> None:
        self.domain, self.selector, self.identity = domain, selector, identity
        self._key = load_key(pem, known)
        self.algorithm = "rsa-sha256" if isinstance(self._key, RSAPrivateKey) else "ed25519-sha256"

    @property
    def bits(self) -> int:
        return self._key.key_size if isinstance(self._key, RSAPrivateKey) else 256

    def record(self) -> str:
        """The TXT record that belongs under selector._domainkey.domain (RFC 6376 3.6.1)."""
        kind = "rsa" if isinstance(self._key, RSAPrivateKey) else "ed25519"
        return f"v=DKIM1; k={kind}; p={base64.b64encode(self.public).decode()}"

    @property
    def public(self) -> bytes:
        """The bytes of p=: SubjectPublicKeyInfo for RSA, the bare 32 bytes for Ed25519 (RFC 8463 4)."""
        public = self._key.public_key()
        if isinstance(self._key, RSAPrivateKey):
            return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return public.public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, selection: Selection, bodies: Form, body_hash: bytes, now: int, expires: int = 0) -> bytes:
        """The DKIM-Signature field with its CRLF. now, expires: t= and x= in UNIX seconds; 0: no x=."""
        tags = f"DKIM-Signature: v=1; a={self.algorithm}; c={selection.form}/{bodies}; d={self.domain};\r\n"
        tags += f" s={self.selector};" + (f" i={quoted(self.identity)};" if self.identity else "")
        tags += f" t={now};" + (f" x={expires};" if expires else "") + f"\r\n h={selection.names};\r\n"
        tags += f" bh={base64.b64encode(body_hash).decode()};\r\n b="
        field = tags.encode()
        hashed = selection.hash()
        hashed.update(canonical.field(selection.form, field))
        signature = base64.b64encode(self.signature(hashed.digest()))
        return field + b"\r\n ".join(signature[at : at + 72] for at in range(0, len(signature), 72)) + b"\r\n"

    def signature(self, digest: bytes) -> bytes:
        """Of a SHA-256 digest."""
        if isinstance(self._key, RSAPrivateKey):
            return self._key.sign(digest, *_RSA)
        return self._key.sign(digest)  # RFC 8463 3: of the hash, not of the data


def load_key(pem: bytes, known: bool = False) -> RSAPrivateKey | Ed25519PrivateKey:
    """known: it was loaded before. Raises KeyUnusable."""
    try:
        key = load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=known)
    except TypeError:
        raise KeyUnusable("it is encrypted; remove the passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable("it is not a private key in PEM; `zonemta dkim new` makes one") from None
    if not isinstance(key, RSAPrivateKey | Ed25519PrivateKey):
        raise KeyUnusable("it is neither an RSA nor an Ed25519 key; `zonemta dkim new` makes one")
    if isinstance(key, RSAPrivateKey) and key.key_size < RSA_BITS_MIN:
        raise KeyUnusable(
            f"it has {key.key_size} bits, which no verifier accepts; make one of 2048 (`zonemta dkim new`)"
        )
    return key


class Fields:
    """Which fields are signed: the wanted ones where they are there, the oversigned ones once more than they are there.

    From is always signed (RFC 6376 5.4).
    """

    __slots__ = ("_wanted", "form")

    def __init__(self, form: Form, wanted: Sequence[str], oversigned: Sequence[str]) -> None:
        self.form: Form = form
        more = {name.lower() for name in oversigned}
        names = {name.lower(): name for name in ("From", *wanted, *oversigned)}
        self._wanted = {key.encode(): (name, key in more) for key, name in names.items()}

    def of(self, section: bytes) -> Selection:
        """section: the raw header section. Instances of one name are taken from the bottom up (RFC 6376 5.4.2)."""
        found: dict[bytes, list[bytes]] = {}
        wanted = self._wanted
        for raw in _FIELD_END.split(section):
            name = raw[: raw.find(b":")].lower()
            if name not in wanted:
                name = name.rstrip(b" \t")
                if name not in wanted:
                    continue
            found.setdefault(name, []).append(raw)
        names: list[str] = []
        signed: list[bytes] = []
        for name, (shown, more) in wanted.items():
            instances = found.get(name)
            if instances:
                signed += instances[::-1]
                names += [shown] * (len(instances) + more)
            elif more or name == b"from":
                names.append(shown)
        author = found[b"from"][0].partition(b":")[2] if b"from" in found else b""
        return Selection(self.form, tuple(names), signed, author)


class Selection:
    """The fields of one message that its signatures cover. names: h=, folded. author: value of the first From, raw."""

    __slots__ = ("_hash", "author", "form", "names")

    def __init__(self, form: Form, names: tuple[str, ...], fields: list[bytes], author: bytes) -> None:
        self.form: Form = form
        self.names, self.author = _folded(names), author
        self._hash = hashlib.sha256(canonical.fields(form, fields))

    def hash(self) -> hashlib._Hash:
        """The hash so far, for one more signature field to be added."""
        return self._hash.copy()


@lru_cache(1_000)
def _folded(names: tuple[str, ...]) -> str:
    lines = [""]
    for place, name in enumerate(names):
        item = name + ":" if place < len(names) - 1 else name
        if len(lines[-1]) + len(item) > _LINE - 4 and lines[-1]:
            lines.append("")
        lines[-1] += item
    return "\r\n  ".join(lines)


def quoted(text: str) -> str:
    """dkim-quoted-printable (RFC 6376 2.11)."""
    return "".join(chr(b) if _SAFE.match(bytes((b,))) else f"={b:02X}" for b in text.encode())

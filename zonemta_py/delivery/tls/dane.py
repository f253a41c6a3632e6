"""DANE for SMTP (RFC 7672): whether a certificate matches the host's TLSA records.

DANE-EE (3) matches the server's own certificate or key: name and dates do not matter (RFC 7671 5.1). DANE-TA (2)
matches a CA in the chain that the server sends: signatures, dates and the name are checked. PKIX-TA (0) and PKIX-EE (1)
are unusable with SMTP (RFC 7672 3.1.3). If records have digests of several strengths, only the strongest counts (RFC
7671 9).

Pure, except `chain`, which reads the handshake. Trust comes from the records alone; the system's CA store is not used.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

TA, EE = 2, 3
_CHAIN_MAX = 10
_DIGESTS = {1: hashlib.sha256, 2: hashlib.sha512}


class Tlsa(NamedTuple):
    """One record (RFC 6698 2.1). selector: 0 whole certificate, 1 its key. matching: 0 exact, 1 SHA-256, 2 SHA-512."""

    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.usage} {self.selector} {self.matching} {self.data.hex()}"

    def matches(self, certificate: bytes) -> bool:
        """certificate: DER."""
        try:
            named = key_of(certificate) if self.selector else certificate
        except ValueError:
            return False
        return self.data == (_DIGESTS[self.matching](named).digest() if self.matching else named)


def usable(records: Iterable[tuple[int, int, int, bytes]]) -> tuple[Tlsa, ...]:
    """The records that can be checked; empty means: encrypt, but do not authenticate (RFC 7672 2.2)."""
    known = [record for record in map(Tlsa._make, records) if _is_usable(record)]
    strongest = {
        (one.usage, one.selector): max(other.matching for other in known if other[:2] == one[:2]) for one in known
    }
    return tuple(record for record in known if record.matching in (0, strongest[record.usage, record.selector]))


def _is_usable(record: Tlsa) -> bool:
    if record.usage not in (TA, EE) or record.selector not in (0, 1) or record.matching not in (0, 1, 2):
        return False
    wanted = _DIGESTS[record.matching]().digest_size if record.matching else len(record.data)
    return 0 < len(record.data) == wanted


def chain(wrapped: ssl.SSLObject) -> list[bytes]:
    """The certificates that the server sent, in DER, its own first."""
    own = wrapped.getpeercert(binary_form=True)
    inner: Any = getattr(wrapped, "_sslobj", None)
    # A private API until Python 3.13. Without it DANE-EE still works, DANE-TA matches nothing.
    sent = getattr(wrapped, "get_unverified_chain", None) or getattr(inner, "get_unverified_chain", None)
    certificates = [_der(one) for one in (sent() or ())] if sent is not None else []
    return certificates[:_CHAIN_MAX] or ([own] if own else [])


def _der(certificate: Any) -> bytes:
    return certificate if isinstance(certificate, bytes) else ssl.PEM_cert_to_DER_cert(certificate.public_bytes())


def refusal(records: Sequence[Tlsa], sent: Sequence[bytes], names: Sequence[str], now: datetime) -> str:
    """ "" if the chain matches the records, else why not. names: the host's, and the domain that led to it."""
    if not sent:
        return "the server showed no certificate"
    if any(record.usage == EE and record.matches(sent[0]) for record in records):
        return ""
    anchors = [record for record in records if record.usage == TA]
    if not anchors:
        return "the certificate is not one that the TLSA records name"
    return _untrusted(anchors, sent, names, now)


def _untrusted(anchors: Sequence[Tlsa], sent: Sequence[bytes], names: Sequence[str], now: datetime) -> str:
    from cryptography import x509  # loaded only for DANE-TA, which is rare

    whole = [record.data for record in anchors if record.selector == 0 and record.matching == 0]
    try:
        certificates = [x509.load_der_x509_certificate(der) for der in (*sent, *whole)]
        ders = dict(zip(certificates, (*sent, *whole), strict=True))
        for depth, certificate in enumerate(_path(certificates)):
            if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
                return f"certificate {certificate.subject.rfc4514_string()} is not valid now"
            if depth and not _may_sign(certificate, depth - 1):
                return f"certificate {certificate.subject.rfc4514_string()} may not sign others"
            if any(record.matches(ders[certificate]) for record in anchors):
                return "" if _is_named(certificates[0], names) else f"the certificate is not for {' or '.join(names)}"
    except (ValueError, TypeError) as error:
        return f"the certificate cannot be read: {error}"
    return "no authority in the chain is one that the TLSA records name"


def _path(certificates: list[Certificate]) -> Iterator[Certificate]:
    """From the first certificate upwards, each signed by the next."""
    current, others = certificates[0], certificates[1:]
    while True:
        yield current
        issuer = next((one for one in others if _issued(one, current)), None)
        if issuer is None:
            return
        others.remove(issuer)
        current = issuer


def _issued(issuer: Certificate, certificate: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _may_sign(certificate: Certificate, below: int) -> bool:
    """Whether it is a CA certificate that may sign the one below. below: the number of CAs between it and the server's
    own."""
    from cryptography import x509

    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    if not constraints.ca or (constraints.path_length is not None and below > constraints.path_length):
        return False
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def _is_named(certificate: Certificate, names: Sequence[str]) -> bool:
    """By a DNS name in subjectAltName; by the common name only if there is none (RFC 7672 3.2.3)."""
    from cryptography import x509

    try:
        presented = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        patterns = presented.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        patterns = []
    if not patterns:
        patterns = [str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return any(is_named_by(name, pattern) for name in names for pattern in patterns)


def is_named_by(name: str, pattern: str) -> bool:
    """Case-insensitive; a first label of * stands for exactly one label (RFC 6125 6.4.3)."""
    name, pattern = name.lower().rstrip("."), pattern.lower().rstrip(".")
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern[2:] and not name.startswith(".")
    return name == pattern


def key_of(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo in a certificate's DER, byte for byte (RFC 5280 4.1). Raises ValueError."""
    body = _contents(_contents(certificate))
    fields = list(_elements(body))
    first = 1 if fields and fields[0][0] == 0xA0 else 0  # the version is optional
    if len(fields) < first + 6:
        raise ValueError("not a certificate")
    return fields[first + 5]


def _contents(element: bytes) -> bytes:
    start, end = _bounds(element, 0)
    return element[start:end]


def _elements(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        _, end = _bounds(body, at)
        yield body[at:end]
        at = end


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """Where the contents of the DER element at `at` begin and end."""
    if at + 2 > len(data):
        raise ValueError("not DER: cut short")
    length, start = data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > len(data):
        raise ValueError("not DER: cut short")
    return start, start + length

"""Whether what a provider posts is its own: signatures and their age, as each documents them.

    mailgun   HMAC-SHA256 of timestamp and token, in hexadecimal, in the body. The event is not signed, so whoever takes
              it must not take a token again with another event.
    sendgrid  ECDSA (P-256, SHA-256, DER in base64) of timestamp and body, in two header fields
    ses       Amazon SNS: RSA (PKCS #1 v1.5) with SHA-1 (SignatureVersion 1) or SHA-256 (2) of some members, each as
              name and value on a line; the certificate is at an address that the message names, which is only believed
              at SNS of the topic's region

Pure: keys and time are arguments. Failures: SignatureRefused, one sentence; ValueError for a key that is none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

AHEAD_S = 300
"""How far a provider's clock may be ahead of ours."""
RSA_BITS_MIN = 2048
_SECONDS = re.compile(r"[0-9]{10}")
_TOPIC = re.compile(r"arn:aws(-cn|-us-gov)?:sns:([a-z]{2}(?:-[a-z]+)+-[0-9]):[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9A-Za-z]{8,64}\.pem")
_CONFIRMING = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": _CONFIRMING,
    "UnsubscribeConfirmation": _CONFIRMING,
}
_HASHES = {"1": SHA1, "2": SHA256}


class SignatureRefused(ValueError):
    """What is posted is not proven to be the provider's; one sentence."""


class SnsKey(NamedTuple):
    """Of a certificate. since_s, until_s: when that is valid, UNIX time."""

    key: RSAPublicKey
    since_s: float
    until_s: float


# -- Mailgun


def mailgun(content: Any, secrets: Iterable[str], now_s: float, age_s: float) -> str:
    """The token, which is to be used once. Raises SignatureRefused."""
    said = content.get("signature") if isinstance(content, dict) else None
    timestamp, token, signature = _texts(said, "timestamp", "token", "signature")
    if not (timestamp and token and signature):
        raise SignatureRefused("the body lacks Mailgun's signature (timestamp, token, signature); post it unchanged")
    if not _SECONDS.fullmatch(timestamp) or len(token) > 200:
        raise SignatureRefused("Mailgun's timestamp or token has not its form; post them unchanged")
    signed = f"{timestamp}{token}".encode("utf-8", "surrogatepass")
    right = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode() for secret in secrets]
    if not any(hmac.compare_digest(one, signature.lower().encode("utf-8", "surrogatepass")) for one in right):
        raise SignatureRefused("the signature is not made with a key in secrets; compare it with Mailgun's signing key")
    _check_age(int(timestamp), now_s, age_s)
    return token


# -- SendGrid


def sendgrid_key(text: str) -> EllipticCurvePublicKey:
    """The verification key as SendGrid shows it: base64 of a DER public key, with or without the lines of PEM. Raises
    ValueError."""
    bare = "".join(line for line in text.split("\n") if "-----" not in line)
    try:
        key = load_der_public_key(base64.b64decode("".join(bare.split()), validate=True))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("it is not a public key in base64; copy SendGrid's verification key as it is shown") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise ValueError("it is not an ECDSA key on P-256, as SendGrid's are; copy its verification key")
    return key


def sendgrid(
    body: bytes, signature: str, timestamp: str, keys: Iterable[EllipticCurvePublicKey], now_s: float, age_s: float
) -> None:
    """signature, timestamp: the fields X-Twilio-Email-Event-Webhook-Signature and …-Timestamp. body: as it came, byte
    for byte. Raises SignatureRefused."""
    if not signature or not timestamp:
        raise SignatureRefused(
            "the fields X-Twilio-Email-Event-Webhook-Signature and -Timestamp are missing; enable the signed event"
            " webhook in SendGrid, and let the proxy pass them on"
        )
    if not _SECONDS.fullmatch(timestamp):
        raise SignatureRefused("X-Twilio-Email-Event-Webhook-Timestamp is not UNIX time in s; pass it on unchanged")
    mark = _bytes_of(signature)
    if not any(_right(key, mark, timestamp.encode() + body) for key in keys):
        raise SignatureRefused(
            "the signature is not made with a key in public_keys, or the body was changed on its way; compare the key"
        )
    _check_age(int(timestamp), now_s, age_s)


def _right(key: EllipticCurvePublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


# -- Amazon SNS


def topic_host(arn: str) -> str:
    """The host of SNS in the topic's region; "" if it is no topic."""
    found = _TOPIC.fullmatch(arn)
    if found is None:
        return ""
    return f"sns.{found[2]}.amazonaws.com{'.cn' if found[1] == '-cn' else ''}"


def sns_topic(content: Any, topics: Iterable[str]) -> str:
    """Whose message it says to be; to be asked before anything else is done with it. Raises SignatureRefused."""
    (topic,) = _texts(content, "TopicArn")
    if not topic:
        raise SignatureRefused(
            "it is no message of Amazon SNS, or a raw one, which is not signed; turn raw message delivery off"
        )
    if topic not in topics:
        raise SignatureRefused(f"the topic {topic[:100]!a} is not in topics; name it there if it is yours")
    return topic


def certificate_path(content: Any, topic: str) -> str:
    """Where on the topic's host the certificate is. Raises SignatureRefused if the message names any other place."""
    (url,) = _texts(content, "SigningCertURL")
    path = _path_at(url, topic_host(topic))
    if not _CERTIFICATE.fullmatch(path):
        where = f"https://{topic_host(topic)}/SimpleNotificationService-….pem"
        raise SignatureRefused(f"SigningCertURL is not {where}, where Amazon's is; nothing was fetched")
    return path


def subscribe_path(content: Any, topic: str) -> str:
    """What to get on the topic's host to confirm a subscription. Raises SignatureRefused."""
    (url,) = _texts(content, "SubscribeURL")
    path = _path_at(url, topic_host(topic))
    asked = parse_qs(urlsplit(path).query)
    if path[:2] != "/?" or asked.get("Action") != ["ConfirmSubscription"] or asked.get("TopicArn") != [topic]:
        raise SignatureRefused("SubscribeURL is not Amazon's, to confirm this topic; nothing was fetched")
    return path


def sns_keys(pem: bytes) -> list[SnsKey]:
    """Of all certificates in a file. Raises ValueError."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ValueError("it is not a certificate in PEM; save the file that SigningCertURL names") from None
    keys = []
    for one in found:
        key = one.public_key()
        if not isinstance(key, RSAPublicKey) or key.key_size < RSA_BITS_MIN:
            raise ValueError(f"its key is not RSA of {RSA_BITS_MIN} bits or more, as Amazon's is; save the right file")
        keys.append(SnsKey(key, one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()))
    return keys


def sns(content: dict[str, Any], keys: Iterable[SnsKey], now_s: float, age_s: float) -> None:
    """Raises SignatureRefused."""
    kind, version, signature, said = _texts(content, "Type", "SignatureVersion", "Signature", "Timestamp")
    names, made = _SIGNED.get(kind), _HASHES.get(version)
    if names is None or made is None or not signature:
        raise SignatureRefused("the message lacks Amazon's signature of version 1 or 2, or its Type; post it unchanged")
    signed = "".join(f"{name}\n{value}\n" for name in names if isinstance(value := content.get(name), str))
    mark, text, valid = _bytes_of(signature), signed.encode("utf-8", "surrogatepass"), False
    for one in keys:
        if one.since_s <= now_s <= one.until_s:
            try:
                one.key.verify(mark, text, PKCS1v15(), made())
                valid = True
            except InvalidSignature:
                continue
    if not valid:
        raise SignatureRefused("the signature is not made with Amazon's certificate, or that has expired; post it anew")
    try:
        at_s = datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError):
        raise SignatureRefused("the message's Timestamp is not a time; post it unchanged") from None
    _check_age(at_s, now_s, age_s)


# -- parts


def _check_age(at_s: float, now_s: float, age_s: float) -> None:
    """Raises SignatureRefused."""
    if now_s - at_s > age_s:
        raise SignatureRefused(f"it was signed {now_s - at_s:,.0f} s ago; only {age_s:,.0f} s are allowed (age_s)")
    if at_s - now_s > AHEAD_S:
        raise SignatureRefused(f"it was signed {at_s - now_s:,.0f} s from now; set this machine's clock")


def _path_at(url: str, host: str) -> str:
    """Path and query of an address at that host, without port, user or fragment; "": it is none."""
    before = f"https://{host}/"
    plain = url.isascii() and url.isprintable() and len(url) <= 2_000 and not set(url) & set(" #\\")
    return url[len(before) - 1 :] if host and plain and url.startswith(before) else ""


def _texts(content: Any, *names: str) -> tuple[str, ...]:
    """The members of these names; "" for what is no text."""
    rows = content if isinstance(content, dict) else {}
    return tuple(value if isinstance(value := rows.get(name), str) else "" for name in names)


def _bytes_of(signature: str) -> bytes:
    try:
        return base64.b64decode(signature, validate=True)
    except ValueError:
        raise SignatureRefused("the signature is not base64; pass it on as it came") from None

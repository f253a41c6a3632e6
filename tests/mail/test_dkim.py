"""Signatures, by the examples of the RFCs and by another implementation; and whose message it is."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail.hashes import body_hash
from zonemta_py.mail.addresses.authors import author_domain
from zonemta_py.mail.dkim import canonical
from zonemta_py.mail.dkim.canonical import Form
from zonemta_py.mail.dkim.signature import Fields, Key, KeyUnusable, quoted
from zonemta_py.mail.headers import Headers, name_of

WANTED = ("From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe")
OVERSIGNED = ("From", "Subject", "Reply-To")
MESSAGE = (
    b"Received: from a by b;\r\n\tFri, 11 Jul 2003 21:01:54 -0700\r\n"
    b"From: Joe SixPack <joe@football.example.com>\r\nTo: Suzie Q <suzie@shopping.example.net>\r\n"
    b"Subject: Is dinner ready?\r\nDate: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n"
    b"Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n\r\n"
    b"Hi.\r\n\r\nWe lost the game. Are you hungry yet?\r\n\r\nJoe.\r\n"
)

RFC6376_KEY = b"""-----BEGIN RSA PRIVATE KEY-----
MIICXwIBAAKBgQDwIRP/UC3SBsEmGqZ9ZJW3/DkMoGeLnQg1fWn7/zYtIxN2SnFC
jxOCKG9v3b4jYfcTNh5ijSsq631uBItLa7od+v/RtdC2UzJ1lWT947qR+Rcac2gb
to/NMqJ0fzfVjH4OuKhitdY9tf6mcwGjaNBcWToIMmPSPDdQPNUYckcQ2QIDAQAB
AoGBALmn+XwWk7akvkUlqb+dOxyLB9i5VBVfje89Teolwc9YJT36BGN/l4e0l6QX
/1//6DWUTB3KI6wFcm7TWJcxbS0tcKZX7FsJvUz1SbQnkS54DJck1EZO/BLa5ckJ
gAYIaqlA9C0ZwM6i58lLlPadX/rtHb7pWzeNcZHjKrjM461ZAkEA+itss2nRlmyO
n1/5yDyCluST4dQfO8kAB3toSEVc7DeFeDhnC1mZdjASZNvdHS4gbLIA1hUGEF9m
3hKsGUMMPwJBAPW5v/U+AWTADFCS22t72NUurgzeAbzb1HWMqO4y4+9Hpjk5wvL/
eVYizyuce3/fGke7aRYw/ADKygMJdW8H/OcCQQDz5OQb4j2QDpPZc0Nc4QlbvMsj
7p7otWRO5xRa6SzXqqV3+F0VpqvDmshEBkoCydaYwc2o6WQ5EBmExeV8124XAkEA
qZzGsIxVP+sEVRWZmW6KNFSdVUpk3qzK0Tz/WjQMe5z0UunY9Ax9/4PVhp/j61bf
eAYXunajbBSOLlx4D+TunwJBANkPI5S9iylsbLs6NkaMHV6k5ioHBBmgCak95JGX
GMot/L2x0IYyMLAz6oLWh2hm7zwtb0CgOrPo1ke44hFYnfc=
-----END RSA PRIVATE KEY-----
"""
RFC6376_MESSAGE = b"""DKIM-Signature: v=1; a=rsa-sha256; s=brisbane; d=example.com;
      c=simple/simple; q=dns/txt; i=joe@football.example.com;
      h=Received : From : To : Subject : Date : Message-ID;
      bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;
      b=AuUoFEfDxTDkHlLXSZEpZj79LICEps6eda7W3deTVFOk4yAUoqOB
        4nujc7YopdG5dWLSdNg6xNAZpOPr+kHxt1IrE+NahM6L/LbvaHut
        KVdkLLkpVaVVQPzeRDI009SO2Il5Lu7rDNH6mZckBdrIx0orEtZV
        4bmp/YzhwvcubU4=;
Received: from client1.football.example.com  [192.0.2.1]
      by submitserver.example.com with SUBMISSION;
      Fri, 11 Jul 2003 21:01:54 -0700 (PDT)
From: Joe SixPack <joe@football.example.com>
To: Suzie Q <suzie@shopping.example.net>
Subject: Is dinner ready?
Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)
Message-ID: <20030712040037.46341.5F8J@football.example.com>

Hi.

We lost the game. Are you hungry yet?

Joe.
"""
RFC8463_SEED = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
RFC8463_PUBLIC = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
RFC8463_MESSAGE = b"""DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;
 d=football.example.com; i=@football.example.com;
 q=dns/txt; s=brisbane; t=1528637909; h=from : to :
 subject : date : message-id : from : subject : date;
 bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;
 b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus
 Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==
From: Joe SixPack <joe@football.example.com>
To: Suzie Q <suzie@shopping.example.net>
Subject: Is dinner ready?
Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)
Message-ID: <20030712040037.46341.5F8J@football.example.com>

Hi.

We lost the game.  Are you hungry yet?

Joe.
"""


def pem(key: Any, encryption: KeySerializationEncryption | None = None) -> bytes:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return made


RSA = pem(rsa.generate_private_key(65537, 2048))
ED25519 = pem(ed25519.Ed25519PrivateKey.generate())
PEMS = {"rsa-sha256": RSA, "ed25519-sha256": ED25519}


def signed(message: bytes, key: Key, form: Form = "relaxed", bodies: Form = "relaxed", expires: int = 0) -> bytes:
    selection = Fields(form, WANTED, OVERSIGNED).of(message.partition(b"\r\n\r\n")[0] + b"\r\n")
    body = message.partition(b"\r\n\r\n")[2]
    return key.sign(selection, bodies, body_hash(bodies, body), 1_700_000_000, expires) + message


def verified(message: bytes, *keys: Key) -> list[bool]:
    """dkimpy's verdict on each signature, top to bottom."""
    records = {f"{key.selector}._domainkey.{key.domain}.".encode(): key.record().encode() for key in keys}
    checker = dkimpy.DKIM(message)
    count = len([name for name, _ in checker.headers if name.lower() == b"dkim-signature"])
    return [_verdict(checker, place, records) for place in range(count)]


def _verdict(checker: dkimpy.DKIM, place: int, records: dict[bytes, bytes]) -> bool:
    try:
        return bool(checker.verify(place, dnsfunc=lambda name, timeout=5: records.get(name)))
    except dkimpy.ValidationError:
        return False


def signature_again(example: bytes, key: Key, form: Form) -> tuple[bytes, bytes]:
    """What the example's b= is, and what it is when we compute it from its own fields."""
    message = example.replace(b"\n", b"\r\n")
    headers = Headers.parse(message)
    field = headers.fields[0]
    expected = re.search(rb"[; ]b=([^;]+)", field)
    assert expected is not None
    names = b"".join(headers.get("dkim-signature").encode().partition(b"h=")[2].partition(b";")[0].split())
    wanted = dict.fromkeys(names.lower().split(b":"))
    picked = [raw for name in wanted for raw in headers.fields if name_of(raw) == name]
    data = b"".join(canonical.field(form, raw) + b"\r\n" for raw in picked)
    data += canonical.field(form, field.replace(expected[1], b""))
    return b"".join(expected[1].split()), base64.b64encode(key.signature(hashlib.sha256(data).digest()))


def test_the_example_of_rfc_6376() -> None:
    """A.2 with the key of appendix C: the very signature that is printed there."""
    key = Key("example.com", "brisbane", RFC6376_KEY)
    printed, ours = signature_again(RFC6376_MESSAGE, key, "simple")
    assert ours == printed


def test_the_example_of_rfc_8463() -> None:
    """A.3: public key and signature as they are printed there."""
    private = ed25519.Ed25519PrivateKey.from_private_bytes(base64.b64decode(RFC8463_SEED))
    key = Key("football.example.com", "brisbane", pem(private))
    assert key.record() == f"v=DKIM1; k=ed25519; p={RFC8463_PUBLIC}"
    printed, ours = signature_again(RFC8463_MESSAGE, key, "relaxed")
    assert ours == printed


@pytest.mark.parametrize("example", [RFC6376_MESSAGE, RFC8463_MESSAGE])
def test_body_hash_of_the_examples(example: bytes) -> None:
    """bh= as printed: in the older one simple, in the newer one relaxed (it has two blanks)."""
    form: Form = "simple" if example is RFC6376_MESSAGE else "relaxed"
    body = example.replace(b"\n", b"\r\n").partition(b"\r\n\r\n")[2]
    assert base64.b64encode(body_hash(form, body)) == b"2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8="


@pytest.mark.parametrize("bodies", ["relaxed", "simple"])
@pytest.mark.parametrize("form", ["relaxed", "simple"])
@pytest.mark.parametrize("algorithm", PEMS)
def test_dkimpy_agrees(algorithm: str, form: Form, bodies: Form) -> None:
    """In all forms, with i= and x=; a changed body or field is found out."""
    key = Key("football.example.com", "s1", PEMS[algorithm], "joe=x;@mail.football.example.com")
    message = signed(MESSAGE, key, form, bodies, 4_000_000_000)
    assert key.algorithm.encode() in message
    assert verified(message, key) == [True]
    assert verified(message.replace(b"Are you", b"Art you"), key) == [False]
    assert verified(message.replace(b"dinner", b"supper"), key) == [False]


def test_several_signatures() -> None:
    """Each stands on its own, whichever is above the other."""
    keys = Key("football.example.com", "r", RSA), Key("example.com", "e", ED25519)
    assert verified(signed(signed(MESSAGE, keys[0]), keys[1]), *keys) == [True, True]


@pytest.mark.parametrize("added", [b"Reply-To: eve@x.example", b"From: Eve <e@x.example>", b"Subject: Buy"])
def test_oversigned_fields_cannot_be_added(added: bytes) -> None:
    """Not above, not below, and also where the message had none."""
    key = Key("football.example.com", "s1", ED25519)
    message = signed(MESSAGE, key)
    assert verified(added + b"\r\n" + message, key) == [False]
    assert verified(message.replace(b"\r\nDate:", b"\r\n" + added + b"\r\nDate:"), key) == [False]


def test_fields_that_are_there_several_times() -> None:
    """All of them are signed, from the bottom up; one that is not oversigned may be added on top."""
    key = Key("football.example.com", "s1", ED25519)
    message = signed(MESSAGE.replace(b"To: S", b"To: <a@x.example>\r\nTo: S"), key)
    assert verified(message, key) == [True]
    assert verified(message.replace(b"<a@x", b"<b@x"), key) == [False]
    assert verified(b"To: new\r\n" + message, key) == [True]


def test_several_authors() -> None:
    """More than one From field is wrong, but not ours to mend: all are signed, by the key of the first."""
    key = Key("football.example.com", "s1", ED25519)
    message = signed(MESSAGE.replace(b"From: ", b"From: <ann@football.example.com>\r\nFrom: "), key)
    assert message.partition(b"h=")[2].startswith(b"From:From:From:To")
    assert author_domain(Headers.parse(message).get("from").encode()) == "football.example.com"


def test_form_of_the_field() -> None:
    """No l=, no line above 78 characters, ends in CRLF; t= and x= in seconds; no x= unless asked for."""
    field = signed(MESSAGE, Key("football.example.com", "s1", RSA), expires=1_700_000_100).partition(b"Received:")[0]
    assert field.endswith(b"\r\n")
    assert all(len(line) <= 78 for line in field.split(b"\r\n"))
    assert b" t=1700000000; x=1700000100;\r\n" in field
    assert b"l=" not in field.replace(b"rel", b"")[: field.index(b"bh=")]
    assert b"x=" not in signed(MESSAGE, Key("d.example", "s", RSA)).partition(b"\r\n h=")[0]


NAMES = st.sampled_from(["From", "To", "Subject", "DATE", "x-other", "List-Unsubscribe", "MESSAGE-id", "Reply-To"])
WORDS = st.sampled_from(["a", "Grüße", " ", "\t", "\r\n ", ":", ";", "b=", "=", "<x@y.example>", '"'])
VALUES = st.lists(WORDS, max_size=8).map("".join)


@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=8),
    st.lists(st.sampled_from([b"x", b" ", b"\t", b"\r\n", b"\xfc", b"--"]), max_size=30).map(b"".join),
    st.sampled_from(["relaxed", "simple"]),
    st.sampled_from(["relaxed", "simple"]),
)
@settings(max_examples=60, deadline=None)
def test_any_message(fields: list[tuple[str, str]], body: bytes, form: Form, bodies: Form) -> None:
    """dkimpy verifies what we sign, whatever stands in the fields and in the body."""
    lines = [f"{name}: x{value}x\r\n".encode() for name, value in [("From", "a@b.example"), *fields]]
    key = Key("b.example", "s", ED25519)
    end = b"" if body.endswith(b"\r\n") or not body else b"\r\n"
    assert verified(signed(b"".join(lines) + b"\r\n" + body, key, form, bodies) + end, key) == [True]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"", "not a private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "neither an RSA nor an Ed25519 key"),
        (pem(ed25519.Ed25519PrivateKey.generate(), BestAvailableEncryption(b"x")), "encrypted"),
    ],
)
def test_keys_that_cannot_be_used(bad: bytes, says: str) -> None:
    """One sentence with what to do."""
    with pytest.raises(KeyUnusable, match=says) as caught:
        Key("d.example", "s", bad)
    assert ";" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("a@B.Example", "b.example"),
        ("Joe <joe@b.example>", "b.example"),
        ('"joe@evil.example" <joe@b.example>', "b.example"),
        ('"Doe, \\"J\\" <x@evil.example>" <joe@b.example>', "b.example"),
        ("Doe, John <j@b.example>", "b.example"),
        ("joe@evil.example <joe@b.example>", "b.example"),
        ("(a comment (x@evil.example) ) joe@b.example (more)", "b.example"),
        ("joe (is, here) <joe@b.example>", "b.example"),
        ("joe @ b . example", "b.example"),
        ("team: a@b.example, c@d.example;", "b.example"),
        ("<a@b.example>, <c@d.example>", "b.example"),
        ("a@b.example, c@d.example", "b.example"),
        ("<@relay.example:a@b.example>", "b.example"),
        ('"a@b"@b.example', "b.example"),
        ('"never closed <a@b.example>', "b.example"),
        ("(never closed <a@b.example>", "b.example"),
        ("=?utf-8?q?J=C3=BCrgen?= <j@b.example.>", "b.example"),
        ("a@bücher.example", "xn--bcher-kva.example"),
        ("undisclosed-recipients:;", ""),
        ("", ""),
        ("nobody", ""),
        ("a@", ""),
        ("a@[192.0.2.1]", ""),
        ("a@b.example\r\nX: y", ""),
    ],
)
def test_whose_message(value: str, domain: str) -> None:
    """The first address that people would see."""
    assert author_domain(value) == domain


@given(st.text(st.sampled_from('a@b.<>(),;:" \\\t[]é'), max_size=60))
def test_any_from_field(value: str) -> None:
    """Never an error, never a domain with something in it that is none."""
    domain = author_domain(value)
    assert not set(domain) & set(' \t@<>(),;:"\\[]')


def test_quoted_printable() -> None:
    """RFC 6376 2.11: blanks, semicolons, equals signs and what is not ASCII."""
    assert quoted("a b;c=d@ü.example") == "a=20b=3Bc=3Dd@=C3=BC.example"

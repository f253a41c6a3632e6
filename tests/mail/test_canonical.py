"""The canonical forms of RFC 6376 3.4, and that bodies may be cut anywhere."""

from __future__ import annotations

import hashlib

import pytest
from dkim.canonicalization import Relaxed, Simple
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail.hashes import body_hash
from zonemta_py.mail.dkim.canonical import BodyHash, Form, field

FORMS: list[Form] = ["relaxed", "simple"]
PIECES = st.sampled_from(
    [b"a", b"bc", b" ", b"\t", b"\r\n", b"\r", b"\n", b"  \t", b"\r\n\r\n", b"\xff", b" \r\n", b"."]
)
BODIES = st.lists(PIECES, max_size=40).map(b"".join)


def hashed(form: Form, *blocks: bytes) -> bytes:
    body = BodyHash(form)
    for block in blocks:
        body.add(block)
    return body.digest()


def test_the_example_of_the_rfc() -> None:
    """RFC 6376 3.4.5: two fields and a body in both forms."""
    raw = [b"A: X", b"B : Y\t\r\n\tZ  "]
    assert [field("relaxed", one) for one in raw] == [b"a:X", b"b:Y Z"]
    assert [field("simple", one) for one in raw] == raw
    body = b" C \r\nD \t E\r\n\r\n\r\n"
    assert body_hash("relaxed", body) == hashlib.sha256(b" C\r\nD E\r\n").digest()
    assert body_hash("simple", body) == hashlib.sha256(b" C \r\nD \t E\r\n").digest()


@pytest.mark.parametrize("body", [b"", b"\r\n", b"\r\n\r\n\r\n"])
def test_a_body_of_nothing(body: bytes) -> None:
    """Simple makes it one CRLF, relaxed nothing at all; the hashes are those that the RFC prints (3.4.3, 3.4.4)."""
    assert body_hash("simple", body) == hashlib.sha256(b"\r\n").digest()
    assert body_hash("relaxed", body) == hashlib.sha256(b"").digest()


@pytest.mark.parametrize("form", FORMS)
@given(BODIES)
@settings(max_examples=200)
def test_as_dkimpy_sees_it(form: Form, body: bytes) -> None:
    """Whatever the body, once it ends in CRLF as it does when it travels."""
    travelling = body if body.endswith(b"\r\n") or not body else body + b"\r\n"
    other = Relaxed if form == "relaxed" else Simple
    expected = other.canonicalize_body(travelling)
    assert body_hash(form, body) == hashlib.sha256(expected).digest()


@pytest.mark.parametrize("form", FORMS)
@given(BODIES, st.lists(st.integers(0, 80), max_size=10))
@settings(max_examples=200)
def test_cut_anywhere(form: Form, body: bytes, cuts: list[int]) -> None:
    """The hash of a stream is that of the whole, also for blocks of one byte."""
    places = sorted({min(cut, len(body)) for cut in cuts})
    blocks = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert hashed(form, *blocks) == body_hash(form, body)
    assert hashed(form, *(body[i : i + 1] for i in range(len(body)))) == body_hash(form, body)


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_decided_takes_no_room(form: Form) -> None:
    """Twenty megabytes of empty lines and blanks, then a letter: nothing of it is kept meanwhile."""
    body = BodyHash(form)
    for _ in range(160):
        body.add(b"\r\n" * 32_768 + b" " * 65_536)
        assert len(body._held) <= 2
    body.add(b"x")
    assert len(body.digest()) == 32


@given(st.lists(st.sampled_from([b"x", b":", b" ", b"\t", b"\r\n ", b"\r\n\t", b"yz", b"\xc3\xa4"]), max_size=20))
def test_fields_as_dkimpy_sees_them(parts: list[bytes]) -> None:
    """Unfolded, one space, nothing at the ends, the name in lower case; done twice it is the same."""
    value = b"".join(parts)
    [(name, expected)] = Relaxed.canonicalize_headers([(b"X-Some-Thing ", value + b"\r\n")])
    got = field("relaxed", b"X-Some-Thing :" + value)
    assert got + b"\r\n" == name + b":" + expected
    assert field("relaxed", got) == got

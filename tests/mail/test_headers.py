"""Header sections, field by field."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.headers import Headers, decode, split
from zonemta_py.mail.limits import HEADER_FIELDS_MAX

SECTION = b"Received: one\r\nSubject: a\r\n b\r\nReceived:two\r\nX-Odd : \xff\r\n"


@given(st.lists(st.sampled_from([b"A: b\r\n", b" fold\r\n", b"\r\n", b"no field\r\n", b": x\r\n", b"B:\xff\r\n"])))
@settings(max_examples=150)
def test_splitting_loses_no_byte(lines: list[bytes]) -> None:
    """Fields and what follows them together are the message, whatever it is made of."""
    message = b"".join(lines)
    headers, end = split(message)
    assert headers.build() == message[:end]
    assert not message[end:].startswith((b"A:", b"B:"))


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (b"A: b\r\n\r\nbody", 6), (b"A: b\r\n", 6), (b"\r\nbody", 0), (b"hello\r\n", 0), (b"", 0),
        (b"A: b\r\nhello\r\n\r\nC: d\r\n", 6), (b" x\r\nA: b\r\n\r\n", 0), (b"From x@y Sat 10:00\r\nA: b\r\n\r\n", 0),
    ],
)  # fmt: skip
def test_where_a_header_section_ends(message: bytes, end: int) -> None:
    """At the first empty line, or before the first line that is no field."""
    assert split(message)[1] == end


def test_fields_are_found_by_name_in_any_case_and_unfolded() -> None:
    """Order and repetition are kept; folds are taken out of values; a space before the colon is forgiven."""
    headers = Headers.parse(SECTION + b"\r\nSubject: not a field any more")
    assert headers.get("SUBJECT") == "a b"
    assert headers.all("received") == ["one", "two"]
    assert headers.count("Received") == 2
    assert headers.get("x-odd").encode("utf-8", "surrogateescape") == b"\xff"
    assert "Date" not in headers
    assert headers.get("Date", "never") == "never"
    assert [name for name, _ in headers] == ["Received", "Subject", "Received", "X-Odd"]


def test_what_is_not_changed_stays_byte_for_byte() -> None:
    """Adding, replacing and removing touch only their own field."""
    headers = Headers.parse(SECTION)
    headers.prepend("Received", "zero")
    headers.replace("subject", "new")
    headers.add("X-New", "ü\r\n folded")
    assert headers.remove("x-odd") == 1
    assert headers.remove("x-odd") == 0
    assert headers.build() == (
        "Received: zero\r\nReceived: one\r\nsubject: new\r\nReceived:two\r\nX-New: ü\r\n folded\r\n".encode()
    )
    headers.replace("Received", "only")
    assert headers.all("Received") == ["only"]
    headers.replace("Absent", "here")
    assert headers.get("absent") == "here"
    assert len(headers) == 4


@pytest.mark.parametrize(("name", "value"), [("A b", "x"), ("A:", "x"), ("", "x"), ("A", "x\r\nB: y"), ("A", "x\0")])
def test_a_field_can_not_smuggle_another_one(name: str, value: str) -> None:
    """Names and values that would break the section are refused."""
    with pytest.raises(ValueError, match=r"name of a header field|line ends"):
        Headers().add(name, value)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?= an =?utf-8?b?YWxsZQ==?=", "Grüße an alle"),
        ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        ("=?nonsense?q?a=FF?=", "aÿ"),
        ("=?utf-8?b?a?=", "=?utf-8?b?a?="),
        ("=?utf-8?q?a=0D=0Ab?=", "a b"),
        ("plain\ttab", "plain tab"),
        ("\udcff", "?"),
    ],
)
def test_encoded_words_are_decoded(raw: str, text: str) -> None:
    """RFC 2047 words become text; what is broken stays readable; the result is always one clean line."""
    assert decode(raw) == text


@given(st.text(), st.binary(max_size=40))
@settings(max_examples=100)
def test_decoding_never_fails(text: str, raw: bytes) -> None:
    """Whatever stands in a field, decoding gives text that UTF-8 can carry, without line ends and controls."""
    for value in (text, f"=?utf-8?b?{text}?=", raw.decode("utf-8", "surrogateescape"), f"=?{text}?q?{text}?="):
        line = decode(value)
        assert line.encode().decode() == line
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)


def test_decoded_values_are_bounded() -> None:
    """What goes into the envelope is at most as long as asked for."""
    assert Headers.parse(b"Subject: " + b"x" * 500).decoded("subject") == "x" * 200


@pytest.mark.parametrize(
    "look",
    [
        lambda: Headers([b"Subject: " + b"=?utf-8?q?a?= " * 67_000]).decoded("subject"),
        lambda: decode("=?utf-8?q?a?= " * 67_000),
        lambda: decode("=?punycode?q?" + "b" * 900_000 + "?="),
        lambda: decode("=?punycode?q?" + "a" * 60_000 + "-zzzzz" * 2_000 + "?="),
        lambda: split(b"a:\r\n" * 262_000 + b"\r\n"),
    ],
)  # fmt: skip
def test_hostile_header_sections_cost_little(look: Callable[[], object]) -> None:
    """A megabyte of encoded words, or of tiny fields, took up to nine seconds; now milliseconds of CPU time."""
    begun = time.thread_time()
    assert look()
    assert time.thread_time() - begun < 3


def test_a_section_of_too_many_fields_keeps_its_bytes() -> None:
    """What follows the last field that is looked at is one more, in one piece."""
    section = b"".join(b"a%d: b\r\n" % number for number in range(HEADER_FIELDS_MAX + 7))
    headers, end = split(section + b"\r\nbody")
    assert (end, len(headers)) == (len(section), HEADER_FIELDS_MAX + 1)
    assert headers.build() == section
    assert len(split(b"a: b\r\n" * HEADER_FIELDS_MAX + b"\r\n")[0]) == HEADER_FIELDS_MAX

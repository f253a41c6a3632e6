"""Trace and identification fields."""

from __future__ import annotations

from email.utils import formatdate, parsedate_to_datetime

import pytest

from zonemta_py.mail.fields import date
from zonemta_py.mail.trace import Trace, comment, date_field, message_id_field, protocol, received

NOW_MS = 1_795_233_906_789


@pytest.mark.parametrize("seconds", [0, 951_782_400, 1_795_233_906, 4_102_444_800])
def test_dates_are_what_the_standard_library_writes(seconds: int) -> None:
    """RFC 5322 date-time in UTC."""
    assert date(seconds) == formatdate(seconds).replace("-0000", "+0000")


def test_received_names_all_that_is_known() -> None:
    """RFC 5321 4.4: from, by, with, id, for and the date, in folded lines."""
    opening = Trace("client.test", "192.0.2.1", "mx.test", "ESMTPS", "TLSv1.3 TLS_AES_256_GCM_SHA384").opening()
    assert received(opening, "7a.1", "c@d.test", NOW_MS) == (
        b"Received: from client.test ([192.0.2.1])\r\n"
        b" (using TLSv1.3 TLS_AES_256_GCM_SHA384)\r\n"
        b" by mx.test with ESMTPS id 7a.1\r\n"
        b" for <c@d.test>;\r\n"
        b" " + date(NOW_MS // 1000).encode() + b"\r\n"
    )


def test_received_keeps_several_recipients_private() -> None:
    """Without a single recipient there is no "for"."""
    assert b"for" not in received(Trace("a", "2001:db8::1", "b", "ESMTP").opening(), "1", None, NOW_MS)


def test_an_ipv6_client_is_written_as_an_address_literal() -> None:
    """RFC 5321 4.1.3."""
    assert "([IPv6:2001:db8::1])" in Trace("a", "2001:db8::1", "b", "ESMTP").opening()


@pytest.mark.parametrize("helo", ["a\r\nX: y", "(a", "a b", "a;b)", "\\"])
def test_a_client_can_not_write_header_fields_with_its_name(helo: str) -> None:
    """What HELO said cannot break out of its place."""
    opening = Trace(helo, "192.0.2.1", "b", "ESMTP").opening()
    first = opening.split("\r\n")[0]
    assert first.startswith("Received: from ")
    assert first.endswith(" ([192.0.2.1])")
    assert first.count("(") == 1
    assert opening.count("\r\n") == 1


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ((False, False, False, False), "SMTP"), ((True, False, False, False), "ESMTP"),
        ((True, True, False, False), "ESMTPS"), ((True, True, True, False), "ESMTPSA"),
        ((True, False, False, True), "UTF8SMTP"), ((True, True, True, True), "UTF8SMTPSA"),
    ],
)  # fmt: skip
def test_protocol_names(state: tuple[bool, bool, bool, bool], name: str) -> None:
    """RFC 3848 and RFC 6531 4.3."""
    assert protocol(*state) == name


def test_missing_fields() -> None:
    """A Date that can be read back, and a Message-ID of our own."""
    line = date_field(NOW_MS)
    assert parsedate_to_datetime(line[6:].strip().decode()).timestamp() == NOW_MS // 1000
    assert message_id_field("7a.1", NOW_MS, "mx.test") == f"Message-ID: <{NOW_MS:x}.7a.1@mx.test>\r\n".encode()


def test_comments_are_harmless() -> None:
    """Parentheses and controls become question marks."""
    assert comment("a (b)\r\nc\x00") == "a ?b? c?"

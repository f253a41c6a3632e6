"""Messages that come without dots, and addresses that come without brackets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.address import AddressRefused, parse_mailbox, parse_rcpt
from zonemta_py.mail.lines import BARE_LINE_END, Undotted

TRICKY = st.lists(st.sampled_from([b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"a", b"..", b"\n..\n", b"\xff"])).map(
    b"".join
)


@given(TRICKY, st.lists(st.integers(1, 5), max_size=20))
def test_line_ends_become_crlf_and_nothing_else_changes(message: bytes, lengths: list[int]) -> None:
    """Wherever blocks are cut; the last line gets its end; dots stay."""
    decoder, out, at = Undotted(10_000, 10_000), b"", 0
    for length in [*lengths, len(message)]:
        out += decoder.feed(message[at : at + length])
        at += length
    out += decoder.finish()
    expected = re.sub(rb"\r\n|\r|\n", b"\r\n", message)
    assert out == (expected if not expected or expected.endswith(b"\r\n") else expected + b"\r\n")
    assert decoder.eightbit is (b"\xff" in message)


@pytest.mark.parametrize("message", [b"a\nb", b"a\rb", b"a\r"])
def test_lone_line_ends_may_be_refused(message: bytes) -> None:
    """At the very end of the message too."""
    decoder = Undotted(10_000, 10_000, normalise=False)
    assert decoder.feed(message) + decoder.finish() in (b"", b"a")
    assert decoder.refusal == BARE_LINE_END


@given(st.one_of(st.text(max_size=30), st.from_regex(r"[a-zA-Z.\"@<> =,:\[\]0-9é]{1,30}", fullmatch=True)))
def test_a_bare_address_is_all_of_an_address(text: str) -> None:
    """It is what RCPT would have taken, in brackets, without anything beside it; only its domain's case changes."""
    try:
        found = parse_mailbox(text)
    except AddressRefused:
        return
    assert found.lower() == text.lower()
    assert found.rpartition("@")[0] == text.rpartition("@")[0]
    assert parse_rcpt(f"<{text}>", smtputf8=True) == (parse_rcpt(f"<{found}>", smtputf8=True)[0], {})

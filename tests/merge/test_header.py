"""Header fields from any text: one field each, folded, and read back as it was."""

import email
import email.policy
import re
from email.header import decode_header, make_header

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.merge import header
from zonemta_py.merge.problems import RenderRefused

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


def unfolded(field: bytes) -> str:
    assert field.endswith(b"\r\n")
    assert not re.search(rb"\r\n[^ \t]", field[:-2])
    assert all(len(line.strip()) > 0 and len(line) <= 998 for line in field[:-2].split(b"\r\n"))
    return field[:-2].replace(b"\r\n", b"").decode().partition(":")[2].removeprefix(" ")


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_a_subject_is_read_back(text: str) -> None:
    """Controls are spaces; everything else is what it was, by RFC 2047 where it must be."""
    value = unfolded(header.unstructured("Subject", text))
    assert value.isascii()
    assert str(make_header(decode_header(value))) == header.clean(text)


@settings(max_examples=200, deadline=None)
@given(name=TEXT)
def test_a_display_name_never_changes_the_address(name: str) -> None:
    """Quotes, brackets and commas in it are letters."""
    field = header.mailbox("To", name, "ada@example.com")
    unfolded(field)
    parsed = email.message_from_bytes(field + b"\r\n", policy=email.policy.default)
    assert [one.addr_spec for one in parsed["To"].addresses] == ["ada@example.com"]


def test_long_words_and_lines_are_broken() -> None:
    """At spaces where there are some, by encoded words where there are none."""
    assert max(map(len, header.unstructured("Subject", "word " * 60).split(b"\r\n"))) <= 78
    assert max(map(len, header.unstructured("Subject", "x" * 3000).split(b"\r\n"))) <= 78


@pytest.mark.parametrize("address", ["", "a", "a@", "@b", "a b@c.example", "a@b.example,c@d.example", "a@b>\r\nX: y"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """With the field's name and the remedy."""
    with pytest.raises(RenderRefused, match=r"^To: .* is not an email address; write name@domain"):
        header.addr_spec("To", address)


def test_urls() -> None:
    """Percent-encoded where they must be; others are refused."""
    assert header.url("List-Unsubscribe", "https://e.com/?a=b c>\r\nBcc: x") == (
        b"List-Unsubscribe: <https://e.com/?a=b%20c%3E%20Bcc:%20x>\r\n"
    )
    assert header.url("L", "mailto:a@e.com?subject=x%20y") == b"L: <mailto:a@e.com?subject=x%20y>\r\n"
    for bad in ("javascript:x", "e.com", "https://e.com/" + "x" * 900):
        with pytest.raises(RenderRefused):
            header.url("List-Unsubscribe", bad)


def test_parameters() -> None:
    """Quoted, or by RFC 2231."""
    assert header.parameter("filename", 'a"b.pdf') == 'filename="a\\"b.pdf"'
    assert header.parameter("filename", "ä.pdf") == "filename*=UTF-8''%C3%A4.pdf"

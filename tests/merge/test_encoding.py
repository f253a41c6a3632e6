"""Encoded pieces decode to the whole, wherever it was cut."""

import quopri
from base64 import b64decode

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.merge.encoding import base64, join, piece, quoted_printable

PIECE = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    st.lists(
        st.sampled_from(["\n", "\r\n", " ", ".", "=", "é", "a" * 72, "a" * 75, "a" * 76, "\t", ".b"]), max_size=8
    ).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(PIECE, max_size=6))
def test_quoted_printable_pieces(pieces: list[str]) -> None:
    """Lines of at most 76 octets, none of which begins with a dot; no boundary can stand in them."""
    body = join([piece(one) for one in pieces])
    whole = "".join(one.replace("\r\n", "\n").replace("\r", "\n") for one in pieces)
    assert quopri.decodestring(body).replace(b"\r\n", b"\n").decode() == whole
    assert all(len(line) <= 76 and not line.endswith((b" ", b"\t")) for line in body.split(b"\r\n"))
    assert b"=_" not in body
    assert b"\r\n." not in b"\r\n" + body
    assert b"\n" not in body.replace(b"\r\n", b"")


def test_pieces_stand_on_one_line() -> None:
    """Where there is room, nothing in the message shows where a field was."""
    assert join([piece(one) for one in ("Dear ", "", "Ann", ", you\nare ", "é", " now.")]) == (
        b"Dear=20Ann, you\r\nare=20=C3=A9 now."
    )
    long = join([piece(one) for one in ("a" * 40, "b" * 35, "c", "d" * 75)])
    assert long == b"a" * 40 + b"b" * 35 + b"=\r\nc=\r\n" + b"d" * 75
    assert quoted_printable("x") == b"x=\r\n"


@settings(max_examples=50, deadline=None)
@given(text=PIECE)
def test_base64(text: str) -> None:
    """Lines of at most 76 octets; line ends are CRLF before they are encoded (RFC 2045 6.8)."""
    body = base64(text)
    assert b64decode(body).decode() == text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    assert all(len(line) <= 76 for line in body.split(b"\r\n"))

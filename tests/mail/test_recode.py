"""Messages made fit for the wire: what changes, what must not, and what readers see."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.recode import NotRecodable, fit, recoded

HEAD = b"From: Ann <a@s.example>\r\nSubject: x\r\nMIME-Version: 1.0\r\n"
TEXT = "Grüße – 日本\r\n.\r\n.dot\r\nFrom here\r\ntrailing  \r\n" + "x" * 1_500 + "ü\r\n"


def part(kind: str, body: bytes, coding: str = "8bit") -> bytes:
    return f"Content-Type: {kind}\r\nContent-Transfer-Encoding: {coding}\r\n\r\n".encode() + body


def multipart(kind: str, *parts: bytes, coding: str = "8bit", around: bytes = b"") -> bytes:
    inner = b"".join(b"--=_b\r\n" + one + b"\r\n" for one in parts)
    return part(f'multipart/{kind}; boundary="=_b"', around + b"\r\n" + inner + b"--=_b--\r\n" + around, coding)


def texts(message: bytes) -> list[tuple[str, str | None, bytes]]:
    """What readers see: of each part its type, file name and content."""
    read = email.message_from_bytes(message, policy=email.policy.default)
    found = []
    for one in read.walk():
        if not one.is_multipart():
            content = one.get_payload(decode=True)
            assert isinstance(content, bytes)
            found.append((one.get_content_type(), one.get_filename(), content.replace(b"\r\n", b"\n").rstrip(b"\n")))
    return found


WHOLE = [
    part("text/plain; charset=utf-8", TEXT.encode()),
    part("text/html; charset=iso-8859-1", b"<p>Gr\xfc\xdfe " + b"word " * 400 + b"</p>\r\n"),
    part("text/plain; charset=utf-8", ("日本語" * 500 + "\r\n").encode()),
    part("application/octet-stream", bytes(b for b in range(256) if b not in (0, 10, 13)) * 9 + b"\r\n", "binary"),
    part("image/png", b"QUJD" * 1_000 + b"\r\n", "base64"),
    part("text/plain", b"=41" * 800 + b"=C3=BC\r\n", "quoted-printable"),
    multipart(
        "mixed", part("text/plain; charset=utf-8", TEXT.encode()), b"\r\nno fields \xc3\xbc\r\n", b"\r\n",
        multipart("alternative", part("text/html; charset=utf-8", b"<p>\xc3\xa9</p>")).replace(b"=_b", b"in"),
        part("image/png", b"iVBORw0KGgo=\r\n", "base64"), around=b"\xc3\xbc" + b"y" * 2_000,
    ),
    multipart("mixed", part("message/rfc822", HEAD + part("text/plain; charset=utf-8", TEXT.encode()))),
    multipart("digest", b"\r\n" + HEAD + b"\r\n" + b"z" * 1_200 + b"\r\n"),
]  # fmt: skip


@pytest.mark.parametrize("seven", [True, False])
@pytest.mark.parametrize("entity", WHOLE)
def test_readers_see_the_same(entity: bytes, seven: bool) -> None:
    """Short lines, and seven bits where they are wanted; text, files and names stay."""
    message = HEAD + entity
    made = recoded(message, seven)
    assert fit(made, seven)
    assert texts(made) == texts(message)
    assert recoded(made, seven) == made
    assert b"\n" not in made.replace(b"\r\n", b"")


def test_what_fits_stays_byte_for_byte() -> None:
    """Beside a part that does not fit, too; without a need nothing changes at all."""
    odd = b"X-Odd:  kept \r\n\tas it is\r\ncontent-TYPE:text/plain\r\n\r\n  . \r\n.\r\n"
    message = HEAD + multipart("mixed", odd, part("text/plain; charset=utf-8", "ü\r\n".encode()))
    assert recoded(message, False) == message
    assert odd in recoded(message, True)
    assert recoded(message, True).startswith(HEAD)


@pytest.mark.parametrize("kind", ["signed; micalg=pgp-sha256", "encrypted"])
def test_what_is_signed_is_not_touched(kind: str) -> None:
    """A signature over other bytes is worth nothing: such a message is refused, unless it fits as it is."""
    sealed = multipart(kind, part("text/plain; charset=utf-8", "ü\r\n".encode()), part("application/x-sig", b"s"))
    beside = multipart("mixed", part("text/plain; charset=utf-8", "ö\r\n".encode()), sealed.replace(b"=_b", b"in"))
    for message in (HEAD + sealed, HEAD + beside):
        with pytest.raises(NotRecodable, match="must stay as it is"):
            recoded(message, True)
    fine = sealed.replace("ü".encode(), b"u")
    made = recoded(
        HEAD + multipart("mixed", part("text/plain; charset=utf-8", "ö".encode()), fine.replace(b"=_b", b"in")), True
    )
    assert fine.replace(b"=_b", b"in") in made


@pytest.mark.parametrize(
    "message",
    [
        HEAD + part("message/partial; id=x; number=1", b"\xc3\xbc\r\n"),
        HEAD + part("text/plain", b"\xc3\xbc\r\n", "x-uuencode"),
        HEAD + part("multipart/mixed", b"\xc3\xbc\r\n"),
        HEAD + part("multipart/mixed; boundary=b", b"\xc3\xbc\r\n"),
        HEAD + multipart("mixed", part("text/plain", "ü".encode()), coding="base64"),
        b"From: j\xc3\xb6rg@s.example\r\n\r\nx\r\n",
    ],
)
def test_what_cannot_be_recoded(message: bytes) -> None:
    """Said in one sentence, never half done."""
    with pytest.raises(NotRecodable):
        recoded(message, True)


def test_a_message_without_mime() -> None:
    """Raw text gets the fields that say what it is."""
    read = email.message_from_bytes(
        recoded(b"Subject: x\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n", True), policy=email.policy.default
    )
    assert isinstance(read, EmailMessage)
    assert (read["MIME-Version"], read.get_content_charset(), read.get_content()) == ("1.0", "utf-8", "Grüße\r\n")
    assert b"unknown-8bit" in recoded(b"Subject: x\r\n\r\nGr\xfc\xdfe\r\n", True)


def test_fields_in_eight_bits() -> None:
    """Encoded words and RFC 2231, so that a reader finds the same names."""
    fields = (
        'From: "Jürgen, der X." <j@s.example>, Zoë <z@s.example>\r\nSubject: Grüße aus Köln\r\n'
        'Content-Type: text/plain; name="prüf.txt"\r\nContent-Disposition: attachment;\r\n filename="prüf.txt"\r\n'
    )
    made = recoded(f"{fields}\r\nx\r\n".encode(), True)
    assert made.isascii()
    read = email.message_from_bytes(made, policy=email.policy.default)
    assert [(one.display_name, one.addr_spec) for one in read["From"].addresses] == [
        ("Jürgen, der X.", "j@s.example"),
        ("Zoë", "z@s.example"),
    ]
    assert (read["Subject"], read.get_filename()) == ("Grüße aus Köln", "prüf.txt")


@pytest.mark.parametrize(
    "field",
    [
        b"References: " + b" ".join(b"<%030d@x.example>" % number for number in range(100)),
        b"Subject: " + b"x" * 15_000,
        b"To: " + b",".join(b"u%d@x.example" % number for number in range(300)),
        b"Subject: " + "ü".encode() * 3_000,
        b"X: " + b" " * 3_000 + b"y",
    ],
)
def test_long_fields_are_folded(field: bytes) -> None:
    """Before blanks where there are any: unfolded it is what it was."""
    made = recoded(field + b"\r\n\r\nbody\r\n", False)
    assert fit(made, False)
    assert made.endswith(b"\r\n\r\nbody\r\n")
    unfolded = made.partition(b"\r\n\r\n")[0].replace(b"\r\n", b"")
    assert unfolded.replace(b" ", b"") == field.replace(b" ", b"")
    if field.startswith(b"R"):
        assert unfolded == field
    assert made.count(b"<") == field.count(b"<")


def test_a_notice_about_a_long_field() -> None:
    """The header section that comes back in a notice is folded too, and its own kind of part stays what it is."""
    returned = part("text/rfc822-headers", b"Subject: " + b"w " * 7_000 + b"\r\nX-\xc3\xbc: y\r\n", "8bit")
    status = part(
        "message/delivery-status", b"Reporting-MTA: dns; x\r\n\r\nDiagnostic-Code: smtp; " + b"\xfc" * 1_200, "8bit"
    )
    made = recoded(HEAD + multipart("report; report-type=delivery-status", status, returned), True)
    assert fit(made, True)
    assert b"text/rfc822-headers" in made
    assert b"Diagnostic-Code: smtp;\r\n ???" in made


PIECES = st.sampled_from(
    [
        b"--=_b", b"--=_b--", b"\r\n", b"\r\n\r\n", b"Content-Type: multipart/mixed; boundary==_b\r\n", b"\xc3\xbc",
        b"\xff", b"x" * 999, b"Content-Type: text/plain\r\n", b"Content-Transfer-Encoding: base64\r\n", b"=", b"=\r\n",
        b" ", b":", b".",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=25).map(b"".join), st.booleans())
def test_whatever_comes(rest: bytes, seven: bool) -> None:
    """It fits afterwards, or is refused; nothing else is raised."""
    message = HEAD + rest
    try:
        made = recoded(message, seven)
    except NotRecodable:
        return
    assert fit(made, seven)

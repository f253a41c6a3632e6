"""Messages: the same bytes each time, the right structure, and no field that breaks out of its place."""

import html
import re
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import parseaddr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.merge.compile import compile
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.render import FIELDS_CHARACTERS_MAX, Compiled
from zonemta_py.merge.source import File, TemplateSource, Text

DATE = "Fri, 01 May 2026 08:00:00 +0000"
NASTY = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=300),
    st.lists(
        st.sampled_from(["\r\n", "\n", "\r", "Bcc: x@y.example", "--=_a", "=_", "=?utf-8?q?x?=", " ", "\t", ".", "<",
                         '"', "é", "漢", "\0", "\x85", "\u2028", "{{ x }}", "=", "a" * 1200, "From ", "@", ",", ";",
                         "Content-Type: text/html", "\\", "(", ">"]),
        max_size=12,
    ).map("".join),
)  # fmt: skip
NAMES = [
    "From", "Reply-To", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe", "X-Of", "MIME-Version",
    "Content-Type",
]  # fmt: skip


@pytest.fixture(scope="module")
def everything(source: Callable[..., TemplateSource]) -> Compiled:
    """A field in every place there is."""
    return compile(
        source(
            subject="{{ x }} news",
            sender="{{ x }} <news@example.com>",
            reply_to="{{ x }} <reply@example.com>",
            to_name="{{ x }}",
            list_unsubscribe="https://example.com/u?x={{ x[:60] }}",
            headers=(("X-Of", Text("of {{ x }}")),),
            text="begin\n{{ x }}|{{ x }}\nend of text",
            html="<p title=\"{{ x }}\">{{ x }}</p>\n<img src='cid:logo'>",
            images=(File("logo", "image/png", b"\x89PNG"),),
            attachments=(File("präsent.pdf", "application/pdf", bytes(range(256))),),
        )
    )


def unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@settings(max_examples=150, deadline=None)
@given(field=NASTY)
def test_no_field_makes_a_header_or_a_part(
    everything: Compiled, parse: Callable[[bytes], EmailMessage], field: str
) -> None:
    """Whatever it says: the same header fields, the same parts, lines within bounds, addresses as in the template."""
    message = everything.render({"x": field}, "ada@example.com", "may", DATE)
    assert message.isascii()
    assert all(len(line) <= 998 for line in message.split(b"\r\n"))
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n|\0", message)
    top = message.partition(b"\r\n\r\n")[0]
    assert re.findall(r"^([^\s:]+):", top.decode(), re.M) == NAMES
    parsed = parse(message)
    assert [part.get_content_type() for part in parsed.walk()] == [
        "multipart/mixed", "multipart/related", "multipart/alternative", "text/plain", "text/html", "image/png",
        "application/pdf",
    ]  # fmt: skip
    assert not any(part.defects for part in parsed.walk())
    raw = dict(line.split(": ", 1) for line in re.sub(r"\r\n(?=[ \t])", "", top.decode()).split("\r\n") if ": " in line)
    for name, address in (("From", "news@"), ("Reply-To", "reply@"), ("To", "ada@")):
        assert parseaddr(raw[name])[1] == f"{address}example.com"


@settings(max_examples=150, deadline=None)
@given(field=NASTY)
def test_fields_come_out_as_they_went_in(
    everything: Compiled, parse: Callable[[bytes], EmailMessage], field: str
) -> None:
    """In text to the letter (line ends aside), in HTML escaped, in the subject but for controls."""
    parsed = parse(everything.render({"x": field}, "ada@example.com", "may", DATE))
    parts = {part.get_content_type(): part.get_payload(decode=True) for part in parsed.walk()}
    assert unix(parts["text/plain"].decode()) == f"begin\n{unix(field)}|{unix(field)}\nend of text"
    escaped = re.search(r'<p title="([^"]*)">([^<]*)</p>', unix(parts["text/html"].decode()))
    assert escaped
    # NUL and its like are no character references: compared before, for html.unescape knows better.
    for got in escaped.groups():
        assert html.unescape(got.replace("&#34;", '"').replace("&#39;", "'")) == html.unescape(
            unix(field).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        )
    assert parts["application/pdf"] == bytes(range(256))


@settings(max_examples=100, deadline=None)
@given(field=NASTY)
def test_a_text_that_is_mostly_not_ascii_goes_in_base64(
    rendered: Callable[..., bytes], parse: Callable[[bytes], EmailMessage], field: str
) -> None:
    """Three bytes for one would be a waste; what is decoded is the same."""
    message = rendered({"x": field}, text="русский текст " * 60 + "\n{{ x }}")
    assert b"Transfer-Encoding: base64" in message
    assert unix(parse(message).get_payload(decode=True).decode()) == "русский текст " * 60 + "\n" + unix(field)


def test_the_same_arguments_give_the_same_bytes(everything: Compiled, source: Callable[..., TemplateSource]) -> None:
    """So a retry is the same message; another recipient or campaign has another Message-ID."""
    first = everything.render({"x": "Ada"}, "ada@example.com", "may", DATE)
    assert everything.render({"x": "Ada"}, "ada@example.com", "may", DATE) == first
    ids = {
        re.search(rb"Message-ID: (\S+)", everything.render({"x": ""}, to, campaign, DATE))[1]  # type: ignore[index]
        for to in ("a@example.com", "b@example.com")
        for campaign in ("may", "june")
    }
    assert len(ids) == 4


def test_a_text_alone_is_one_part(rendered: Callable[..., bytes], parse: Callable[[bytes], EmailMessage]) -> None:
    """No multipart about a single part; the built-in names say who and which campaign."""
    parsed = parse(rendered({}, text="To {{ recipient }} of {{ campaign }}"))
    assert parsed.get_content_type() == "text/plain"
    assert parsed.get_payload(decode=True) == b"To ada@example.com of may\r\n"


def test_an_address_made_of_fields_is_checked(rendered: Callable[..., bytes]) -> None:
    """A field in an address's place makes an address or nothing."""
    assert b"From: Shop <x@shop.example>" in rendered({"a": "x@shop.example"}, sender="Shop <{{ a }}>", text="x")
    for bad in ("x@a.example>, <y@b.example", "x@a.example\r\nBcc: y@b.example", "x", "", "x@a.example> NOTIFY=NEVER"):
        with pytest.raises(RenderRefused, match="not an email address"):
            rendered({"a": bad}, sender="Shop <{{ a }}>", text="x")


def test_international_addresses(source: Callable[..., TemplateSource]) -> None:
    """A domain is written in A-labels; only a local part that is not ASCII makes the header UTF-8."""
    made = compile(source(text="x"))
    assert b"To: ada@xn--mnchen-3ya.example\r\n" in made.render({}, "ada@münchen.example", "may", DATE)
    assert "To: jürgen@xn--mnchen-3ya.example\r\n".encode() in made.render({}, "jürgen@münchen.example", "may", DATE)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "'name' is undefined"),
        ({"name": "\ud800"}, "lone surrogate"),
        ({"name": "x" * (FIELDS_CHARACTERS_MAX + 1)}, "shorten them"),
    ],
)
def test_what_cannot_be_rendered_says_why(rendered: Callable[..., bytes], fields: dict[str, str], said: str) -> None:
    """A missing field is never an empty one; nothing half-made goes out."""
    with pytest.raises(RenderRefused, match=said):
        rendered(fields, text="Hello {{ name }}")


def test_html_alone_for_a_browser(source: Callable[..., TemplateSource]) -> None:
    """The text before it is encoded; nothing where there is no HTML."""
    assert compile(source(html="<p>{{ x }}</p>")).html_text({"x": "a&b"}, "a@example.com", "may") == "<p>a&amp;b</p>"
    assert compile(source(text="x")).html_text({}, "a@example.com", "may") == ""


def test_a_browser_is_shown_the_images(source: Callable[..., TemplateSource]) -> None:
    """It knows no cid: they stand in the page itself."""
    made = compile(source(html='<img src="cid:logo"> cid:logo', images=(File("logo", "image/png", b"\x89PNG"),)))
    page = made.html_text({}, "a@example.com", "may")
    assert page == '<img src="data:image/png;base64,iVBORw=="> cid:logo'


def test_attachments_are_not_copied_for_each_recipient(everything: Compiled) -> None:
    """In pieces they are the same objects; together the pieces are the message."""
    first, second = (everything.pieces({"x": x}, "ada@example.com", "may", DATE) for x in "ab")
    assert any(one is other and b"application/pdf" in one for one in first for other in second)
    assert b"".join(first) == everything.render({"x": "a"}, "ada@example.com", "may", DATE)

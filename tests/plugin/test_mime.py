"""The MIME splitter: which leaves it finds, and that no byte is lost or changed."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import mime
from zonemta_py.plugin.arguments import Node

NESTED = (
    b"preamble\r\n"
    b"--out\r\nContent-Type: multipart/alternative; boundary=in\r\n\r\n"
    b"--in\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\nplain\r\n"
    b"--in\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: Quoted-Printable\r\n\r\n<p>=20\r\n--in--\r\n"
    b"--out\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename*=utf-8''%C3%A9.png\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nAAAA\r\n\r\n"
    b"--out--\r\nepilogue\r\n"
)


def multipart(boundary: str = "out", kind: str = "mixed") -> Headers:
    return Headers.parse(b"Content-Type: multipart/%s; boundary=%s\r\n" % (kind.encode(), boundary.encode()))


def split(headers: Headers, blocks: list[bytes]) -> tuple[bytes, list[tuple[Node, bytes]]]:
    """All raw bytes, and each leaf with its body."""
    splitter = mime.Splitter(headers)
    events = list(splitter.begin())
    for block in blocks:
        events += splitter.feed(block)
    events += splitter.finish()
    raw, leaves = b"", []
    for event in events:
        raw += b"" if isinstance(event, mime.End) else event.raw
        if isinstance(event, mime.Begin):
            leaves.append((event.node, b""))
        if isinstance(event, mime.MimeBody):
            leaves[-1] = (leaves[-1][0], leaves[-1][1] + event.raw)
    assert sum(isinstance(e, mime.Begin) for e in events) == sum(isinstance(e, mime.End) for e in events)
    return raw, leaves


def test_leaves_of_a_nested_message() -> None:
    """Each leaf comes with its type, charset, encoding, file name, place, and exactly its body."""
    raw, leaves = split(multipart(), [NESTED])
    assert raw == NESTED
    assert [body for _, body in leaves] == [b"plain", b"<p>=20", b"AAAA\r\n"]
    plain, html, image = (node for node, _ in leaves)
    assert (plain.content_type, plain.charset, plain.encoding, plain.path) == ("text/plain", "utf-8", "7bit", (0, 0))
    assert (html.content_type, html.encoding, html.path) == ("text/html", "quoted-printable", (0, 1))
    assert html.parents == ("multipart/mixed", "multipart/alternative")
    assert (image.filename, image.encoding, image.path) == ("é.png", "base64", (1,))


def test_every_cut_gives_the_same() -> None:
    """A boundary may be split between any two blocks."""
    whole = [(node.path, body) for node, body in split(multipart(), [NESTED])[1]]
    for cut in range(len(NESTED) + 1):
        raw, leaves = split(multipart(), [NESTED[:cut], NESTED[cut:]])
        assert (raw, [(node.path, body) for node, body in leaves]) == (NESTED, whole)
    raw, leaves = split(multipart(), [NESTED[i : i + 1] for i in range(len(NESTED))])
    assert (raw, [(node.path, body) for node, body in leaves]) == (NESTED, whole)


def test_no_multipart_is_one_leaf() -> None:
    """A message without MIME is a single text/plain leaf, whatever its body looks like."""
    raw, leaves = split(Headers.parse(b"Subject: x\r\n"), [b"--out\r\n", b"\r\n--out--\r\n"])
    assert raw == b"--out\r\n\r\n--out--\r\n"
    assert [(node.content_type, node.path, body) for node, body in leaves] == [("text/plain", (), raw)]


def test_missing_ends() -> None:
    """An inner multipart that never ends is ended by the outer boundary, an outer one by the end of the message."""
    inner = b"Content-Type: multipart/mixed; boundary=in\r\n\r\n--in\r\n\r\none\r\n"
    body = b"--out\r\n" + inner + b"--out\r\n\r\ntwo\r\n--in\r\nstill"
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert [(node.path, content) for node, content in leaves] == [((0, 0), b"one"), ((1,), b"two\r\n--in\r\nstill")]


def test_parts_without_header_or_body() -> None:
    """A part may have no fields, no empty line, no body; nothing is invented."""
    body = b"--out\r\n\r\n--out\r\nX: 1\r\n--out\r\n\r\nbody\r\n--out--"
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert [(node.path, content) for node, content in leaves] == [((0,), b""), ((2,), b"body")]


def test_only_whole_lines_are_delimiters() -> None:
    """--outer, -- out and text before the dashes are content; padding behind a boundary is allowed (RFC 2046 5.1.1)."""
    body = b"--out \t\r\n\r\n--outer\r\n-- out\r\nx--out\r\n--out-\r\n--out--x\r\n--out--  \r\n"
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert [content for _, content in leaves] == [b"--outer\r\n-- out\r\nx--out\r\n--out-\r\n--out--x"]


def test_bare_line_feeds() -> None:
    """Lines that end in LF alone are understood too, and stay as they are."""
    body = NESTED.replace(b"\r\n", b"\n")
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert [content for _, content in leaves] == [b"plain", b"<p>=20", b"AAAA\n"]
    assert leaves[0][0].charset == "utf-8"


def test_digest_parts_default_to_messages() -> None:
    """In multipart/digest an untyped part is message/rfc822 (RFC 2046 5.1.5), which is a leaf."""
    _, leaves = split(multipart(kind="digest"), [b"--out\r\n\r\nSubject: x\r\n\r\n\r\n--out--\r\n"])
    assert [node.content_type for node, _ in leaves] == ["message/rfc822"]


def test_nesting_too_deep_is_not_followed() -> None:
    """Below DEPTH_MAX multiparts nothing is offered, and the parts behind them still are."""
    levels = [b"b%d." % number for number in range(30)]
    body = b"".join(
        b"--" + outer + b"\r\nContent-Type: multipart/mixed; boundary=" + inner + b"\r\n\r\n"
        for outer, inner in pairwise(levels)
    )
    body += b"--" + levels[-1] + b"\r\n\r\ndeep\r\n--b0.\r\n\r\nshallow\r\n--b0.--\r\n"
    raw, leaves = split(multipart("b0."), [body])
    assert raw == body
    assert [content for _, content in leaves] == [b"shallow"]


def test_too_many_parts_are_not_offered() -> None:
    """After NODES_MAX leaves the rest passes unseen."""
    body = b"--out\r\n\r\nx\r\n" * (mime.NODES_MAX + 50)
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert len(leaves) == mime.NODES_MAX


def test_too_many_false_delimiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """After MISSES_MAX lines that only begin like a delimiter, bytes pass without being looked at."""
    monkeypatch.setattr(mime, "MISSES_MAX", 10)
    body = b"--out\r\n\r\n" + b"--outer\r\n" * 50 + b"--out\r\n\r\nx\r\n--out--\r\n"
    raw, leaves = split(multipart(), [body])
    assert raw == body
    assert len(leaves) == 1


def test_long_boundaries_and_padding() -> None:
    """A boundary or padding beyond the limits is not followed, wherever the blocks are cut."""
    for boundary, padding, found in (("o" * 200, 700, 1), ("o" * 201, 0, 0), ("out", 1100, 0)):
        body = b"--" + boundary.encode() + b" " * padding + b"\r\n\r\nx\r\n"
        for blocks in ([body], [body[i : i + 1] for i in range(len(body))]):
            raw, leaves = split(multipart(boundary), blocks)
            assert (raw, len(leaves)) == (body, found)


def test_memory_is_bounded() -> None:
    """Neither an endless header section, nor an endless line of dashes, nor padding is held for long."""
    for start in (b"--out\r\n", b"--out\r\nX: ", b"", b"--out\r\n\r\n"):
        for rest in (b"a: b\r\n", b"--", b"--out", b"\t", b"\n--", b"\r"):
            splitter = mime.Splitter(multipart())
            events = list(splitter.begin()) + list(splitter.feed(start))
            for _ in range(40):
                events += splitter.feed(rest * (8192 // len(rest)))
                assert len(splitter._held) <= mime.PART_HEADER_BYTES_MAX + 3 * 8192
            events += splitter.finish()
            sent = start + rest * (8192 // len(rest)) * 40
            assert b"".join(e.raw for e in events if not isinstance(e, mime.End)) == sent


def test_encoded_multipart_is_not_opened() -> None:
    """A multipart in base64 is illegal (RFC 2045 6.4): it passes without being looked into."""
    headers = Headers.parse(b"Content-Type: multipart/mixed; boundary=out\r\nContent-Transfer-Encoding: base64\r\n")
    assert split(headers, [b"--out\r\n\r\nx\r\n--out--\r\n"]) == (b"--out\r\n\r\nx\r\n--out--\r\n", [])


fragments = st.sampled_from(
    [b"--b", b"--b--", b"--c", b"\r\n", b"\n", b"\r", b"-", b" ", b"x", b"\r\n\r\n", b"\r\n--b\r\n", b"\r\n--b--\r\n",
     b"Content-Type: multipart/x; boundary=c\r\n\r\n", b"Content-Type: text/html; charset=\"\r\n", b"\xff\x00"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.one_of(fragments, st.binary(max_size=9)), max_size=8).map(b"".join), max_size=8))
def test_any_bytes_pass_unchanged(blocks: list[bytes]) -> None:
    """Arbitrary bytes cut arbitrarily come out identical, and the leaves do not depend on the cuts."""
    raw, leaves = split(multipart("b"), blocks)
    assert raw == b"".join(blocks)
    once = split(multipart("b"), [raw])[1]
    assert [(n.path, n.content_type, body) for n, body in leaves] == [(n.path, n.content_type, b) for n, b in once]


def check_form(node: Node, boundary: bytes) -> None:
    """What plugins may rely on: a type and a subtype in lower case, text that UTF-8 can carry, no line ends."""
    assert node.content_type.count("/") == 1
    assert node.content_type == node.content_type.lower()
    assert node.charset == node.charset.lower()
    assert node.encoding == "7bit"
    for text in (node.content_type, node.charset, node.filename):
        assert text.encode().decode() == text
        assert not re.search(r"[\r\n]", text)
    assert boundary == boundary.rstrip()
    assert b"\n" not in boundary


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=40))
def test_any_fields_are_described(content_type: bytes, disposition: bytes) -> None:
    """No Content-Type or Content-Disposition, however broken, is an error: what comes of it is of the right form."""
    section = b"Content-Type: " + content_type + b"\r\nContent-Disposition: " + disposition + b"\r\n"
    check_form(*mime.describe(Headers.parse(section), (), ()))


@settings(max_examples=100, deadline=None)
@given(st.text("abu=*;\"'%0123\\ -", max_size=40))
def test_any_parameters_are_described(parameters: str) -> None:
    """The same for what looks like parameters (RFC 2231 continuations and charsets); the type is what it was."""
    for name in ("boundary", "charset", "filename", "charset*0*", "filename*1"):
        section = f"Content-Type: text/plain; {name}={parameters}\r\n".encode()
        node, boundary = mime.describe(Headers.parse(section), (), ())
        check_form(node, boundary)
        assert node.content_type == "text/plain"
        assert not boundary or name == "boundary"


@pytest.mark.parametrize("value", [b"/", b"text/", b"/plain", b"text", b"", b"\x00\r/\x00", b"a b/c"])
def test_a_type_without_its_half_is_text(value: bytes) -> None:
    """RFC 2045, section 5.2: what cannot be read is text/plain."""
    node, _ = mime.describe(Headers.parse(b"Content-Type: " + value), (), ())
    assert node.content_type == "text/plain"


def test_hostile_parameters_cost_little() -> None:
    """Thousands of parameters, and text in "punycode", took the email package quadratic time for each part."""
    begun = time.thread_time()
    for parameter in (b"a;", b"a=;", b"a*0*=x;", b"filename*=punycode''" + b"b" * 3_000 + b";"):
        value = parameter * (4_000 // len(parameter))
        for _ in range(20):
            mime.describe(Headers([b"Content-Type: a/b; " + value, b"Content-Disposition: a; " + value]), (), ())
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize(
    "value",
    [
        "multipart/mixed (one; two); boundary=x",
        "multipart(one (two))/mixed; (x) boundary=x",
        "multipart / mixed; boundary=x",
    ],
)
def test_comments_in_a_type(value: str) -> None:
    """RFC 2045, section 5.1: they may stand wherever spaces may."""
    node, boundary = mime.describe(Headers([f"Content-Type: {value}".encode()]), (), ())
    assert (node.content_type, boundary) == ("multipart/mixed", b"x")
    node, _ = mime.describe(Headers([b"Content-Type: image/png; name=One (1).png"]), (), ())
    assert (node.content_type, node.filename) == ("image/png", "One (1).png")

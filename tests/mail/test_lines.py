"""DATA decoding and dot-stuffing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.lines import (
    BARE_LINE_END,
    LINE_TOO_LONG,
    NUL_BYTE,
    TOO_LARGE,
    Decoder,
    Stuffer,
    has_long_line,
)

TRICKY = st.lists(
    st.sampled_from([b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"\r\n.\r", b"a", b"bc", b"\0", b"..", b"\n.\n", b"\xff"])
).map(b"".join)
CUTS = st.lists(st.integers(1, 7), max_size=30)


def cut(whole: bytes, lengths: list[int]) -> list[bytes]:
    blocks, at = [], 0
    for length in lengths:
        blocks.append(whole[at : at + length])
        at += length
    blocks.append(whole[at:])
    return [block for block in blocks if block]


def decode(blocks: list[bytes], **policy: bool) -> tuple[bytes, Decoder]:
    decoder = Decoder(10_000, 10_000, **policy)
    out = [decoder.feed(block) for block in blocks]
    return b"".join(out), decoder


def stuffed(chunks: list[bytes]) -> bytes:
    stuffer = Stuffer()
    return b"".join([*map(stuffer.stuff, chunks), stuffer.end()])


def reference(raw: bytes) -> bytes:
    """The rule itself, line by line: dots of CRLF lines are taken off, then lone CR and LF become CRLF."""
    lines = [line[1:] if line.startswith(b".") else line for line in raw.split(b"\r\n")]
    undotted = re.sub(rb"(?<!\r)\n\.\.", b"\n.", b"\r\n".join(lines))
    return re.sub(rb"\r\n|\r|\n", b"\r\n", undotted)


@given(TRICKY, CUTS)
@settings(max_examples=200)
def test_where_blocks_are_cut_does_not_matter(message: bytes, lengths: list[int]) -> None:
    """Any bytes, cut anywhere, give what the whole gives: content, end, and what follows the end."""
    wire = message + b"\r\n.\r\nQUIT\r\n"
    whole, one = decode([wire], refuse_nul=False)
    parts, many = b"", Decoder(10_000, 10_000, refuse_nul=False)
    rest = b""
    for block in cut(wire, lengths):
        if many.done:
            rest += block
        else:
            parts += many.feed(block)
    assert parts == whole
    assert many.rest + rest == one.rest
    assert many.size == one.size == len(whole)


@given(TRICKY, CUTS)
@settings(max_examples=200)
def test_decoding_follows_the_rule(message: bytes, lengths: list[int]) -> None:
    """Block-wise decoding is the same as taking the dots off line by line."""
    wire = b"x" + message.replace(b"\r\n.\r\n", b"\r\n..\r\n").replace(b"\r\n.\r\n", b"\r\n..\r\n") + b"x\r\n"
    assert decode([wire + b".\r\n"], refuse_nul=False)[0] == reference(wire)


@given(TRICKY, CUTS)
@settings(max_examples=200)
def test_stuffing_then_decoding_is_the_identity(message: bytes, lengths: list[int]) -> None:
    """What we send, cut into any chunks, is what a server gets; a missing last CRLF is added, none is doubled."""
    message = re.sub(rb"\r\n|\r|\n", b"\r\n", message)
    got, decoder = decode([stuffed(cut(message, lengths))], refuse_nul=False)
    assert decoder.done
    assert decoder.rest == b""
    assert got == (message if not message or message.endswith(b"\r\n") else message + b"\r\n")


@pytest.mark.parametrize(
    "fake",
    [
        b"\n.\n",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r.\r",
        b"\r\n.\r",
        b"\r.\r\n",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
        b"\n\r\n.x\r\n",
    ],
)
@pytest.mark.parametrize("normalise", [True, False])
def test_only_crlf_dot_crlf_ends_data(fake: bytes, normalise: bool) -> None:
    """No other line end around a dot ends DATA, so nothing behind it is taken for commands (SMTP smuggling)."""
    wire = b"Subject: x\r\n\r\nhello" + fake + b"MAIL FROM:<evil@x.test>\r\n"
    for blocks in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
        decoder = decode(blocks, normalise=normalise)[1]
        assert not decoder.done
        decoder.feed(b".\r\nNOOP\r\n")
        assert decoder.done
        assert decoder.rest == b"NOOP\r\n"


def test_what_is_stored_can_not_smuggle_further() -> None:
    """A fake end that was normalised into a real one is stuffed again on its way out."""
    stored = decode([b"a\n.\nMAIL FROM:<evil@x.test>\r\n.\r\n"])[0]
    assert stored == b"a\r\n.\r\nMAIL FROM:<evil@x.test>\r\n"
    assert stuffed([stored]) == b"a\r\n..\r\nMAIL FROM:<evil@x.test>\r\n.\r\n"


@pytest.mark.parametrize(
    ("wire", "policy", "reply"),
    [
        (b"a\nb", {"normalise": False}, BARE_LINE_END),
        (b"a\rb", {"normalise": False}, BARE_LINE_END),
        (b"a\0b", {}, NUL_BYTE),
        (b"a" * 10_001, {}, TOO_LARGE),
    ],
)
def test_violations_are_read_to_the_end_and_then_refused(wire: bytes, policy: dict[str, bool], reply: object) -> None:
    """After a violation nothing more is given out, but the true end is still found."""
    got, decoder = decode([wire, b"more\r\n" * 10, b"\r\n.\r\nQUIT\r\n"], **policy)
    assert decoder.refusal == reply
    assert decoder.done
    assert decoder.rest == b"QUIT\r\n"
    assert got == b""


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
@pytest.mark.parametrize(("length", "refused"), [(20, False), (21, True)])
def test_longest_line(block: int, length: int, refused: bool) -> None:
    """A line may be as long as the limit, CRLF not counted, however it is cut and whatever lines are around it."""
    wire = b"short\r\n" + b"x" * length + b"\r\nshort\r\n.\r\n"
    decoder = Decoder(10_000, 20)
    for at in range(0, len(wire), block):
        decoder.feed(wire[at : at + block])
    assert decoder.done
    assert decoder.refusal == (LINE_TOO_LONG if refused else None)


def test_nul_and_lone_line_ends_pass_where_the_settings_say_so() -> None:
    """nul = "pass" keeps NUL; line_ends = "normalise" makes every line end CRLF."""
    assert decode([b"a\0\rb\nc\r\n.\r\n"], refuse_nul=False)[0] == b"a\0\r\nb\r\nc\r\n"


def test_an_empty_message_is_empty() -> None:
    """DATA may end at once."""
    got, decoder = decode([b".", b"\r", b"\n"])
    assert (got, decoder.done, decoder.size) == (b"", True, 0)


def test_dots_doubled_behind_bare_line_feeds() -> None:
    """A client that takes bare LF for a line end doubles dots there; a single dot there was put by nobody and stays."""
    assert decode([b"a\n..b\n.c\r\n...d\r\n.\r\n"])[0] == b"a\r\n.b\r\n.c\r\n..d\r\n"


@pytest.mark.parametrize("length", [997, 998, 999, 1_000, 1_001, 1_995, 1_998, 3_000])
@pytest.mark.parametrize("around", [(b"", b""), (b"a\r\n", b"b\r\n"), (b"a" * 997 + b"\r\n", b"b" * 998 + b"\r\n")])
def test_a_line_that_is_too_long_to_send(length: int, around: tuple[bytes, bytes]) -> None:
    """998 octets and a CRLF may be sent (RFC 5321 4.5.3.1.6), wherever blocks are cut and whichever line it is."""
    message = around[0] + b"x" * length + b"\r\n" + around[1]
    assert has_long_line(message) == (length > 998)
    assert has_long_line(b"x" * length) == (length > 998)
    for size in (1, 7, 400, 1_500):
        decoder = Decoder(100_000, 100_000)
        for at in range(0, len(message), size):
            decoder.feed(message[at : at + size])
        decoder.feed(b".\r\n")
        assert (decoder.done, decoder.long) == (True, length > 998)

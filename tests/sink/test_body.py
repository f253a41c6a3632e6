"""The end of DATA and the stuffed dots, wherever the blocks happen to end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from zonemta_py.sink.body import SinkBody

PARTS = st.lists(
    st.sampled_from([b"\r\n", b".", b"\r", b"\n", b"x", b"..", b"\x00", b"long line of text"]), max_size=30
)


def stuffed(message: bytes) -> bytes:
    """What a client sends for a message: dots at line starts doubled, CRLF . CRLF behind it."""
    lines = message.split(b"\r\n")
    sent = b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines)
    return sent + (b".\r\n" if sent == b"" or sent.endswith(b"\r\n") else b"\r\n.\r\n")


def read(blocks: list[bytes]) -> tuple[bytes, int, int, int]:
    """Message, its counted size, number of the block it ended in, index behind it there."""
    pieces: list[bytes] = []
    body = SinkBody(pieces.append)
    for number, block in enumerate(blocks):
        if (end := body.feed(block)) >= 0:
            return b"".join(pieces), body.size, number, end
    return b"".join(pieces), body.size, -1, -1


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(max_examples=300)
@given(PARTS.map(b"".join), st.lists(st.integers(0, 1000), max_size=8))
@example(b"", [1, 2])
@example(b".", [1, 2, 3])
@example(b"\r\n.\r\n", [3, 4])
def test_any_message_comes_out_as_it_went_in(message: bytes, places: list[int]) -> None:
    """What was stuffed is unstuffed byte for byte, however it is cut into blocks, and what follows is left alone."""
    whole = message if message == b"" or message.endswith(b"\r\n") else message + b"\r\n"
    sent = stuffed(message)
    body, size, number, end = read([*cut(sent, places), b"QUIT\r\n"])
    assert (body, size) == (whole, len(whole))
    behind = b"".join(cut(sent, places)[number + 1 :])
    assert cut(sent, places)[number][end:] + behind == b""


@given(st.sampled_from([b"\n.\n", b"\n.\r\n", b"\r.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\r\n.\r\r\n", b"\r\n.\r\r\n"]))
def test_nothing_else_ends_a_message(smuggled: bytes) -> None:
    """A dot between line ends that are not both CRLF is text: nothing can be smuggled behind it."""
    assert read([b"text" + smuggled + b"MAIL FROM:<x@y>\r\n"])[2] == -1


def test_the_rest_of_a_block_is_left() -> None:
    """The index returned is that of the first byte behind the final dot, also where reading began in the middle."""
    data = b"DATA\r\nhello\r\n.\r\nQUIT\r\n"
    body = SinkBody()
    assert data[body.feed(data, 6) :] == b"QUIT\r\n"
    assert body.size == len(b"hello\r\n")


def test_an_empty_message_ends_at_once() -> None:
    """A dot directly behind DATA is an empty message, since DATA's own CRLF starts the line."""
    assert read([b".\r\n"]) == (b"", 0, 0, 3)


def test_size_is_counted_without_anyone_taking_the_bytes() -> None:
    """The size is known even where nobody wants the message."""
    body = SinkBody()
    assert body.feed(b"..one\r\ntwo\r\n.\r\n") == 15
    assert body.size == len(b".one\r\ntwo\r\n")

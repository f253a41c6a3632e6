"""Transfer encodings undone and redone while streaming."""

from __future__ import annotations

import asyncio
import base64
import quopri
import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.plugin import decoded, encoded

blocks_of_bytes = st.lists(st.binary(min_size=1, max_size=200), max_size=6)
damage = st.sampled_from([b"=", b"=4", b"1", b"=G1", b"= ", b"\r\n", b"\n", b"\r", b"QUJD", b"Q", b"\xff"]) | st.binary(
    max_size=9
)


async def stream(blocks: list[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def _all(source: AsyncIterator[bytes]) -> bytes:
    return b"".join([block async for block in source])


def undone(encoding: str, blocks: list[bytes]) -> bytes:
    return asyncio.run(_all(decoded(encoding, stream(blocks))))


def redone(encoding: str, blocks: list[bytes]) -> bytes:
    return asyncio.run(_all(encoded(encoding, stream(blocks))))


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[i : i + size] for i in range(0, len(content), size)]


@pytest.mark.parametrize("encoding", ["7bit", "8bit", "binary", "x-unknown"])
def test_plain_encodings_pass(encoding: str) -> None:
    """What has no encoding, or one nobody knows, is left alone."""
    assert undone(encoding, [b"a=41", b"\r\n"]) == redone(encoding, [b"a=41", b"\r\n"]) == b"a=41\r\n"


@settings(max_examples=50, deadline=None)
@given(blocks_of_bytes, st.integers(1, 100))
def test_base64_there_and_back(blocks: list[bytes], size: int) -> None:
    """Any bytes in any blocks survive, in lines of at most 76 characters that any decoder reads."""
    wire = redone("base64", blocks)
    assert base64.b64decode(wire) == b"".join(blocks)
    assert all(len(line) <= 76 for line in wire.split(b"\r\n"))
    assert undone("base64", cut(wire, size)) == b"".join(blocks)


@settings(max_examples=50, deadline=None)
@given(blocks_of_bytes, st.integers(1, 100))
def test_quoted_printable_there_and_back(blocks: list[bytes], size: int) -> None:
    """Any text with CRLF line ends survives, in lines of at most 76 characters that any decoder reads."""
    text = b"".join(blocks).replace(b"\r", b"").replace(b"\n", b"\r\n")
    wire = redone("quoted-printable", cut(text, size))
    assert quopri.decodestring(wire) == text
    assert all(len(line) <= 76 for line in wire.split(b"\r\n"))
    assert undone("quoted-printable", cut(wire, size)) == text


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(damage, max_size=6).map(b"".join), max_size=6))
def test_damage_is_no_error(blocks: list[bytes]) -> None:
    """Rubbish in an encoded body is no exception: what can be read comes out, wherever the blocks end."""
    whole = b"".join(blocks)
    letters = re.sub(rb"[^A-Za-z0-9+/]", b"", whole)
    assert undone("base64", blocks) == base64.b64decode(letters[: len(letters) - (len(letters) % 4 == 1)] + b"==")
    assert undone("quoted-printable", blocks) == quopri.decodestring(whole)


def test_endless_lines_are_bounded() -> None:
    """A line of a megabyte is not gathered; no escape is cut in two."""
    for offset in range(4):
        text = b"x" * offset + "é".encode() * 200_000
        wire = redone("quoted-printable", cut(text, 9_999))
        assert undone("quoted-printable", cut(wire, 9_999)) == text
        flat = wire.replace(b"=\r\n", b"")
        assert undone("quoted-printable", cut(flat, 9_999)) == text

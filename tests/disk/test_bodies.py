"""The form in which chunks are kept: smaller where it pays, and always the same bytes again."""

import base64
import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.bodies import MAGIC, restore, shrink

MOST = 65_536


@given(st.binary(max_size=2000) | st.binary(max_size=2000).map(lambda tail: MAGIC + tail))
def test_any_chunk_comes_back_as_it_was(chunk: bytes) -> None:
    assert restore(shrink(chunk), MOST) == chunk


@pytest.mark.parametrize(
    ("chunk", "most"),
    [(b"<td>offer</td>\r\n" * 4096, 0.05), (base64.encodebytes(os.urandom(48_000)), 0.8), (os.urandom(MOST), 1.0)],
    ids=["html", "base64", "random"],
)
def test_what_can_be_made_smaller_is(chunk: bytes, most: float) -> None:
    assert len(shrink(chunk)) <= most * len(chunk)


def test_random_bytes_are_kept_as_they_are() -> None:
    chunk = os.urandom(MOST - 1)
    assert shrink(b"\0" + chunk) == b"\0" + chunk


def test_a_chunk_that_looks_like_a_frame_is_put_into_one() -> None:
    chunk = MAGIC + os.urandom(100)
    assert shrink(chunk) != chunk
    assert restore(shrink(chunk), MOST) == chunk


def test_what_was_kept_before_there_were_frames_is_itself() -> None:
    assert restore(b"From: a@b.test\r\n", MOST) == b"From: a@b.test\r\n"


@pytest.mark.parametrize(
    "kept",
    [
        zstandard.compress(b"x" * (MOST + 1)),
        zstandard.compress(b"x" * 1000)[:-1],
        MAGIC,
        MAGIC + bytes(20),
        zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * (MOST + 1)),
    ],
    ids=["bomb", "cut", "magic alone", "rubbish", "no size"],
)
def test_a_frame_that_is_damaged_or_too_large_is_refused(kept: bytes) -> None:
    with pytest.raises(ValueError, match="a chunk of the body"):
        restore(kept, MOST)

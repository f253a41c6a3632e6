"""How a chunk of a body is kept: as it is, or as one Zstandard frame (RFC 8878) where that is a good deal smaller.

A kept chunk that begins with the frame's magic number is a frame, any other is the chunk itself; a chunk that would be
taken for a frame is therefore always made one. So nothing beside the chunk says which it is, and queues from before
there were frames stay readable.

The process that brings a body shrinks it and the one that takes it restores it: the queue's own process, the only one
of its kind, carries and writes the small form. Level 1: measured, 64 KB of HTML cost 84 µs and keep 30 %, base64 costs
45 µs and keeps 76 %, random bytes cost 6 µs and stay as they are.
"""

from __future__ import annotations

import zstandard

MAGIC = zstandard.FRAME_HEADER
_WORTH = 7 / 8
_compress = zstandard.ZstdCompressor(level=1, write_content_size=True).compress
_decompress = zstandard.ZstdDecompressor().decompress


def shrink(chunk: bytes) -> bytes:
    """The form in which a chunk is kept."""
    frame = _compress(chunk)
    return frame if len(frame) <= len(chunk) * _WORTH or chunk.startswith(MAGIC) else chunk


def restore(kept: bytes, most: int) -> bytes:
    """The chunk, of at most `most` bytes. Raises ValueError if it is damaged or larger."""
    if not kept.startswith(MAGIC):
        return kept
    try:
        if zstandard.frame_content_size(kept) > most:
            raise ValueError(f"a chunk of the body is larger than {most} bytes")
        return _decompress(kept, max_output_size=most)
    except zstandard.ZstdError as error:
        raise ValueError(f"a chunk of the body cannot be unpacked ({error})") from None

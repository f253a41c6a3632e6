"""Values as msgpack: bodies of journal records, values of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack
"""(value) → bytes. One packer for all: a new one for each value, as `packb` makes, costs more than the packing. It is
one call of C, which no other thread comes between."""


def unpack(data: bytes) -> Any:
    """Raises ValueError when the bytes are not one msgpack value."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"not msgpack: {error}") from None

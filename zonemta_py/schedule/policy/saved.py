"""What position records have of very many things: looked at and packed in portions beforehand, one thing again when a
record says that it has changed since. So the record itself is made quickly, and nothing that was recorded is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, TypeVar

import msgpack

from zonemta_py.disk.packing import pack
from zonemta_py.schedule.time.pace import Pace

K = TypeVar("K", bound=Hashable)
AT_ONCE = 200
_packer = msgpack.Packer()


class Packed(bytes):
    """A value as msgpack."""

    @classmethod
    def of(cls, items: Collection[bytes]) -> Packed:
        """A list of values that are packed."""
        return cls(_packer.pack_array_header(len(items)) + b"".join(items))


def pack_around(value: Any) -> Packed:
    """As `packing.pack`, byte for byte; in maps, and maps in them, some values may be `Packed`."""
    if isinstance(value, Packed):
        return value
    if not isinstance(value, dict):
        return Packed(pack(value))
    parts = [pack(name) + pack_around(part) for name, part in value.items()]
    return Packed(_packer.pack_map_header(len(parts)) + b"".join(parts))


class Saved(Generic[K]):
    """Rows by key. row: of one; None: there is nothing to be kept of it."""

    def __init__(self, row: Callable[[K], list[Any] | None]) -> None:
        self._row = row
        self._packed: dict[K, bytes] | None = None

    async def gather(self, keys: Iterable[K], pace: Pace) -> None:
        """What has changed without a record since it was looked at is as old as that. keys: all of them."""
        self._packed = {}
        for number, key in enumerate(list(keys), 1):
            self.changed(key)
            if number % AT_ONCE == 0:
                await pace.turn()

    def changed(self, key: K) -> None:
        if self._packed is None:
            return
        row = self._row(key)
        if row is None:
            self._packed.pop(key, None)
        else:
            self._packed[key] = pack(row)

    def rows(self, keys: Iterable[K]) -> list[list[Any]] | Packed:
        """As they were gathered, which ends with it; otherwise as they are now. keys: all of them."""
        packed, self._packed = self._packed, None
        if packed is None:
            return [row for row in map(self._row, list(keys)) if row is not None]
        return Packed.of(packed.values())

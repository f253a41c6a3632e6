"""Records about the journal itself. SEGMENT and POSITION are maps, END is nothing."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from zonemta_py.disk.packing import pack

END_BODY = pack(None)
"""Of every END record."""


class SegmentRecord(TypedDict, total=False):
    """SEGMENT. first: its own number. floor: ids from it on belong to the segment. clock: as in POSITION."""

    version: int
    first: int
    floor: str
    clock: dict[str, Any]


class PositionRecord(TypedDict, total=False):
    """POSITION: where a restart begins. working: bodies of START records. What each name holds: FORMAT.md."""

    applied: int
    batches: int
    working: list[list[Any]]
    marks: dict[str, dict[str, bytes]]
    floor: str
    opened: list[str]
    segments: list[list[Any]]
    ended: list[str]
    clock: dict[str, Any]
    permits: dict[str, Any]
    standing: dict[str, Any]


class LostRecord(NamedTuple):
    """The records from the first to the last were lost to damage."""

    first: int
    last: int

    def pack(self) -> bytes:
        return pack(self)

    @classmethod
    def of(cls, fields: list[Any]) -> LostRecord:
        return cls(*fields[:2])

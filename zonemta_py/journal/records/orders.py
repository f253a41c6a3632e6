"""Records of what was stopped, lifted or learned, and of what operators order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zonemta_py.disk.packing import pack


class StandingRecord(NamedTuple):
    """A change of policy: a stop, a rest, what was learned, an order about a campaign. subject: [kind, name]. again:
    another of several queues has the same, and tells of it."""

    what: str
    subject: list[str]
    value: Any
    cause: str
    again: bool = False

    def pack(self) -> bytes:
        return pack(self if self.again else self[:4])

    @classmethod
    def of(cls, fields: list[Any]) -> StandingRecord:
        return cls(*fields[:5])

    @property
    def kind(self) -> str:
        return self.subject[0]

    @property
    def name(self) -> str:
        return self.subject[1]


CONFIGURATION = "configuration"
"""What, and kind, of a STANDING record that names the keys of the configuration that have changed."""

WAITED = "waited"
"""What of a STANDING record that says how long a limit has held mail since the last one: {ms, times}."""


class TaskRecord(NamedTuple):
    """About a task. number: of the record that ordered it, 0: it is this one; or as the record says
    that ordered it, where the number was given to it. what, value: see FORMAT.md."""

    what: str
    number: int
    value: Any

    def pack(self) -> bytes:
        return pack(self)

    @classmethod
    def of(cls, fields: Sequence[Any]) -> TaskRecord:
        return cls(*fields[:3])

"""What a kind of sink must do, and how it says that it cannot: the interface between `events/sink.py` and its kinds.

A kind sends one batch at a time, and only that: batches, retries, waiting events, dead letters and counters are
`events/sink.py`'s. It is opened before the first `send` and again after every `SinkDown`; `close` comes before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Ready(NamedTuple):
    """An event as it is sent. seq, part: its place in the journal, by which events are in order.

    id: stable, the same after a crash and in a replay. type: as `config.services.events.EventType` has it. subject: id
    of the message, "" where there is none; order matters per subject. ms: UNIX time. body: CloudEvents 1.0 JSON on one
    line, UTF-8, without a line end.
    """

    seq: int
    part: int
    id: str
    type: str
    subject: str
    ms: int
    body: bytes


class SinkDown(Exception):
    """Nothing of the batch is known to have arrived; all of it is sent again later. Its text is one phrase.

    retry_after_s: what the other side asked for.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Rejected(Exception):
    """These of the batch (`indices`, ascending) will never be taken; all others have arrived. The text is a phrase."""

    def __init__(self, reason: str, indices: Sequence[int]) -> None:
        super().__init__(reason)
        self.indices = tuple(indices)


class SinkClient(Protocol):
    """A connection to the other side. Made as `Kind(settings: EventSink, source: str)`, which raises ConfigError with
    one sentence for what could never work (a certificate file that is missing, a library that is not installed)."""

    async def open(self) -> None:
        """Raises SinkDown."""
        raise NotImplementedError

    async def send(self, batch: Sequence[Ready]) -> None:
        """Returns when the other side has confirmed all of it. Raises SinkDown, Rejected; may be cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        """Raises nothing; may be called when it is not open."""
        raise NotImplementedError

"""Sending a span of events to one sink beside the feed: for `zonemta events replay` and `zonemta events dead --replay`.

The sink gets them over a connection of its own, with the same ids as before. While it is down they wait, and are tried
again; what it refuses for good is left to the caller.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sink import RETRY_AFTER_S_MAX
from zonemta_py.events.sinks.base import Ready, Rejected, SinkClient, SinkDown
from zonemta_py.events.sinks.kinds import client

if TYPE_CHECKING:
    from zonemta_py.plugin.host import Host

Told = Callable[[list[Ready], tuple[int, ...], str], None]
"""(batch, the indices of those that are refused for good, why)."""


async def resend(
    settings: EventSink,
    source: str,
    events: Iterable[Ready],
    told: Told,
    down: Callable[[str], None],
    host: Host | None = None,
) -> None:
    """told: after each batch. down: why one has to be tried again. Ends with the events, or when it is cancelled.
    host: the plugins that sinks are for.

    Raises ConfigError.
    """
    sink, is_open = client(settings, source, host), False
    try:
        for batch in _batches(events, settings):
            tries = 0
            while (failed := await _tried(sink, is_open, batch, told)) is not None:
                down(str(failed))
                await sink.close()
                wait_s = min(settings.retry_max_s, settings.retry_s * 2 ** min(tries, 30)) * random.uniform(0.5, 1)
                await asyncio.sleep(max(wait_s, min(failed.retry_after_s or 0, RETRY_AFTER_S_MAX)))
                tries, is_open = tries + 1, False
            is_open = True
    finally:
        await sink.close()


async def _tried(sink: SinkClient, is_open: bool, batch: list[Ready], told: Told) -> SinkDown | None:
    try:
        if not is_open:
            await sink.open()
        await sink.send(batch)
    except SinkDown as error:
        return error
    except Rejected as error:
        told(batch, error.indices, str(error))
    else:
        told(batch, (), "")
    return None


def _batches(events: Iterable[Ready], settings: EventSink) -> Iterator[list[Ready]]:
    batch, size = list[Ready](), 0
    for one in events:
        if batch and (len(batch) == settings.batch_events or size + len(one.body) > settings.batch_bytes):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.body)
    if batch:
        yield batch

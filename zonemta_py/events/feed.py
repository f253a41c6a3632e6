"""The process behind [[event_sinks]]: reads the journal as it grows and hands every sink what it wants.

It reads only what the queue says is stable, and asks for that at most some twenty times a second; mail is never held
up by it. Each sink works by itself (`sink.py`), with its own filter, backlog and cursor below events/ in the queue's
folder. SIGKILL at any moment loses nothing: a start goes on after each sink's cursor. SIGTERM (`stop`) ends what is
under way, and writes cursors and tail indices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from zonemta_py.config import Config, EventSink
from zonemta_py.disk import identity
from zonemta_py.disk.frame import Record
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events import cursor, prepared
from zonemta_py.events.backlog import Backlog
from zonemta_py.events.cursor import FOLDER
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event
from zonemta_py.events.filter import EventFilter
from zonemta_py.events.sink import RunningSink, ring_pages
from zonemta_py.events.sinks.base import Ready
from zonemta_py.events.sinks.kinds import client
from zonemta_py.journal.tail import JournalTail, last_seq
from zonemta_py.logs.causes import cause
from zonemta_py.metrics import report
from zonemta_py.plugin.host import Host
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import A, P, Question

log = logging.getLogger(__name__)

RING = "ring"
RECORDS_AT_ONCE = 256
WAIT_S = 10.0
PAUSE_S = 0.02
"""Between two questions to the queue, so that one answer covers what a busy moment brings."""
AGAIN_S = 1.0
END_S = 2.0
"""How long a batch under way may take at the end."""


class Asking(Protocol):
    """The queue."""

    async def ask(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A:
        raise NotImplementedError


def wanted(settings: EventSink) -> EventFilter:
    """What a sink gets."""
    return EventFilter.of(settings.types, settings.zones, settings.domains, settings.campaigns, settings.tenants)


def chosen(settings: EventSink, source: str, also: EventFilter | None = None) -> Callable[[Record], list[Ready]]:
    """The same of a whole record, ready to be sent. source: the queue's name. also: what it must pass besides."""
    filters = [one.wants for one in (wanted(settings), also) if one is not None]
    return lambda record: [
        prepared.ready(event, source) for event in events_of(record) if all(wants(event) for wants in filters)
    ]


class Still:
    """A queue that there is no more: its journal has what its sinks have not got yet, and grows no more. mta: who is
    asked all else."""

    def __init__(self, folder: Path, mta: Asking) -> None:
        self._last, self._mta = last_seq(folder), mta

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        if question != questions.stable:
            return await self._mta.ask(question, *_, **arguments)
        wait_s: Any = arguments.get("wait_s", 0)
        await asyncio.sleep(wait_s)
        return cast(A, self._last)


_Row = tuple[str, tuple[str, ...], float]
_JOINED: dict[str, Callable[[float, float], float]] = {
    "zonemta_event_sink_lag_seconds": max, "zonemta_event_sink_up": min,
}  # fmt: skip
"""How what is measured of a sink in several queues becomes one; other numbers are added up."""


def _joined(rows: Iterable[_Row]) -> Iterator[_Row]:
    found = dict[tuple[str, tuple[str, ...]], float]()
    for metric, labels, value in rows:
        known, join = found.get((metric, labels)), _JOINED.get(metric)
        found[metric, labels] = value if known is None else join(known, value) if join else known + value
    return ((metric, labels, value) for (metric, labels), value in found.items())


class Feed:
    """All sinks of a configuration, in one queue."""

    def __init__(self, config: Config, queue: Asking, host: Host | None = None) -> None:
        """host: plugins that sinks are for."""
        self._config, self._queue, self._folder, self._host = config, queue, config.folder, host
        self._stopping = asyncio.Event()
        self._sinks: list[tuple[RunningSink, EventFilter]] = []
        self._source = ""
        self._position = 0

    async def run(self) -> None:
        """Until `stop`. Raises ConfigError for a sink that cannot be."""
        begin = asyncio.ensure_future(self._begin())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([begin, stop], return_when=asyncio.FIRST_COMPLETED)
        if not begin.done():
            begin.cancel()
            return
        begin.result()
        works = [asyncio.ensure_future(sink.run()) for sink, _ in self._sinks]
        others = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._note())]
        try:
            await asyncio.wait([stop, *works, *others], return_when=asyncio.FIRST_COMPLETED)
            for work in [work for work in (*works, *others) if work.done()]:
                work.result()  # none ends by itself: it is a mistake of ours, and the process starts again
        finally:
            for sink, _ in self._sinks:
                sink.stop()
            for task in others:
                task.cancel()
            _, late = await asyncio.wait(works, timeout=END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*works, *others, return_exceptions=True)
            for sink, _ in self._sinks:
                sink.end(self._position)

    def stop(self) -> None:
        self._stopping.set()

    # -- the journal

    async def _begin(self) -> None:
        while copied := await self._asked(questions.copied):
            log.warning("%s; no events are sent either", copied)
            await asyncio.sleep(WAIT_S)
        self._source = identity.name_of(self._folder)
        self._position = await self._asked(questions.stable)
        cursors = [await self._cursor(settings.name) for settings in self._config.event_sinks]
        self._sinks = [
            (self._sink(settings, place), wanted(settings))
            for settings, place in zip(self._config.event_sinks, cursors, strict=True)
        ]
        self._write(0)
        if not _feeds:
            report.measure(lambda: _joined(row for feed in _feeds for row in feed.gauges()))
            report.total(lambda: _joined(row for feed in _feeds for row in feed.totals()))
        _feeds.append(self)

    def gauges(self) -> Iterator[_Row]:
        for sink, _ in self._sinks:
            yield from sink.gauges(self._position)

    def totals(self) -> Iterator[_Row]:
        for sink, _ in self._sinks:
            yield from sink.totals()

    async def _cursor(self, name: str) -> cursor.GoesOn:
        while True:
            try:
                return cursor.found(self._folder, self._folder / FOLDER / name, self._position)
            except OSError as error:
                log.warning("event sink %r: its cursor cannot be read: %s; events wait", name, cause(error))
                await asyncio.sleep(WAIT_S)

    def _sink(self, settings: EventSink, place: cursor.GoesOn) -> RunningSink:
        folder = self._folder / FOLDER / settings.name
        queue = OverflowQueue(
            folder / RING, settings.memory_events, settings.memory_bytes, ring_pages(settings), settings.page_bytes,
            flush_s=settings.ring_flush_s, spare_bytes=2 * self._config.queue.reserve_bytes, whole=True,
        )  # fmt: skip
        backlog = Backlog(
            queue, place.seq, self._position, lambda seq: JournalTail(self._folder, seq),
            chosen(settings, self._source), place.missed,
        )  # fmt: skip
        return RunningSink(settings, client(settings, self._source, self._host), folder, backlog)

    async def _read(self) -> None:
        tail = JournalTail(self._folder, self._position + 1)
        stable = self._position
        while True:
            try:
                records = tail.read(stable, RECORDS_AT_ONCE)
            except OSError as error:
                log.warning("the journal cannot be read: %s; events wait", cause(error))
                await asyncio.sleep(AGAIN_S)
                continue
            for record in records:
                self._hand_out(record)
            if records:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(PAUSE_S)
                stable = max(stable, await self._asked(questions.stable, after=stable, wait_s=WAIT_S))

    def _hand_out(self, record: Record) -> None:
        self._position = record.seq
        events = events_of(record)
        made: dict[int, Ready] = {}
        for sink, wants in self._sinks:
            sink.offer(record.seq, self._ready(events, wants, made) if events and sink.backlog.live else ())

    def _ready(self, events: list[Event], wants: EventFilter, made: dict[int, Ready]) -> list[Ready]:
        """Each event is made once, for the first sink that wants it."""
        found = []
        for event in filter(wants.wants, events):
            one = made.get(event.part)
            if one is None:
                one = made[event.part] = prepared.ready(event, self._source)
            found.append(one)
        return found

    async def _asked(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        while True:
            with contextlib.suppress(QueueRefusal):
                return await self._queue.ask(question, *_, **arguments)
            await asyncio.sleep(AGAIN_S)

    # -- what is told

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._write(asyncio.get_running_loop().time())

    def _write(self, now_s: float) -> None:
        for sink, _ in self._sinks:
            sink.note(self._position, now_s)


_feeds: list[Feed] = []
"""In this process, one for each queue."""

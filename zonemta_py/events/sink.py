"""One sink at work: batches out of its backlog, tried until they have arrived, with what cannot be taken put aside.

A batch is the same each time it is tried. While the other side is down its events wait (`backlog`), and the waits
between two tries double, varied at random, or are what it asks for. Whatever a client raises beside what it should
(`sinks/base.py`) counts as down, so that no mistake in it loses an event. Nothing here holds up another sink.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zonemta_py.config.secret import hidden
from zonemta_py.config.services.events import EventSink
from zonemta_py.events import cursor
from zonemta_py.events.backlog import Backlog
from zonemta_py.events.dead_letters import DeadLetter, DeadLetters
from zonemta_py.events.event import time_of
from zonemta_py.events.sinks.base import Ready, Rejected, SinkClient, SinkDown
from zonemta_py.logs.causes import cause

log = logging.getLogger(__name__)

CURSOR_S = 5.0
"""How often the cursor is written."""
RETRY_AFTER_S_MAX = 3600.0
PAUSE_S = 0.2
STUCK_S_MAX = 10.0
"""How long a ring that cannot be read is tried again."""
REMEDY = "give the folder to the MTA's user, or make room on its disk"
_TOTALS = ("sent", "dropped", "missed", "dead", "dead_dropped")


class RingUnreadable(Exception):
    """The process has to start again: a start puts such a ring aside, and reads the journal instead."""


class RunningSink:
    """folder: its own, events/NAME. Totals go on from the state that an earlier process left there."""

    def __init__(self, settings: EventSink, client: SinkClient, folder: Path, backlog: Backlog) -> None:
        self.settings, self.backlog = settings, backlog
        self._client, self._folder = client, folder
        self._dead = DeadLetters(folder, settings.dead_bytes)
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()
        self._open, self._stuck_s = False, 0.0
        self._why, self._since_ms, self._success_ms = "", _now_ms(), 0
        before = read_state(folder)
        self._before = {name: total if isinstance(total := before.get(name), int) else 0 for name in _TOTALS}
        self._sent = self._buried = self._dead_dropped = 0
        self._written: dict[str, Any] = {}
        self._cursor, self._cursor_s = -1, 0.0
        self._lost, self._dropping, self._trouble = (0, backlog.missed), False, ""

    def offer(self, seq: int, events: Iterable[Ready]) -> None:
        """Everything that is wanted of the record that the feed has read."""
        self.backlog.offer(seq, events)
        self._wake.set()

    async def run(self) -> None:
        """Until `stop`, or cancelled; what is under way is tried no further then."""
        try:
            while not self._stopping.is_set():
                batch = await self._batch()
                if batch:
                    await self._deliver(batch)
        finally:
            await self._close()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    # -- a batch

    async def _batch(self) -> list[Ready]:
        batch, settings = self._taken(), self.settings
        if not batch:
            await self._something_to_do()
        elif settings.batch_s and len(batch) < settings.batch_events and self.backlog.emptied_by(len(batch)):
            await self._pause(settings.batch_s)
            batch = self._taken()
        return batch

    def _taken(self) -> list[Ready]:
        self._wake.clear()
        try:
            return self.backlog.take(self.settings.batch_events, self.settings.batch_bytes)
        except OSError as error:
            self._say_down(f"the journal cannot be read: {error.strerror or error}")
            return []

    async def _something_to_do(self) -> None:
        """Raises RingUnreadable."""
        if self.backlog.stuck:
            self._stuck_s += PAUSE_S
            if self._stuck_s > STUCK_S_MAX:
                raise RingUnreadable(
                    f"event sink {self.settings.name!r}: its ring cannot be read; starting again without"
                )
            await asyncio.sleep(PAUSE_S)
            return
        self._stuck_s = 0.0
        if self.backlog.live:
            await self._wake.wait()
        else:  # it is catching up
            await asyncio.sleep(PAUSE_S if self._why else 0)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _deliver(self, batch: list[Ready]) -> None:
        tries = 0
        while not self._stopping.is_set():
            down = await self._try(batch)
            if down is None:
                return
            self._say_down(str(down))
            await self._close()
            wait_s = min(self.settings.retry_max_s, self.settings.retry_s * 2 ** min(tries, 30)) * random.uniform(
                0.5, 1
            )
            await self._pause(max(wait_s, min(down.retry_after_s or 0, RETRY_AFTER_S_MAX)))
            tries += 1

    async def _try(self, batch: list[Ready]) -> SinkDown | None:
        """None: it is done with."""
        buried = 0
        try:
            if not self._open:
                await self._client.open()
                self._open = True
            await self._client.send(batch)
        except SinkDown as error:
            return error
        except Rejected as error:
            buried = len(error.indices)
            try:
                self._bury([batch[index] for index in error.indices], str(error))
            except OSError as failed:
                return SinkDown(f"dead letters cannot be kept: {failed.strerror or failed}")
        except Exception as error:
            log.debug("event sink %r", self.settings.name, exc_info=True)
            return SinkDown(f"{type(error).__name__}: {cause(error)}")
        self.backlog.done(len(batch))
        self._sent += len(batch) - buried
        self._say_up()
        return None

    def _bury(self, events: list[Ready], why: str) -> None:
        now, why = _now_ms(), _safe(why)
        self._dead_dropped += self._dead.add([DeadLetter(now, why, one) for one in events])
        self._buried += len(events)
        log.warning("event sink %r refuses %d events for good: %s", self.settings.name, len(events), why)

    async def _close(self) -> None:
        self._open = False
        try:
            await self._client.close()
        except Exception:
            log.debug("event sink %r", self.settings.name, exc_info=True)

    # -- what is told

    def _say_down(self, why: str) -> None:
        why = _safe(why)
        if not self._why:
            self._since_ms = _now_ms()
            log.warning("event sink %r is down: %s; its events wait", self.settings.name, why)
        self._why = why

    def _say_up(self) -> None:
        self._success_ms = _now_ms()
        if self._why:
            self._why, self._since_ms = "", self._success_ms
            self._dropping = False
            log.warning("event sink %r is back", self.settings.name)

    def _say_losses(self) -> None:
        """What is dropped once while it is down, with the order that sends it; what is missed each time."""
        name, (dropped, missed) = self.settings.name, self._lost
        self._lost = self.backlog.queue.dropped, self.backlog.missed
        if self._lost[0] > dropped and not self._dropping:
            self._dropping = True
            since = time_of(self.backlog.oldest_ms or _now_ms())
            log.warning(
                "event sink %r: more waits than has room, so events are dropped; once it is back,"
                " `zonemta events replay --sink %s --since %s` sends them", name, name, since,
            )  # fmt: skip
        if self._lost[1] > missed:
            log.warning(
                "event sink %r: the archive no longer has %d records that it has not seen; raise queue.archive_days",
                name, self._lost[1] - missed,
            )  # fmt: skip

    def state(self, position: int) -> dict[str, Any]:
        """For `zonemta events sinks`, and for metrics. position: the last stable record. Numbers since the sink was
        made, but for what waits now."""
        backlog, now = self.backlog, self._counted()
        return {
            "name": self.settings.name,
            "kind": self.settings.kind,
            "pid": os.getpid(),
            "state": "down" if self._why else "ok" if backlog.live else "catching up",
            "since_ms": self._since_ms,
            "reason": self._why,
            "trouble": self._trouble,
            "lag_records": max(0, position - backlog.cursor),
            "lag_s": round(backlog.waits_s, 3),
            "in_memory": backlog.in_memory(),
            "ring_pages": backlog.queue.pages(),
            "ring_pages_max": ring_pages(self.settings),
            "ring_writes": backlog.queue.writes,
            "ring_damaged": backlog.queue.damaged,
            "last_success_ms": self._success_ms,
            **{name: self._before[name] + now[name] for name in _TOTALS},
        }

    def _counted(self) -> dict[str, int]:
        """Since the process began."""
        backlog = self.backlog
        return {
            "sent": self._sent, "dropped": backlog.queue.dropped, "missed": backlog.missed, "dead": self._buried,
            "dead_dropped": self._dead_dropped,
        }  # fmt: skip

    def totals(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Counters, for metrics."""
        for what, value in self._counted().items():
            yield "zonemta_event_sink_events_total", (self.settings.name, what), value

    def gauges(self, position: int) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """What there is now, for metrics. position: the last stable record."""
        sink = (self.settings.name,)
        yield "zonemta_event_sink_lag_records", sink, max(0, position - self.backlog.cursor)
        yield "zonemta_event_sink_lag_seconds", sink, round(self.backlog.waits_s, 3)
        yield "zonemta_event_sink_up", sink, int(not self._why)

    def note(self, position: int, now_s: float, final: bool = False) -> None:
        """Writes state and, less often, the cursor; once a second. Failures: none; it is tried again."""
        self.backlog.tick()
        self._say_losses()
        self._note_cursor(now_s, final)
        try:
            state = self.state(position)
            if state != self._written:
                self._folder.mkdir(parents=True, exist_ok=True)
                fresh = self._folder / f"{cursor.STATE}.new"
                fresh.write_text(json.dumps(state | {"cursor": self.backlog.cursor}) + "\n")
                fresh.replace(self._folder / cursor.STATE)
                self._written = state
        except OSError as error:
            log.debug("event sink %r: its state cannot be written: %s", self.settings.name, cause(error))

    def _note_cursor(self, now_s: float, final: bool) -> None:
        """Without a cursor a sink counts as new after a restart, and nobody would know what it lacks."""
        trouble = ""
        try:
            seq = self.backlog.cursor
            due = seq != self._cursor and (final or now_s >= self._cursor_s or self._cursor < 0)
            if due or self._trouble or not (self._folder / cursor.NAME).exists():  # somebody may have removed it
                cursor.write(self._folder, seq)
                self._cursor, self._cursor_s = seq, now_s + CURSOR_S
        except OSError as error:
            where = self._folder / cursor.NAME
            trouble = f"{where} cannot be written, so a restart may miss events: {error.strerror or error}; {REMEDY}"
        if trouble and not self._trouble:
            log.error("event sink %r: %s", self.settings.name, trouble)
        elif self._trouble and not trouble:
            log.warning("event sink %r: its cursor is written again", self.settings.name)
        self._trouble = trouble

    def end(self, position: int) -> None:
        """A clean end: state and cursor are written, and in the ring what of it was delivered."""
        self.note(position, 0, final=True)
        self.backlog.close()


def ring_pages(settings: EventSink) -> int:
    """0: it has no ring."""
    return settings.ring_bytes // settings.page_bytes


def read_state(folder: Path) -> dict[str, Any]:
    """{} if there is none yet."""
    try:
        found = json.loads((folder / cursor.STATE).read_bytes())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _safe(text: str) -> str:
    """One line without the logins of URLs, nor what would steer a terminal."""
    text = "".join(one if one.isprintable() else " " for one in text)
    return str(hidden("", " ".join(text.split())))[:300]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""The replay: the real queue, in a folder of its own, takes the mail when it came and is answered by the `World`.

What differs from a day's work: time is simulated, the disk is waited for in the loop, one sender has all the places
there are, bodies are one byte (sizes are as they were), and plugins are not asked. What became of it is read from the
replay's own journal.

The event loop's clock jumps to the next thing to happen, and the queue's clock follows it: a day costs as long as its
events take to work out. The same input makes the same steps in the same order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import selectors
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk.bodies import shrink
from zonemta_py.mail.classify import own_class
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import RELEASED, Delivery, Outcome, Receipt, Result
from zonemta_py.queue.core.commit import Inline
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.whatif.history import History, read
from zonemta_py.whatif.world import ModelAnswer, ProviderModel
from zonemta_py.zones.pull import PUSHED


class _Selector(selectors.DefaultSelector):
    """Where a loop would sleep, its time goes on."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now_s += timeout
            timeout = 0
        return super().select(timeout)


class Loop(asyncio.SelectorEventLoop):
    """time: seconds since the simulation began."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)

    def time(self) -> float:
        return self._simulated.now_s


class SimulatedClock(Clock):
    """The queue's clock: begins at `start_ms` (UNIX) and follows the loop; its chance is drawn from `seed`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int, seed: int) -> None:
        self._loop, self._start_ms, self._chance = loop, start_ms, random.Random(seed)

    def ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def random(self) -> float:
        return self._chance.random()


PLACES = 4_000
"""Deliveries at once: more than any zone has connections."""
POSITION_S = 60.0
NO_CONNECTION = Reply(451, "4.3.2", "no idle connection, and a new one is not allowed now")
_BODY = shrink(b"x")
_WORKER = "replay"


class Span(NamedTuple):
    """since_ms … until_ms: whose mail is replayed; the queue is watched for drain_ms more."""

    since_ms: int
    until_ms: int
    drain_ms: int


class Replayed(NamedTuple):
    """history: what the replay's journal says, ids as in the original. beyond: `World.beyond`. refused: not taken."""

    history: History
    beyond: list[tuple[str, int, int]]
    refused: int


class Arrival(NamedTuple):
    """A message, or one recipient of a campaign's batch, to be handed in."""

    ms: int
    id: str
    envelope: Envelope


def arrivals(history: History, span: Span) -> list[Arrival]:
    """Mail that came in the span, and at its beginning what was still tried in it.

    Whom the archive says was taken out of the queue (canceled, suppressed, dropped) is left out: what a provider would
    have said nobody knows, and it was an order, not the configuration, that ended it.
    """
    rows: list[Arrival] = []
    late = {message_id for (message_id, _), tried in history.attempts.items() if tried[-1].ms >= span.since_ms}
    for mail in history.mails.values():
        if mail.ms >= span.until_ms or (mail.ms < span.since_ms and mail.id not in late):
            continue
        if mail.metadata.get("protocol") == PUSHED:
            continue  # nobody sends it
        recipients = [Recipient(*row[1:4]) for row in mail.recipients if (mail.id, row[1]) not in history.removed]
        if mail.ms < span.since_ms:
            recipients = [one for one in recipients if _waited(history, mail.id, one.address, span.since_ms)]
        metadata = {**mail.metadata, "hold_until_ms": 0, "columns": []}
        batches = [[one] for one in recipients] if mail.metadata.get("columns") else [recipients]
        for batch in batches:
            if batch:
                envelope = Envelope.from_metadata(metadata, batch)
                rows.append(Arrival(max(mail.ms, span.since_ms), mail.id, envelope))
    return sorted(rows, key=lambda row: (row.ms, row.id))


def _waited(history: History, message_id: str, address: str, since_ms: int) -> bool:
    tried = history.attempts.get((message_id, address), [])
    return any(attempt.ms >= since_ms for attempt in tried)


class _Sender:
    """Takes every lease there is, and settles it when the world's answer is due."""

    def __init__(
        self, queue: LocalQueue, world: ProviderModel, clock: SimulatedClock, names: dict[str, str],
        first: dict[tuple[str, str], int],
    ) -> None:  # fmt: skip
        """first: when recipients that wait from before were tried first."""
        self._queue, self._world, self._clock, self._names, self._first = queue, world, clock, names, first
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
        """Until when, and the connection's name."""
        self._take()

    def _take(self) -> None:
        self._queue.leases.take(PLACES, _WORKER, self._leased)

    def _leased(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._begin(delivery)
        self._take()

    def _begin(self, delivery: Delivery) -> None:
        now_ms, everyone = self._clock.ms(), list(range(len(delivery.recipients)))
        path = (delivery.zone, delivery.site or delivery.destination, delivery.source)
        idle = self._idle[path]
        reused, name = bool(idle), delivery.lease if delivery.connection is not None else 0
        if reused:
            own = [one for one in idle if one[1] == delivery.connection] or idle[-1:]
            idle.remove(own[0])
            name = own[0][1] or name
        elif not delivery.may_connect:
            self._settle(Result(delivery.lease, [Outcome(RELEASED, NO_CONNECTION, "limit", everyone)]))
            return
        answers = [self._answer(delivery, one.address, now_ms) for one in delivery.recipients]
        outcomes = [Outcome(a.verdict, a.reply, a.stage, [i], kind=own_class(a.reply)) for i, a in enumerate(answers)]
        took_ms = max(answer.took_ms for answer in answers)
        down = all(answer.down for answer in answers)
        result = Result(
            delivery.lease, outcomes, down_s=0 if down else None, started_ms=now_ms, took_ms=took_ms,
            opened=not reused, kept=not down, connection=0 if down else name,
        )  # fmt: skip
        self._loop.call_later(took_ms / 1000, self._end, path, delivery, result)

    def _answer(self, delivery: Delivery, address: str, now_ms: int) -> ModelAnswer:
        message_id = self._names.get(delivery.id, "")  # "": a notification, which anybody takes
        first_ms = self._first.setdefault((message_id, address), now_ms)
        return self._world.answer(
            message_id, address, delivery.source, delivery.site or delivery.destination, delivery.provider, first_ms,
            now_ms,
        )  # fmt: skip

    def _end(self, path: tuple[str, str, str], delivery: Delivery, result: Result) -> None:
        if result.kept:
            idle_s = 5.0 if delivery.idle_s is None else delivery.idle_s
            until = self._loop.time() + idle_s, result.connection
            self._idle[path].append(until)
            self._loop.call_later(idle_s, self._close, path, until)
        self._settle(result)

    def _close(self, path: tuple[str, str, str], until: tuple[float, int]) -> None:
        """An idle connection, unless it has been used again."""
        if until in self._idle[path]:
            self._idle[path].remove(until)
            self._queue.closed(until[1])

    def _settle(self, result: Result) -> None:
        self._queue.settling.settle(result, _nothing)


def _nothing() -> None:
    """Nobody waits for it."""


def replay(
    config: Config, history: History, span: Span, seed: int, folder: Path,
    progress: Callable[[int], None] = lambda now_ms: None,
) -> Replayed:  # fmt: skip
    """Runs it. folder: empty; the replay's queue is made there. progress(simulated UNIX ms) is called now and then.

    Raises ConfigError (rules that cannot be read), StoreError, OSError.
    """
    own = config.model_copy(
        update={
            "server": config.server.model_copy(update={"folder": folder}),
            "queue": config.queue.model_copy(
                update={"position_s": POSITION_S, "reserve_bytes": 0, "archive_days": 0.0, "archive_bytes": 0}
            ),
        }
    )
    loop = Loop()
    try:
        return loop.run_until_complete(_run(own, history, span, seed, loop, progress))
    finally:
        _end_tasks(loop)
        loop.close()


async def _run(
    config: Config, history: History, span: Span, seed: int, loop: Loop, progress: Callable[[int], None]
) -> Replayed:
    clock, world = SimulatedClock(loop, span.since_ms, seed), ProviderModel(history, seed)
    queue = await open_queue(config, clock=clock, resolver=world, hire=Inline)
    names: dict[str, str] = {}
    early = {key: tried[0].ms for key, tried in history.attempts.items() if tried[0].ms < span.since_ms}
    _Sender(queue, world, clock, names, early)
    queue.start()
    refused = 0

    def admitted(was: str, taken: Receipt | Reply) -> None:
        nonlocal refused
        if isinstance(taken, Receipt):
            names[taken.id] = was
        else:
            refused += 1

    for arrival in arrivals(history, span):
        wait_s = (arrival.ms - clock.ms()) / 1000
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            progress(clock.ms())
        queue.acceptance.admit(arrival.envelope, [_BODY], partial(admitted, arrival.id))
    while clock.ms() < span.until_ms + span.drain_ms and queue.core.counters.message_count:
        await asyncio.sleep(60)
        progress(clock.ms())
    await queue.core.disk.lines.stable()
    await queue.core.disk.journal.stable()
    queue.close()
    return Replayed(
        _renamed(read([config.folder / "archive", config.folder / "journal"]), names), world.beyond(), refused
    )


def _renamed(found: History, names: dict[str, str]) -> History:
    """With the ids of the original, so that the same recipient has the same name in both."""
    history = History(faults=found.faults)
    for message_id, mail in found.mails.items():
        was = names.get(message_id)
        if was is None:  # a notification that the replay's queue made
            continue
        before = history.mails.get(was)
        if before is None:
            history.mails[was] = dataclasses.replace(mail, id=was)
        else:
            before.recipients += mail.recipients
    for kind in ("attempts", "removed"):
        rows: dict[tuple[str, str], Any] = getattr(found, kind)
        kept = {(names[key[0]], key[1]): value for key, value in rows.items() if key[0] in names}
        setattr(history, kind, kept)
    return history


def _end_tasks(loop: Loop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:  # gathering nothing belongs to no loop, which is an error that would hide the one that ended the replay
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

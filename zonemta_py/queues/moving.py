"""Mail and state that go from queue to queue: one message (`move`), and all that belongs elsewhere when an MTA gets
more or fewer queues (`rebalance`).

A message is taken over by the other queue first, on stable storage and with its record; then its end here is recorded,
and once that is stable, too, the other queue forgets that it could be offered it again (`queue.lifecycle.moved`). So a
death at any point, and the same again, leaves it in one queue, once.

No queue may run meanwhile: this process opens all stores, lets tasks end, and makes all queues carry out the same
orders. Then, and not before, anything is moved; each step can be repeated. What becomes of what: FAMILIES. Ordinary
mail stays where it is when there are more queues; of a queue that is to be no more all goes, and its folder stays, as
`queues/NUMBER.gone-TIME`, with its journal and its archive.

Failures: ValueError, OSError: one sentence. It goes on where it was when it is called again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk import identity, keys, packing
from zonemta_py.disk.files import replace_file, sync
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged, StoreError
from zonemta_py.journal import segments
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.journal.records.taken import CAMPAIGN, DOUBTS, FEEDBACK, REQUESTS
from zonemta_py.queue.api import ORDERS_NOTE, QueueRefusal
from zonemta_py.queue.core.campaign_counters import CampaignCounts
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.commit import Inline
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.tasks import WORK, Task
from zonemta_py.queue.feedback.register import ERASED, file_of, operations
from zonemta_py.queue.lifecycle import moved
from zonemta_py.queue.lifecycle.moved import Contents
from zonemta_py.queue.lifecycle.requests import RequestRecord
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import owed
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.queue.suppression import provider_answers, shared_counts
from zonemta_py.queue.suppression.entry import Suppressed
from zonemta_py.queue.suppression.evidence import Evidence
from zonemta_py.queues import layout
from zonemta_py.queues.member import Member, noted
from zonemta_py.queues.orders import OrderLog
from zonemta_py.queues.placement import Placement
from zonemta_py.queues.with_mail import (
    by_clock,
    copy_of,
    record,
    recorded_task,
    take_campaign,
    take_tasks,
    tasks_of,
    without_figures,
    written,
)
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.zones.pull import PUSHED

log = logging.getLogger(__name__)

AT_ONCE, BYTES_AT_ONCE = 500, 8 << 20
"""Messages, and their bytes, that are moved together: one sync of each disk for all of them."""
KEYS_AT_ONCE = 1_000
TASKS_S = 3_600.0
"""How long tasks may take to end."""
_LOOK_S = 0.05
_GOING = "- going"
"""The key of a queue that is to be no more, with the time at which that began: its figures are added once."""

Progress = Callable[[int, int], object]
"""(messages looked at, of how many)"""


class Becomes(NamedTuple):
    """What becomes of a family of keys. more: when there are more queues, in the new ones. fewer: of a queue that is to
    be no more."""

    family: str
    more: str
    fewer: str


_WITH_MAIL = "with its message"
_OF_ALL = "all of the first queue's"
FAMILIES = (
    Becomes(
        "message",
        "what was pushed to a named queue that belongs there; all else stays",
        "to the queue that takes such mail now",
    ),
    *(
        Becomes(name, _WITH_MAIL, _WITH_MAIL)
        for name in ("delivery-zone", "deferred", "parked", "held", "deleted", "bounced", "at")
    ),
    Becomes("in-doubt", _WITH_MAIL, "with its message; of one that has ended, to the first queue"),
    Becomes(
        "task",
        "all, without figures; each ends before",
        "figures are added to the first queue's; it can be undone as long as in the queue that had it longest",
    ),
    Becomes("size", "counted with the mail", "counted with the mail"),
    Becomes("size-flow", "counted with the mail", "counted with the mail"),
    Becomes("tracked", "its own", "stays in the folder"),
    Becomes("quota", "to the queue of its account", "to the queue of its account"),
    Becomes("plugin", "to the queue of its name", "to the queue of its name"),
    Becomes("plugin-done", "with what it is about", "with what it is about"),
    Becomes("domain", _OF_ALL, "all queues have them alike"),
    Becomes(
        "campaign",
        "settings, templates, ends; of what waits the figures go with it",
        "figures are added in the queue of the campaign, or it goes there",
    ),
    Becomes("request", "a copy of all: a repeated request may come to any", "a copy to all that stay"),
    Becomes("request-end", "with the request's key", "with the request's key"),
    Becomes(
        "standing",
        "stops, pauses, manners, learned rates, days of warm-ups, without what was sent today",
        "what the others lack; what was sent today is added in the first queue",
    ),
    Becomes("suppressed", _OF_ALL, "what the others lack, if anything"),
    Becomes("suppressed-in", _OF_ALL, "what the others lack, if anything"),
    Becomes("sent", "stays: all queues are asked", "to the first queue"),
    Becomes("sent-as", "stays", "to the first queue"),
    Becomes("sent-to", "stays", "to the first queue"),
    Becomes("sent-about", "stays", "to the first queue"),
    Becomes("feedback", "stays: all queues are asked", "to the first queue, with new numbers"),
    Becomes("feedback-of", "stays", "with it"),
    Becomes("evidence", _OF_ALL, "what the others lack"),
    Becomes("guard", _OF_ALL, "the larger figures of both in the first queue, of each process that has counted"),
    Becomes("guard-day", _OF_ALL, "the same"),
    Becomes("lesson", "stays, until all have learnt it", "to the first queue, with new numbers"),
    Becomes("spooled", "stays: all queues are asked", "to the first queue"),
    Becomes("taken", "deleted when the move is recorded", "deleted when the move is recorded"),
    Becomes("moving", "its own", "stays in the folder"),
    Becomes("state", "its own", "stays in the folder"),
    Becomes("log", "its own", "stays in the folder"),
    Becomes("ordered", "its own", "stays in the folder"),
    Becomes("probe", "its own", "stays in the folder"),
)


# -- one message


async def move(giver: LocalQueue, taker: LocalQueue, message_id: str) -> bool:
    """False: the first one does not have it; the second may. Both are at rest (`resting`). Raises StoreDamaged: it is
    not whole, and stays; StoreError, QueueRefusal, OSError."""
    return await move_all(giver, taker, [message_id]) > 0


async def move_all(giver: LocalQueue, taker: LocalQueue, ids: Iterable[str]) -> int:
    """The same of several at once; how many the first one had."""
    found = [one for one in (moved.contents(giver.core, message_id) for message_id in ids) if one is not None]
    await _move(giver.core, taker.core, found)
    return len(found)


async def _move(giver: Core, taker: Core, found: list[Contents]) -> None:
    fresh = [one for one in found if not moved.is_taken(taker.disk.store, one.message.id)]
    if fresh:
        for name in sorted({name for one in fresh if (name := moved.campaign_named(one))}):
            await _take_campaign(giver, taker, name)
        await _take_tasks(giver, taker, fresh)
        arrivals = [moved.arrival(taker, moved.origin(giver, one.message.id), one) for one in fresh]
        await moved.take(taker, arrivals, partial(moved.copy_body, giver, taker))
    for one in found:
        moved.give(giver, one, taker.config.queue_number)
    await giver.disk.journal.stable()
    await giver.disk.settled(math.inf)
    marks = [(keys.taken(one.message.id), None) for one in found]
    taker.disk.lines.submit(list[Operation](marks), lambda _: None, sync=False, keep=True)


async def _take_campaign(giver: Core, taker: Core, name: str) -> None:
    """It is there, without figures, before its mail is."""
    campaign = giver.campaigns.by_name.get(name)
    if campaign is None or name in taker.campaigns.by_name:
        return
    await take_campaign(taker, giver.config.queue_number, *copy_of(giver, campaign))


async def _take_tasks(giver: Core, taker: Core, found: list[Contents]) -> None:
    apart_ms = taker.clock.apart_ms() - giver.clock.apart_ms()
    await take_tasks(taker, giver.config.queue_number, apart_ms, tasks_of(giver, found))


def _as_there(giver: Core, taker: Core, task: Task) -> Task:
    return by_clock(task, taker.clock.apart_ms() - giver.clock.apart_ms())


# -- a queue at rest


async def resting(config: Config, clock: Clock | None = None) -> LocalQueue:
    """The queue of that configuration, open, recovered, and sending nothing. Raises StoreError, OSError,
    ConfigError."""
    config.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    queue = await open_queue(config, clock=clock, hire=Inline)
    queue.core.stopping = True
    return queue


async def take_mail(queue: LocalQueue) -> None:
    """Its next start reads all that waits: mail that is moved to it may be older than what it has read."""
    for name, zone in queue.core.schedule.zones.items():
        zone.fresh.back_to(keys.fresh_range(name))
        zone.due.back_to(keys.deferred_range(name))
    await queue.core.disk.places.make(queue.core.disk.lines)
    await queue.position()


async def closed(queue: LocalQueue) -> None:
    """With a position, from which its next start begins, behind the one with which segments went to the archive."""
    await queue.position()
    await queue.position()
    await queue.core.disk.lines.stable()
    await queue.core.disk.bodies.settled()
    abandon(queue)


def abandon(queue: LocalQueue) -> None:
    """What is not on its disks yet is lost."""
    queue.tasks.engine.rest()
    queue.core.end_tasks()
    queue.close()


# -- all queues


async def rebalance(
    config: Config, old: list[int], new: list[int], progress: Progress = lambda *_: None, clock: Clock | None = None
) -> None:
    """Moves what belongs elsewhere when there are these queues from now on. old: all that may have any mail, also new
    ones that a call before this has begun to fill. No queue may run; `layout` names those that did last.

    Raises ValueError, OSError.
    """
    try:
        await _Rebalance(config, old, new, progress, clock).run()
    except QueueRefusal as refusal:
        raise OSError(refusal.reply.text) from None
    except StoreError as error:
        raise OSError(str(error)) from None


async def furnish(source: LocalQueue, queue: LocalQueue) -> None:
    """A new queue gets what all queues of an MTA have alike, as one of them has it; both are at rest. `furnished` ends
    it. Raises QueueRefusal, StoreError, OSError."""
    giver, core = source.core, queue.core
    alike = keys.SUPPRESSED, keys.SUPPRESSED_IN, keys.EVIDENCE, keys.GUARDS, keys.GUARD_DAYS, keys.DOMAINS
    for family in alike:
        for rows in _portions(giver.disk.store, family):
            await written(core, list[Operation](rows))
    for campaign in giver.campaigns.by_name.values():
        if not campaign.named and core.campaigns.registered(campaign.name) is None:
            await _take_campaign(giver, core, campaign.name)
    for task in giver.tasks.by_number.values():
        if task.number not in core.tasks.by_number:
            copy = without_figures(_as_there(giver, core, task))
            core.tasks.take_over(await recorded_task(giver.config.queue_number, core, copy, 0))
    _join_policy(giver, core, today=False)


async def furnished(queue: LocalQueue, config: Config, carried: int, clock: Clock | None = None) -> LocalQueue:
    """The same queue, opened anew: what was written to its store is known then. carried: number of the last order that
    the one had from which it has all that. Raises StoreError, OSError, ConfigError."""
    await closed(queue)
    queue = await resting(config, clock)
    queue.tasks.engine.rest()
    if queue.core.disk.store.first(keys.SUPPRESSED, keys.end(keys.SUPPRESSED_IN)) is not None:
        await queue.suppression.tell_all()
    if config.cluster.enabled:  # where another node makes its files of its log
        await written(queue.core, [(keys.ORDERED, packing.pack(carried))])
    replace_file(queue.core.config.folder / ORDERS_NOTE, str(carried).encode(), 0o600)
    return queue


class _Rebalance:
    def __init__(self, config: Config, old: list[int], new: list[int], progress: Progress, clock: Clock | None) -> None:
        self._config, self._clock, self._progress = config, clock, progress
        self._established = layout.numbers(config.folder)
        self._new = sorted(new)
        self._going = [number for number in sorted({*old, *self._established} - {*new}) if self._is_there(number)]
        self._fresh = [number for number in self._new if number not in self._established]
        if 0 not in new:
            raise ValueError("queue 0 has the MTA's own folder; it cannot be one that goes")
        self._placement = Placement(self._new)
        self._queues: dict[int, LocalQueue] = {}
        self._first = next(number for number in self._new if number in self._established)
        self._done = self._of = 0

    def _is_there(self, number: int) -> bool:
        folder = layout.folder_of(self._config.folder, number)
        return (folder / "store").exists() or bool(segments.files(folder / "journal"))

    async def run(self) -> None:
        for number in self._established:
            if sentence := identity.copied(layout.folder_of(self._config.folder, number), identity.this_machine()):
                raise ValueError(sentence)
        for number in set(range(max(self._new) + 2)) - {*self._established, *self._new, *self._going, 0}:
            layout.set_aside(self._config.folder, number)
        try:
            for number in sorted({*self._established, *self._new, *self._going}):
                self._queues[number] = await resting(layout.config_of(self._config, number), self._clock)
            self._keep_owed()
            await self._all_alike()
            for number in self._fresh:
                await self._replicate(number)
            for number in self._new:
                await take_mail(self._queues[number])
            await self._forget_marks()
            await self._quotas()
            await self._plugins()
            await self._mail()
            for number in self._going:
                await self._inherit(number)
            for queue in self._queues.values():
                await closed(queue)
        except BaseException:
            for queue in self._queues.values():
                if not queue.core.disk.closed:
                    abandon(queue)
            raise
        for number in {*self._established, *self._going} - {*self._new}:
            layout.set_aside(self._config.folder, number)

    def _core(self, number: int) -> Core:
        return self._queues[number].core

    @property
    def _source(self) -> LocalQueue:
        return self._queues[self._first]

    # -- before anything is moved

    def _keep_owed(self) -> None:
        """Whichever queue is asked whether a message is stored says so, wherever it is by then."""
        known = {token: row for queue in self._queues.values() for token, row in queue.core.known.items()}
        for queue in self._queues.values():
            owed.keep(queue.core.config.folder, known, queue.core.clock.ms())

    async def _all_alike(self) -> None:
        """All have carried out the same orders, to the end."""
        path = self._config.folder / layout.FOLDER / layout.ORDERS
        orders = OrderLog(path) if path.exists() else None
        for number in self._established:
            queue = self._queues[number]
            if orders is not None:
                await _carried_out(queue, orders)
        until = time.monotonic() + TASKS_S
        for number, queue in self._queues.items():
            while working := [task for task in queue.core.tasks.by_number.values() if task.state in WORK]:
                if time.monotonic() > until:
                    raise ValueError(
                        f"task {working[0].number} does not end in queue {number}; cancel it, or see the log"
                    )
                await asyncio.sleep(_LOOK_S)
            queue.tasks.engine.rest()
            await queue.core.disk.journal.stable()  # one whose time is over has its state, too

    async def _replicate(self, number: int) -> None:
        """What all queues have, in one that is new."""
        await furnish(self._source, self._queues[number])
        for other in self._established:
            await copy_requests(self._core(other), self._core(number))
        carried = noted(self._source.core.config.folder)
        config = layout.config_of(self._config, number)
        self._queues[number] = await furnished(self._queues[number], config, carried, self._clock)

    async def _forget_marks(self) -> None:
        """Of messages whose end in the other queue is stable, and of queues that are gone."""
        for number, queue in self._queues.items():
            others = [self._core(other).disk.store for other in self._queues if other != number]
            marks = queue.core.disk.store.keys(keys.TAKEN, keys.end(keys.TAKEN))
            gone: list[Operation] = [(key, None) for key in marks if self._is_over(key, others)]
            await written(queue.core, gone)

    def _is_over(self, mark: bytes, others: list[Store]) -> bool:
        what = mark.removeprefix(keys.TAKEN).decode()
        if what[:2] == "- ":
            return what != _GOING and int(what.split(" ")[1]) not in self._going
        return all(store.get(keys.existence(what)) is None for store in others)

    # -- what is moved

    async def _quotas(self) -> None:
        """An account is counted in one queue."""
        for number, queue in self._queues.items():
            for key, value in list(queue.core.disk.store.scan(keys.QUOTAS, keys.end(keys.QUOTAS))):
                home = self._placement.of_account(key.decode().split(" ")[1])
                if home == number:
                    continue
                there = self._core(home).disk.store.get(key)
                window = max(packing.unpack(value)[:2], packing.unpack(there)[:2] if there else [0, 0])
                await written(self._core(home), [(key, packing.pack(window))])
                await written(queue.core, [(key, None)])

    async def _plugins(self) -> None:
        """What plugins keep is in one queue, by its name; and so is what they were answered about it."""
        for number, queue in self._queues.items():
            giver = queue.core
            for rows in _portions(giver.disk.store, keys.PLUGINS):
                await self._give(giver, [(self._home_of(*_plugins_name(row[0])), *row) for row in rows], number)
            for rows in _portions(giver.disk.store, keys.PLUGINS_DONE):
                await self._give(giver, [(self._home_of(*packing.unpack(row[1])[2:4]), *row) for row in rows], number)

    def _home_of(self, plugin: str, name: str) -> int:
        return self._placement.of_plugin(plugin, name)

    async def _give(self, giver: Core, rows: list[tuple[int, bytes, bytes]], number: int) -> None:
        """Rows, with the queue that has each from now on, whose first field is their end."""
        for home in {home for home, _, _ in rows} - {number}:
            taker = self._core(home)
            apart_ms = taker.clock.apart_ms() - giver.clock.apart_ms()
            going = [(key, packing.unpack(value)) for where, key, value in rows if where == home]
            moved_: list[Operation] = [(key, packing.pack([v[0] and v[0] + apart_ms, *v[1:]])) for key, v in going]
            await written(taker, moved_)
            await written(giver, [(key, None) for key, _ in going])

    async def _mail(self) -> None:
        self._of = sum(queue.core.counters.message_count for queue in self._queues.values())
        for number, queue in self._queues.items():
            under_way: dict[int, list[Contents]] = {}
            sizes: dict[int, int] = {}
            doubted = _doubted(queue.core.disk.store)
            for message_id in _ids(queue.core.disk.store):
                self._done += 1
                self._progress(self._done, self._of)
                if self._stays(number, queue.core, message_id):
                    continue
                if (found := self._contents(queue, message_id, message_id in doubted)) is None:
                    continue
                if (home := self._home(number, found)) == number:
                    continue
                under_way.setdefault(home, []).append(found)
                sizes[home] = sizes.get(home, 0) + found.size
                if len(under_way[home]) >= AT_ONCE or sizes[home] >= BYTES_AT_ONCE:
                    await _move(queue.core, self._core(home), under_way.pop(home))
                    del sizes[home]
            for home, rest in under_way.items():
                await _move(queue.core, self._core(home), rest)
            await queue.core.disk.lines.stable()

    def _contents(self, queue: LocalQueue, message_id: str, doubted: bool) -> Contents | None:
        """None: it is not whole; what is left of it stays where it is."""
        try:
            return moved.contents(queue.core, message_id, doubted)
        except StoreDamaged as error:
            folder = queue.core.config.folder
            log.error("message %s cannot be moved, and stays in %s: %s", message_id, folder, error)
            if queue.core.config.queue_number in self._going:
                cause = f"message {message_id} is damaged: {error}; it is in the folder of a queue that is gone"
                self._source.core.schedule.policy.lost(message_id, cause)
            return None

    def _stays(self, number: int, core: Core, message_id: str) -> bool:
        """What can be told from its metadata."""
        try:
            metadata = core.messages.peek(message_id)
        except StoreDamaged:
            return number in self._new
        if metadata.get("protocol") == PUSHED:
            return False
        return number in self._new

    def _home(self, number: int, what: Contents) -> int:
        """The queue that has it from now on."""
        metadata, recipient = what.message.metadata, what.parts[0].place.recipient
        if metadata.get("protocol") == PUSHED:
            return self._placement.of_queue(recipient.rpartition("@")[0])
        if number in self._new:
            return number
        return self._placement.of_domain(recipient.rpartition("@")[2])[0]

    # -- what a queue leaves that is to be no more

    async def _inherit(self, number: int) -> None:
        giver = self._core(number)
        at = await _going_since(giver)
        for other in self._new:
            taker = self._queues[other]
            await copy_requests(giver, taker.core)
            await _copy_list(giver, taker)
            await _copy_evidence(giver, taker.core)
            _join_policy(giver, taker.core, today=other == self._first)
            mark = keys.taken(f"- {number} {at}")
            if taker.core.disk.store.get(mark) is not None:
                continue
            changes: list[Operation] = [(mark, packing.pack([at]))]
            campaigns = await self._campaigns(giver, taker.core, at)
            tasks = list[Task]()
            if other == self._first:
                for task in [_as_there(giver, taker.core, one) for one in giver.tasks.by_number.values()]:
                    counts = task.done or task.undone or task.count or task.suppressed
                    if counts or taker.core.tasks.turns(task):
                        tasks.append(await recorded_task(giver.config.queue_number, taker.core, task, at))
                changes += await _inherited(giver, taker.core)
            for one in tasks:
                taker.core.tasks.take_over(one)
            changes += _joined(taker.core, campaigns)
            await written(taker.core, changes)

    async def _campaigns(self, giver: Core, taker: Core, at: int) -> list[tuple[Campaign, CampaignCounts]]:
        """Those that belong there, recorded."""
        found = []
        for campaign in giver.campaigns.by_name.values():
            if self._placement.of_campaign(campaign.tenant, campaign.name) == taker.config.queue_number:
                await _take_campaign(giver, taker, campaign.name)
                counts = giver.campaigns.tally(campaign.name)
                value = {"name": campaign.name, "at": at, "record": None, "counts": list(astuple(counts))}
                record(taker, CAMPAIGN, giver.config.queue_number, value)
                found.append((campaign, counts))
        await taker.disk.journal.stable()
        return found


def _joined(taker: Core, campaigns: list[tuple[Campaign, CampaignCounts]]) -> list[Operation]:
    """Their figures are added; also those from which thresholds count, and, where there is none, the history."""
    changes: list[Operation] = []
    for campaign, counts in campaigns:
        here = taker.campaigns.by_name[campaign.name]
        if campaign.base:
            pairs = zip(campaign.base, here.base or [0] * len(campaign.base), strict=False)
            here.base = [one + other for one, other in pairs]
            changes.append((keys.campaign(here.name), here.record()))
        taker.campaigns.counters.join(campaign.name, counts)
    return changes


async def _carried_out(queue: LocalQueue, orders: OrderLog) -> None:
    member = Member(queue)
    queue.core.membership = member
    for order in orders.after(noted(queue.core.config.folder)):
        repeated = queue.core.config.queue_number > 0
        await member.carry_out(order.number, order.question, order.arguments, True, repeated)
    queue.core.membership = None


def _ids(store: Store) -> list[str]:
    """Of all messages."""
    rows = (key.decode().split(" ") for key in store.keys(keys.MESSAGES, keys.end(keys.MESSAGES)) if key[-1:] == b"*")
    return [row[1] for row in rows]


def _doubted(store: Store) -> set[str]:
    """Messages with recipients in doubt."""
    return {key.decode().split(" ", 2)[1] for key in store.keys(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS))}


def _portions(store: Store, family: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
    rows = store.scan(family, keys.end(family))
    while portion := list(islice(rows, KEYS_AT_ONCE)):
        yield portion


def _plugins_name(key: bytes) -> tuple[str, str]:
    plugin, _, name = keys.plugin_of(key)
    return plugin, name


async def copy_requests(giver: Core, taker: Core) -> None:
    """Keys of requests: whoever repeats one may come to any queue."""
    apart_ms = taker.clock.apart_ms() - giver.clock.apart_ms()
    for rows in _portions(giver.disk.store, keys.REQUESTS):
        found, changes = list[Any](), list[Operation]()
        for key, value in rows:
            kept = RequestRecord.of(value)
            until_ms = kept.until_ms and kept.until_ms + apart_ms
            if taker.disk.store.get(key) is None:
                kept = kept._replace(ms=kept.ms + apart_ms, until_ms=until_ms)
                changes.append((key, packing.pack(kept)))
                changes += [(keys.request_end(until_ms, key), b"")] if until_ms else []
                found.append([key.decode(), *kept])
        if found:
            record(taker, REQUESTS, giver.config.queue_number, found)
            await taker.disk.journal.stable()
            await written(taker, changes)


async def _copy_list(giver: Core, taker: LocalQueue) -> None:
    """Entries of the suppression list that are not there; as a rule none are missing."""
    for family in (keys.SUPPRESSED, keys.SUPPRESSED_IN):
        for rows in _portions(giver.disk.store, family):
            missing = [row for row in rows if taker.core.disk.store.get(row[0]) is None]
            entries = [Suppressed.kept(*row)._replace(again=True) for row in missing]
            if entries:
                await taker.suppression.add(entries)


async def _copy_evidence(giver: Core, taker: Core) -> None:
    for rows in _portions(giver.disk.store, keys.EVIDENCE):
        changes = list[Operation]()
        for key, value in rows:
            there = taker.disk.store.get(key)
            if there is None:
                changes.append((key, value))
            elif there != value:
                who = keys.evidence_of(key)
                here, other = Evidence.of(who, there), Evidence.of(who, value)
                news = [here.add(item) for item in other.items]
                if any(news):
                    changes.append((key, here.value()))
        if changes:
            await written(taker, changes)


def _join_policy(giver: Core, taker: Core, today: bool) -> None:
    """What is stopped or was learned there and not here holds here, too. today: what was sent today counts here."""
    theirs, ours = giver.schedule.policy.state(), taker.schedule.policy.state()
    apart_ms = taker.clock.apart_ms() - giver.clock.apart_ms()
    lacking: dict[str, Any] = {}
    for name in ("stops", "pauses", "rates", "manners"):
        known = {(row[0], row[1]) for row in ours[name]}
        lacking[name] = [list(row) for row in theirs[name] if (row[0], row[1]) not in known]
    for stop in lacking["stops"]:
        stop[2], stop[6] = stop[2] and stop[2] + apart_ms, stop[6] + apart_ms
    for pause in lacking["pauses"]:
        pause[2] = [[begin + apart_ms, end + apart_ms] for begin, end in pause[2]]
    policy, known_days = taker.schedule.policy, {(row[0], row[1]) for row in ours["warmups"]}
    days = [[source, place, list(state)] for source, place, state in theirs["warmups"]]
    if not today:
        for row in days:
            row[2][3] = [0, 0, 0, 0]
    lacking["warmups"] = [row for row in days if (row[0], row[1]) not in known_days]
    policy.restore(lacking)
    for source, place, (_, day, _, counts, _) in days if today else ():
        here = policy.warmups.of(source, place)
        if here is not None and (source, place) in known_days and here.day == day:
            here.sent, here.delivered = here.sent + counts[0], here.delivered + counts[1]
            here.deferred, here.blocked = here.deferred + counts[2], here.blocked + counts[3]


async def _going_since(giver: Core) -> int:
    """When it was first to be no more, UNIX ms."""
    value = giver.disk.store.get(keys.taken(_GOING))
    if value is not None:
        return int(packing.unpack(value)[0])
    now_ms = giver.clock.ms()
    await written(giver, [(keys.taken(_GOING), packing.pack([now_ms]))])
    return now_ms


async def _inherited(giver: Core, taker: Core) -> list[Operation]:
    """What only the first queue gets."""
    theirs, ours = giver.disk.store, taker.disk.store
    for family in (keys.SENT, keys.SENT_TO, keys.SENT_ABOUT, b"sent-as ", keys.SPOOLED):
        for rows in _portions(theirs, family):
            await written(taker, list[Operation](rows))
    changes: list[Operation] = []
    doubts: list[list[Any]] = []
    for key, value in theirs.scan(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS)):  # all others have gone with their mail
        _, message_id, address = key.decode().split(" ", 2)
        zone, since_ms, action, *why = packing.unpack(value)
        doubts.append([message_id, zone, address, since_ms, action, "", *why])
        changes.append((key, value))
    for first in range(0, len(doubts), KEYS_AT_ONCE):
        record(taker, DOUBTS, giver.config.queue_number, doubts[first : first + KEYS_AT_ONCE])
    last = ours.last(keys.LESSONS, keys.end(keys.LESSONS))
    number = int(last.rpartition(b" ")[2]) if last else 0
    for _, value in theirs.scan(keys.LESSONS, keys.end(keys.LESSONS)):
        number += 1
        changes.append((keys.lesson(number), value))
    changes += _feedback(giver, taker)
    for key, value in theirs.scan(keys.GUARDS, keys.end(keys.GUARDS)):
        known = packing.unpack(ours.get(key) or packing.pack([]))
        changes.append((key, packing.pack(shared_counts.joined(packing.unpack(value), known))))
    for key, value in theirs.scan(keys.GUARD_DAYS, keys.end(keys.GUARD_DAYS)):
        changes.append((key, provider_answers.merged(value, ours.get(key))))
    await taker.disk.journal.stable()
    return changes


def _feedback(giver: Core, taker: Core) -> list[Operation]:
    """What came back is known there, under numbers of that journal, with the files of what nobody understood."""
    changes: list[Operation] = []
    for _, value in giver.disk.store.scan(keys.FEEDBACK, keys.end(keys.FEEDBACK)):
        if value == ERASED:
            continue
        ms, fields = packing.unpack(value)[:2]
        said = FeedbackRecord.of(fields)
        if said.names and taker.disk.store.get(keys.feedback_of(*said.names[0].split())) is not None:
            continue
        if said.raw_bytes:
            _copy_file(giver.config.folder, taker.config.folder, file_of(said.names))
        changes += operations(record(taker, FEEDBACK, giver.config.queue_number, [ms, said.row()]), ms, said)
    return changes


def _copy_file(giver: Path, taker: Path, name: str) -> None:
    source = giver / "feedback" / f"{name.rpartition(' ')[2]}.eml"
    target = taker / "feedback" / source.name
    if source.exists() and not target.exists():
        target.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(target, source.read_bytes(), 0o600)
        sync(target.parent)

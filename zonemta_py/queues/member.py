"""A queue's part in a set of several: it carries out the orders that all have, leases only as long as it knows all of
them, and shares limits.

The authority lets it lease until a moment of the machine's monotonic clock, and only once it has carried out all
orders. An order counts as given when every queue has carried it out or may lease no more. So nothing is leased anywhere
against an order that has been answered, also where a queue has stood still, or has just started.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Any

from zonemta_py.config import Config, queue_count
from zonemta_py.disk import keys, packing
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.folders import QUEUES_MAX
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import ORDERS_NOTE, QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.questions.question import Ask, given, is_given
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.suppression.guard import Raised
from zonemta_py.queue.suppression.policy import Statement
from zonemta_py.queues import layout, placement
from zonemta_py.queues.absent_zones import AbsentZones
from zonemta_py.queues.grants.holder import GrantHolder
from zonemta_py.queues.shared_limits import SharedLimits
from zonemta_py.queues.transfers import Transfers, WantedMail
from zonemta_py.schedule.policy.state import SOURCE
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.zones.pull import PUSHED

DONE, REFUSED = "done", "refused"
LESSONS, GRANTS, CAMPAIGNS, BEGIN = "lessons", "grants", "campaigns", "begin"
"""What `share` answers with: [LESSONS, rows], [GRANTS, message], [CAMPAIGNS, names]. Its messages: [GRANTS, message];
[BEGIN], the first one of each connection."""
LEAST_S = 0.001
HEARD, HELD, COUNTED, TOOK, STAND = "heard", "held", "counted", "took", "stand"
ELSEWHERE = Reply(451, "4.3.0", "the number of queues has just changed; try again in a moment")
AT_ONCE = 200


def noted(folder: Path) -> int:
    """0: it has carried out none. Raises ValueError with one sentence, OSError."""
    path = folder / ORDERS_NOTE
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise ValueError(
            f"{path}: is no number; remove the file, then it carries out again all orders that are kept"
        ) from None


class Member:
    """Of the queue in this process. Raises OSError, StoreError."""

    def __init__(self, queue: LocalQueue) -> None:
        self._queue, self._core = queue, queue.core
        self._path = queue.core.config.folder / ORDERS_NOTE
        try:
            self.number = noted(queue.core.config.folder)
        except ValueError:  # orders can be carried out twice
            self.number = 0
        if queue.core.config.cluster.enabled and (value := queue.core.disk.store.get(keys.ORDERED)) is not None:
            self.number = max(self.number, packing.unpack(value))  # the file is not in the queue's log
        self._placement = placement.of(queue.core.config)
        self._until = 0.0
        self._one = asyncio.Lock()
        self._lessons = Lessons(queue)
        self._news = asyncio.Event()
        self._said: list[list[Any]] = []
        """About limits, not sent yet."""
        self._campaigns = set[str]()
        """About which something may have to be decided."""
        config = queue.core.config
        most = QUEUES_MAX if config.cluster.enabled else queue_count(config)
        self._holder = GrantHolder(token_hex(8), most, haunted=bool(queue.leases.before))
        self._limits = SharedLimits(queue.core.schedule, self._holder, [one.batch for one in queue.leases.out.values()])
        self._timer: asyncio.TimerHandle | None = None
        self._others = dict[Path, RemoteQueue]()
        self._absent = AbsentZones(queue)
        self.transfers = Transfers(queue, self._ask_of, self._one, lambda: self.number)

    # -- orders

    def may_lease(self) -> bool:
        return self._core.clock.monotonic() < self._until

    async def carry_out(
        self, number: int, question: str, arguments: dict[str, Any], sure: bool, repeated: bool
    ) -> list[Any]:
        async with self._one:
            try:
                with given(sure, repeated) as order:
                    answer = [DONE, await self._queue.answer(question, arguments), order.settled]
            except QueueRefusal as refusal:
                if not sure:
                    return [REFUSED, refusal.reply.text]
                raise  # it is tried again: others have it
            except ValueError as error:
                answer = [REFUSED, str(error)]
                if not sure:
                    return answer
            if number > self.number:
                if self._core.config.cluster.enabled:
                    await self._kept(number)
                await asyncio.to_thread(replace_file, self._path, str(number).encode(), 0o600)
                self.number = number
            return answer

    # -- messages that move

    def _ask_of(self, number: int) -> Ask:
        """Another queue, wherever it is."""
        own = self._core.config.queue_number
        mta = layout.mta_of(self._core.config.folder, own)
        near = number in layout.numbers(mta)
        folder = layout.folder_of(mta, number) if near else layout.far_folder(mta, number)
        if folder not in self._others:
            self._others[folder] = RemoteQueue.lasting(folder, f"queue {own}")
        return self._others[folder].ask

    async def give(self, to: int, zone: str, there: list[str], here: list[str] | None, most: int) -> questions.Gave:
        return await self.transfers.give(to, WantedMail(zone, there, here), most)

    async def away(self, where: dict[str, list[Any]]) -> questions.AwayZones:
        await self._core.when_ready.wait()
        return await self._absent.tell(where)

    async def take(
        self, giver: int, number: int, order: int, apart_ms: int, messages: list[list[Any]],
        campaigns: list[list[Any]], tasks: list[bytes],
    ) -> list[Any]:  # fmt: skip
        return await self.transfers.take(giver, number, order, apart_ms, messages, campaigns, tasks)

    async def take_body(self, id: str, at: int, data: bytes) -> None:
        await self.transfers.take_body(id, at, data)

    async def _kept(self, number: int) -> None:
        """In the queue's log, from where another node may go on with it."""
        kept: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        operations: list[Operation] = [(keys.ORDERED, packing.pack(number))]
        self._core.disk.lines.submit(operations, kept.set_result, sync=True, keep=True)
        await asyncio.shield(kept)

    # -- what is its own

    def refusal(self, envelope: Envelope) -> Reply | None:
        """What must be found in one queue alone, and comes from a process that knows of other queues than there are."""
        if self._core.config.cluster.enabled:  # its placement knows the queues of this node
            return None
        if envelope.protocol != PUSHED and (not envelope.request or envelope.account):
            return None  # in the wrong place it is counted all the same, and found
        order = self._placement.order(envelope)
        return ELSEWHERE if len(order) == 1 and order[0] != self._core.config.queue_number else None

    def configure(self, config: Config) -> None:
        """Another configuration from now on."""
        self._placement = placement.of(config)

    # -- what it may lease

    async def share(self, until: float, messages: list[Any], wait_s: float) -> list[Any]:
        held = self.may_lease()
        self._until = max(self._until, until)
        if not held:
            self._core.changed()
        for message in messages:
            if message[0] == BEGIN:
                self._lessons.again()
                self._holder.disconnected()
                self._said.clear()
            elif message[0] == GRANTS:
                self._limits.heard(message[1])
        if self._holder.haunted and not self._queue.leases.before:
            self._holder.exorcise()
        self.turn()
        found = self._news_to_tell()
        if not found and wait_s > 0:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
            found = self._news_to_tell()
        return found

    def used(self, ids: list[list[str]]) -> list[float]:
        return self._holder.used(map(tuple, ids), self._core.schedule.now())

    def _news_to_tell(self) -> list[list[Any]]:
        said, self._said = self._said, []
        if lessons := self._lessons.next():
            said.append([LESSONS, lessons])
        if self._campaigns:
            said.append([CAMPAIGNS, sorted(self._campaigns)])
            self._campaigns.clear()
        return said

    def decide(self, campaign: str) -> None:
        self._campaigns.add(campaign)
        self._news.set()

    def turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (message := self._limits.next_message()) is not None:
            self._said.append([GRANTS, message])
        if self._said:
            self._news.set()
        wait_s = self._holder.next_at() - self._core.schedule.now()
        if wait_s < inf:
            self._timer = asyncio.get_running_loop().call_later(max(LEAST_S, wait_s), self.turn)

    # -- lessons

    def lesson(self, kind: str, row: list[Any]) -> list[Operation]:
        operations = self._lessons.add(kind, row)
        if operations:
            self._news.set()
        return operations

    def is_telling(self, kind: str) -> bool:
        return self._lessons.is_telling(kind)

    async def learn(self, origin: int, lessons: list[list[Any]]) -> None:
        if origin == self._core.config.queue_number:
            self._lessons.forget(lessons)
        else:
            self._lessons.take(lessons)


class Lessons:
    """What servers and people have told this queue, and the others are to learn: each is kept in the batch that it
    follows from, until the order that teaches it reaches this queue too. So none is lost, and one may come twice.
    """

    def __init__(self, queue: LocalQueue) -> None:
        self._queue, self._core = queue, queue.core
        rows = queue.core.disk.store.scan(keys.LESSONS, keys.end(keys.LESSONS))
        self._kept: dict[int, list[Any]] = {int(key.rpartition(b" ")[2]): packing.unpack(value) for key, value in rows}
        self._last = max(self._kept, default=0)
        self._told: set[int] = set()
        """Those that the authority has got from this process."""

    def add(self, kind: str, row: list[Any]) -> list[Operation]:
        if is_given() or (kind == STAND and not _is_shared(row, self._core.config.cluster.enabled)):
            return []
        self._last += 1
        self._kept[self._last] = [kind, self._by_clock(kind, list(row), -self._core.clock.apart_ms())]
        return [(keys.lesson(self._last), packing.pack(self._kept[self._last]))]

    def is_telling(self, kind: str) -> bool:
        """Whether there is one of that kind which not all queues have learnt."""
        return any(kept[0] == kind for kept in self._kept.values())

    def next(self) -> list[list[Any]]:
        """The next ones, [number, kind, row]."""
        found = [[number, *self._kept[number]] for number in islice(sorted(self._kept.keys() - self._told), AT_ONCE)]
        self._told.update(row[0] for row in found)
        return found

    def again(self) -> None:
        """The authority is another process: it has none of them, as far as is known."""
        self._told.clear()

    def forget(self, lessons: list[list[Any]]) -> None:
        """All queues have learnt them, or will."""
        numbers = [row[0] for row in lessons if self._kept.pop(row[0], None) is not None]
        self._told.difference_update(numbers)
        if numbers:
            gone: list[Operation] = [(keys.lesson(number), None) for number in numbers]
            self._core.disk.lines.submit(gone, immediately, sync=False, keep=True)

    def take(self, lessons: list[list[Any]]) -> None:
        """Learns those of another queue."""
        operations, apart_ms = list[Operation](), self._core.clock.apart_ms()
        for _, kind, fields in lessons:
            row = self._by_clock(kind, list(fields), apart_ms)
            if kind == HEARD:
                row[7] = tuple(row[7])
                operations += self._queue.policy.heard(Statement(*row), taught=True)
            elif kind == TOOK:
                operations += self._queue.policy.took(*row) if self._queue.policy.store.any else []
            elif kind == STAND:
                self._core.stand(row)
            elif kind == HELD:
                operations += self._queue.policy.guarded(Raised(*row))
            elif kind == COUNTED:
                operations += self._queue.policy.guard.learn(row)
        if operations:
            self._core.disk.lines.submit(operations, immediately, sync=False, keep=True)

    @staticmethod
    def _by_clock(kind: str, row: list[Any], apart_ms: int) -> list[Any]:
        """With times by the machine's clock, which all queues have, instead of a queue's steady time; or back."""
        if kind == HEARD:
            row[3] += apart_ms
        elif kind == HELD:
            row[1] += apart_ms
        elif kind == COUNTED:
            row[0] += apart_ms
        elif kind == TOOK:
            row[2] += apart_ms
        elif kind == STAND and row[0] == "stop":
            value = list(row[2])
            value[0] += apart_ms if value[0] else 0
            if len(value) > 3:
                value[3] += apart_ms
            row[2] = value
        return row


def _is_shared(row: list[Any], cluster: bool) -> bool:
    """Of a change of policy: what a queue has learnt of its own connections and rates is its own; and in a cluster,
    what it has learnt of a source address, which is its machine's."""
    what, (kind, _) = row[0], row[1]
    if cluster and kind == SOURCE:
        return False
    return what in ("stop", "lift", "manner") and kind not in ("concurrency", "resting", "rate")

"""The authority of an MTA with several queues: what all of them share meets here.

It answers questions to the MTA (`answers.py`), gives orders to all queues in one order (`orders.py`), and grants shares
of limits (`grants.py`). It keeps nothing but the log of orders. Any queue may be dead, starting or stuck: the others go
on; a question waits until all have answered.

A link to a queue is two lanes over one connection: one for orders, in their order, and one for what may be leased until
when. A queue gets another moment (LEASE_S ahead) only when it has carried out all orders; an order is answered when
every queue has carried it out, or the last moment that it was given has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from secrets import token_hex
from typing import Any, Protocol

from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.queues import layout
from zonemta_py.queues.answers import Merged
from zonemta_py.queues.grants.authority import GrantAuthority
from zonemta_py.queues.joined.asked import refusal
from zonemta_py.queues.member import BEGIN, CAMPAIGNS, DONE, GRANTS, LESSONS
from zonemta_py.queues.orders import GivenOrder, OrderLog
from zonemta_py.wire import AUTHORITY
from zonemta_py.wire.channel import Lost
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.question_server import serve

log = logging.getLogger(__name__)

LEASE_S = 2.0
"""How long a queue may lease after it was heard from."""
ROUND_S = 0.25
AGAIN_S = 0.2
CARRIED_S = 20.0
"""How long an order waits for the first of those queues that are there."""
DECIDED_AT_ONCE = 8
SILENT_S = 3.0
"""After so long a queue that says nothing is not waited for with answers."""
LOOK_S, LEAST_S = 0.005, 0.001
TAUGHT_AT_ONCE = 200
"""Lessons of one order: a queue that learns them does nothing else."""
NOBODY = Reply(451, "4.3.0", "no queue is running; the order holds from their start on")
UNKNOWN = Reply(
    451, "4.3.0", "a queue that may know what is meant does not answer; look whether the order holds, later"
)


class LinkedQueue(Protocol):
    """One queue, wherever it is."""

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        """Raises ValueError, QueueRefusal; Lost: it ended before it answered."""

    @property
    def there(self) -> bool:
        """Whether its process can be spoken with now, as far as is known."""

    def moment(self, here: float) -> float:
        """A moment of this process's monotonic clock by that of the queue's machine; or an earlier one."""


class OnMachine(RemoteQueue):
    """One on this machine."""

    def moment(self, here: float) -> float:
        return here


class Orders(Protocol):
    """The log of orders: `OrderLog`, or one that several machines have."""

    @property
    def last(self) -> int: ...
    @property
    def dropped(self) -> int: ...

    def write(self, ms: int, question: str, arguments: dict[str, Any]) -> GivenOrder: ...
    def given(self, order: GivenOrder) -> None: ...
    def get(self, number: int) -> GivenOrder | None: ...
    def settle(self, number: int, settled: dict[str, Any]) -> GivenOrder: ...
    def void(self, number: int) -> None: ...
    def after(self, number: int) -> Iterator[GivenOrder]: ...
    def skip(self, number: int) -> None: ...
    def done(self, number: int) -> None: ...


def for_ever() -> float:
    return inf


class InProgress:
    """An order that is being given. answers: what each queue says at first, by its number. sure: what those say that
    had refused it, and hear that another queue has taken it. taken: whether one has."""

    def __init__(self, order: GivenOrder) -> None:
        self.order = order
        self.answers = dict[int, list[Any]]()
        self.sure = dict[int, list[Any]]()
        self.passed = set[int]()
        """Queues that have carried it out, and died before they said so."""
        self.taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()

    def is_behind(self, queue: int) -> None:
        """The queue's next process says that it was carried out there."""
        self.passed.add(queue)
        self._news.set()

    def say(self, answers: dict[int, list[Any]], queue: int, answer: list[Any]) -> None:
        answers[queue] = answer
        self._news.set()

    async def first(self, links: list[Link], seconds: float) -> None:
        """Until a queue has answered, as long as one is about it: it may be busy, and lease nothing any more."""
        until = time.monotonic() + seconds
        while not self.answers and any(link.lacks(self.order) for link in links):
            if (left := until - time.monotonic()) <= 0:
                return
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, ROUND_S))

    async def wait(self, answers: dict[int, list[Any]], links: list[Link]) -> None:
        """Until each of these queues has answered, or may lease nothing before it has."""
        while True:
            now = time.monotonic()
            heard = answers.keys() | self.passed  # one that has passed it may lease on, and never answers
            left = [link.until - now for link in links if link.number not in heard and link.until > now]
            if not left:
                return
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left))


class Link:
    """To one queue. progress: what is being given now. carried: called when it has carried out orders. heard: with its
    number, and what it says. grants: hears when a connection begins and ends. term: until when anything may be granted
    (monotonic seconds). repeated: another queue tells of orders."""

    def __init__(
        self, number: int, queue: LinkedQueue, orders: Orders, progress: Callable[[], InProgress | None],
        carried: Callable[[], None], heard: Callable[[int, str, list[Any]], None], grants: Grants,
        term: Callable[[], float], repeated: bool,
    ) -> None:  # fmt: skip
        self.number, self._queue, self._orders, self._term, self._repeated = number, queue, orders, term, repeated
        self._progress, self._carried, self._heard, self._grants = progress, carried, heard, grants
        self._fault: Exception | None = None
        self._pushes: set[asyncio.Task[None]] = set()
        self.until = time.monotonic() + LEASE_S
        """When what it was last allowed ends; at first, what this process's forerunner may have allowed."""
        self._heard_at = time.monotonic()
        self.applied: int | None = None
        """The last order that it has carried out; None: it has not been heard from."""
        self.news = asyncio.Event()
        """There are orders."""

    @property
    def ask(self) -> Any:
        return self._queue.ask

    def lacks(self, order: GivenOrder) -> bool:
        """Whether it is there, and has not carried that order out."""
        return self.applied is not None and self.applied < order.number

    def start(self) -> list[asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        return [loop.create_task(self._always(self._give)), loop.create_task(self._always(self._share))]

    async def _always(self, lane: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await lane()
            except (Lost, QueueRefusal):
                pass
            except Exception:
                log.exception("queue %d cannot be reached; trying again", self.number)
            self.applied = None
            self.news.set()
            await asyncio.sleep(AGAIN_S)

    # -- orders

    async def _give(self) -> None:
        """One after another, for ever."""
        while True:
            self.news.clear()
            if self.applied is None:
                applied = await self._queue.ask(questions.order_number)
                self._orders.skip(applied)
                self._tell_lost(applied)
                self.applied = applied
                progress = self._progress()
                if progress is not None and progress.order.number <= applied:
                    progress.is_behind(self.number)
            while (order := next(self._orders.after(self.applied), None)) is not None:
                await self._give_one(order)
                self.applied = order.number
            self._carried()
            await self.news.wait()

    async def _give_one(self, order: GivenOrder) -> None:
        progress = self._progress()
        if progress is None or progress.order.number != order.number:  # it was answered while this queue did not run
            await self._order(order, True)
            return
        answer = await self._order(order, False)
        progress.say(progress.answers, self.number, answer)
        if answer[0] != DONE and await asyncio.shield(progress.taken):
            settled = self._orders.get(order.number) or order
            progress.say(progress.sure, self.number, await self._order(settled, True))

    async def _order(self, order: GivenOrder, sure: bool) -> list[Any]:
        arguments = order.arguments
        if (
            order.question in (questions.stop, questions.reroute) and arguments.get("seconds") is not None
        ):  # since it was given
            passed_s = max(0.0, time.time() - order.ms / 1000)
            arguments = arguments | {"seconds": max(LEAST_S, arguments["seconds"] - passed_s)}
        found: list[Any] = await self._queue.ask(
            questions.order, number=order.number, asked=order.question, arguments=arguments, sure=sure,
            repeated=self._repeated,
        )  # fmt: skip
        return found

    def _tell_lost(self, applied: int) -> None:
        if applied < self._orders.dropped:
            log.error(
                "queue %d lacks orders %d to %d, which are not kept any more; compare `zonemta standing` and `zonemta"
                " suppression list` with what was ordered", self.number, applied + 1, self._orders.dropped,
            )  # fmt: skip

    # -- what it may lease

    async def _share(self) -> None:
        """For ever."""
        self._fault = None
        await self._exchange([[BEGIN]], 0)
        self._grants.connected(self.number)
        try:
            while self._fault is None:
                if self.applied == self._orders.last:
                    self.until = max(self.until, min(time.monotonic() + LEASE_S, self._term()))
                await self._exchange([], ROUND_S if self.applied == self._orders.last else LOOK_S)
            raise self._fault
        finally:
            self._grants.disconnected(self.number)
            for push in self._pushes:
                push.cancel()

    async def _exchange(self, messages: list[Any], wait_s: float) -> None:
        news = await self._queue.ask(
            questions.share, until=self._queue.moment(self.until), messages=messages, wait_s=wait_s
        )
        self._heard_at = time.monotonic()
        for kind, what in news:
            self._heard(self.number, kind, what)

    @property
    def lacks_ms(self) -> float:
        """When the first order was given that it may lack; infinite: it lacks none."""
        if self.applied is None:
            return 0
        order = next(self._orders.after(self.applied), None)
        return inf if order is None else order.ms

    @property
    def is_silent(self) -> bool:
        """Whether its process is there, and says nothing."""
        return self._queue.there and time.monotonic() > self._heard_at + SILENT_S

    def push(self, message: Sequence[Any]) -> None:
        """Sends it at once, in the order of the calls; if it does not arrive, the connection begins anew."""
        work = asyncio.get_running_loop().create_task(self._push(message))
        self._pushes.add(work)
        work.add_done_callback(self._pushes.discard)

    async def _push(self, message: Sequence[Any]) -> None:
        try:
            await self._exchange([[GRANTS, message]], 0)
        except Exception as error:
            self._fault = error


class Grants:
    """Gives queues their shares of limits, by `GrantAuthority`: it hears what comes, and what it says is sent, up to
    the end of its `term`."""

    def __init__(self, queues: Iterable[int], term: Callable[[], float]) -> None:
        self._authority, self._term = GrantAuthority(queues, token_hex(8), time.monotonic()), term
        self.links: dict[int, Link] = {}
        self._due: asyncio.Handle | None = None
        self._ended = False

    def connected(self, queue: int) -> None:
        self._authority.connected(queue, time.monotonic())
        self._soon()

    def disconnected(self, queue: int) -> None:
        self._authority.disconnected(queue, time.monotonic())
        self._soon()

    def used(self, id: Sequence[str]) -> float:
        return self._authority.used(tuple(id), time.monotonic())

    def heard(self, queue: int, message: Sequence[Any]) -> None:
        self._authority.heard(queue, message, time.monotonic())
        self._soon()

    def _soon(self) -> None:
        if self._ended:
            return
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._ended = True

    def _tick(self) -> None:
        if time.monotonic() >= self._term():
            self._due = asyncio.get_running_loop().call_later(ROUND_S, self._tick)
            return
        for queue, message in self._authority.tick(time.monotonic()):
            self.links[queue].push(message)
        wait_s = self._authority.next_at() - time.monotonic()
        self._due = asyncio.get_running_loop().call_later(max(LEAST_S, wait_s), self._tick)


class NotNoted(QueueRefusal):
    """An order is not on stable storage, so that no queue has heard of it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(Reply(451, "4.3.0", f"{sentence}, give it again in a moment"))


class Authority:
    """Of these queues. term: until when it may grant anything (monotonic seconds). Raises OSError, ValueError."""

    def __init__(self, queues: Mapping[int, LinkedQueue], orders: Orders, term: Callable[[], float] = for_ever) -> None:
        self._orders = orders
        self._one = asyncio.Lock()
        self._progress: InProgress | None = None
        self._deciding: dict[str, asyncio.Task[None]] = {}
        """About campaigns, by name."""
        self._few = asyncio.Semaphore(DECIDED_AT_ONCE)
        self._lessons = dict[int, list[Any]]()
        """What is to be taught, by the queue that was told."""
        self._teaching: asyncio.Task[None] | None = None
        self._grants = Grants(queues, term)
        self.links = self._grants.links = {
            number: Link(
                number, queue, orders, lambda: self._progress, self._carried, self._heard, self._grants, term,
                repeated=number != min(queues),
            )
            for number, queue in queues.items()
        }  # fmt: skip
        asks = {number: link.ask for number, link in self.links.items()}
        is_silent = lambda number: self.links[number].is_silent  # noqa: E731
        lacks_ms = lambda number: self.links[number].lacks_ms  # noqa: E731
        self._merged = Merged(asks, self.order, used=self._grants.used, is_silent=is_silent, lacks_ms=lacks_ms)

    def _heard(self, queue: int, kind: str, what: Any) -> None:
        if kind == LESSONS:
            self._teach(queue, what)
        elif kind == GRANTS:
            self._grants.heard(queue, what)
        elif kind == CAMPAIGNS:
            for name in what:
                if name not in self._deciding:
                    self._deciding[name] = asyncio.get_running_loop().create_task(self._decide(name))

    async def _decide(self, campaign: str) -> None:
        """What is not done now is asked for again, as long as it is to be done."""
        try:
            async with self._few:
                await self._merged.decide(campaign)
        except (ValueError, QueueRefusal) as error:
            log.debug("nothing is decided about campaign %s: %s", campaign, error)
        except OSError as error:
            log.warning("orders cannot be noted: %s; campaign %s goes on meanwhile", cause(error), campaign)
        finally:
            del self._deciding[campaign]

    def start(self) -> list[asyncio.Task[None]]:
        return [task for link in self.links.values() for task in link.start()]

    def stop(self) -> None:
        """Another one follows; nothing is granted or decided here any more. The tasks of `start` are its caller's."""
        self._grants.stop()
        for task in (*self._deciding.values(), self._teaching):
            if task is not None:
                task.cancel()

    async def ask(self, question: str, arguments: dict[str, Any]) -> Any:
        """A question to the MTA. Raises ValueError, QueueRefusal."""
        if question == questions.backup:
            return await self._backup()
        return await self._merged.ask(Question(question), **arguments)

    async def _backup(self) -> str:
        """Copies of all queues that have carried out the same orders; the folder of the first one's."""
        async with self._one:
            made = await asyncio.gather(*(link.ask(questions.backup) for link in self.links.values()))
        return str(made[0])

    async def order(self, question: str, arguments: dict[str, Any]) -> dict[int, Any]:
        """Gives an order to all queues; the answers of those that have carried it out: the others do before they lease
        anything. Raises Refused if none takes it; QueueRefusal if none runs, or one that may take it does not
        answer, or it cannot be noted: NotNoted, then nothing is changed."""
        async with self._one:
            try:
                order = await asyncio.to_thread(self._orders.write, int(time.time() * 1000), question, arguments)
            except OSError as error:
                raise NotNoted(f"the order cannot be noted now ({cause(error)}); nothing is changed") from None
            progress = self._progress = InProgress(order)
            try:
                self._orders.given(order)
                links = list(self.links.values())
                for link in links:
                    link.news.set()
                await progress.wait(progress.answers, links)
                await progress.first(links, CARRIED_S)
                return await self._settled(progress, links)
            finally:
                if not progress.taken.done():
                    progress.taken.set_result(False)
                self._progress = None

    def _teach(self, origin: int, lessons: list[Any]) -> None:
        """All queues learn what one has been told by servers and people: one order after the other, however much that
        is, so that an operator's order waits for no more than one of them."""
        self._lessons.setdefault(origin, []).extend(lessons)
        if self._teaching is None or self._teaching.done():
            self._teaching = asyncio.get_running_loop().create_task(self._teach_all())

    async def _teach_all(self) -> None:
        while self._lessons:
            origin = next(iter(self._lessons))
            lessons = self._lessons.pop(origin)
            if rest := lessons[TAUGHT_AT_ONCE:]:
                self._lessons[origin] = rest  # behind those of other queues
            try:
                await self._taught(origin, lessons[:TAUGHT_AT_ONCE])
            except Exception:
                log.exception("what queue %d was told could not be taught to others", origin)

    async def _taught(self, origin: int, lessons: list[Any]) -> None:
        while True:
            try:
                await self.order(questions.learn, {"origin": origin, "lessons": lessons})
                return
            except NotNoted as error:
                log.warning("%s; trying again", error.reply.text)
                await asyncio.sleep(AGAIN_S)
            except QueueRefusal:  # nobody runs: it is in the log
                return

    async def _settled(self, progress: InProgress, links: list[Link]) -> dict[int, Any]:
        number, answers = progress.order.number, dict(progress.answers)
        done = {queue: answer for queue, answer in answers.items() if answer[0] == DONE}
        if not done and not progress.passed:
            if len(answers) < len(links):
                raise QueueRefusal(UNKNOWN if answers else NOBODY)
            await self._noted(self._orders.void, number)
            raise refusal(answer[1] for answer in answers.values())
        if settled := next((answer[2] for answer in done.values() if answer[2]), None):
            await self._noted(self._orders.settle, number, settled)
        progress.taken.set_result(True)
        await progress.wait(progress.sure, [link for link in links if link.number in answers.keys() - done.keys()])
        done |= {queue: answer for queue, answer in progress.sure.items() if answer[0] == DONE}
        if not done:
            raise QueueRefusal(UNKNOWN)
        return {queue: answer[1] for queue, answer in done.items()}

    @staticmethod
    async def _noted(note: Callable[..., object], *arguments: object) -> None:
        """What has become of the order. Raises QueueRefusal: it is in the log, and who leads next goes on with it."""
        try:
            await asyncio.to_thread(note, *arguments)
        except OSError as error:
            log.warning("what became of an order cannot be noted: %s", cause(error))
            raise QueueRefusal(UNKNOWN) from None

    def _carried(self) -> None:
        """What all have is dropped."""
        applied = [link.applied for link in self.links.values()]
        if None not in applied and self._progress is None:
            self._orders.done(min(number for number in applied if number is not None))


async def run(config: Config) -> None:
    """For ever. Raises OSError, ValueError."""
    folder = config.folder
    orders = OrderLog(folder / layout.FOLDER / layout.ORDERS)
    for sentence in orders.lost:
        log.error("%s", sentence)
    places = {number: layout.folder_of(folder, number) for number in layout.numbers(folder)}
    authority = Authority({number: OnMachine.lasting(at, "authority") for number, at in places.items()}, orders)
    listening = await serve(authority.ask, folder / AUTHORITY)
    tasks = authority.start()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(listening.serve_forever(), *tasks)
    os._exit(os.EX_SOFTWARE)

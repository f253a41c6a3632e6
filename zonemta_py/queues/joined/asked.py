"""Several queues, asked together: all at once, one after another until one knows, or by an order that all must have.

What is wrong with a question (`Refused`) is so for all: it is raised if none has answered; of those that have, the
answers hold, since a name may be known to one queue only. A queue that cannot answer now (QueueRefusal) makes the whole
answer impossible: half a sum is none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.queue.questions.question import Ask, Question, Refused
from zonemta_py.wire.channel import Lost

T = TypeVar("T")
_UNKNOWN = ("there is no ", "no mail of ", "nothing ")
"""How a queue begins that does not know what is meant."""
NUMBERS = 1024
"""A queue's number is the low ten bits of its messages' ids (`disk/keys.py:Ids`)."""


class GiveOrder(Protocol):
    """Gives an order to all queues, in one total order with all others."""

    async def __call__(self, question: Question[..., Any], arguments: dict[str, Any]) -> Mapping[int, Any]:
        """What each queue has answered that has carried it out, by number: the others do before they lease anything, or
        have refused it, as what is meant is not theirs.

        Raises ValueError, QueueRefusal: it was not given, or no queue has taken it.
        """


Used = Callable[[Sequence[str]], float]
"""Units of a shared rate with that id that have gone, and that no queue has to its account."""


LOOK_S, AGAIN_S = 0.5, 0.3
AGAIN = 20
"""How often a question is put again to a queue that died before it answered."""
_SILENT = "queue %d does not answer: it is stopped or stuck; see its process, and its log"


def unused(_: Sequence[str]) -> float:
    return 0.0


def no_queue(_: int) -> bool:
    return False


def all_orders(_: int) -> float:
    return inf


class AskedQueues:
    """By number. now_ms: the clock. lacks_ms: when the first order was given that a queue may
    lack."""

    def __init__(
        self, asks: Mapping[int, Ask], order: GiveOrder, now_ms: Callable[[], int], used: Used = unused,
        is_silent: Callable[[int], bool] = no_queue, lacks_ms: Callable[[int], float] = all_orders,
    ) -> None:  # fmt: skip
        self.asks, self._order, self.now_ms, self.used = dict(sorted(asks.items())), order, now_ms, used
        self._is_silent, self.lacks_ms = is_silent, lacks_ms
        self.last_number = 0
        """Of a task that was ordered here."""

    async def each(
        self, question: Question[..., Any], arguments: dict[str, Any], numbers: Iterable[int] | None = None
    ) -> dict[int, Any]:
        """What those that have answered said, the lowest number first. Raises ValueError, QueueRefusal."""
        return await self.each_its(question, dict.fromkeys(self.asks if numbers is None else numbers, arguments))

    async def each_its(self, question: Question[..., Any], arguments: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
        """The same, each asked with its own."""
        asked = [self._ask(number, question, its) for number, its in arguments.items()]
        return answered(dict(zip(arguments, await asyncio.gather(*asked), strict=True)))

    async def some(self, question: Question[..., Any], arguments: dict[str, Any]) -> dict[int, Any]:
        """What those have said that can answer now, as long as one does: an order waits for no queue that is dead or
        stuck. Raises ValueError, QueueRefusal."""
        answers = await asyncio.gather(*(self._ask(number, question, arguments) for number in self.asks))
        said = dict(zip(self.asks, answers, strict=True))
        there = {number: one for number, one in said.items() if not isinstance(one, QueueRefusal)}
        return answered(there or said)

    async def _ask(self, number: int, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        for _ in range(AGAIN):
            found = await self._asked(number, question, arguments)
            if not isinstance(found, Lost):
                break
            await asyncio.sleep(AGAIN_S)
        return found

    async def _asked(self, number: int, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        asking = asyncio.ensure_future(self.asks[number](question, **arguments))
        try:
            while not (await asyncio.wait([asking], timeout=LOOK_S))[0]:
                if self._is_silent(number):
                    return QueueRefusal(Reply(451, "4.3.0", _SILENT % number))
            return asking.result()
        except (ValueError, QueueRefusal) as error:
            return error
        finally:
            asking.cancel()

    async def one(
        self, question: Question[..., Any], arguments: dict[str, Any], id: str, has: Callable[[Any], bool] | None = None
    ) -> Any:
        """The answer of the queue that has that message: the one that has given out its id, unless it was moved. has:
        whether an answer is one; default: any is. Where none has it, the first answer. Raises ValueError,
        QueueRefusal."""
        first = of_id(id)
        if first not in self.asks:
            first = next(iter(self.asks))
        found = await self._ask(first, question, arguments)
        if _good(found, has):
            return found
        others = [number for number in self.asks if number != first]
        more = await asyncio.gather(*(self._ask(number, question, arguments) for number in others))
        for one in more:
            if _good(one, has):
                return one
        known = {first: found, **dict(zip(others, more, strict=True))}
        if faults := {number: one for number, one in known.items() if isinstance(one, QueueRefusal)}:
            raise _one_fault(faults, len(known))
        if isinstance(found, Exception):
            raise found
        return found

    async def any_one(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        """Of what all have alike: the lowest that answers. Raises ValueError, QueueRefusal."""
        faults = dict[int, QueueRefusal]()
        for number in self.asks:
            found = await self._ask(number, question, arguments)
            if not isinstance(found, QueueRefusal):
                return _raised(found)
            faults[number] = found
        raise _one_fault(faults, len(self.asks))

    async def first(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        """Of what the lowest alone has. Raises ValueError, QueueRefusal."""
        number = next(iter(self.asks))
        return _raised(await self._ask(number, question, arguments))

    async def ordered(self, question: Question[..., Any], arguments: dict[str, Any]) -> dict[int, Any]:
        """As `each`, by an order. Raises ValueError, QueueRefusal."""
        return dict(sorted((await self._order(question, arguments)).items()))


def of_id(id: str) -> int:
    """The queue that has given out a message's id; -1: it is none."""
    try:
        return int(id, 16) % NUMBERS
    except ValueError:
        return -1


def answered(said: Mapping[int, Any]) -> dict[int, Any]:
    """Those that are answers. Raises one exception for all, as the module says."""
    if faults := {number: one for number, one in said.items() if isinstance(one, QueueRefusal)}:
        raise _one_fault(faults, len(said))
    found = {number: one for number, one in said.items() if not isinstance(one, Exception)}
    if said and not found:
        raise refusal(str(one) for one in said.values())
    return found


def refusal(sentences: Iterable[str]) -> Refused:
    """What is told where all queues have refused: what those say that know what is meant, who are the fewest."""
    said = list(sentences)
    often = Counter(said)
    return Refused(min(said, key=lambda one: (one.startswith(_UNKNOWN), often[one])))


def _good(found: Any, has: Callable[[Any], bool] | None) -> bool:
    return not isinstance(found, Exception) and (has is None or has(found))


def _raised(found: T | Exception) -> T:
    if isinstance(found, Exception):
        raise found
    return found


def _one_fault(faults: dict[int, QueueRefusal], of: int) -> QueueRefusal:
    first = next((one for one in faults.values() if one.reply.text.startswith("queue ")), None)
    if first is not None:
        return first
    first = next(iter(faults.values()))
    if len(faults) == of and len({str(one) for one in faults.values()}) == 1:
        return first
    names = " and ".join(f"queue {one}" for one in faults)
    sentence = f"{names}: {first.reply.text}"
    if isinstance(first, QueueFault):
        return QueueFault(sentence)
    return QueueRefusal(Reply(first.reply.code, first.reply.enhanced, sentence))


Answered = Callable[..., Awaitable[Any]]

"""Questions from one node of a cluster to another, over NATS: to a queue there, or to the leader.

A call is [to, question, arguments, clock]: to, the number of a queue, or LEADER; clock, the machine by whose monotonic
clock moments in it are. Its answer is [status, value, clock, moment]: a status of `wire.frames`, or ELSEWHERE if whom
it is for is not there; and what the answering machine's clock was before the answer left. So a moment of one's own
clock can be said by the other's, or one before it: what is granted ends there no later than here.

Failures: `Lost`, if nobody answers; else those of the question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zonemta_py.cluster.nats import Nats, NatsError, NoQuorum, NotThere
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.queues.authority import OnMachine
from zonemta_py.wire.channel import Lost, answer_of
from zonemta_py.wire.question_server import Answering, outcome

LEADER, AGENT = -1, -2
ELSEWHERE = 9
QUICK_S = 3.0
ORDER_S = 20.0
CALL_S = 120.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")
CLOCK = _BOOT.read_text().strip()
"""Of this machine, since it was started."""
_LIMITS = {str(questions.share): QUICK_S, str(questions.order): ORDER_S, str(questions.order_number): QUICK_S}


def subject_of(cluster: str, node: str) -> str:
    return f"zonemta.{cluster}.node.{node}"


class NotHere(Lost):
    """Whom it was for is not where it was sent: nothing has happened."""


class Calls:
    """Between this node and the others. answering: of whom a call may be for, by number, LEADER too; None: not here."""

    def __init__(self, nats: Nats, cluster: str, node: str, answering: Callable[[int], Answering | None]) -> None:
        self._nats, self._cluster, self._answering = nats, cluster, answering
        self._subject = subject_of(cluster, node)
        self._open: dict[str, set[asyncio.Task[bytes]]] = {}
        """By node."""

    async def serve(self) -> None:
        await self._nats.serve(self._subject, self._handle)

    async def _handle(self, data: bytes) -> bytes:
        to, question, arguments, clock = unpack(data)
        answering = self._answering(to)
        if answering is None:
            return pack([ELSEWHERE, None, CLOCK, time.monotonic()])
        if question == questions.share and clock != CLOCK:
            arguments["until"] = 0.0
        status, value = await outcome(answering, question, arguments)
        return pack([status, value, CLOCK, time.monotonic()])

    async def call(self, node: str, to: int, question: str, arguments: dict[str, Any], clock: str = "") -> list[Any]:
        """The answer. Raises Lost."""
        data = pack([to, question, arguments, clock])
        limit_s = _LIMITS.get(question, CALL_S)
        asking = asyncio.ensure_future(self._nats.request(subject_of(self._cluster, node), data, limit_s))
        mine = self._open.setdefault(node, set())
        mine.add(asking)
        try:
            found: list[Any] = unpack(await asyncio.shield(asking))
        except (NotThere, NoQuorum) as error:
            raise NotHere(Reply(451, "4.3.0", f"node {node} cannot be reached ({error})")) from None
        except NatsError as error:
            raise Lost(Reply(451, "4.3.0", f"node {node} does not answer ({error})")) from None
        except asyncio.CancelledError:
            if asking.cancelled():  # `lost`
                raise Lost(Reply(451, "4.3.0", f"node {node} is gone")) from None
            raise
        finally:
            asking.cancel()
            mine.discard(asking)
        if found[0] == ELSEWHERE:
            raise NotHere(Reply(451, "4.3.0", f"node {node} no longer has what was asked; try again in a moment"))
        return found

    async def ask(self, node: str, to: int, question: str, arguments: dict[str, Any]) -> Any:
        """As `call`, and what the answer says. Raises ValueError, QueueRefusal, NotHere, Lost."""
        status, value, *_ = await self.call(node, to, question, arguments)
        return answer_of(status, value)

    def lost(self, node: str) -> None:
        """It is dead: nobody waits for it any more."""
        for asking in [*self._open.get(node, ())]:
            asking.cancel()


class FarQueue:
    """One queue of the cluster, wherever it is now. here: those of this node, by number. owner: the node of a queue,
    "" if none has it."""

    there = True
    """As far as is known: its link hears otherwise."""

    def __init__(
        self, number: int, node: str, here: Mapping[int, OnMachine], owner: Callable[[int], str], calls: Calls
    ) -> None:
        self._number, self._node, self._here, self._owner, self._calls = number, node, here, owner, calls
        self._clock, self._apart = "", 0.0
        """Of the machine that has last answered, and how far its clock was ahead, at least."""

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        owner = self._owner(self._number)
        if owner == self._node and (local := self._here.get(self._number)) is not None:
            if question == questions.share and self._clock != CLOCK:
                arguments["until"] = 0.0
            self._clock, self._apart = CLOCK, 0.0
            return await local.ask(question, *_, **arguments)
        if not owner or owner == self._node:
            raise NotHere(Reply(451, "4.3.0", f"no node has queue {self._number} now; try again in a moment"))
        status, value, clock, moment = await self._calls.call(owner, self._number, question, arguments, self._clock)
        self._clock, self._apart = clock, moment - time.monotonic()
        found: A = answer_of(status, value)
        return found

    def moment(self, here: float) -> float:
        return here + self._apart if self._clock else 0.0

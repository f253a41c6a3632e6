"""The portions of a delivery: recipients that share one transaction; portions follow one another over one connection.

Usually there is one portion. There are more if a plugin (`sender_headers`) wants different headers for some recipients:
those with equal headers stay together. Also, a server may accept fewer recipients per message than it was given (RFC
5321 4.5.3.1.10): the remaining ones form the next portion at once, and the queue is told the limit, and leases no more
at a time.

Each portion's outcomes go to the queue before the next one begins. Recipients left untried when the connection ends, or
PORTIONS_S has passed, are released, as if never leased; so are those of a group of commands that got no answer (a
tarpit), as the queue then knows to send one command at a time. Recipients are released only if something was learned,
or another recipient was settled.

Failures: `split` raises one of NotMade, or QueueRefusal.
"""

from __future__ import annotations

import time
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.rendering import fetched, finished, for_server
from zonemta_py.delivery.smtp.transaction import Transaction
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED, Delivery, Outcome, Result

if TYPE_CHECKING:
    from zonemta_py.delivery.context import SenderContext
    from zonemta_py.delivery.smtp.session import SmtpSession

PORTIONS_S = 60.0
"""No further portion is begun later than this after the first."""
UNTRIED = Reply(451, "4.3.2", "the connection ended before it was its turn")

_ENDED = (DELIVERED, BOUNCED)
_FIELDS = tuple(Delivery.__dataclass_fields__)
_fields = attrgetter(*_FIELDS)
_OWN = tuple(map(_FIELDS.index, ("recipients", "attempts")))
_VALUES = _FIELDS.index("values")


class Portion(NamedTuple):
    """Some recipients of a delivery. indices: which; delivery: restricted to them; body: what they get."""

    indices: list[int]
    delivery: Delivery
    body: Body


def restricted(delivery: Delivery, indices: list[int]) -> Delivery:
    """The same delivery to some of its recipients."""
    fields = list(_fields(delivery))
    for field in (*_OWN, _VALUES) if delivery.values is not None else _OWN:
        fields[field] = [fields[field][index] for index in indices if index < len(fields[field])]
    return Delivery(*fields)


async def split(context: SenderContext, delivery: Delivery) -> tuple[list[Portion], dict[int, Verdict]]:
    """Splits a delivery as `sender_headers` wants: the portions, and plugins' verdicts on recipients in no portion.
    Raises one of NotMade, or a Verdict about all of them."""
    everyone = list(range(len(delivery.recipients)))
    body = await fetched(context, delivery)
    wanted: dict[bytes, list[int]] = {}
    decided: dict[int, Verdict] = {}
    for index in everyone:
        try:
            fields = await body.wanted(context.host, restricted(delivery, [index]))
        except Verdict as verdict:
            decided[index] = verdict
        else:
            wanted.setdefault(fields, []).append(index)
    portions = []
    for fields, indices in wanted.items():
        own = delivery if len(indices) == len(everyone) else restricted(delivery, indices)
        portions.append(Portion(indices, own, await finished(context, own, await body.with_header(fields))))
    return portions, decided


class Portions:
    """The portions that wait, and the outcomes of the others.

    running: the transaction of the first portion, once it has begun. outcomes: not reported to the queue yet; reported:
    already reported. recipients_max, stalled, manner: as in
    `Result`.
    """

    __slots__ = (
        "_context",
        "_guess",
        "_learned",
        "manner",
        "outcomes",
        "recipients_max",
        "reported",
        "running",
        "stalled",
        "waiting",
        "whole",
    )  # fmt: skip

    def __init__(self, context: SenderContext, whole: Delivery) -> None:
        self._context, self.whole = context, whole
        self.waiting: list[Portion] = []
        self.running: Transaction | None = None
        self._guess, self._learned = 0, False
        self.outcomes: list[Outcome] = []
        self.reported: list[Outcome] = []
        self.recipients_max, self.stalled, self.manner = 0, False, ""

    @property
    def open(self) -> list[int]:
        """Recipients without an outcome yet."""
        ended = {index for outcome in (*self.reported, *self.outcomes) for index in outcome.recipients}
        return [index for index in range(len(self.whole.recipients)) if index not in ended]

    @property
    def first(self) -> Portion:
        return self.waiting[0]

    def over(self, transaction: Transaction) -> None:
        """Ends the first portion: its recipients have their outcomes, or are tried again at once."""
        portion, self.running = self.waiting.pop(0), None
        outcomes = transaction.outcomes
        if portion.delivery is not self.whole:
            for outcome in outcomes:
                outcome.recipients = [portion.indices[place] for place in outcome.recipients]
        self.outcomes += outcomes
        if self._guess and transaction.takes:
            self.recipients_max, self._guess = self._guess, 0  # the recipients it refused before are the same ones
        if transaction.again:
            self._again(portion, transaction)
        if transaction.session.forgotten and (places := transaction.plain):
            self._learned = True
            indices = [portion.indices[place] for place in places]
            self.waiting.insert(0, Portion(indices, restricted(portion.delivery, places), portion.body))

    def _again(self, portion: Portion, transaction: Transaction) -> None:
        most, self._guess = transaction.recipients_max, 0
        self.stalled = self.stalled or transaction.stalled
        self.manner = transaction.manner
        if transaction.sure:
            self.recipients_max = most
        else:
            self._guess = most
        pieces = [transaction.again[at : at + most] for at in range(0, len(transaction.again), most)]
        parts = [
            Portion([portion.indices[place] for place in places], restricted(portion.delivery, places), portion.body)
            for places in pieces
        ]
        self.waiting[:0] = parts

    async def after(self, session: SmtpSession, first: Transaction, most: int, started_ms: int) -> Transaction:
        """Runs the other portions over the first one's session, in at most `most` messages; returns the last
        transaction."""
        transaction, begun = first, time.monotonic()
        until = begun + PORTIONS_S
        while self.waiting and not self.whole.counted and session.usable and not transaction.down:
            if session.sent >= most or time.monotonic() >= until:
                break
            self._tell(session, started_ms, int((time.monotonic() - begun) * 1000))
            started_ms, begun = int(time.time() * 1000), time.monotonic()
            session.sent += 1
            portion = self.first
            body = await for_server(self._context, portion.delivery, portion.body, session.keywords)
            transaction = Transaction(session, self._context.outgoing.addressed(portion.delivery), body)
            self.running = transaction
            await transaction.run()
            if transaction.unsaid:
                self.running = None
                break
            self.over(transaction)
        return transaction

    def _tell(self, session: SmtpSession, started_ms: int, took_ms: int) -> None:
        """Reports outcomes, except those that plugins may still change (`sender_response_error`)."""
        reviewed = self._context.host.listens("sender_response_error")
        ended = [outcome for outcome in self.outcomes if outcome.verdict == DELIVERED or not reviewed]
        if ended:
            self.reported += [replace(outcome) for outcome in ended]
            self.outcomes = [outcome for outcome in self.outcomes if reviewed and outcome.verdict != DELIVERED]
            self._context.dispatch.settle_part(
                Result(
                    self.whole.lease, ended, remote=session.remote, local=session.local, tls=session.tls,
                    started_ms=started_ms, took_ms=took_ms, more=True,
                )
            )  # fmt: skip

    def release(self) -> None:
        """Releases the recipients that still wait, unless the next lease would only repeat this one."""
        untried = [index for portion in self.waiting for index in portion.indices]
        self.waiting.clear()
        if not untried:
            return
        if (
            self._learned
            or self.recipients_max
            or self.stalled
            or any(o.verdict in _ENDED for o in (*self.reported, *self.outcomes))
        ):
            self.outcomes.append(Outcome(RELEASED, UNTRIED, "limit", untried))
        else:
            last = self.outcomes[-1]
            self.outcomes.append(Outcome(DEFERRED, last.reply, last.stage, untried, kind=last.kind))

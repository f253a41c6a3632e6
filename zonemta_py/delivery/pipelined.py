"""Several messages of one lease, each to a single recipient, one after another over one connection.

While the server takes a message, the next one is rendered; its envelope leaves in one write with the end of the message
before (RFC 2920 3.1 lets message content be the first of a group). So a message costs one round trip instead of two. A
server that does not accept such an early envelope is sent it again separately, and remembered; recipients are not
judged by its first answer.

Each answer goes to the queue at once, so no recipient whose answer is in the journal is lost in a crash. All other
recipients of the batch are then in doubt, even those not begun: the queue cannot know how far the sender came.
"""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from collections import deque
from typing import TYPE_CHECKING, Any

from zonemta_py.delivery.rendering import NotMade, for_server, letter, not_made
from zonemta_py.delivery.smtp.transaction import Transaction
from zonemta_py.delivery.verdicts import OUR_FAULT, decided
from zonemta_py.logs.causes import from_outside
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import DEFERRED, DOUBTFUL, Delivery, Outcome, Result

if TYPE_CHECKING:
    from zonemta_py.delivery.context import SenderContext
    from zonemta_py.delivery.smtp.session import SmtpSession

log = logging.getLogger(__name__)

PIPELINED_S = 1.0
"""No further message is begun later than this after the first."""
NO_EARLY_ENVELOPE_MAX = 10_000


class PipelinedBatch:
    """The messages after the first. begun: the first is over too. unreported: outcomes that the queue does not know
    yet. security: how TLS went on their connection, to be reported with the next part."""

    def __init__(self, context: SenderContext, own: list[Delivery]) -> None:
        self._context, self._lease = context, own[0].lease
        self._most = context.zone(own[0].zone, own[0].tables).messages_per_connection
        self._stepwise = own[0].stepwise
        self._until = time.monotonic() + PIPELINED_S
        self.begun = False
        self.unreported: list[Outcome] = []
        self.security: list[Any] = []
        self.started_ms, self._begun_at = int(time.time() * 1000), time.monotonic()
        self._left = deque(enumerate(own[1:], 1))
        self._begun: deque[int] = deque()

    @property
    def untried(self) -> list[int]:
        """Indices of the recipients that were not tried."""
        return [*self._begun, *(index for index, _ in self._left)]

    async def next(self, session: SmtpSession) -> Transaction | None:
        """The next message's transaction over this session; None: no message is left, or none may use it."""
        while self._left and session.sent < (self._left[0][1].messages_per_connection or self._most):
            if time.monotonic() >= self._until:
                return None
            index, delivery = self._left.popleft()
            try:
                body = await letter(self._context, delivery)
                body = await for_server(self._context, delivery, body, session.keywords)
                transaction = Transaction(session, self._context.outgoing.addressed(delivery), body)
                sendable = await transaction.prepare()
            except NotMade as error:
                self._tell(session, [not_made(error, [index])])
            except Verdict as verdict:
                self._tell(session, [decided(verdict, [index])])
            except (Exception, CancelledError) as error:  # a bug of ours: nothing of it has left
                if from_outside(error):
                    raise
                log.exception("internal error while making message %s", delivery.id)
                self._tell(session, [Outcome(DEFERRED, OUR_FAULT, "plugin", [index])])
            else:
                if sendable:
                    self._begun.append(index)
                    return transaction
                self._over(transaction, index)
        return None

    async def after(self, session: SmtpSession, first: Transaction) -> None:
        """Runs all transactions after the first over its session."""
        current, self.begun = first, True
        self._over(first, 0)
        while session.usable and not current.down:
            following = current.following or await self.next(session)
            if following is None:
                return
            session.sent += 1
            await following.run(self)
            if following.unsaid:
                if following.misunderstood:
                    self._remember(session.remote)
                return
            self._over(following, self._begun.popleft())
            current = following

    def may_announce(self, session: SmtpSession) -> bool:
        """Whether an envelope may leave together with the end of the message before it."""
        able = "pipelining" in session.keywords and not session.lmtp and not self._stepwise
        return able and session.remote not in self._context.no_early_envelope

    def _remember(self, server: str) -> None:
        if len(self._context.no_early_envelope) >= NO_EARLY_ENVELOPE_MAX:
            self._context.no_early_envelope.clear()
        self._context.no_early_envelope.add(server)

    def _over(self, transaction: Transaction, index: int) -> None:
        transaction.put_off()
        outcomes = transaction.outcomes
        for outcome in outcomes:
            outcome.recipients = [index]
        doubtful = [outcome for outcome in outcomes if outcome.verdict == DOUBTFUL]
        self.unreported += doubtful  # they end the lease
        if not doubtful:
            self._tell(transaction.session, outcomes, 0 if transaction.down else None)

    def _tell(self, session: SmtpSession, outcomes: list[Outcome], down_s: float | None = None) -> None:
        self.unreported += outcomes
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        took_ms = int((now - self._begun_at) * 1000)
        self._context.dispatch.settle_part(
            Result(
                self._lease, outcomes, down_s, remote=session.remote, local=session.local, tls=session.tls,
                started_ms=self.started_ms, took_ms=took_ms, security=self.security, more=True,
            )
        )  # fmt: skip
        self.unreported = [one for one in self.unreported if one not in outcomes]
        self.security = []
        self.started_ms, self._begun_at = now_ms, now

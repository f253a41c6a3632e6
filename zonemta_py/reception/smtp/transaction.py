"""One mail transaction: from MAIL to the reply after the dot (RFC 5321 3.3).

Promise: the 250 is given only after the queue has said that the message is on stable storage, or, of what came back to
addresses of ours (`came_back`), the news in it; these first, since they may be handed over twice, and a message not.
Whether a limit, a plugin or the queue refuses it, the message is read to its end and then refused, so that both sides
stay in step. A commit once begun runs to its end, whether or not the client is still connected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zonemta_py.mail.address import MailCommand
from zonemta_py.mail.addresses.ours import Ours
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.lines import Decoder
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueRefusal, Unanswered
from zonemta_py.reception.feedback.proof import SentBy
from zonemta_py.reception.feedback.returns import Returns
from zonemta_py.reception.receiver import MessageRefused, Receiver

if TYPE_CHECKING:
    from zonemta_py.reception.listener import ListenerSettings


class CameBack:
    """What a transaction has for addresses of ours: the beginning of the message, kept. stranger: it takes a place."""

    __slots__ = ("_client", "_kept", "_pieces", "_returns", "_size", "_stranger", "ours")

    def __init__(self, returns: Returns, client: str, stranger: bool) -> None:
        self.ours: dict[str, Ours] = {}
        self._returns, self._client, self._stranger = returns, client, stranger
        self._pieces: list[bytes] = []
        self._size = self._kept = 0

    @property
    def zone(self) -> str:
        """The zone that forwarded bounces go by, "" as other mail."""
        return self._returns.forward_zone if self._stranger else ""

    def add(self, content: bytes) -> None:
        self._size += len(content)
        if self._kept < self._returns.read_bytes:
            self._pieces.append(content[: self._returns.read_bytes - self._kept])
            self._kept += len(self._pieces[-1])

    async def take(self, sent: SentBy) -> None:
        """The message is complete. Raises QueueRefusal."""
        beginning = b"".join(self._pieces)
        await self._returns.take([*self.ours.values()], beginning, self._size == self._kept, sent)

    def leave(self) -> None:
        """The transaction is over. Harmless twice."""
        if self._stranger:
            self._stranger = False
            self._returns.leave(self._client)


log = logging.getLogger(__name__)

_TAKEN = Reply(250, "2.0.0", "OK: recorded")


class MailTransaction:
    """decoder: None before DATA. endless: so much came that waiting for the end of a refused message is pointless.
    recipients: by address, so that one named twice is kept once. back: what is for addresses of ours, None if nothing
    is."""

    __slots__ = (
        "_receiver",
        "_session",
        "_site",
        "_stranger",
        "_taken",
        "back",
        "decoder",
        "endless",
        "envelope",
        "rcpts",
        "recipients",
        "why",
    )

    def __init__(
        self, site: ListenerSettings, session: Session, command: MailCommand, stranger: bool = False
    ) -> None:  # fmt: skip
        """stranger: the client may not relay."""
        self._site, self._session, self._stranger = site, session, stranger
        self.envelope = Envelope(
            command.address, [], ret=command.ret, envid=command.envid, body=command.body, smtputf8=command.smtputf8,
            origin=session.client, origin_name=session.helo, user=session.user or None, protocol=session.protocol,
        )  # fmt: skip
        self.envelope.account = session.account
        if site.listener.durability == "node":
            self.envelope.durability = "node"
        if command.schedule is not None and not stranger:  # the schedule is ours
            command.schedule.put_into(self.envelope)
        self.recipients: dict[str, Recipient] = {}
        self.rcpts = 0
        self._taken = 0
        self.endless = False
        self.decoder: Decoder | None = None
        self._receiver: Receiver | None = None
        self.why: Exception | None = None
        """What refused the message, beside what is wrong with it."""
        self.back: CameBack | None = None

    def seal(self) -> Envelope:
        """No more recipients: DATA was given."""
        self.envelope.recipients = list(self.recipients.values())
        return self.envelope

    def begin(self, opening: str, transaction: str) -> None:
        """354 goes out; from now on blocks are taken. opening: of the Received field."""
        limits = self._site.limits
        if not self.recipients:  # what others have made of our mail is taken as it is
            self.decoder = Decoder(limits.message_bytes, limits.message_bytes, normalise=True, refuse_nul=False)
            return
        self.decoder = Decoder(
            limits.message_bytes, limits.line_bytes, limits.line_ends == "normalise", limits.nul == "refuse"
        )
        self._receiver = Receiver(
            self._site, self._session, self.envelope, opening, transaction, stranger=self._stranger
        )
        if self._stranger and self.back is not None:
            self.envelope.sending_zone = self.back.zone or None

    def take(self, block: bytes) -> bool:
        """Takes raw bytes of DATA; returns whether `pump` has something to do."""
        assert self.decoder is not None
        self._taken += len(block)
        self.endless = self._taken > 3 * self._site.limits.message_bytes
        content = self.decoder.feed(block)
        if self.back is not None:
            self.back.add(content)
        busy = self._receiver is not None and self._receiver.take(content)
        if self.decoder.refusal is not None:
            self.abort()
            return False
        return busy

    async def pump(self) -> None:
        """Hands on what has come so far, plugins first; waits for them and for the queue."""
        assert self._receiver is not None
        try:
            await self._receiver.pump()
        except (QueueRefusal, Verdict) as refusal:
            self._refuse(refusal)

    async def commit(self) -> Reply:
        """DATA is complete: the reply after the dot. Raises Unanswered: the result is unknown."""
        assert self.decoder is not None
        try:
            if self.decoder.refusal is None:
                if self.back is not None and self.back.ours:
                    await self.back.take(SentBy(self._session.client, self._session.helo, self.envelope.sender))
                if self._receiver is None:
                    return _TAKEN
                name = (await self._receiver.accept(self.decoder.eightbit, self.decoder.long)).id
                return Reply(250, "2.0.0", f"OK: queued as {name}")
        except Unanswered:
            raise
        except (QueueRefusal, Verdict, MessageRefused) as refusal:
            self._refuse(refusal)
        finally:
            self._let_go()
        return self.decoder.refusal or Reply(451, "4.3.0", "Local error, try again later")

    def _let_go(self) -> None:
        """What goes wrong now must not contradict the answer."""
        try:
            self.abort()
        except Exception:
            log.exception("session %s: internal error after a message", self._session.id)

    def abort(self) -> None:
        """Drops everything that is not committed; harmless twice, and after a commit."""
        if self._receiver is not None:
            self._receiver.abort()
        if self.back is not None:
            self.back.leave()

    def _refuse(self, why: QueueRefusal | Verdict | MessageRefused) -> None:
        assert self.decoder is not None
        self.why = why
        self.decoder.refusal = why.reply  # it keeps looking for the end of DATA, and stores nothing
        self.abort()

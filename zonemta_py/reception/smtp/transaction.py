"""One mail transaction: from MAIL to the reply after the dot (RFC 5321 3.3).

Promise: the 250 is given only after the queue has said that the message is on stable storage. Whether a limit, a plugin
or the queue refuses it, the message is read to its end and then refused, so that both sides stay in step. A commit once
begun runs to its end, whether or not the client is still connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.mail.address import MailCommand
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.lines import Decoder
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueRefusal, Unanswered
from zonemta_py.reception.receiver import MessageRefused, Receiver

if TYPE_CHECKING:
    from zonemta_py.reception.listener import ListenerSettings


class MailTransaction:
    """decoder: None before DATA. recipients: by address, so that one named twice is kept once."""

    __slots__ = (
        "_receiver",
        "_session",
        "_site",
        "_taken",
        "decoder",
        "envelope",
        "rcpts",
        "recipients",
    )

    def __init__(self, site: ListenerSettings, session: Session, command: MailCommand) -> None:
        self._site, self._session = site, session
        self.envelope = Envelope(
            command.address, [], ret=command.ret, envid=command.envid, body=command.body, smtputf8=command.smtputf8,
            origin=session.client, origin_name=session.helo, user=session.user or None, protocol=session.protocol,
        )  # fmt: skip
        self.envelope.account = session.account
        if command.schedule is not None:
            command.schedule.put_into(self.envelope)
        self.recipients: dict[str, Recipient] = {}
        self.rcpts = 0
        self._taken = 0
        self.decoder: Decoder | None = None
        self._receiver: Receiver | None = None

    @property
    def endless(self) -> bool:
        """Whether so much came that waiting for the end of a refused message is pointless."""
        return self._taken > 3 * self._site.limits.message_bytes

    def seal(self) -> Envelope:
        """No more recipients: DATA was given."""
        self.envelope.recipients = list(self.recipients.values())
        return self.envelope

    def begin(self, opening: str, transaction: str) -> None:
        """354 goes out; from now on blocks are taken. opening: of the Received field."""
        limits = self._site.limits
        self.decoder = Decoder(
            limits.message_bytes, limits.line_bytes, limits.line_ends == "normalise", limits.nul == "refuse"
        )
        self._receiver = Receiver(self._site, self._session, self.envelope, opening, transaction)

    def take(self, block: bytes) -> bool:
        """Takes raw bytes of DATA; returns whether `pump` has something to do."""
        assert self.decoder is not None
        assert self._receiver is not None
        self._taken += len(block)
        busy = self._receiver.take(self.decoder.feed(block))
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
            self._refuse(refusal.reply)

    async def commit(self) -> Reply:
        """DATA is complete: the reply after the dot. Raises Unanswered: the result is unknown."""
        assert self.decoder is not None
        assert self._receiver is not None
        try:
            if self.decoder.refusal is None:
                name = (await self._receiver.accept(self.decoder.eightbit)).id
                return Reply(250, "2.0.0", f"OK: queued as {name}")
        except Unanswered:
            raise
        except (QueueRefusal, Verdict, MessageRefused) as refusal:
            self._refuse(refusal.reply)
        finally:
            self.abort()
        return self.decoder.refusal or Reply(451, "4.3.0", "Local error, try again later")

    def abort(self) -> None:
        """Drops everything that is not committed; harmless twice, and after a commit."""
        if self._receiver is not None:
            self._receiver.abort()

    def _refuse(self, reply: Reply) -> None:
        assert self.decoder is not None
        self.decoder.refusal = reply  # it keeps looking for the end of DATA, and stores nothing
        self.abort()

"""One mail transaction: from MAIL to the reply behind the dot (RFC 5321 3.3).

Promise: the 250 is given only after the queue has said that the message is on stable storage. Whoever refuses, be it a
limit, a plugin or the queue, the message is read to its end and then refused, so that dialogue and client stay in step.
A commit once begun runs to its end, whether or not the client is still there to hear of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.mail.address import MailCommand
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.lines import Decoder
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Info, Session
from zonemta_py.plugin.streams import BodyHooks
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import Incoming, QueueRefusal
from zonemta_py.reception.arrival import Arrival

if TYPE_CHECKING:
    from zonemta_py.reception.site import Site

_NOBODY = Reply(550, "5.7.1", "No recipient is left for this message")


class Transaction:
    """decoder: None before DATA. recipients: by address, so that one named twice is kept once."""

    __slots__ = (
        "_arrival",
        "_hooks",
        "_incoming",
        "_session",
        "_site",
        "_taken",
        "decoder",
        "envelope",
        "rcpts",
        "recipients",
    )

    def __init__(self, site: Site, session: Session, command: MailCommand) -> None:
        self._site, self._session = site, session
        self.envelope = Envelope(
            command.address, [], ret=command.ret, envid=command.envid, body=command.body, smtputf8=command.smtputf8,
            origin=session.client, origin_name=session.helo, user=session.user or None, protocol=session.protocol,
        )  # fmt: skip
        if command.wishes is not None:
            command.wishes.put_into(self.envelope)
        self.recipients: dict[str, Recipient] = {}
        self.rcpts = 0
        self._taken = 0
        self.decoder: Decoder | None = None
        self._arrival: Arrival | None = None
        self._incoming: Incoming | None = None
        self._hooks: BodyHooks | None = None

    @property
    def endless(self) -> bool:
        """Whether so much came that there is no point in waiting politely for the end of a message long refused."""
        return self._taken > 3 * self._site.limits.message_bytes

    def seal(self) -> Envelope:
        """No more recipients: DATA was given."""
        self.envelope.recipients = list(self.recipients.values())
        return self.envelope

    def begin(self, opening: str, transaction: str) -> None:
        """354 goes out; from now on blocks are taken. opening: of the Received field."""
        limits = self._site.limits
        self.envelope.received_ms = self._site.clock_ms()
        self.decoder = Decoder(
            limits.message_bytes, limits.line_bytes, limits.line_ends == "normalise", limits.nul == "refuse"
        )
        self._arrival = Arrival(self._site.rules, self.envelope, opening, transaction, self.envelope.received_ms)

    def take(self, block: bytes) -> bool:
        """Takes raw bytes of DATA; returns whether `pump` has something to do."""
        assert self.decoder is not None
        assert self._arrival is not None
        self._taken += len(block)
        self._arrival.add(self.decoder.feed(block))
        if self.decoder.refusal is not None:
            self.abort()
            return False
        return bool(self._arrival.chunks.ready or self._arrival.unseen)

    async def pump(self) -> None:
        """Hands on what has come so far, plugins first; waits for them and for the queue."""
        try:
            await self._pass_on()
        except (QueueRefusal, Verdict) as refusal:
            self._refuse(refusal)

    async def commit(self) -> Reply:
        """DATA is complete: the reply behind the dot."""
        assert self.decoder is not None
        assert self._arrival is not None
        try:
            if self.decoder.refusal is None:
                self._arrival.finish()
                if self.decoder.eightbit:
                    self.envelope.body = "8BITMIME"  # whatever was declared: the next server has to know
                if self._arrival.refusal is None:
                    return await self._store(self._arrival)
        except (QueueRefusal, Verdict) as refusal:
            self._refuse(refusal)
        finally:
            self.abort()
        return self.decoder.refusal or self._arrival.refusal or Reply(451, "4.3.0", "Local error, try again later")

    def abort(self) -> None:
        """Lets go of everything that is not committed; harmless twice, and after a commit."""
        if self._incoming is not None:
            self._incoming.abort()
            self._incoming = None
        if self._hooks is not None:
            self._hooks.abort()
            self._hooks = None

    def _refuse(self, refusal: QueueRefusal | Verdict) -> None:
        assert self.decoder is not None
        self.decoder.refusal = refusal.reply  # it goes on looking for the end of DATA, and keeps nothing
        self.abort()

    async def _store(self, arrival: Arrival) -> Reply:
        site, envelope, chunks = self._site, self.envelope, arrival.chunks
        if site.hooked:
            await self._pass_on()
            if self._hooks is not None:
                await self._hooks.finish()
        envelope.size = chunks.total
        arrival.note_hash()
        if site.host.listens("message_queue"):
            info = Info(self._session, chunks.total, arrival.headers)
            await site.host.call("message_queue", envelope=envelope, info=info)
        if not envelope.recipients:
            return _NOBODY
        if self._incoming is None and not chunks.ready:
            name = await site.intake.put(envelope, chunks.last())
        else:
            await self._write_chunks()
            assert self._incoming is not None
            incoming = self._incoming
            name = await incoming.commit(envelope, chunks.last())
            self._incoming = None
        return Reply(250, "2.0.0", f"OK: queued as {name}")

    async def _pass_on(self) -> None:
        assert self._arrival is not None
        if self._site.hooked and self._arrival.headers is not None:
            await self._show_plugins(self._arrival)
        await self._write_chunks()

    async def _show_plugins(self, arrival: Arrival) -> None:
        if self._hooks is None:
            assert arrival.headers is not None
            self._hooks = BodyHooks(self._site.host, self.envelope, arrival.headers, self._sink)
            await self._hooks.on_headers()
            arrival.note_headers()
            arrival.store_header()
        while arrival.unseen:
            block = arrival.unseen.popleft()
            if block:
                await self._hooks.feed(block)

    async def _sink(self, block: bytes) -> None:
        assert self._arrival is not None
        self._arrival.keep(block)
        await self._write_chunks()

    async def _write_chunks(self) -> None:
        assert self._arrival is not None
        ready = self._arrival.chunks.ready
        if ready and self._incoming is None:
            self._incoming = self._site.intake.begin()
        while ready and self._incoming is not None:
            await self._incoming.write(ready.popleft())

"""A message from its first decoded byte to the queue, over SMTP or HTTP.

Its header section is completed (`ingest`), plugins see it, its chunks are handed on as they come. Promise: `store`
and `accept` return only after the queue has said that the message is on stable storage.

Failures: `pump`, `store` and `accept` raise QueueRefusal and Verdict; then call `abort`. What is wrong with the header
section is `refusal`, known from `take` on and raised by the last two as Refused.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from zonemta_py.logs.privacy import UserName
from zonemta_py.mail import edits
from zonemta_py.mail.addresses.senders import ANYBODY
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.lines import Undotted
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.api import log
from zonemta_py.plugin.arguments import Info, Refusal, Session, StoredMessage
from zonemta_py.plugin.streams import BodyHooks
from zonemta_py.plugin.verdicts import PluginFailed, Verdict
from zonemta_py.queue.api import Incoming, Receipt
from zonemta_py.reception.ingest import Ingest
from zonemta_py.reception.permission import bind

if TYPE_CHECKING:
    from zonemta_py.config import Limits
    from zonemta_py.plugin.host import Host
    from zonemta_py.reception.listener import ListenerSettings

Fit = Callable[[Envelope], Awaitable[Reply | None]]
NOBODY = Reply(550, "5.7.1", "No recipient is left for this message")
UNKNOWN = Reply(554, "5.6.0", "The message cannot be taken as it is")


class MessageRefused(Exception):
    """The message cannot be taken as it is. reply: 4xx or 5xx."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


def mark(site: ListenerSettings, session: Session, envelope: Envelope) -> None:
    """Notes in the envelope if our keys must not sign it, and logs it if they would have."""
    envelope.unsigned = not session.senders.signed
    if envelope.unsigned and site.rules.body_form is not None:
        who = "user %r" if session.user else "network%s"
        message = (
            f"listener %s, client %s, {who}: mail is not signed, because nothing says whom it may send as (senders)"
        )
        user = UserName(session.user)
        site.notes.warn("unsigned", session.client, message, session.listener, session.client, user)


async def tell_stored(host: Host, session: Session, envelope: Envelope, receipt: Receipt) -> None:
    """It is committed, whatever plugins make of that."""
    stored = StoredMessage(receipt.id, receipt.accepted, receipt.suppressed, receipt.repeated)
    await host.call("message_stored", envelope=envelope, session=session, stored=stored)


async def tell_refused(
    host: Host, session: Session, envelope: Envelope, stage: str, refused: Reply | Exception, recipient: str = ""
) -> None:
    """refused: the reply, or what was raised for it (`Verdict`, QueueRefusal, MessageRefused)."""
    if isinstance(refused, Verdict):
        refusal = Refusal(stage, refused.reply, recipient, refused.plugin, refused.hook)
    else:
        reply = refused if isinstance(refused, Reply) else getattr(refused, "reply", UNKNOWN)
        refusal = Refusal(stage, reply, recipient)
    await host.call("message_refused", envelope=envelope, session=session, refusal=refusal)


async def take_whole(
    receiver: Receiver, limits: Limits, blocks: AsyncIterator[bytes], complete: Callable[[], None]
) -> Receipt:
    """A message that comes as it is, without dots: over HTTP, from a plugin. complete: called when all has come, before
    it is accepted. Raises QueueRefusal, Verdict, MessageRefused, and what `blocks` raises; nothing is stored then."""
    decoder = Undotted(limits.message_bytes, limits.line_bytes, limits.line_ends == "normalise", limits.nul == "refuse")
    try:
        async for block in blocks:
            if receiver.take(decoder.feed(block)):
                await receiver.pump()
            if decoder.refusal is not None:
                raise MessageRefused(decoder.refusal)
        receiver.take(decoder.finish())
        if decoder.refusal is not None:
            raise MessageRefused(decoder.refusal)
        complete()
        return await receiver.accept(decoder.eightbit, decoder.long)
    finally:
        receiver.abort()


class Receiver:
    """opening: the Received field up to its id (`Trace.opening`). transaction: that id. fit: looks at the envelope when
    the header is known, and says why the message is refused. stranger: it may only be forwarded: its fields for us say
    nothing, and it is not signed. contents: plugins look at the body; else only at the header section."""

    __slots__ = ("_contents", "_fit", "_hooks", "_incoming", "_ingest", "_received_ns", "_session", "_site", "envelope")

    def __init__(
        self, site: ListenerSettings, session: Session, envelope: Envelope, opening: str, transaction: str,
        fit: Fit | None = None, stranger: bool = False, contents: bool = True,
    ) -> None:  # fmt: skip
        self._contents = contents
        self._site, self._session, self.envelope, self._fit = site, session, envelope, fit
        envelope.received_ms = site.clock_ms()
        self._received_ns = time.monotonic_ns()
        rules = site.rules if not session.account else site.rules_for(session.account)
        if stranger:
            rules = site.strange
        senders = ANYBODY if stranger else session.senders
        self._ingest = Ingest(rules, envelope, opening, transaction, envelope.received_ms, senders)
        if stranger:
            envelope.unsigned = True
        else:
            mark(site, session, envelope)
        self._incoming: Incoming | None = None
        self._hooks: BodyHooks | None = None

    @property
    def refusal(self) -> Reply | None:
        return self._ingest.refusal

    def take(self, content: bytes) -> bool:
        """The next bytes, line ends already CRLF; returns whether `pump` has something to do."""
        self._ingest.add(content)
        return bool(self._ingest.chunks.ready or self._ingest.unseen)

    async def pump(self) -> None:
        """Hands on what has come so far, plugins first; waits for them and for the queue."""
        if self._site.hooked and self._ingest.headers is not None:
            await self._show_plugins(self._ingest)
        await self._write_chunks()

    async def accept(self, eightbit: bool, long: bool) -> Receipt:
        """The message is complete. eightbit: whether it has bytes that are not ASCII. long: whether it has lines that
        are too long to be sent."""
        last = await self._complete(eightbit, long)
        if self._incoming is None:
            receipt = await self._site.submission.accept(self.envelope, last)
        else:
            receipt = await self._incoming.accept(self.envelope, last)
            self._incoming = None
        if self._site.tells_stored:
            await tell_stored(self._site.host, self._session, self.envelope, receipt)
        return receipt

    async def _complete(self, eightbit: bool, long: bool) -> bytes:
        """The last chunk; those before it have been handed on."""
        site, envelope, ingest = self._site, self.envelope, self._ingest
        if ingest.headers is None:
            ingest.finish()
        if eightbit:
            envelope.body = "8BITMIME"  # whatever was declared: the next server has to know
        if not site.hooked:  # plugins may make other lines of it
            envelope.lines = 2 if long else 1
        if ingest.refusal is not None:
            raise MessageRefused(ingest.refusal)
        if envelope.account:
            envelope.size = ingest.chunks.total
            if (refusal := bind(self._site.accounts.by_name[envelope.account], envelope)) is not None:
                raise MessageRefused(refusal)
        if self._fit is not None and (refusal := await self._fit(envelope)) is not None:
            raise MessageRefused(refusal)
        if site.hooked:
            await self.pump()
            if self._hooks is not None:
                await self._hooks.finish()
        envelope.size = ingest.chunks.total
        if site.rules.body_form is not None:
            ingest.note_hash()
        if site.host.listens("message_queue"):
            unread = self._hooks.unread if self._hooks is not None else ""
            info = Info(self._session, envelope.size, ingest.headers, unread)
            before = list(ingest.headers.fields) if ingest.headers is not None else []
            await site.host.call("message_queue", envelope=envelope, info=info)
            if ingest.headers is not None and ingest.headers.fields != before:
                try:
                    envelope.edits = edits.between(before, ingest.headers.fields)
                except ValueError as error:
                    names = ", ".join(call.plugin for call in site.host.calls("message_queue"))
                    log.error("a plugin (of %s), hook message_queue: %s", names, error)
                    raise PluginFailed(names, "message_queue", str(error)) from None
                ingest.note_headers()
        if not envelope.recipients:
            raise MessageRefused(NOBODY)
        if envelope.deadline_ms or envelope.hold_for:
            ahead_ms = envelope.received_ms - self._received_ns // 1_000_000  # as `ListenerSettings.ahead_ms`
            envelope.clock_ahead_ms = envelope.clock_ahead_ms or ahead_ms
        if ingest.chunks.ready:
            await self._write_chunks()
        return ingest.chunks.last()

    def abort(self) -> None:
        """Drops everything that is not committed; harmless twice, and after a commit."""
        if self._incoming is not None:
            self._incoming.abort()
            self._incoming = None
        if self._hooks is not None:
            self._hooks.abort()
            self._hooks = None

    async def _show_plugins(self, ingest: Ingest) -> None:
        if self._hooks is None:
            assert ingest.headers is not None
            self._hooks = BodyHooks(self._site.host, self.envelope, ingest.headers, self._sink, self._contents)
            await self._hooks.on_headers()
            ingest.note_headers()
            ingest.store_header()
        while ingest.unseen:
            block = ingest.unseen.popleft()
            if block:
                await self._hooks.feed(block)

    async def _sink(self, block: bytes) -> None:
        self._ingest.keep(block)
        await self._write_chunks()

    async def _write_chunks(self) -> None:
        ready = self._ingest.chunks.ready
        if ready and self._incoming is None:
            self._incoming = self._site.submission.begin(self._session.client, self.envelope)
        while ready and self._incoming is not None:
            await self._incoming.write(ready.popleft())

"""One message to one server over a greeted session: MAIL, RCPT …, DATA, the message, and a verdict per recipient.

If the server offers PIPELINING, MAIL, every RCPT and DATA go out in one write (RFC 2920); otherwise one at a time. If
an earlier message left a transaction open, an RSET in the same write closes it.

`answers` interprets the replies; over LMTP each accepted recipient has a final reply of its own (RFC 2033 4.2: one for
each accepted RCPT, in their order).

Promise: the message is sent once, and the final dot never after a failure. If the connection ends before any reply to
MAIL (`unsaid`), the caller may repeat the whole transaction elsewhere.

A bug of ours, wherever it strikes, ends in an outcome for each recipient: those that were answered keep their answer;
once the dot is out, the answer to it is still waited for; whoever is past the dot and gets none is DOUBTFUL.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from typing import Protocol

from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.rendering import refused_by_queue
from zonemta_py.delivery.smtp import commands
from zonemta_py.delivery.smtp.answers import BAD_RECIPIENT, Answers, completed
from zonemta_py.delivery.smtp.session import SmtpSession
from zonemta_py.delivery.verdicts import OUR_FAULT
from zonemta_py.logs.causes import from_outside
from zonemta_py.mail.classify import (
    too_many,
)
from zonemta_py.mail.lines import Stuffer
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DOUBTFUL, Delivery, QueueRefusal

log = logging.getLogger(__name__)

NO_SMTPUTF8 = Reply(553, "5.6.7", "the server does not take internationalised mail (SMTPUTF8)")
NO_ANSWER = Reply(451, "4.3.0", "an internal error came before the answer to the end of the message, see the log")
BAD_SENDER = Reply(553, "5.1.7", "the sender's address cannot be said in a command")

_RSET = "RSET\r\n"
_DOT = b".\r\n"
GROUP_S = 1800.0
"""A group of commands may take the timeout of one reply times their number, but no more than this."""


class Followers(Protocol):
    """The messages after this one over the same session. next: prepared; None: none is left."""

    def may_announce(self, session: SmtpSession) -> bool: ...
    async def next(self, session: SmtpSession) -> Transaction | None: ...


class Transaction(Answers):
    """outcomes: filled by `run`. following: the transaction whose envelope left with the end of this one."""

    __slots__ = ("_ended", "_final", "_smtputf8", "following")

    def __init__(self, session: SmtpSession, delivery: Delivery, body: Body) -> None:
        super().__init__(session, delivery, body)
        self._smtputf8 = False
        self._ended = False
        """The dot may have left."""
        self._final: list[Reply] = []
        """The replies to it."""
        self.following: Transaction | None = None

    async def run(self, after: Followers | None = None) -> None:
        """Raises nothing but what ends this process: QueueRefusal defers the recipients, and so does a bug of ours,
        unless they are past the dot.

        after: what may follow; the next message is requested while the server processes this one.
        """
        try:
            await self._run(after)
        except (Exception, CancelledError) as error:
            if from_outside(error):
                raise
            log.exception("internal error while delivering message %s", self._delivery.id)
            await self._end_it()

    async def _run(self, after: Followers | None) -> None:
        try:
            if not self._lines and not await self.prepare():
                return
            replies, data = await self._envelope()
            if self._judge_envelope(replies, data):
                if after is not None and self._body.whole is not None and after.may_announce(self.session):
                    self.following = await after.next(self.session)
                    # Rendering the next message took its time.
                    if not (self.session.dialogue.in_step or self._trusts()):
                        return
                await self._message()
            if self._over:
                self._judge_over()
        except QueueRefusal as refusal:
            self.session.dialogue.abort()
            found = refused_by_queue(refusal, self._open())
            self._settle(found.recipients, found.verdict, found.reply, found.stage, kind=found.kind)
        except BaseException:  # interrupted halfway: the connection cannot be reused
            if not self._ended:
                self.session.dialogue.abort()
            raise

    # after a bug of ours

    async def _end_it(self) -> None:
        """Each recipient without an outcome gets one; the connection ends."""
        dialogue = self.session.dialogue
        try:
            if self._ended and not self.session.lmtp and self._accepted and not self._final:
                self._final = await dialogue.replies(1, self.session.dot_timeout_s)
            elif self._ended and self.session.lmtp:
                await self._read_each()
            self._judge_what_came()
        except (Exception, CancelledError) as error:
            if from_outside(error):
                raise
            log.exception("internal error while reading the answer about message %s", self._delivery.id)
        finally:
            dialogue.abort()
            left, past = self._open(), set(self._accepted if self._ended else ())
            self._settle([index for index in left if index in past], DOUBTFUL, NO_ANSWER, "dot")
            self._settle([index for index in left if index not in past], DEFERRED, OUR_FAULT, "plugin")

    def _judge_what_came(self) -> None:
        open_ = set(self._open())
        waiting = [index for index in self._accepted if index in open_] if self._ended else []
        if not waiting or self.session.dialogue.overtaken:
            return
        if self.session.lmtp:
            places = {index: place for place, index in enumerate(self._accepted)}
            for index in waiting:
                if places[index] < len(self._final):
                    self._judge_final([index], self._final[places[index]], "dot")
        elif self._final:
            self._judge_final(waiting, self._final[0], "dot")
        self.again = []  # they wait for their next attempt

    # before MAIL

    async def prepare(self) -> bool:
        """Before the first byte; False: no recipient is left, and all have their outcome."""
        delivery, recipients = self._delivery, self._delivery.recipients
        addresses = "".join([delivery.sender, *[recipient.address for recipient in recipients]])
        self._tried = list(range(len(recipients)))
        if not commands.ordinary(addresses):
            if not commands.sendable(delivery.sender):
                self._settle(self._tried, BOUNCED, BAD_SENDER, "mail", kind="syntax")
                return False
            unsaid = [i for i in self._tried if not commands.sendable(recipients[i].address)]
            self._settle(unsaid, BOUNCED, BAD_RECIPIENT, "rcpt", kind="syntax")
            self._tried = [i for i in self._tried if i not in set(unsaid)]
            recipients = [recipients[i] for i in self._tried]
        if delivery.smtputf8 or not addresses.isascii():  # RFC 6531 3.1
            self._smtputf8 = "smtputf8" in self.session.keywords
            if not self._smtputf8 and (not addresses.isascii() or not await self._plain_section()):
                self._settle(self._tried, BOUNCED, NO_SMTPUTF8, "mail", kind="protocol")
                return False
        whole = self._body.whole
        eightbit = delivery.eightbit or (whole is not None and not whole.isascii())
        self._lines = [commands.mail(delivery, self._body.size, self.session.keywords, self._smtputf8, eightbit)]
        self._lines += commands.rcpts(recipients, self._dsn)
        return bool(self._tried)

    async def _plain_section(self) -> bool:
        """With plain addresses such a header section needs no SMTPUTF8, even if the client asked for it."""
        return (await self._body.head()).partition(b"\r\n\r\n")[0].isascii()

    # MAIL, RCPT, DATA

    async def _envelope(self) -> tuple[list[Reply], Reply | None]:
        """The replies to MAIL and each RCPT, as far as they came, and the one to DATA."""
        session, dialogue = self.session, self.session.dialogue
        if not self.announced:
            dialogue.begin()
            if "pipelining" not in session.keywords or self._delivery.stepwise:
                return await self._step_by_step(self._lines)
            rset = session.unfinished
            dialogue.write((_RSET + self._group() if rset else self._group()).encode())
            if rset:
                replies = await dialogue.replies(1, session.reply_timeout_s)
                if not replies or not self._reset(replies[0]):
                    return [], None
        self._asked = True
        wanted, each_s = len(self._lines) + 1, session.reply_timeout_s
        # Replies may be held back until the group ends (RFC 2920 3.2).
        replies = await dialogue.replies(wanted, min(each_s * wanted, max(each_s, GROUP_S)))
        data = replies.pop() if len(replies) == wanted else None
        return replies, data

    def announce(self) -> bytes:
        """The envelope, to be written after the end of the message before."""
        self.announced = True
        return self._group().encode()

    def _group(self) -> str:
        return f"{''.join(self._lines)}DATA\r\n"

    async def _step_by_step(self, lines: list[str]) -> tuple[list[Reply], Reply | None]:
        if self.session.unfinished:
            reply = await self._ask(_RSET)
            if reply is None or not self._reset(reply):
                return [], None
        replies: list[Reply] = []
        for line in lines:
            reply = await self._ask(line)
            if reply is None:
                return replies, None
            replies.append(reply)
            if reply.code == 421 or not completed(replies[0]):
                return replies, None
            if len(replies) > 2 and too_many(reply) and any(map(completed, replies[1:])):
                break
        if any(map(completed, replies[1:])):
            return replies, await self._ask("DATA\r\n")
        return replies, None

    async def _ask(self, line: str) -> Reply | None:
        self.session.dialogue.begin()
        self.session.dialogue.write(line.encode())
        replies = await self.session.dialogue.replies(1, self.session.reply_timeout_s)
        return replies[0] if replies else None

    def _reset(self, reply: Reply) -> bool:
        """A server that refuses RSET is unusable: treated as if it had hung up before MAIL."""
        if completed(reply):
            self.session.unfinished = False
            return True
        self.session.dialogue.abort()
        return False

    # the message

    async def _message(self) -> None:
        session = self.session
        dialogue, stage = session.dialogue, "dot"
        dialogue.sending = True
        if not self._accepted and session.lmtp:
            dialogue.abort()  # 354 though no RCPT was accepted: LMTP would not reply to an empty message (RFC 2033 4.2)
            return
        if not self._accepted:
            following = b"" if self.following is None else self.following.announce()
            dialogue.write(_DOT + following)  # an empty message without recipients: its reply does not matter
        elif self._body.whole is not None and not dialogue.broken:
            stuffer, following = Stuffer(), b"" if self.following is None else self.following.announce()
            stuffed = stuffer.stuff(self._body.whole)
            self._ended = True
            dialogue.end(stuffed, stuffer.end() + following, len(following))
        else:
            stage = await self._stream()
        if session.lmtp and stage == "dot":
            await self._judge_each()
            return
        replies = await dialogue.replies(1, session.dot_timeout_s)
        self._final = replies
        session.unfinished = dialogue.sending = False
        if stage == "body" or dialogue.overtaken:
            stage = "body"
            dialogue.abort()
        if self._accepted:
            self._judge_final(self._accepted, self._last(replies, self.following is not None), stage)

    async def _stream(self) -> str:
        """Sends chunk after chunk; returns "dot" if the end was sent, "body" if the server ended it before."""
        dialogue, stuffer = self.session.dialogue, Stuffer()
        async for chunk in self._body.chunks():
            if not await dialogue.drained(self.session.reply_timeout_s):
                return "body"
            dialogue.write(stuffer.stuff(chunk))
        if not await dialogue.drained(self.session.reply_timeout_s):
            return "body"
        self._ended = True
        dialogue.end(stuffer.end())
        return "dot"

    async def _judge_each(self) -> None:
        """The LMTP replies, each with the timeout of a final reply.

        All are read before any is judged: a 421 to one recipient ends the connection, but the replies for the others
        still count. A recipient that was answered with 250 has the message, even if the server then hangs up.
        """
        session = self.session
        await self._read_each()
        session.unfinished = session.dialogue.sending = False
        stage = "body" if session.dialogue.overtaken else "dot"
        for index, reply in zip(self._accepted, self._final, strict=False):
            self._judge_final([index], reply, stage)
        self._settle_failed(self._accepted[len(self._final) :], stage)

    async def _read_each(self) -> None:
        session = self.session
        while len(self._final) < len(self._accepted):
            further = await session.dialogue.replies(1, session.dot_timeout_s)
            if not further:
                return
            self._final += further

"""One message to one server over a greeted session: MAIL, RCPT …, DATA, the message, and a verdict per recipient.

If the server offers PIPELINING, MAIL, every RCPT and DATA go out in one write (RFC 2920); else one at a time. A
transaction that an earlier message left open is closed by an RSET in front of the same write.

Promise: every recipient is settled by its own reply, those accepted by the final one (over LMTP by the final one of
their own, RFC 2033 4.2: one for each accepted RCPT, in their order). The message is sent once, and the
final dot never after a failure. A connection that breaks is never permanent for anybody. Dropped before MAIL got any
reply: `unsaid`, the caller may repeat all of it elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.delivery import commands
from zonemta_py.delivery.body import Body
from zonemta_py.delivery.session import Session
from zonemta_py.mail.classify import ConnectionLost, DeliveryError, ReplyGarbled, judge
from zonemta_py.mail.lines import Stuffer
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, Outcome, QueueRefusal

if TYPE_CHECKING:
    from zonemta_py.delivery.series import Following

NO_SMTPUTF8 = Reply(553, "5.6.7", "the server does not take internationalised mail (SMTPUTF8)")
BAD_RECIPIENT = Reply(553, "5.1.3", "the recipient's address has control characters")
BAD_SENDER = Reply(553, "5.1.7", "the sender's address has control characters")

_RSET = "RSET\r\n"
_DOT = b".\r\n"


class Transaction:
    """outcomes: filled by `run`. down: the server said 421. unsaid: it was gone before it said anything to MAIL, or
    all that it said was 421 (many servers end long connections so). announced: its envelope left with the end of the
    message before it; then anything but a yes to MAIL is `unsaid` too, and `misunderstood` unless the server just went.
    following: the one whose envelope left with the end of this one.
    """

    __slots__ = (
        "_accepted", "_body", "_delivery", "_dsn", "_groups", "_lines", "_smtputf8", "_tried", "announced", "down",
        "following", "misunderstood", "session", "unsaid",
    )  # fmt: skip

    def __init__(self, session: Session, delivery: Delivery, body: Body) -> None:
        self.session, self._delivery, self._body = session, delivery, body
        self._dsn = "dsn" in session.keywords
        self._smtputf8 = False
        self._tried: list[int] = []
        self._accepted: list[int] = []
        self._groups: dict[tuple[int, Reply, str, bool], Outcome] = {}
        self._lines: list[str] = []
        self.following: Transaction | None = None
        self.down = False
        self.unsaid = False
        self.announced = False
        self.misunderstood = False

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self._groups.values())

    async def run(self, after: Following | None = None) -> None:
        """Never raises for anything the server does; QueueRefusal settles the recipients as deferred.

        after: what may follow; the next is asked for when the server waits for this message.
        """
        try:
            if not self._lines and not await self.prepare():
                return
            replies, data = await self._envelope()
            if self._judge_envelope(replies, data):
                if after is not None and self._body.whole is not None and after.may_announce(self.session):
                    self.following = await after.next(self.session)
                await self._message()
        except QueueRefusal as refusal:
            self.session.dialogue.abort()
            self._settle(self._open(), DEFERRED, refusal.reply, "body")
        except BaseException:  # in the middle of it: the connection is of no use to the next message
            self.session.dialogue.abort()
            raise

    def _open(self) -> list[int]:
        settled = {index for outcome in self._groups.values() for index in outcome.recipients}
        return [index for index in range(len(self._delivery.recipients)) if index not in settled]

    # before MAIL

    async def prepare(self) -> bool:
        """Before the first byte; False: nobody is left, and all have their outcome."""
        delivery = self._delivery
        everyone = list(range(len(delivery.recipients)))
        if not commands.sendable(delivery.sender):
            self._settle(everyone, BOUNCED, BAD_SENDER, "mail")
            return False
        self._tried = [i for i in everyone if commands.sendable(delivery.recipients[i].address)]
        if len(self._tried) < len(everyone):
            tried = set(self._tried)
            self._settle([i for i in everyone if i not in tried], BOUNCED, BAD_RECIPIENT, "rcpt")
        if delivery.smtputf8 or commands.international(delivery):
            self._smtputf8 = "smtputf8" in self.session.keywords
            if not self._smtputf8 and await self._needs_smtputf8():
                self._settle(self._tried, BOUNCED, NO_SMTPUTF8, "mail")
                return False
        self._lines = [commands.mail(delivery, self._body.size, self.session.keywords, self._smtputf8)]
        self._lines += [commands.rcpt(delivery.recipients[index], self._dsn) for index in self._tried]
        return bool(self._tried)

    async def _needs_smtputf8(self) -> bool:
        """A client may ask for SMTPUTF8 without need: plain addresses and a plain header go anywhere."""
        if commands.international(self._delivery):
            return True
        return not (await self._body.head()).partition(b"\r\n\r\n")[0].isascii()

    # MAIL, RCPT, DATA

    async def _envelope(self) -> tuple[list[Reply], Reply | None]:
        """Replies to MAIL and each RCPT, as far as they came, and the one to DATA."""
        if self.announced:
            return await self._answers(len(self._lines) + 1)
        self.session.dialogue.begin()
        if "pipelining" not in self.session.keywords:
            return await self._step_by_step(self._lines)
        return await self._at_once()

    def announce(self) -> bytes:
        """The envelope, to be written behind the end of the message before."""
        self.announced = True
        return self._group().encode()

    def _group(self) -> str:
        return f"{''.join(self._lines)}DATA\r\n"

    async def _at_once(self) -> tuple[list[Reply], Reply | None]:
        dialogue, rset = self.session.dialogue, self.session.unfinished
        dialogue.write((_RSET + self._group() if rset else self._group()).encode())
        if rset:
            replies = await dialogue.replies(1, self.session.reply_timeout_s)
            if not replies or not self._reset(replies[0]):
                return [], None
        return await self._answers(len(self._lines) + 1)

    async def _answers(self, wanted: int) -> tuple[list[Reply], Reply | None]:
        replies = await self.session.dialogue.replies(wanted, self.session.reply_timeout_s)
        data = replies.pop() if len(replies) == wanted else None
        return replies, data

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
            if reply.code == 421 or not _completed(replies[0]):
                return replies, None
        if any(map(_completed, replies[1:])):
            return replies, await self._ask("DATA\r\n")
        return replies, None

    async def _ask(self, line: str) -> Reply | None:
        self.session.dialogue.begin()
        self.session.dialogue.write(line.encode())
        replies = await self.session.dialogue.replies(1, self.session.reply_timeout_s)
        return replies[0] if replies else None

    def _reset(self, reply: Reply) -> bool:
        """A server that cannot even reset is of no use: as if it had gone before MAIL."""
        if _completed(reply):
            self.session.unfinished = False
            return True
        self.session.dialogue.abort()
        return False

    def _judge_envelope(self, replies: list[Reply], data: Reply | None) -> bool:
        """Settles whoever is settled by now; True if the message is to be sent."""
        if self.announced and not (replies and _completed(replies[0])):
            broken = self.session.dialogue.broken
            self.misunderstood = replies[0].code != 421 if replies else broken is not ConnectionLost
            self.session.dialogue.abort()
            self.unsaid = True
            return False
        if not replies:
            self.unsaid = self.session.dialogue.broken is ConnectionLost
            self._settle_failed(self._tried, "mail")
            return False
        self.session.unfinished = True
        if not _completed(replies[0]):
            self.session.unfinished = False
            self.unsaid = replies[0].code == 421
            self._settle_refused(self._tried, replies[0], "mail")
        else:
            self._judge_recipients(replies)
        return self._in_step() and self._judge_data(data)

    def _in_step(self) -> bool:
        """Whether the server has said no more than it was asked. Else nobody can be judged by any of it: all have their
        outcome, and the connection ends. That it goes away it may say at any time (421, RFC 5321 3.8).
        """
        dialogue = self.session.dialogue
        early = dialogue.early
        if early is not None and early.code == 421:
            self._settle_refused(self._open(), early, "data")
            return False
        if early is not None:
            dialogue.out_of_step()
        if dialogue.astray:
            self._distrust("data")
        return not dialogue.astray

    def _distrust(self, stage: str) -> None:
        """What the server has said of these recipients may have been meant for others, or for nobody."""
        self._groups = {key: outcome for key, outcome in self._groups.items() if outcome.reply is BAD_RECIPIENT}
        self.session.dialogue.abort()
        self._settle(self._open(), DEFERRED, ReplyGarbled(stage, "more replies than commands").reply, stage)

    def _judge_recipients(self, replies: list[Reply]) -> None:
        leaving = next((reply for reply in replies if reply.code == 421), None)
        for place, index in enumerate(self._tried, 1):
            if place >= len(replies):
                unanswered = self._tried[place - 1 :]
                if leaving is not None:
                    self._settle_refused(unanswered, leaving, "rcpt")
                else:
                    self._settle_failed(unanswered, "rcpt")
                return
            if _completed(replies[place]):
                self._accepted.append(index)
            else:
                self._settle_refused([index], replies[place], "rcpt")

    def _judge_data(self, data: Reply | None) -> bool:
        if data is not None and data.code == 354:
            return True
        if data is not None and data.positive and self._accepted:
            self._distrust("data")  # neither 354 nor a refusal: the replies before it may be others' too
        elif self._accepted:
            if data is None:
                self._settle_failed(self._accepted, "data")
            else:
                self._settle_refused(self._accepted, data, "data")
        elif data is not None and data.code == 421:
            self.down = True
            self.session.dialogue.abort()
        elif data is not None and data.positive:
            self.session.dialogue.abort()
        return False

    # the message

    async def _message(self) -> None:
        session = self.session
        dialogue, stage = session.dialogue, "dot"
        if not self._in_step():  # what follows may have taken a while to make
            return
        if not self._accepted and session.lmtp:
            dialogue.abort()  # 354 after no RCPT, and to no message would there be a reply (RFC 2033 4.2)
            return
        if not self._accepted:
            dialogue.write(_DOT + self._next())  # an empty message for nobody: its reply does not matter
        elif self._body.whole is not None and not dialogue.broken:
            stuffer, following = Stuffer(), self._next()
            dialogue.end(stuffer.stuff(self._body.whole), stuffer.end() + following, len(following))
        else:
            stage = await self._stream()
        if session.lmtp and stage == "dot":
            await self._judge_each()
            return
        replies = await dialogue.replies(1, session.dot_timeout_s)
        session.unfinished = False
        if stage == "body" or dialogue.overtaken:
            stage = "body"
            dialogue.abort()
        if self._accepted:
            self._judge_final(self._accepted, self._last(replies), stage)

    def _next(self) -> bytes:
        return self.following.announce() if self.following is not None else b""

    def _last(self, replies: list[Reply]) -> Reply | None:
        """The reply to the end of the message. A yes that a no came along with was said before its time, or is not
        worth more than the no: then it is none."""
        early = self.session.dialogue.early if self.following is None else None
        if replies and early is not None and early.code >= 400 and early.code != 421:
            self.session.dialogue.out_of_step()
            return None
        return replies[0] if replies else None

    async def _stream(self) -> str:
        """Sends chunk after chunk; returns "dot" if the end was sent, "body" if the server ended it before."""
        dialogue, stuffer = self.session.dialogue, Stuffer()
        async for chunk in self._body.chunks():
            if not await dialogue.drained(self.session.reply_timeout_s):
                return "body"
            dialogue.write(stuffer.stuff(chunk))
        if not await dialogue.drained(self.session.reply_timeout_s):
            return "body"
        dialogue.end(stuffer.end())
        return "dot"

    async def _judge_each(self) -> None:
        """The replies of LMTP, each with the time that a final reply may take.

        All are read before any is judged, for a 421 to one recipient ends the connection, but not what the server has
        to say of the others: whoever it has answered with 250 has the message, even if it then breaks off.
        """
        session = self.session
        replies: list[Reply] = []
        while len(replies) < len(self._accepted):
            further = await session.dialogue.replies(1, session.dot_timeout_s)
            if not further:
                break
            replies += further
        session.unfinished = False
        stage = "body" if session.dialogue.overtaken else "dot"
        for index, reply in zip(self._accepted, replies, strict=False):
            self._judge_final([index], reply, stage)
        self._settle_failed(self._accepted[len(replies) :], stage)

    def _judge_final(self, accepted: list[int], reply: Reply | None, stage: str) -> None:
        if reply is None:
            self._settle_failed(accepted, stage)
        elif _completed(reply) and stage == "dot":
            for index in accepted:
                relayed = not self._dsn and self._delivery.recipients[index].notify != 0
                self._settle([index], DELIVERED, reply, "dot", relayed)
        else:
            self._settle_refused(accepted, reply, stage)

    # verdicts

    def _settle_refused(self, indices: list[int], reply: Reply, stage: str) -> None:
        if reply.positive:
            self.session.dialogue.abort()
            self._settle(indices, DEFERRED, ReplyGarbled(stage, str(reply)).reply, stage)
            return
        judgement = judge(reply, stage)
        if judgement.down:
            self.down = True
            self.session.dialogue.abort()
        self._settle(indices, BOUNCED if judgement.permanent else DEFERRED, judgement.reply, stage)

    def _settle_failed(self, indices: list[int], stage: str) -> None:
        kind: type[DeliveryError] = self.session.dialogue.broken or ConnectionLost
        self._settle(indices, DEFERRED, kind(stage).reply, stage)

    def _settle(self, indices: list[int], verdict: int, reply: Reply, stage: str, relayed: bool = False) -> None:
        if not indices:
            return
        key = (verdict, reply, stage, relayed)
        outcome = self._groups.get(key)
        if outcome is None:
            self._groups[key] = Outcome(verdict, reply, stage, list(indices), relayed=relayed)
        else:
            outcome.recipients += indices


def _completed(reply: Reply) -> bool:
    return 200 <= reply.code < 300

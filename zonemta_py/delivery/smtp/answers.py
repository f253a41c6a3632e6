"""What a server's replies to one transaction mean for its recipients: a verdict each, or another try at once.

Each recipient is settled by its own reply; those accepted, by the final one. If there were more replies than commands,
it is unknown which reply belongs to which command, and none is used. A lost connection is never a permanent failure.

A server may accept fewer recipients per message than it was given: it answers 452 (old servers: 552) to a RCPT after
others that it accepted, which get the message; or it refuses DATA or the message because of their number. A tarpit does
not answer a group of commands before our timeout. In all three cases the recipients without a verdict are in `again`,
for smaller transactions.

A server may refuse a parameter of an extension that it offers. That says nothing of the recipients: they are in
`plain`, to be tried once more without; the session forgets that extension.
"""

from __future__ import annotations

from collections.abc import Mapping

from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.smtp.session import SmtpSession
from zonemta_py.mail.classify import (
    ConnectionLost,
    DeliveryError,
    ReplyGarbled,
    ReplyTimeout,
    judge,
    perhaps_too_many,
    too_many,
)
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, Outcome

_OF_MAIL = {" SIZE=": "size", " BODY=": "8bitmime", " RET=": "dsn", " ENVID=": "dsn"}
_OF_RCPT = {" NOTIFY=": "dsn", " ORCPT=": "dsn"}
"""Parameters that a message can do without, and the extensions they are of."""
BAD_RECIPIENT = Reply(553, "5.1.3", "the recipient's address cannot be said in a command")


class Answers:
    """outcomes: filled as replies come. down: the server said 421. unsaid: the connection was gone before any reply to
    MAIL, or the only reply was 421 (many servers end long connections so). announced: its envelope left with the end of
    the message before it; then any refusal of MAIL sets `unsaid` too, and also `misunderstood` unless the server just
    hung up.

    again: recipients without an outcome, to be tried in transactions of at most recipients_max. sure: that number is
    the server's limit, not a guess. stalled: it did not answer a group of commands in time. manner: why, in words.
    """

    __slots__ = (
        "_accepted",
        "_asked",
        "_body",
        "_delivery",
        "_dsn",
        "_groups",
        "_lines",
        "_over",
        "_plain",
        "_tried",
        "again",
        "announced",
        "down",
        "manner",
        "misunderstood",
        "recipients_max",
        "session",
        "stalled",
        "sure",
        "unsaid",
    )  # fmt: skip

    def __init__(self, session: SmtpSession, delivery: Delivery, body: Body) -> None:
        self.session, self._delivery, self._body = session, delivery, body
        self._dsn = "dsn" in session.keywords
        self._tried: list[int] = []
        self._accepted: list[int] = []
        self._asked = False  # MAIL, RCPT and DATA were all written
        self._over: dict[int, Reply] = {}
        self._plain: dict[int, Reply] = {}
        self._groups: dict[tuple[int, int, str, str, str, bool], Outcome] = {}
        self._lines: list[str] = []
        self.down = self.unsaid = self.announced = self.misunderstood = False
        self.again: list[int] = []
        self.recipients_max = 0
        self.stalled = self.sure = False
        self.manner = ""

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self._groups.values())

    @property
    def takes(self) -> bool:
        """Whether it has accepted at least one recipient."""
        return bool(self._accepted)

    @property
    def plain(self) -> list[int]:
        """To be tried once more over a session that has forgotten an extension."""
        return [index for index in self._open() if index in self._plain] if self._plain else []

    def put_off(self) -> None:
        """Those in `plain` are tried again another time."""
        for index in self.plain:
            self._settle([index], DEFERRED, self._plain[index], "rcpt")

    def _open(self) -> list[int]:
        settled = {index for outcome in self._groups.values() for index in outcome.recipients}
        return [index for index in range(len(self._delivery.recipients)) if index not in settled]

    def _judge_envelope(self, replies: list[Reply], data: Reply | None) -> bool:
        """Settles the recipients whose result is known by now; True if the message is to be sent."""
        if self.announced and not (replies and completed(replies[0])):
            broken = self.session.dialogue.broken
            self.misunderstood = replies[0].code != 421 if replies else broken is not ConnectionLost
            self.session.dialogue.abort()
            self.unsaid = True
            return False
        if self.session.dialogue.broken is not None and self._stalls(replies):
            return False
        if not replies:
            self.unsaid = self.session.dialogue.broken is ConnectionLost
            self._settle_failed(self._tried, "mail")
            return False
        self.session.unfinished = True
        if not 200 <= replies[0].code < 300:
            self.session.unfinished = False
            self.unsaid = replies[0].code == 421
            if not self._forgoes(_OF_MAIL, self._tried, 0, replies[0]):
                self._settle_refused(self._tried, replies[0], "mail")
        else:
            self._judge_recipients(replies)
        return (self.session.dialogue.in_step or self._trusts()) and self._judge_data(data)

    def _trusts(self) -> bool:
        """Whether replies that are out of step can be trusted. Where there were more than commands, none can: every
        recipient gets its outcome, and the connection ends. A 421 may come unasked at any time (RFC 5321 3.8)."""
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
        """Defers the recipients instead, as the replies may have belonged to other commands."""
        self._groups = {key: outcome for key, outcome in self._groups.items() if outcome.reply is BAD_RECIPIENT}
        self._over, self._accepted = {}, []
        self.session.dialogue.abort()
        self._settle_ours(self._open(), ReplyGarbled(stage, "more replies than commands"))

    def _judge_recipients(self, replies: list[Reply]) -> None:
        for place, index in enumerate(self._tried, 1):
            if place >= len(replies):
                leaving = next((reply for reply in replies if reply.code == 421), None)
                self._judge_unanswered(self._tried[place - 1 :], leaving)
                return
            reply = replies[place]
            if 200 <= reply.code < 300:
                if self._over:  # these were not about the number
                    for other, refusal in self._over.items():
                        self._settle_refused([other], refusal, "rcpt")
                    self._over.clear()
                self._accepted.append(index)
            elif self._accepted and (too_many(reply) or perhaps_too_many(reply)):
                self._over[index] = reply
            elif not self._forgoes(_OF_RCPT, [index], place, reply):
                self._settle_refused([index], reply, "rcpt")

    def _forgoes(self, parameters: Mapping[str, str], indices: list[int], line: int, reply: Reply) -> bool:
        """Whether the command was refused for a parameter of an extension that the server offers. line: which command
        it was."""
        if not _refuses_parameters(reply):
            return False
        said = {keyword for parameter, keyword in parameters.items() if parameter in self._lines[line]}
        if said:
            self.session.forget(said)
            self._plain |= dict.fromkeys(indices, reply)
        return bool(said)

    def _judge_unanswered(self, indices: list[int], leaving: Reply | None) -> None:
        if leaving is not None:
            self._settle_refused(indices, leaving, "rcpt")
        elif self._over and self.session.dialogue.broken is None:  # never sent: it wants no more
            self._over |= dict.fromkeys(indices, next(reversed(self._over.values())))
        else:
            self._settle_failed(indices, "rcpt")

    # fewer recipients at a time

    def _judge_over(self) -> None:
        """The server had no room for these: they go into the next transaction, if this one was completed."""
        if any(outcome.stage == "dot" and outcome.verdict != DEFERRED for outcome in self._groups.values()):
            clear = next(filter(too_many, self._over.values()), None)
            self.sure = clear is not None
            self._repeat(list(self._over), len(self._accepted), str(clear or next(iter(self._over.values()))))
            return
        for index, reply in self._over.items():
            self._settle_refused([index], reply, "rcpt")

    def _fewer(self, reply: Reply) -> bool:
        """Whether the message was refused because of its number of recipients; it is then sent to fewer at a time."""
        everyone = [*self._accepted, *self._over]
        if len(everyone) < 2 or not too_many(reply):
            return False
        self.sure = True
        self._repeat(everyone, len(self._accepted) if self._over else len(everyone) // 2, str(reply))
        self._over = {}
        return True

    def _stalls(self, replies: list[Reply]) -> bool:
        """Whether a group of commands for several recipients got no answer within our timeout (a tarpit)."""
        timed_out = self.session.dialogue.broken is ReplyTimeout and self._asked and len(self._tried) > 1
        if not timed_out or len(replies) >= len(self._lines) or (replies and not completed(replies[0])):
            return False
        for index, reply in zip(self._tried, replies[1:], strict=False):
            if not completed(reply):
                self._settle_refused([index], reply, "rcpt")
        self.stalled = self.sure = True
        answered = f"{len(replies)} of {len(self._lines) + 1} commands in one group were answered in time"
        self._repeat(self._open(), max(1, len(self._tried) // 2), answered)
        return True

    def _repeat(self, indices: list[int], most: int, manner: str) -> None:
        self.again, self.recipients_max, self.manner = indices, most, manner

    def _judge_data(self, data: Reply | None) -> bool:
        if data is not None and data.code == 354:
            return True
        if data is not None and data.positive and self._accepted:
            self._distrust("data")  # neither 354 nor a refusal: the replies before it may be misplaced too
        elif self._accepted:
            if data is None:
                self._settle_failed(self._accepted, "data")
            elif not self._fewer(data):
                self._settle_refused(self._accepted, data, "data")
        elif data is not None and data.code == 421:
            self.down = True
            self.session.dialogue.abort()
        elif data is not None and data.positive:
            self.session.dialogue.abort()
        return False

    def _last(self, replies: list[Reply], followed: bool) -> Reply | None:
        """The reply to the end of the message. A positive reply that came together with a negative one came too early,
        or is contradicted by it: it does not count."""
        early = None if followed else self.session.dialogue.early
        if replies and early is not None and early.code >= 400 and early.code != 421:
            self.session.dialogue.out_of_step()
            return None
        return replies[0] if replies else None

    def _judge_final(self, accepted: list[int], reply: Reply | None, stage: str) -> None:
        if reply is None:
            self._settle_failed(accepted, stage)
        elif 200 <= reply.code < 300 and stage == "dot":
            recipients = self._delivery.recipients
            relayed = set() if self._dsn else {index for index in accepted if recipients[index].notify}
            if relayed:  # what they asked for has ended here
                self._settle([index for index in accepted if index in relayed], DELIVERED, reply, "dot", relayed=True)
                accepted = [index for index in accepted if index not in relayed]
            self._settle(accepted, DELIVERED, reply, "dot")
        elif self.session.lmtp or not self._fewer(reply):
            self._settle_refused(accepted, reply, stage)

    # verdicts

    def _settle_refused(self, indices: list[int], reply: Reply, stage: str) -> None:
        if reply.positive:
            self.session.dialogue.abort()
            self._settle_ours(indices, ReplyGarbled(stage, str(reply)))
            return
        judgement = judge(reply, stage)
        if judgement.down:
            self.down = True
            self.session.dialogue.abort()
        self._settle(indices, BOUNCED if judgement.permanent else DEFERRED, judgement.reply, stage)

    def _settle_failed(self, indices: list[int], stage: str) -> None:
        dialogue = self.session.dialogue
        kind: type[DeliveryError] = dialogue.broken or ConnectionLost
        self._settle_ours(indices, kind(stage, dialogue.heard if kind is ReplyGarbled else ""))

    def _settle_ours(self, indices: list[int], error: DeliveryError) -> None:
        """What no server said."""
        self._settle(indices, DEFERRED, error.reply, error.stage, kind=error.reply_class)

    def _settle(
        self, indices: list[int], verdict: int, reply: Reply, stage: str, relayed: bool = False, kind: str = ""
    ) -> None:
        if not indices:
            return
        key = (verdict, reply.code, reply.enhanced, reply.text, stage, relayed)
        outcome = self._groups.get(key)
        if outcome is None:
            self._groups[key] = Outcome(verdict, reply, stage, list(indices), relayed=relayed, kind=kind)
        else:
            outcome.recipients += indices


def _refuses_parameters(reply: Reply) -> bool:
    """RFC 5321 4.1.1.11: 555; others say 501 or 504, and why."""
    if reply.code == 555:
        return True
    return reply.code in (501, 504) and (reply.enhanced == "5.5.4" or "param" in reply.text.lower())


def completed(reply: Reply) -> bool:
    return 200 <= reply.code < 300

"""What a message that came back says: about whom, which kind of news, in which words.

Nothing here is proven: anybody can write a report. Who reads one asks elsewhere whether it is genuine.
"""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.mail.reply import Reply

KINDS = ("bounce", "delay", "delivered", "complaint", "unsubscribe", "auto-reply", "challenge", "other")
"""bounce: not delivered, and not tried again. delay: still tried. delivered: also relayed, expanded. complaint: the
recipient calls it spam. auto-reply: a person's absence, a list server's or a help desk's answer. challenge: the sender
is to prove to be human. other: a read receipt, "this is not spam", a report on authentication, or not understood."""

WISH = "wish"
"""The form of what may be a wish to leave: its kind is "other" until an operator has decided."""


class Found(NamedTuple):
    """One recipient's news.

    kind: one of KINDS. recipient: the address that the message was sent to, "" if it is not named. reply: what the
    server said that decided it; its code is 0 and its enhanced code "" where nothing tells them. reporter: the host
    that says so, "" unknown. quoted: a code or status is told; False: the reader has made up the code from the words.
    """

    kind: str
    recipient: str
    reply: Reply
    reporter: str
    quoted: bool = True


class Report(NamedTuple):
    """A message that came back, read.

    form: the reader that understood it ("rfc3464", "arf", …), "" if nobody did. found: news of recipients, at least
    one; without a form it is a single "other". message_id, feedback_id, return_path: the enclosed original's, ""
    unknown; message_id without its angle brackets' surroundings, as "<a@b>". original: fields of the enclosed original
    by lower-case name, decoded, each one line. subject: the report's own, decoded.
    """

    form: str
    found: list[Found]
    message_id: str
    feedback_id: str
    return_path: str
    original: dict[str, str]
    subject: str

"""Verdicts: how a plugin rejects, defers, drops or holds mail, and what the host makes of a plugin that fails.

A hook raises one of them; the caller of the hook acts on its type and answers with its `reply`. Which verdicts a hook
accepts is declared with the hook (`spec.HOOKS`); another one counts as a failure of the plugin.

Replies never carry what could break the SMTP dialogue: text is ASCII without control characters, at most 500 long.
"""

from __future__ import annotations

import math
import re
import time
from datetime import datetime
from typing import TypeGuard

from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.reply import Reply

_ENHANCED = re.compile(r"[45]\.\d{1,3}\.\d{1,3}")
_CODES = frozenset((421, 450, 451, 452, 454, 455, 500, 501, 502, 503, 504, 530, 535, 550, 551, 552, 553, 554, 555, 556))
"""Codes of SMTP replies that refuse."""
REST_S_MAX = 86_400
"""How long a plugin may let a site rest: a day."""
UNIX_S_END = 32_503_680_000
"""The year 3000: later ones are meant otherwise, as milliseconds."""
SECONDS_MAX = 3650 * 86_400
"""Longest that a plugin may put something off; whoever means milliseconds is beyond that."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Verdict(Exception):
    """A plugin's decision. reply: what the client or the queue is told. plugin, hook: set by the host, "" before."""

    plugin: str = ""
    hook: str = ""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Reject(Verdict):
    """Refuse; temporarily if the code is 4xx.

    code: 400…599. text: one sentence; it may begin with an enhanced status code (RFC 3463) instead of naming it in
    `enhanced`; without one x.7.1 is used. Raises ValueError for other codes, which counts as a failure of the plugin.
    """

    def __init__(self, code: int, text: str, enhanced: str = "") -> None:
        if not isinstance(code, int) or not 400 <= code <= 599:
            raise ValueError(f"Reject needs a code from 400 to 599, not {code!r}")
        if enhanced and not (_ENHANCED.fullmatch(enhanced) and enhanced[0] == str(code)[0]):
            raise ValueError(
                f"{enhanced!r} is not an enhanced status code for {code}; write {code // 100}.7.1 or the like"
            )
        reply = Reply.from_lines(code, [_plain(text)])
        super().__init__(Reply(code, enhanced or reply.enhanced or f"{code // 100}.7.1", reply.text))


class Defer(Verdict):
    """Defer. seconds: until the next attempt, if the attempt is ours; a client simply gets 451. until: when that is,
    instead: UNIX time, or a datetime that knows its time zone; what is past is now. The end of its lifetime holds.

    rest_s: of hooks of a sender, for how many seconds nothing at all goes to the site (at most REST_S_MAX); other mail
    there waits too, with no attempt counted. Operators see it with the plugin's name, and may end it.
    """

    def __init__(
        self, seconds: float | None = None, text: str = "Try again later", *, until: float | datetime | None = None,
        rest_s: float = 0,
    ) -> None:  # fmt: skip
        if (seconds is None) == (until is None):
            raise ValueError("Defer takes seconds, or until=…, one of them")
        if isinstance(seconds, int) and seconds in _CODES:
            raise ValueError(
                f"Defer takes seconds, and {seconds} looks like a reply code: raise Reject({seconds}, …) for that "
                f"reply, or write {seconds}.0 for that many seconds"
            )
        wait_s = _seconds_until(until) if until is not None else seconds
        if not _is_number(wait_s) or not 0 <= wait_s <= SECONDS_MAX:
            given = f"{seconds!r:.80}" if until is None else f"an until of {until!r:.80}"
            raise ValueError(f"Defer needs seconds from 0 to {SECONDS_MAX}, not {given}")
        if not _is_number(rest_s) or not 0 <= rest_s <= REST_S_MAX:
            raise ValueError(f"Defer needs a rest_s from 0 to {REST_S_MAX}, not {rest_s!r}")
        super().__init__(Reply(451, "4.7.1", _plain(text)))
        self.seconds, self.rest_s = float(wait_s), float(rest_s)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _seconds_until(until: object) -> float:
    """Raises ValueError."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ValueError("Defer needs an until that knows its time zone: datetime.now(UTC) + timedelta(…)")
        until = until.timestamp()
    if not _is_number(until) or not 0 <= until < UNIX_S_END:
        raise ValueError(f"Defer needs an until in seconds of UNIX time, or a datetime, not {until!r}")
    return max(0.0, until - time.time())


class Drop(Verdict):
    """Accept and forget: the client hears 250, nothing is stored or sent. reason: for the log, never sent.

    Of queue_route: the message is accepted, and this recipient removed; operators see it with plugin and reason.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(Reply(250, "2.0.0", "OK"))
        self.reason = _one_line(reason)

    def __str__(self) -> str:
        return f"dropped: {self.reason}"


class Hold(Verdict):
    """Keep it queued until an operator releases it. reason: shown to operators."""

    def __init__(self, reason: str) -> None:
        super().__init__(Reply(451, "4.7.1", _plain(f"Held: {reason}")))
        self.reason = _one_line(reason)


class PluginFailed(Verdict):
    """The plugin raised something else, took too long or returned garbage; 451 4.3.0, and the log names the plugin."""

    def __init__(self, plugin: str, hook: str, problem: str, named: bool = False) -> None:
        """named: the client hears which plugin it is."""
        who = f" (plugin {plugin}, hook {hook})" if named else ""
        super().__init__(Reply(451, "4.3.0", f"Local processing failed{who}, try again later"))
        self.plugin, self.hook, self.problem = plugin, hook, problem

    def __str__(self) -> str:
        return f"plugin {self.plugin}, hook {self.hook}: {self.problem}"


def _one_line(text: object) -> str:
    return _CONTROL.sub(" ", str(text)).strip()[:REPLY_TEXT_STORED_MAX]


def _plain(text: str) -> str:
    ascii_text = _CONTROL.sub(" ", str(text)).encode("ascii", "replace").decode()
    return ascii_text.strip()[:REPLY_TEXT_STORED_MAX]

"""Rules: which reply the sink gives at which stage, to whom, and how often.

A rule is one line of text, `STAGE[:/PATTERN/] ACTION[, SHARE%][, after SECONDS s]`:

    rcpt:/@slow\\.test$/ 450 4.2.1 later, 30%
    dot 250 2.0.0 taken, after 2s
    connect close, 5%

PATTERN is a regular expression, searched without regard to case in the client's address (connect), the name (ehlo), the
sender (mail), the recipient (rcpt), or, from data on, in the sender and every recipient. ACTION is a reply, or one of
close (hang up), reset (hang up with RST), silent (never answer again), garbage (a line that is no reply), half (a
reply that stops in its middle, then silence). A reply of 421 closes the connection after it (RFC 5321 3.8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from zonemta_py.sink.options import SinkError

STAGES = ("connect", "ehlo", "starttls", "mail", "rcpt", "data", "body", "dot", "rset", "quit")
"""`body` is the moment the first byte of the message is there."""
ACTIONS = ("close", "reset", "silent", "garbage", "half")

_RULE = re.compile(
    r"(?P<stage>[a-z]+)(?::/(?P<pattern>.*)/)?\s+(?P<action>.+?)"
    r"(?:,\s*(?P<share>\d+(?:\.\d+)?)\s*%)?(?:,\s*after\s+(?P<after>\d+(?:\.\d+)?)\s*s)?\s*"
)
_REPLY = re.compile(r"[2-5]\d\d(?: [\x20-\x7e]*)?")


@dataclass(slots=True)
class SinkRule:
    """action: one of ACTIONS or a reply line. share: 0 to 1. after_s: seconds before it, None: the usual latency."""

    stage: str
    action: str
    pattern: re.Pattern[str] | None = None
    share: float = 1.0
    after_s: float | None = None
    chance: Random = field(default_factory=Random)

    @classmethod
    def parse(cls, text: str, chance: Random) -> SinkRule:
        """Raises SinkError with one sentence."""
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise SinkError(f"{text!r} is not a rule; write STAGE:/PATTERN/ REPLY, such as rcpt:/@slow/ 450 later, 30%")
        stage, action = found["stage"], found["action"]
        if stage not in STAGES:
            raise SinkError(f"rule {text!r}: there is no stage {stage!r}; use one of {', '.join(STAGES)}")
        if action not in ACTIONS and not _REPLY.fullmatch(action):
            raise SinkError(f"rule {text!r}: {action!r} is not an action; give a reply or {', '.join(ACTIONS)}")
        share = float(found["share"]) / 100 if found["share"] else 1.0
        if share > 1:
            raise SinkError(f"rule {text!r}: a share cannot exceed 100%")
        after = float(found["after"]) if found["after"] else None
        return cls(stage, action, _pattern(text, found["pattern"]), share, after, chance)

    def applies(self, subjects: Iterable[str]) -> bool:
        """Draws a number only where the pattern fits, so that one rule's share does not depend on another's."""
        if self.pattern is not None and not any(map(self.pattern.search, subjects)):
            return False
        return self.share >= 1 or self.chance.random() < self.share

    @property
    def code(self) -> int:
        """The reply's code, 0 for other actions."""
        return int(self.action[:3]) if self.action[:3].isdigit() else 0


def _pattern(text: str, pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE) if pattern else None
    except re.error as error:
        raise SinkError(f"rule {text!r}: the pattern is not a regular expression ({error}); correct it") from None


def parse_rules(texts: Iterable[str], seed: int | None) -> dict[str, list[SinkRule]]:
    """The rules by stage, in their order. Raises SinkError."""
    rules: dict[str, list[SinkRule]] = {}
    for number, text in enumerate(texts):
        rule = SinkRule.parse(text, Random(None if seed is None else f"{seed}:{number}"))
        rules.setdefault(rule.stage, []).append(rule)
    return rules

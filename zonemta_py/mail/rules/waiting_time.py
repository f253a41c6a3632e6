"""How long a server asks us to wait, where it says so: "Greylisted, try again in 300 seconds", "come back in 00:04:32".

Pure. A number counts only beside words about trying again, so that "20 messages in 60 seconds" is no answer to when.
What is longer than WAIT_S_MAX is ignored: the retry schedule does not wait for days.
"""

from __future__ import annotations

import re

from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX

WAIT_S_MAX = 3600
_MARGIN_S = 1
"""Servers round down, and count from when they have said it."""

_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "sixty": 60, "half an": 0.5,
}  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_AMOUNT = rf"(?:\d{{1,6}}(?:\.\d+)?|\b(?:{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b)"
_UNIT = r"(?:seconds?|secs?|s|minutes?|mins?|min|m|hours?|hrs?|h)(?![a-z])(?:\(s\))?"
_PIECE = rf"{_AMOUNT}[ \-]?(?:more |full )?{_UNIT}"
_CLOCK = r"\d{1,2}:\d\d:\d\d|\d{1,3}:\d\d(?=[ ]?(?:min|m\b))"
_SPAN = rf"(?P<span>{_CLOCK}|{_PIECE}(?:[ ,]*(?:and[ ])?{_PIECE}){{0,3}})"
_ABOUT = (
    r"(?:try|retry|retries|retrying|again|come ?back|return|re-?send|re-?submit|re-?deliver\w*|wait|gr[ae]y-?list\w*"
    r"|defer\w*|delay\w*|postpone\w*|throttled|remaining|left|blocked)"
)
_GAP = r"(?:(?!\b(?:last|past|per|each|every|limit|received|sent|at|attempts?|messages?|max)\b)[^\d.;\n]){0,48}?"
_AFTER = re.compile(rf"\b{_ABOUT}\b{_GAP}(?<![\w.]){_SPAN}", re.IGNORECASE)
_BEFORE = re.compile(
    rf"(?<![\w.]){_SPAN}[ ]*(?:\w+[ ]){{0,2}}(?:remaining|left|to go|before (?:you )?(?:re-?try|try|sending))",
    re.IGNORECASE,
)
_PARTS = re.compile(rf"({_AMOUNT})[ \-]?(?:more |full )?({_UNIT})", re.IGNORECASE)


def said_wait_s(text: str) -> float | None:
    """Seconds until the server wants to see us again, at least 1; None: it does not say, or nothing usable."""
    text = text[:REPLY_TEXT_STORED_MAX]
    found = _AFTER.search(text) or _BEFORE.search(text)
    if found is None:
        return None
    seconds = _span_s(found["span"].lower())
    return seconds + _MARGIN_S if seconds <= WAIT_S_MAX else None


def _span_s(span: str) -> float:
    if ":" in span:
        total = 0
        for part in span.split(":"):
            total = total * 60 + int(part)
        return total
    return sum(_amount(amount) * _SECONDS[unit[0]] for amount, unit in _PARTS.findall(span))


def _amount(text: str) -> float:
    return _NUMBERS[text] if text in _NUMBERS else float(text)

"""The reply inside a sentence: code, enhanced code and text of what a server said, wherever they stand in it."""

from __future__ import annotations

import re

from zonemta_py.mail.fields import one_line
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.reply import Reply

SENTENCE_CHARACTERS_MAX = 2_000
_START = re.compile(r"\s*(?:[\w.-]{1,30};\s*)?([245]\d\d)(?:[- ]+|$)(?:#?([245]\.\d{1,3}\.\d{1,3})[:\s]*)?")
_CODE = re.compile(r"(?<![\d.:/-])([45]\d\d)[- ]+(?:#?([45]\.\d{1,3}\.\d{1,3})\b[:\s]*)?")
ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,2}\.\d{1,3})(?![\d.]*\.\d|\d)")
_TYPE = re.compile(r"\s*(?:smtp|x-[\w-]{1,40}|dns|rfc822|unknown)\s*;\s*", re.IGNORECASE)
GENERIC = frozenset(("5.0.0", "4.0.0", "5.0", "4.0", "", "5.3.0", "4.3.0"))
"""They say no more than the class; a better one in the text has precedence."""


def reply_of(sentence: str, status: str = "") -> Reply:
    """From a diagnostic ("smtp; 550-5.1.1 No such user") and the status that stands beside it ("5.1.1", "5.0.0").

    Where no code is told, 550 or 450 stands for the status' class; 0 if there is none either.
    """
    sentence = one_line(sentence[:SENTENCE_CHARACTERS_MAX])
    sentence = _TYPE.sub("", sentence, count=1)
    found = _START.match(sentence) or _CODE.search(sentence)
    code, enhanced, text = 0, "", sentence
    if found:
        code, enhanced = int(found[1]), found[2] or ""
        text = sentence[found.end() :].strip()
        text = re.sub(
            rf"\s*\b{found[1]}[- ](?:{re.escape(enhanced)}[ ]+)?" if enhanced else rf"\s*\b{found[1]}-", " ", text
        )
    enhanced = _better(enhanced, status, sentence)
    if not code and enhanced:
        code = {"2": 250, "4": 450, "5": 550}[enhanced[0]]
    return Reply(code, enhanced, text.strip()[:REPLY_TEXT_STORED_MAX])


def _better(enhanced: str, status: str, sentence: str) -> str:
    """The most telling of the codes: the reply's own, the status beside it, one in the text."""
    told = [one[1] for one in ENHANCED.finditer(sentence)]
    for one in (enhanced, status, *told):
        if one not in GENERIC:
            return one
    return enhanced or status

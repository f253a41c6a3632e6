"""The reply inside a sentence: code, enhanced code and text of what a server said, wherever they stand in it."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.vocabulary import PASSING
from zonemta_py.mail.fields import one_line
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.reading import read as meaning
from zonemta_py.mail.vocabulary.matcher import beginning, says
from zonemta_py.mail.vocabulary.spelling import folded

SENTENCE_CHARACTERS_MAX = 1_500
GENERIC = frozenset(("5.0.0", "4.0.0", "2.0.0", "5.3.0", "4.3.0", "5.5.0", "4.5.0", "5.4.0", "4.4.0", ""))
"""They say no more than the class, or what the reporter thought of the conversation; one in the text is better."""
TELLING = frozenset(
    f"{status}.{name}" for status in "45" for name in ("1.1", "1.2", "1.6", "1.10", "2.1", "2.2", "3.4")
)
"""They say what there is to say of the recipient, its domain or the size; prose beside them is courtesy or a footer."""

ENHANCED = re.compile(r"(?<![\w.])([245]\.\d{1,2}\.\d{1,3})(?![\d.]*\.\d|\d)")
_DIGITS = re.compile(r"[45][0-7]\d")
_CODES = r"([45][0-7]\d)"
_TO_ENHANCED = r"(?:[ :#(<-]{0,3}|[ ,]{1,2}ERROR_CODE ?: ?)([245]\.\d{1,2}\.\d{1,3})\b(?!\.\d)[:)> -]*"
_WITH_ENHANCED = re.compile(rf"(?<![\w./@-]){_CODES}(?:[ :#-]+{_CODES})?{_TO_ENHANCED}", re.IGNORECASE)
_ALONE = re.compile(
    rf"(?<![\w./@-]){_CODES}(?:[- :]+\1)?(?=[\s:,;-]|(?<=\(...)\)|$)"
    r"(?!:\d|-\d+ | ?(?:sec|min|hour|day|kb|mb|byte|attempt|recip|messages|lines))[- :,]*",
    re.IGNORECASE,
)
_BACKWARDS = re.compile(rf"\(?#?([245]\.\d{{1,2}}\.\d{{1,3}})\)?[ :]+(?:smtp;? ?)?{_CODES}(?=[ :-])[ :-]*")
_SUCCESS = re.compile(r"(?:[a-z][\w-]{0,30};)?\s*(2\d\d)[ -]+(?:(2\.\d{1,2}\.\d{1,3})[ :]+)?", re.IGNORECASE)
_TYPE = re.compile(r"^(?:(?:smtp|dns|rfc822|unknown|x-[\w-]{1,40}|[a-z][\w-]{1,20})\s*;\s*)+", re.IGNORECASE)
_CODE_ONLY = re.compile(r"(?:x-[\w-]{1,40}|[a-z-]{2,20});\s*\d*\s*", re.IGNORECASE)
_TAIL = re.compile(
    r"(?:(?:Giving|Gave) up (?:on|after)\b|I'm not going to try again|\(Other MXes tried"
    r"|--- ?(?:Below|Enclosed)|\[(?:RCPT_TO|MAIL_FROM|DATA)\]|\(SENT_[A-Z_]{2,20}\)|Connection closed"
    r"|Warning: message still undelivered|Will keep trying).*",
    re.IGNORECASE,
)

_WORD = re.compile(r"[^\W\d_]{3,}")
_FEW_WORDS = 6
_BRACKET = re.compile(r"[)\]）]")
_SOFT = beginning(PASSING)
"""Words of what may pass: then a bounce without a code is a temporary failure that lasted too long."""


def reply_of(sentence: str, status: str = "") -> Reply:
    """From a diagnostic ("smtp; 550-5.1.1 No such user") and the status that stands beside it ("5.1.1", "5.0.0").

    Where no code is told, 550 or 450 stands for the class of the status; 0 if there is none either. An expiry that is
    told with a 5xx and a status of class 4 (Exchange: "550 4.4.7 QUEUE.Expired") is 450: what passes is temporary.
    """
    sentence = one_line(sentence[:SENTENCE_CHARACTERS_MAX])
    code, enhanced, text = _split(sentence)
    enhanced = _better(enhanced, status, sentence, code)
    if enhanced and not code:
        code = {"2": 250, "4": 450, "5": 550}[enhanced[0]]
    elif code >= 500 and "4" in (enhanced[:1], status[:1] if enhanced in GENERIC else ""):
        code = 450
    return Reply(code, enhanced, _trimmed(text)[:REPLY_TEXT_STORED_MAX])


def _trimmed(text: str) -> str:
    """Without what the reporter says behind it, and without the quote that ends it."""
    shorter = _TAIL.sub("", text).strip()
    telling = any("@" not in word and any(map(str.isalpha, word)) for word in shorter.split())
    text = shorter if telling else text.strip()
    return text[:-1] if text[-1:] in ("'", '"') and text.count(text[-1]) % 2 else text


def implied(reply: Reply, context: str = "") -> Reply:
    """The reply of a bounce that tells neither code nor status: 450 if the words speak of what passes, else 550."""
    if reply.code:
        return reply
    found = meaning(folded(reply.text), 0, "", "report")
    told = CLASSES[found.kind or "undefined"].passes
    if told is False:  # whatever else is said
        return Reply(550, reply.enhanced, reply.text)
    words = f"{reply.text} {context}".lower()
    passes = (found.firm and told) or (says(words, PASSING) and _SOFT.search(words))
    return Reply(450 if passes else 550, reply.enhanced, reply.text)


def has_code(sentence: str) -> bool:
    """Whether a server's reply is quoted in it."""
    return bool(_DIGITS.search(sentence)) and bool(
        _WITH_ENHANCED.search(sentence) or _ALONE.search(sentence) or _BACKWARDS.search(sentence)
    )


def temporary(words: str) -> bool:
    """Whether replies or statuses are quoted, and all of them are temporary."""
    return _classes(words) == {"4"}


def permanent(words: str) -> bool:
    """Whether they are, and all of them are permanent."""
    return _classes(words) == {"5"}


def _classes(words: str) -> set[str]:
    return {one[1][0] for pattern in (_WITH_ENHANCED, _ALONE, ENHANCED) for one in pattern.finditer(words)} - {"2"}


def _split(sentence: str) -> tuple[int, str, str]:
    """Code, enhanced code, the words behind them."""
    found = _SUCCESS.match(sentence)
    if found and not has_code(sentence[found.end() :]):
        return int(found[1]), found[2] or "", sentence[found.end() :]
    found = _WITH_ENHANCED.search(sentence)
    if found:
        code, enhanced = found[2] or found[1], found[3]
        text = re.sub(rf"\s*\b{found[1]}[- ]#?{re.escape(enhanced)}\b:?", "", sentence[found.end() :])
        return int(code), enhanced, _around(sentence[: found.start()], text)
    found = _BACKWARDS.search(sentence)
    if found:
        return int(found[2]), found[1], sentence[found.end() :]
    found = _ALONE.search(sentence)
    if found:
        text = re.sub(rf"\s*\b{found[1]}-(?=\S)", " ", sentence[found.end() :])
        return int(found[1]), "", _around(sentence[: found.start()], text) if len(text) > 2 else sentence
    return 0, "", _TYPE.sub("", _CODE_ONLY.sub("", sentence, count=1) if _CODE_ONLY.match(sentence) else sentence)


def _around(before: str, after: str) -> str:
    """The words beside a code: those behind it, as servers write it, or, where prose has it in brackets or at its
    end, those before."""
    bracketed = before.rstrip()[-1:] in ("(", "[", "（") and not _WORD.search(_BRACKET.split(after, 1)[0])
    within = (before.split() or [""])[-1].isalpha() and after[:1].islower() and len(after.split()) < _FEW_WORDS
    if len(_WORD.findall(before)) > 2 and (bracketed or within or not _WORD.search(after)):
        return f"{before.rstrip(' ([（')} {after.lstrip(' )]）.,;')}".strip()
    return after


def _better(enhanced: str, status: str, sentence: str, code: int) -> str:
    """The most telling of the codes: the reply's own, the status beside it, one in the text.

    A status of another class than the code says what the reporter made of it, and counts for less."""
    stated = status if not code or status[:1] == str(code)[0] else ""
    for one in (enhanced, stated):
        if one not in GENERIC:
            return one
    told = (one[1] for one in ENHANCED.finditer(sentence))
    better = (one for one in told if one not in GENERIC and (not code or one[0] == str(code)[0]))
    return next(better, "") or enhanced or stated or ("" if code else status)

"""What a mail that came back is most like, where neither fields nor known words say what it is.

A linear model (`linear`) over its words, its subject, who writes, and what a mail system would notice, learned by
`scripts/learn` from the collections that may be read, and kept as kinds.json. It is asked last. Of 642 pieces of news
that nothing was learned from (`*_final`) it has 12 kinds right that are wrong without it, and none the other way.
Promise: nothing that stops mail at once (complaint, unsubscribe) is ever a guess.
"""

from __future__ import annotations

from functools import cache

from zonemta_py.mail.feedback.addresses import addresses
from zonemta_py.mail.feedback.answers import is_machine, is_reply, thanks, writes_itself
from zonemta_py.mail.feedback.diagnostic import ENHANCED, has_code
from zonemta_py.mail.feedback.parts import Parts
from zonemta_py.mail.feedback.recognition import answerable, names_another, to_many
from zonemta_py.mail.feedback.vocabulary import DAEMONS, DELAYS, POSTAL, fails
from zonemta_py.mail.models.linear import Linear, Scores, words_of
from zonemta_py.mail.vocabulary.matcher import says
from zonemta_py.mail.vocabulary.spelling import folded

NEWS = frozenset(("bounce", "delay", "delivered"))
"""Kinds of a mail system's."""
ANSWERS = frozenset(("auto-reply", "challenge"))
_GUESSED = NEWS | ANSWERS | {"other"}
LIKELY, SURE = 0.6, 0.7
"""From 0 to 1: how likely a kind has to be, where nothing else is known, and against what words say."""
_SUBJECT_CHARACTERS, _SENDER_CHARACTERS, _TEXT_CHARACTERS = 200, 100, 700


def likely_kind(parts: Parts, text: str, least: float = LIKELY) -> str:
    """One of NEWS, of ANSWERS or "other", "" if it is like none of them. text: without the original."""
    scores = _likeness(parts, text)
    best = scores.best
    return best if best in _GUESSED and scores.likelihood(best) >= least else ""


def features(parts: Parts, text: str) -> set[str]:
    """Words of the text ("t…") and of the subject ("s…"), of who writes ("f…"), and what a mail system notices."""
    words = " ".join(text.split())[:_TEXT_CHARACTERS].lower()
    subject, sender = parts.decoded("subject").lower(), parts.decoded("from").lower()
    noticed = {
        "null sender": is_machine(parts),
        "answerable": answerable(parts),
        "answer": is_reply(parts),
        "to many": to_many(parts),
        "original": bool(parts.original),
        "enclosed": bool(parts.enclosed),
        "report": parts.kind == "multipart/report",
        "code": has_code(words),
        "status": bool(ENHANCED.search(words)),
        "names another": names_another(parts, f"{subject} {words}"),
        "daemon": says(sender, DAEMONS),
        "program": writes_itself(parts),
        "postal": says(sender, POSTAL),
        "fails": fails(words),
        "delays": says(words, DELAYS),
        "subject fails": fails(subject),
        "subject delays": says(subject, DELAYS),
        "thanks": thanks(text),
        "suppresses answers": "x-auto-response-suppress" in parts.fields,
    }
    marks = {name for name, holds in noticed.items() if holds}
    marks.add(f"auto-submitted {parts.fields.get('auto-submitted', '').lower().partition(';')[0].strip()}")
    marks.add(f"precedence {parts.fields.get('precedence', '').lower()}")
    for address in addresses(words):
        words = words.replace(address, "@")
    return (
        marks
        | words_of(folded(words), "t")
        | words_of(folded(subject[:_SUBJECT_CHARACTERS]), "s")
        | {one for one in words_of(folded(sender[:_SENDER_CHARACTERS]), "f") if one.startswith("f=")}
    )


def _likeness(parts: Parts, text: str) -> Scores:
    return _model().scores(features(parts, text))


@cache
def _model() -> Linear:
    return Linear.load("kinds.json")

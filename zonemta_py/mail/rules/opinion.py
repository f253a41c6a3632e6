"""A second opinion on a reply: which class's replies its words are most like.

A linear model (`linear`) over its words, its codes and the stage, learned by `scripts/learn` from the examples of
config/rules.toml and the collections of replies and reports that may be read, and kept as opinion.json. A rule sees one
phrase, this all of them: so it may correct a rule that allows it (`second_opinion`) where it is much surer of another
class. Of 1,530 replies and bounces that nothing was learned from (`tests/mail`, `unseen*` and `*_final`) it corrects
101: 59 classes become right and 5 wrong, 3.5 points of 100; 7 more are given up or tried again as they should be.
Promise: what follows is what follows from the class that it names, so that the journal does not contradict itself; and
that is never a class that leads to suppression: it is a guess.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from zonemta_py.mail.models.linear import Linear, Scores, words_of
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import SUPPRESSING
from zonemta_py.mail.vocabulary.spelling import folded

MARGIN = 2.0
"""Natural logarithm of how much likelier the class has to be than a rule's."""
KNOWN_LEAST = 20
"""Features that it must know: of a word or two it has no opinion."""
_WAITING = "greylisting"
"""The server's own time to wait goes by it."""
_NEVER = SUPPRESSING | {"undefined", _WAITING}
_CHARACTERS = 500
_LETTERS_MOST, _WORDS_MOST = 20, 5


class Opinion(NamedTuple):
    """kind: "" if there is none."""

    kind: str
    scores: Scores

    def corrects(self, kind: str) -> bool:
        """Whether it is much surer of its own class than of this one, and may say so."""
        if not self.kind or kind == _WAITING:
            return False
        return self.scores.of[self.kind] - self.scores.of.get(kind, float("-inf")) > MARGIN


def features(reply: Reply, stage: str) -> set[str]:
    """Its words, "code 550", "status .7.1", "stage rcpt"."""
    about = {f"code {reply.code}", f"status {reply.enhanced[1:]}", f"stage {stage}"}
    return words_of(folded(reply.text[:_CHARACTERS])) | about


def opinion(reply: Reply, stage: str) -> Opinion:
    """reply: in the server's own words, addresses as "@"."""
    scores = _model().scores(features(reply, stage))
    best = scores.best
    return Opinion("" if best in _NEVER or scores.known < KNOWN_LEAST else best, scores)


def because(reply: Reply, stage: str, kind: str) -> tuple[str, ...]:
    """The words that speak most for a class, the strongest first; letters, in writing without spaces."""
    told = words_of(folded(reply.text[:_CHARACTERS]))
    words = {name for name in told if name.startswith("=") and len(name) < _LETTERS_MOST}
    strongest = _model().strongest(words, kind, _WORDS_MOST) or _model().strongest(told - words, kind, _WORDS_MOST)
    return tuple(name.removeprefix("=").strip() for name in strongest)


def prepare() -> None:
    """Reads the model now: the first reply need not wait for it."""
    _model()


@cache
def _model() -> Linear:
    return Linear.load("opinion.json")

"""A second opinion on replies that no rule knows by their text: which class's replies they are most like.

A naive Bayes model (multinomial) over the letters by threes, the codes and the stage, learned by `scripts/learn` from
the examples of config/rules.toml and the collections of replies that may be read (tests/mail/replies/seen*.jsonl), and
kept as opinion.json. Promise: it is asked only where a rule that is `vague` holds; it changes the class and nothing
else, neither verdict nor action; and never to a class that leads to suppression: it is a guess.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.spelling import folded

OPINION = "opinion"
"""The rule's name of what was classified so."""
MARGIN = 1.5
"""Natural logarithm of how much likelier the class has to be than the next."""
KNOWN_LEAST = 10
"""Features that it must know: of a word or two it has no opinion."""
SUPPRESSING = frozenset(("user-unknown", "moved", "inactive", "suspended", "mailbox-full", "host-unknown"))
_OTHER = re.compile(r"[^\w@]+")


class Opinion(NamedTuple):
    """kind: "" if there is none. margin: in natural logarithms, over the next class. because: the features that speak
    most for it, the strongest first."""

    kind: str
    margin: float
    because: tuple[str, ...]


class _Model(NamedTuple):
    """bases: of each kind, the logarithm of its share. rare: … of a feature it never had. features: feature → kind →
    how much more than that."""

    bases: dict[str, float]
    rare: dict[str, float]
    features: dict[str, dict[str, float]]


def features(reply: Reply, stage: str) -> set[str]:
    """Threes of letters, "code 550", "status .7.1", "stage rcpt"."""
    text = f" {_OTHER.sub(' ', folded(reply.text)).strip()} "
    threes = {text[at : at + 3] for at in range(len(text) - 2)}
    return threes | {f"code {reply.code}", f"status {reply.enhanced[1:]}", f"stage {stage}"}


@lru_cache(2_048)
def opinion(reply: Reply, stage: str) -> Opinion:
    """reply: in the server's own words, addresses as "@"."""
    model = _model()
    known = features(reply, stage) & model.features.keys()
    scores = {kind: base + len(known) * model.rare[kind] for kind, base in model.bases.items()}
    for feature in known:
        for kind, more in model.features[feature].items():
            scores[kind] += more
    best, after = sorted(scores, key=scores.__getitem__, reverse=True)[:2]
    margin = scores[best] - scores[after]
    if margin < MARGIN or best in SUPPRESSING or len(known) < KNOWN_LEAST:
        return Opinion("", margin, ())
    strongest = sorted(known, key=lambda name: -_weight(model, name, best, after))
    return Opinion(best, margin, tuple(strongest[:5]))


def _weight(model: _Model, feature: str, best: str, after: str) -> float:
    of = model.features[feature]
    return of.get(best, 0.0) + model.rare[best] - of.get(after, 0.0) - model.rare[after]


@cache
def _model() -> _Model:
    text = resources.files(__package__).joinpath("opinion.json").read_text(encoding="utf-8")
    return _Model(*json.loads(text))

"""A linear model of which kind a text is of (multinomial logistic regression), as `scripts/learn` writes it.

A text is a set of features; each speaks for or against kinds. Features are known by a hash alone (2¹⁸ buckets), so
that a model takes little memory. Pure, and without a library: to say a kind is to add.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from base64 import b64decode
from collections.abc import Iterable
from importlib import resources
from itertools import accumulate, pairwise
from typing import NamedTuple
from zlib import crc32, decompress

BUCKETS = 1 << 18
SCALE = 100
"""Weights are kept as integers, in parts of it."""
_MASK = BUCKETS - 1
_OTHER = re.compile(r"[^\w@]+")
_DIGITS = re.compile(r"\d+")


class Scores(NamedTuple):
    """of: each kind's score, in natural logarithms: only their differences mean something. known: how many features
    the model knows."""

    of: dict[str, float]
    known: int

    @property
    def best(self) -> str:
        return max(self.of, key=self.of.__getitem__)

    def likelihood(self, kind: str) -> float:
        """From 0 to 1."""
        return 1 / sum(math.exp(score - self.of[kind]) for score in self.of.values())


class Linear:
    """kinds, the bias of each; counts: of each bucket, how many kinds it speaks of; these kinds by number (`of`), and
    its weight for each (`weights`), bucket by bucket; lessons: a digest of what it was learned from."""

    def __init__(
        self, kinds: list[str], biases: list[float], counts: bytes, of: bytes, weights: bytes, lessons: str
    ) -> None:
        self.kinds, self.biases, self.lessons = kinds, biases, lessons
        self._starts = array("I", accumulate(counts, initial=0))
        self._of, self._weights = of, array("h", weights)

    @classmethod
    def load(cls, name: str) -> Linear:
        """One of those beside this file."""
        return cls.read(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))

    @classmethod
    def read(cls, text: str) -> Linear:
        """From JSON in which bytes are compressed and base64."""
        kinds, biases, *packed, lessons = json.loads(text)
        counts, of, weights = (decompress(b64decode(part)) for part in packed)
        return cls(kinds, biases, counts, of, weights, lessons)

    def scores(self, features: Iterable[str]) -> Scores:
        sums, known, starts, of, weights = [0] * len(self.kinds), 0, self._starts, self._of, self._weights
        for feature in features:
            at = crc32(feature.encode()) & _MASK
            first, end = starts[at], starts[at + 1]
            if first != end:
                known += 1
                for number, weight in zip(of[first:end], weights[first:end], strict=True):
                    sums[number] += weight
        length = SCALE * math.sqrt(known or 1)
        by_kind = zip(self.kinds, self.biases, sums, strict=True)
        return Scores({kind: bias + total / length for kind, bias, total in by_kind}, known)

    def strongest(self, features: Iterable[str], kind: str, most: int) -> tuple[str, ...]:
        """Features that speak for a kind, the strongest first."""
        told = sorted(((self._weight(name, self.kinds.index(kind)), name) for name in features), reverse=True)
        return tuple(name for weight, name in told[:most] if weight > 0)

    def _weight(self, feature: str, kind: int) -> int:
        at = bucket(feature)
        numbers = range(self._starts[at], self._starts[at + 1])
        return next((self._weights[number] for number in numbers if self._of[number] == kind), 0)


def bucket(feature: str) -> int:
    return crc32(feature.encode()) & _MASK


def words_of(text: str, mark: str = "") -> set[str]:
    """Features of a folded text: words, pairs of words, letters by fours. Numbers are "0". mark: stands before each."""
    text = f" {_DIGITS.sub('0', _OTHER.sub(' ', text)).strip()} "
    words = text.split()
    found = {f"{mark}{text[at : at + 4]}" for at in range(len(text) - 3)}
    found.update(f"{mark}={word}" for word in words)
    found.update(f"{mark}{one} {other}" for one, other in pairwise(words))
    return found

"""scripts/learn: which replies belong to which class (`mail.rules.opinion`), and which kind a mail is of that came back
(`mail.feedback.likeness`): linear models of the rules' examples and the collections that may be read."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from zlib import compress

from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from understood import replies, reports
from zonemta_py.mail.feedback import likeness
from zonemta_py.mail.feedback.enclosed import parted
from zonemta_py.mail.feedback.parts import take_apart
from zonemta_py.mail.models.linear import BUCKETS, SCALE, bucket
from zonemta_py.mail.rules.opinion import features
from zonemta_py.mail.rules.rules import Rules, as_said

_MODELS = Path(__file__).parents[2] / "zonemta_py" / "mail" / "models"
OPINION, KINDS = _MODELS / "opinion.json", _MODELS / "kinds.json"
TIMES_LEAST = 2
"""A feature that is rarer is left out."""
WEIGHT_LEAST = 0.1
"""Smaller weights are left out."""
REGULARIZATION = 20.0
"""Its inverse (C); of 5 to 100 the best on replies it had not learned from."""

Lesson = tuple[set[str], str]


def main() -> None:
    _write(KINDS, of_mails(), digest(mails_read()))
    _write(OPINION, of_replies(), digest(replies_read()))  # of what the reader finds, which asks the other


def _write(file: Path, lessons: Iterable[Lesson], read: str) -> None:
    lessons = list(lessons)
    model = [*learned(lessons), read]
    file.write_text(json.dumps(model, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")
    print(f"{file.name}: {file.stat().st_size // 1024} KB of {len(lessons)} lessons")


def digest(files: Iterable[Path]) -> str:
    """Of the files that a model is learned from; while it is the same, so is the model."""
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]


def replies_read() -> list[Path]:
    return [*sorted(replies.FOLDER.glob("seen*.jsonl")), *mails_read()]


def mails_read() -> list[Path]:
    return [path for path in sorted(reports.FOLDER.glob("*.jsonl")) if not path.stem.endswith("_final")]


def of_replies() -> Iterator[Lesson]:
    """Classes: the lessons of the shipped rules and of all that may be read."""
    yield from of_rules(Rules.parse([(replies.RULES.name, replies.RULES.read_text("utf-8"))]))  # asks no model
    for path in sorted(replies.FOLDER.glob("seen*.jsonl")):
        yield from of_collection(replies.read(path))
    for path in mails_read():
        for mail in reports.read(path):
            yield from of_report(mail)


def of_rules(rules: Rules) -> Iterator[Lesson]:
    for rule in rules.rules:
        for example in rule.examples if rule.kind != "undefined" else ():
            yield features(as_said(example.reply), example.stage), rule.kind


def of_collection(entries: Iterable[replies.Entry]) -> Iterator[Lesson]:
    """But for logins: who is refused there is refused for our password, whatever the words."""
    for entry in entries:
        if entry.stage != "auth":
            yield features(as_said(entry.reply), entry.stage), entry.kinds[0]


def of_report(mail: reports.Mail) -> Iterator[Lesson]:
    """What the reader finds in it, with the class that is right."""
    for expected, found in reports.matched(mail)[1]:
        if found and found.kind in reports.BOUNCES and expected.classes:
            yield features(as_said(found.reply), "report"), expected.classes[0]


def of_mails() -> Iterator[Lesson]:
    """Kinds."""
    for mail in (mail for path in mails_read() for mail in reports.read(path)):
        parts = take_apart(mail.message)
        text, original = parted(parts.text)
        parts.original = parts.original or original
        yield likeness.features(parts, text), mail.expected[0].kinds[0]


def learned(lessons: list[Lesson]) -> list[object]:
    """What `Linear.read` reads, but for the digest; each lesson's features have the length 1 together."""
    found = [sorted(map(bucket, features)) for features, _ in lessons]
    seen = Counter(at for one in found for at in one)
    kept = [[at for at in one if seen[at] >= TIMES_LEAST] for one in found]
    values = [1 / math.sqrt(len(one)) for one in kept for _ in one]
    starts = [0, *accumulate(map(len, kept))]
    table = csr_matrix((values, [at for one in kept for at in one], starts), (len(kept), BUCKETS))
    columns = sorted({at for one in kept for at in one})
    model = LogisticRegression(C=REGULARIZATION, max_iter=500).fit(table[:, columns], [kind for _, kind in lessons])
    counts, of, weights = bytearray(BUCKETS), bytearray(), array("h")
    for at, column in zip(columns, model.coef_.T, strict=True):
        for number, weight in enumerate(map(float, column)):
            if abs(weight) >= WEIGHT_LEAST:
                counts[at] += 1
                of.append(number)
                weights.append(round(SCALE * weight))
    packed = [b64encode(compress(part, 9)).decode() for part in (bytes(counts), bytes(of), weights.tobytes())]
    return [[str(kind) for kind in model.classes_], [round(float(bias), 2) for bias in model.intercept_], *packed]


if __name__ == "__main__":
    main()

"""scripts/learn: a model of which replies belong to which class (`mail.rules.opinion`), from the rules' examples and
the collections that may be read."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from understood import replies
from zonemta_py.mail.rules.opinion import features
from zonemta_py.mail.rules.rules import Rules, as_said

FILE = Path(__file__).parents[2] / "zonemta_py" / "mail" / "rules" / "opinion.json"
TIMES_LEAST = 3
"""A feature that is rarer in all replies is left out."""
SMOOTH = 0.1
"""Added to each count."""

Lesson = tuple[set[str], str]


def main() -> None:
    rules = replies.shipped()
    collections = sorted(replies.FOLDER.glob("seen*.jsonl"))
    lessons = [*of_rules(rules), *(one for path in collections for one in of_collection(replies.read(path)))]
    FILE.write_text(json.dumps(learned(lessons), separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size // 1024} KB of {len(lessons)} replies")


def of_rules(rules: Rules) -> Iterable[Lesson]:
    for rule in rules.rules:
        for example in rule.examples if rule.kind != "undefined" else ():
            yield features(as_said(example.reply), example.stage), rule.kind


def of_collection(entries: Iterable[replies.Entry]) -> Iterable[Lesson]:
    for entry in entries:
        if entry.kinds[0] == "undefined":
            continue
        yield features(as_said(entry.reply), entry.stage), entry.kinds[0]


def learned(lessons: list[Lesson]) -> list[object]:
    """The parts of `opinion._Model`, logarithms to two places."""
    seen = Counter(feature for found, _ in lessons for feature in found)
    kinds = Counter(kind for _, kind in lessons)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for found, kind in lessons:
        counts[kind].update(feature for feature in found if seen[feature] >= TIMES_LEAST)
    kept = sorted(feature for feature, times in seen.items() if times >= TIMES_LEAST)
    bases = {kind: round(math.log(kinds[kind] / len(lessons)), 2) for kind in sorted(kinds)}
    rare = {kind: math.log(SMOOTH / (counts[kind].total() + SMOOTH * len(kept))) for kind in bases}
    weights = {
        feature: {k: round(math.log((counts[k][feature] + SMOOTH) / SMOOTH), 2) for k in bases if counts[k][feature]}
        for feature in kept
    }
    return [bases, {kind: round(value, 2) for kind, value in rare.items()}, weights]


if __name__ == "__main__":
    main()

"""A collection of replies, and what the rules make of each.

A line of a collection is a JSON object:
  reply: its lines as the server sent them, joined by "\\n". stage: where it came, as in rules. source: a
    public page, or "own". provider: of config/providers.toml, or "".
  class: one of the classes; a list where honest people differ.
  hard: true if a good sender gives up on this message now; false if it may be taken later or from elsewhere; null
    where honest people differ.
  suppress: "never" if it is wrong to suppress the recipient after this one reply, else "may".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.mail import classify
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.rule import OTHER_NAMES
from zonemta_py.mail.rules.rules import Classified, Rules

FOLDER = Path(__file__).parents[2] / "tests" / "mail" / "replies"
RULES = Path(__file__).parents[2] / "config" / "rules.toml"


class Entry(NamedTuple):
    """One reply and how it is to be understood. kinds: all classes that are right."""

    text: str
    reply: Reply
    stage: str
    provider: str
    kinds: tuple[str, ...]
    hard: bool | None
    suppress: str
    source: str


class Understood(NamedTuple):
    """What became of an entry: its class, whether the queue gives up, whether one reply suppresses, by which rule."""

    entry: Entry
    kind: str
    hard: bool
    agreed: bool
    rule: str

    @property
    def class_right(self) -> bool:
        return self.kind in self.entry.kinds

    @property
    def hard_right(self) -> bool:
        return self.entry.hard is None or self.hard == self.entry.hard

    @property
    def falsely_suppressed(self) -> bool:
        return self.agreed and self.entry.suppress == "never"


@dataclass(slots=True, frozen=True)
class Figures:
    """Of one collection. Shares are percentages; false_suppressions and number are counts."""

    number: int
    class_right: float
    hard_right: float
    undefined: float
    false_suppressions: int
    suppressed: float
    """Of those where one reply may suppress, so many do. No aim: caution costs a second mail."""


def read(path: Path) -> list[Entry]:
    """Raises ValueError that names the line."""
    entries = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            entries.append(_entry(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: {error!r}; see the docstring of {__name__}") from None
    return entries


def _entry(row: dict[str, Any]) -> Entry:
    kinds = (row["class"],) if isinstance(row["class"], str) else tuple(row["class"])
    if row["suppress"] not in ("may", "never") or row["hard"] not in (True, False, None):
        raise ValueError(f"suppress is {row['suppress']!r}, hard {row['hard']!r}")
    reply = reply_of(row["reply"])
    stage = OTHER_NAMES.get(row["stage"], row["stage"])
    return Entry(row["reply"], reply, stage, row["provider"], kinds, row["hard"], row["suppress"], row["source"])


def reply_of(text: str) -> Reply:
    """From lines as "550-5.1.1 a\\n550 b"."""
    lines = text.split("\n")
    return Reply.from_lines(int(lines[0][:3]), [line[4:] for line in lines])


def understand(rules: Rules, entry: Entry) -> Understood:
    """As the queue does it: what the code says in that stage, then what the rules make of it."""
    judged = classify.judge(entry.reply, entry.stage)
    classified: Classified = rules.judge(judged.reply, entry.stage, entry.provider)
    verdict = classified.action.verdict
    hard = judged.permanent if not verdict else verdict == "bounce"
    return Understood(entry, classified.kind, hard, classified.agreed, classified.rule)


def measured(rules: Rules, entries: Iterable[Entry]) -> list[Understood]:
    return [understand(rules, entry) for entry in entries]


def figures(found: list[Understood]) -> Figures:
    clear = [one for one in found if one.entry.hard is not None]
    enough = [one for one in found if one.entry.suppress == "may"]
    return Figures(
        number=len(found),
        class_right=share(one.class_right for one in found),
        hard_right=share(one.hard_right for one in clear),
        undefined=share(one.kind == "undefined" and not one.class_right for one in found),
        false_suppressions=sum(one.falsely_suppressed for one in found),
        suppressed=share(one.agreed for one in enough),
    )


def share(those: Iterable[bool]) -> float:
    values = list(those)
    return round(100 * sum(values) / len(values), 1) if values else 100.0


def confusion(found: list[Understood]) -> list[tuple[str, str, int]]:
    """(the right class, the one it was taken for, how often)…, the most frequent first."""
    pairs = Counter((one.entry.kinds[0], one.kind) for one in found if not one.class_right)
    return [(right, wrong, number) for (right, wrong), number in pairs.most_common()]


def shipped() -> Rules:
    return Rules.load([RULES])

"""A collection of mails that come back, and what `mail.feedback` and the rules make of each.

A line of a collection is a JSON object: the mail as text (mail) or as bytes (base64), its name if it has one, and
found, a list of objects of what it says of each recipient:
  kind: one of `mail.feedback.report.KINDS`. recipient: "" if it is not named.
  hard, class: of bounces and delays, as in a collection of replies (`replies`); class null: it does not matter.
Where honest people differ, kind, recipient and class are lists of what is right, and hard is null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from understood.replies import Entry, share, understand
from zonemta_py.mail.feedback.read import read as read_report
from zonemta_py.mail.feedback.report import KINDS, WISH, Found
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.rules import Rules

FOLDER = Path(__file__).parents[2] / "tests" / "mail" / "feedback" / "unseen"
BOUNCES = frozenset(("bounce", "delay"))


class Expected(NamedTuple):
    """News of one recipient: all that is right. hard None, classes (): it does not matter."""

    kinds: tuple[str, ...]
    recipients: tuple[str, ...]
    hard: bool | None
    classes: tuple[str, ...]


class Mail(NamedTuple):
    """One mail of a collection."""

    message: bytes
    expected: tuple[Expected, ...]


class News(NamedTuple):
    """What was expected, what was found (None: nothing), and what the queue and the rules make of that."""

    expected: Expected
    found: Found | None
    hard: bool
    kind: str
    """The class of the reply."""
    kept: bool = False
    """Understood as a wish to leave in prose, which is kept for an operator: as right as an unsubscribe. Its
    recipient is whoever wrote it."""

    @property
    def kind_right(self) -> bool:
        kinds = self.expected.kinds
        return self.found is not None and (self.found.kind in kinds or (self.kept and "unsubscribe" in kinds))

    @property
    def recipient_right(self) -> bool:
        return self.found is not None and (self.kept or self.found.recipient.lower() in self.expected.recipients)

    @property
    def hard_right(self) -> bool:
        return self.kind_right and self.expected.hard in (None, self.hard)

    @property
    def class_right(self) -> bool:
        return not self.expected.classes or self.kind in self.expected.classes


class Understood(NamedTuple):
    """One mail, and the form it was recognized as. spurious: what was found and not expected."""

    mail: Mail
    form: str
    news: tuple[News, ...]
    spurious: tuple[Found, ...]

    @property
    def false_bounce(self) -> bool:
        expected = {kind for one in self.mail.expected for kind in one.kinds}
        found = [one.found for one in self.news if one.found] + list(self.spurious)
        return "bounce" not in expected and any(one.kind == "bounce" for one in found)

    @property
    def right(self) -> bool:
        wrong = any(not (one.recipient_right and one.hard_right and one.class_right) for one in self.news)
        return not wrong and not self.spurious


@dataclass(slots=True, frozen=True)
class Figures:
    """Of one collection. Shares are percentages: kind of all news, recipient and hardness together, the same of bounces
    and delays alone, reason of these. false_bounces: mails that are no bounce and were taken for one. spurious: news of
    nobody."""

    number: int
    kind_right: float
    recipient_and_hard_right: float
    bounces_right: float
    class_right: float
    false_bounces: int
    spurious: int


def read(path: Path) -> list[Mail]:
    """Raises ValueError that names the line."""
    mails = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            message = base64.b64decode(row["base64"]) if "base64" in row else row["mail"].encode()
            mails.append(Mail(message, tuple(_expected(found) for found in row["found"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: {error!r}; see the docstring of {__name__}") from None
    return mails


def _expected(row: dict[str, Any]) -> Expected:
    kinds, recipients = _several(row["kind"]), _several(row["recipient"])
    classes = () if row.get("class") is None else _several(row["class"])
    if unknown := [kind for kind in kinds if kind not in KINDS] + [name for name in classes if name not in CLASSES]:
        raise ValueError(f"there is no {unknown[0]!r}")
    return Expected(kinds, tuple(one.lower() for one in recipients), row.get("hard"), classes)


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def measured(rules: Rules, mails: Iterable[Mail]) -> list[Understood]:
    return [_understood(rules, mail) for mail in mails]


def matched(mail: Mail) -> tuple[str, list[tuple[Expected, Found | None]], list[Found]]:
    """The form that the reader recognizes, what it finds of each that was expected, and what it finds beside that."""
    report = read_report(mail.message)
    left, pairs = list(report.found), list[tuple[Expected, Found | None]]()
    for expected in sorted(mail.expected, key=lambda one: one.recipients == ("",)):
        found = next((one for one in left if one.recipient.lower() in expected.recipients), None)
        found = found or next(iter(left), None) if len(left) >= len(mail.expected) - len(pairs) else found
        if found:
            left.remove(found)
        pairs.append((expected, found))
    return report.form, pairs, left


def _understood(rules: Rules, mail: Mail) -> Understood:
    form, pairs, left = matched(mail)
    return Understood(mail, form, tuple(_judged(rules, form, *pair) for pair in pairs), tuple(left))


def _judged(rules: Rules, form: str, expected: Expected, found: Found | None) -> News:
    if found is None or found.kind not in BOUNCES:
        return News(expected, found, False, "", form == WISH)
    reply = found.reply
    understood = understand(rules, Entry(str(reply), reply, "report", "", (), None, "may", ""))
    return News(expected, found, understood.hard and found.kind == "bounce", understood.kind)


def figures(found: list[Understood]) -> Figures:
    news = [one for mail in found for one in mail.news]
    bounces = [one for one in news if BOUNCES & set(one.expected.kinds) and one.expected.classes]
    return Figures(
        number=len(found),
        kind_right=share(one.kind_right for one in news),
        recipient_and_hard_right=share(one.recipient_right and one.hard_right for one in news),
        bounces_right=share(
            one.recipient_right and one.hard_right for one in news if BOUNCES & set(one.expected.kinds)
        ),
        class_right=share(one.class_right for one in bounces),
        false_bounces=sum(mail.false_bounce for mail in found),
        spurious=sum(len(mail.spurious) for mail in found),
    )

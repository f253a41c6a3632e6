"""How much of a corpus of reports is read as its labels say.

A line of labels is JSON: {"file": "a/b.eml", "found": [[kind, recipient, "hard" or "soft", reasons], …]}; hardness and
reasons (classes of rules, "|" between those that are right) are "" for what is neither bounce nor delay. A recipient ""
is one that the report does not tell.

labels/ has those of github.com/sisimai/set-of-emails, whose mails are not here: `-apart` of the tenth (by SHA-256 of
the file's name: first byte below 26) that was not looked at before it had been measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mail.shipped_rules import SHIPPED as RULES
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.feedback.report import Found

NEWS = ("bounce", "delay")


class Row(NamedTuple):
    """A recipient's news as it is to be read."""

    kind: str
    recipient: str
    hardness: str
    reasons: str


class Compared(NamedTuple):
    """One report. whom: kind, recipients, hardness are right. why: of each bounce and delay, whether the reason is."""

    name: str
    whom: bool
    why: list[bool]
    auto_reply_as_bounce: bool
    said: list[str]


def compare(name: str, message: bytes, rows: list[Row]) -> Compared:
    found = read(message).found
    reasons = [RULES.judge(one.reply, "report", "").kind for one in found]
    whom = [_whom(one) for one in found] == [(row.kind, row.recipient.lower(), row.hardness) for row in rows]
    news = [(at, row.reasons.split("|")) for at, row in enumerate(rows) if row.kind in NEWS]
    why = [len(reasons) > at and reasons[at] in right for at, right in news]
    answers = any(row.kind in ("auto-reply", "challenge") for row in rows)
    bounced = any(one.kind == "bounce" for one in found)
    said = [f"{one.kind} {one.recipient} {reason}: {one.reply}" for one, reason in zip(found, reasons, strict=True)]
    return Compared(name, whom, why, answers and bounced, said)


def labelled(folder: Path, labels: Path) -> Iterable[Compared]:
    """Each report of the labels, which are in the folder."""
    for line in labels.read_text("utf-8").splitlines():
        entry = json.loads(line)
        rows = [Row(*row) for row in entry["found"]]
        yield compare(entry["file"], (folder / entry["file"]).read_bytes(), rows)


def figures(compared: list[Compared]) -> str:
    """ "610 reports: recipient and hardness 99.1 %, reason 96.0 % of 598, auto-replies taken for bounces 0"."""
    whys = [right for one in compared for right in one.why]
    return (
        f"{len(compared)} reports: recipient and hardness {_share([one.whom for one in compared])} %, "
        f"reason {_share(whys)} % of {len(whys)}, "
        f"auto-replies taken for bounces {sum(one.auto_reply_as_bounce for one in compared)}"
    )


def _whom(found: Found) -> tuple[str, str, str]:
    hardness = ("hard" if found.reply.permanent else "soft") if found.kind in NEWS else ""
    return found.kind, found.recipient.lower(), hardness


def _share(rights: list[bool]) -> float:
    return round(100 * sum(rights) / len(rights), 1) if rights else 100.0

"""What happened: mail and attempts of a stretch of time, as the journal's segments tell.

The same reader serves the archive and the journal of a replay, so that what is compared was counted in one way.
Damage costs the records it hit; `History.faults` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.disk.frame import Record
from zonemta_py.journal import segments
from zonemta_py.journal.facts import Accepted, Answered, Removed, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import RELEASED
from zonemta_py.mail.reply import Reply


class PastAttempt(NamedTuple):
    """One answer to one recipient. kind: the reply's class ("" where no rule was asked). ms: when it was known."""

    ms: int
    verdict: int
    reply: Reply
    stage: str
    kind: str
    took_ms: int
    zone: str
    source: str
    site: str
    provider: str


@dataclass(slots=True)
class Mail:
    """A message as it was accepted. recipients: [zone, address, notify, orcpt] each."""

    id: str
    ms: int
    metadata: dict[str, Any]
    recipients: list[list[Any]]


@dataclass(slots=True)
class History:
    """mails: by id. attempts: by (id, address), in their order. removed: (id, address) → when."""

    mails: dict[str, Mail] = field(default_factory=dict)
    attempts: dict[tuple[str, str], list[PastAttempt]] = field(default_factory=dict)
    removed: dict[tuple[str, str], int] = field(default_factory=dict)
    faults: list[segments.Fault] = field(default_factory=list)

    def take(self, record: Record) -> None:
        for fact in facts_of(record) if record.type in (Type.ENVELOPE, Type.DELIVERY, Type.REMOVED) else ():
            match fact:
                case Accepted():  # a start may write it again: the mail came when it came first
                    self.mails.setdefault(fact.id, Mail(fact.id, record.ms, fact.metadata, fact.recipients))
                case Answered(trace=trace) if fact.number != RELEASED:
                    attempt = PastAttempt(
                        record.ms, fact.number, Reply(fact.code, fact.enhanced, fact.text), fact.stage, fact.kind,
                        int(trace.took_ms), fact.zone, trace.source, trace.site, trace.provider,
                    )  # fmt: skip
                    for address in fact.people:
                        self.attempts.setdefault((fact.id, address), []).append(attempt)
                case Removed():
                    self.removed.update({(fact.id, address): record.ms for address in fact.recipients})


def read(folders: Iterable[Path], progress: Callable[[int, int], None] = lambda done, all_: None) -> History:
    """All segments of the folders (archive/, journal/), each record once. progress(files read, files there are)."""
    history, seen = History(), -1
    paths = sorted((path for folder in folders for path in segments.files(folder)), key=segments.first_seq)
    for number, path in enumerate(paths, 1):
        for record in segments.read_file(path, history.faults):
            if record.seq > seen:
                seen = record.seq
                history.take(record)
        progress(number, len(paths))
    return history

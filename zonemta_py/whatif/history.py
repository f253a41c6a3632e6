"""What happened: mail and attempts of a stretch of time, as the journal's segments tell.

The same reader serves the archive and the journal of a replay, so that what is compared was counted in one way.
Damage costs the records it hit; `History.faults` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.disk.frame import Record
from zonemta_py.journal import folders, segments
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


def read(places: Iterable[Path], progress: Callable[[int, int], None] = lambda done, all_: None) -> History:
    """All segments of the folders (archive/, journal/) and of those of the MTA's other queues, each record once.
    progress(files read, files there are)."""
    history, read_, paths = History(), 0, dict[int, set[Path]]()
    for queue, place in (row for folder in places for row in folders.beside(folder).items()):
        paths.setdefault(queue, set()).update(folders.files(place))
    every = sum(map(len, paths.values()))

    def records(of_queue: set[Path]) -> Iterator[Record]:
        nonlocal read_
        seen = -1
        for path in sorted(of_queue, key=segments.first_seq):
            for record in segments.read_file(path, history.faults):
                if record.seq > seen:
                    seen = record.seq
                    yield record
            read_ += 1
            progress(read_, every)

    for record in folders.in_time(records(its) for its in paths.values()):
        history.take(record)
    return history

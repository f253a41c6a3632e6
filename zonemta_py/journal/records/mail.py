"""Records of the path of a message.

Four are written for every message, and there a class costs as much again as the packing. So they are packed by hand,
byte for byte the same (tests/queue/test_journal_records.py): ENVELOPE (`queue.lifecycle.accept`, whose metadata are
packed for the store already), START (`Lease.row`), DELIVERY (`queue.lifecycle.settle`) and FINISH (`Core`). The lake's
reader takes millions of them by position (`pipeline.journal.rows`). Values of the store: `disk.notes`.

`about`, of records about recipients: what their message's metadata and theirs are (`mail.metadata`); None: nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zonemta_py.disk.packing import pack
from zonemta_py.mail.metadata import about

DELIVERED, DEFERRED, BOUNCED, HELD, RELEASED, POSTPONED, DOUBTFUL = 1, 2, 3, 4, 5, 6, 7
"""Verdicts of an outcome. HELD: a plugin held it. RELEASED: not tried, back to the queue, no attempt counted.
POSTPONED: not tried, deferred by our own choice (`delay_s`), no attempt counted. DOUBTFUL: sent, and a bug of ours came
before the answer; never in a DELIVERY record: an IN_DOUBT record has it.
"""

VERDICTS = {
    DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced", HELD: "held", RELEASED: "requeued",
    POSTPONED: "postponed",
}  # fmt: skip
"""The word for each, wherever one is shown: events, log, trace, metrics, lake. Not "released": that is what an operator
does to held mail (MOVED)."""


class Who(NamedTuple):
    """A recipient of a START or of an outcome. before_ms: it was deferred until then (0: it was not). due_ms: it is.
    attempts: of an outcome's, with this one; 0: unknown."""

    address: str
    before_ms: int = 0
    due_ms: int = 0
    attempts: int = 0

    @classmethod
    def of(cls, value: Any) -> Who:
        """Of its address alone, or [address, before_ms, due_ms, attempts]."""
        return cls(*value[:4]) if isinstance(value, list) else cls(value)

    def value(self) -> Any:
        """The shortest form that says it: as in a START if it is not deferred now."""
        if self.due_ms:
            return list(self[:3])
        return list(self[:2]) if self.before_ms else self.address


def address_of(who: Any) -> str:
    """The address alone, of a value that `Who.of` takes: for reading whole journals."""
    return str(who[0] if isinstance(who, list) else who)


class RecipientRow(NamedTuple):
    """A recipient of an ENVELOPE. notify, orcpt: RFC 3461. meta: its metadata; the message's are in `metadata`."""

    zone: str
    address: str
    notify: int = 0
    orcpt: str | None = None
    meta: dict[str, Any] | None = None

    @classmethod
    def of(cls, fields: list[Any]) -> RecipientRow:
        return cls(*fields[:5])


class EnvelopeRecord(NamedTuple):
    """A message was accepted. metadata: as in the store. recipients: fields of `RecipientRow`. request: of the request
    that it came with, if that had a key: [key in the store, ms, suppressed, digest, until_ms] (`RequestRecord`)."""

    id: str
    metadata: dict[str, Any]
    recipients: list[list[Any]]
    request: list[Any] | None = None

    def pack(self) -> bytes:
        return pack(self if self.request else self[:3])

    @classmethod
    def of(cls, fields: list[Any]) -> EnvelopeRecord:
        return cls(*fields[:4])

    def rows(self) -> list[RecipientRow]:
        return [RecipientRow.of(row) for row in self.recipients]

    @property
    def people(self) -> list[str]:
        return [row[1] for row in self.recipients]

    @property
    def zones(self) -> list[str]:
        return list(dict.fromkeys([row[0] for row in self.recipients]))

    @property
    def about(self) -> list[Any] | None:
        return about(self.metadata, ((row[1], row[4]) for row in self.recipients if len(row) > 4))


class OpenRecord(NamedTuple):
    """The file of a large body is about to be made."""

    id: str

    def pack(self) -> bytes:
        return pack(self)

    @classmethod
    def of(cls, fields: list[Any]) -> OpenRecord:
        return cls(*fields[:1])


class StartRecord(NamedTuple):
    """Handed to a sender. recipients: values of `Who`. since_ms: UNIX time. provider, size: older ones have none."""

    lease: int
    id: str
    zone: str
    destination: str
    recipients: list[Any]
    since_ms: int
    provider: str = ""
    size: int = 0
    about: list[Any] | None = None

    def pack(self) -> bytes:
        return pack(self if self.about else self[:8])

    @classmethod
    def of(cls, fields: list[Any]) -> StartRecord:
        return cls(*fields[:9])

    @property
    def people(self) -> list[str]:
        return [address_of(who) for who in self.recipients]


class OutcomeRow(NamedTuple):
    """Recipients with the same outcome. recipients: values of `Who`. kind, rule, agreed: as of `Classified`. by: of a
    plugin's verdict: [its name, the hook, the server's own reply, "" if it has said nothing]."""

    verdict: int
    code: int
    enhanced: str
    text: str
    stage: str
    recipients: list[Any]
    relayed: bool = False
    kind: str = ""
    rule: str = ""
    agreed: bool = False
    by: list[str] | None = None

    @classmethod
    def of(cls, fields: list[Any]) -> OutcomeRow:
        return cls(*fields[:11])

    def addresses(self) -> list[str]:
        return [address_of(who) for who in self.recipients]


class DeliveryTrace(NamedTuple):
    """Which way a delivery went, and how long it took. security: rows of `delivery.tls.reports`."""

    remote: str = ""
    local: str = ""
    tls: str = ""
    started_ms: int = 0
    took_ms: int = 0
    source: str = ""
    site: str = ""
    provider: str = ""
    security: list[Any] | tuple[()] = ()

    @classmethod
    def of(cls, fields: list[Any]) -> DeliveryTrace:
        return cls._make(fields) if len(fields) == 9 else cls(*fields[:9])


class DeliveryRecord(NamedTuple):
    """What became of recipients of a START; for a pipelined batch, one after the other. notes: what plugins have
    changed (`mail.notes`): [of the message, by name; names of those that are gone; all of a recipient, by address]."""

    lease: int
    id: str
    zone: str
    destination: str
    outcomes: list[OutcomeRow]
    trace: DeliveryTrace
    notes: list[Any] | None = None
    about: list[Any] | None = None

    def pack(self) -> bytes:
        rows = [row if row.by else row[:10] if row.agreed else row[:9] for row in self.outcomes]
        more = [self.notes, self.about] if self.about else [self.notes] if self.notes else []
        return pack([*self[:4], rows, self.trace, *more])

    @classmethod
    def of(cls, fields: list[Any]) -> DeliveryRecord:
        lease, message_id, zone, destination, outcomes, trace = fields[:6]
        rows = [OutcomeRow.of(row) for row in outcomes]
        return cls(lease, message_id, zone, destination, rows, DeliveryTrace.of(trace), *fields[6:8])


class FinishRecord(NamedTuple):
    """No recipient is left. campaign: its message's, where that was known. moved: another queue of the MTA has taken
    the message over: [its number, how many recipients waited, how many had bounced and were kept]."""

    id: str
    campaign: str = ""
    moved: list[int] | None = None

    def pack(self) -> bytes:
        return pack(self if self.moved else self[:2] if self.campaign else [self.id])

    @classmethod
    def of(cls, fields: list[Any]) -> FinishRecord:
        return cls(*fields[:3])


class InDoubtRow(NamedTuple):
    """A recipient whose result may have been lost. action: of its zone, "retry" or "hold". destination: as in
    its START. why: it is held whatever its zone says."""

    id: str
    zone: str
    address: str
    since_ms: int
    action: str
    destination: str = ""
    why: str = ""
    about: list[Any] | None = None

    @classmethod
    def of(cls, fields: list[Any]) -> InDoubtRow:
        return cls(*fields[:8])


class InDoubtRecord(NamedTuple):
    """Leases whose result will never come. No recipients: they never reached their sender."""

    leases: list[int]
    recipients: list[InDoubtRow]

    def pack(self) -> bytes:
        rows = [
            row if row.about else row[:7] if row.why else row[:6] if row.destination else row[:5]
            for row in self.recipients
        ]
        return pack([self.leases, rows])

    @classmethod
    def of(cls, fields: list[Any]) -> InDoubtRecord:
        return cls(fields[0], [InDoubtRow.of(row) for row in fields[1]])


class RemovedRecord(NamedTuple):
    """Taken out, or left out when it came, without a delivery.

    where: {destination, due} the keys' places, where they are known (due is [] where none was deferred); `campaign`,
    `tenant`: of the message; `envelope`: the metadata of a message that no recipient was left of, and `request`: as of
    `EnvelopeRecord`; `lost`: it was lost
    to damage, and that case in quarantine/ has what is left; `by`: [plugin, hook] of who has dropped them; `about`: as
    of other records. None: where they were is unknown.
    """

    id: str
    zone: str
    recipients: list[str]
    reason: str
    where: dict[str, Any] | None = None

    def pack(self) -> bytes:
        return pack(self if self.where is not None else self[:4])

    @classmethod
    def of(cls, fields: list[Any]) -> RemovedRecord:
        return cls(*fields[:5])

    @property
    def more(self) -> dict[str, Any]:
        """`where`, {} if that is unknown."""
        return self.where or {}

    @property
    def about(self) -> list[Any] | None:
        return self.more.get("about")

    @property
    def envelope(self) -> dict[str, Any] | None:
        """None: the message is, or was, in the store."""
        return self.more.get("envelope")

    @property
    def case(self) -> str | None:
        """Not None: these recipients were lost to damage, and this names the case."""
        return self.more.get(LOST_CASE)


LOST_CASE = "lost"
"""In `where` of a REMOVED record."""


class MovedRecord(NamedTuple):
    """Held recipients released by an operator: deferred, due then. flow: their priority, tenant and campaign."""

    id: str
    zone: str
    recipients: list[str]
    due_ms: int = 0
    flow: str = ""
    about: list[Any] | None = None

    def pack(self) -> bytes:
        return pack(self if self.about else self[:5] if self.flow else self[:4])

    @classmethod
    def of(cls, fields: list[Any]) -> MovedRecord:
        return cls(*fields[:6])

"""Envelope and recipients: whom a message is from and for, and what the client asked for (RFC 5321, RFC 3461).

Everything here turns into plain lists for msgpack and back (`to_wire`, `from_wire`), so that the socket, the
store's metadata key and the journal's envelope record hold the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from itertools import compress, starmap
from operator import attrgetter
from typing import Any


class Notify(IntFlag):
    """NOTIFY= of RCPT (RFC 3461 4.1). UNSET: nothing was said, which means FAILURE (and DELAY if we like)."""

    UNSET = 0
    NEVER = 1
    SUCCESS = 2
    FAILURE = 4
    DELAY = 8


@dataclass(slots=True)
class Recipient:
    """One RCPT TO. address: as given (domain lower-cased). notify: flags of NOTIFY (`Notify`). orcpt: of ORCPT, as
    "rfc822;user@example.com".

    values: of a merged message: what its template is filled with, one for each of `Envelope.columns`; else None. noted:
    its notes, if there may be any. meta: its metadata (`mail.metadata`), None: there are none.
    """

    address: str
    notify: int = 0
    orcpt: str | None = None
    values: list[str] | None = None
    noted: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """What plugins keep with it (`mail.notes`)."""
        if self.noted is None:
            self.noted = {}
        return self.noted

    @notes.setter
    def notes(self, notes: dict[str, Any]) -> None:
        self.noted = notes

    @property
    def domain(self) -> str:
        """What follows the last @, lower case."""
        return self.address.rpartition("@")[2]

    def to_wire(self) -> list[Any]:
        row = [self.address, self.notify, self.orcpt]
        if self.meta:
            return [*row, self.values, self.noted, self.meta]
        if self.noted:
            return [*row, self.values, self.noted]
        return row if self.values is None else [*row, self.values]

    @classmethod
    def from_wire(cls, row: list[Any]) -> Recipient:
        return cls(*row)


@dataclass(slots=True)
class Envelope:
    """What is known about a message besides its bytes.

    sender: return path, "" for the null one. recipients: those that were not refused. size: bytes as stored. ret:
    "FULL", "HDRS" or None (RFC 3461 4.3). envid: ENVID of MAIL, None: not said. body: "7BIT" or "8BITMIME". smtputf8:
    it needs RFC 6531. protocol: "ESMTP", "ESMTPS", "ESMTPSA" … (RFC 3848), "LOCAL" for our own notices, "PLUGIN" for
    what plugins hand in. origin: the client's IP address. origin_name: what it called itself in EHLO. user: as who it
    has logged in, None: it has not; "plugin:NAME".
    received_ms: UNIX time in ms. headers: chosen fields, lower-case name → value (unfolded, first occurrence).
    sending_zone: value of X-Sending-Zone, if the listener let it pass. campaign, tenant: whose it is, None: nobody's in
    particular.

    priority: -9 … 9 (RFC 6710), None: nothing was said. hold_until_ms: not before (RFC 4865), UNIX ms, 0: at once.
    hold_for: it was said as an interval, so it lasts as long whatever the clock is set to.
    deadline_ms: too late after that (RFC 2852), UNIX ms, 0: never; deadline_mode: then "R" returns the message and "N"
    sends it on and tells the sender. require_tls: RFC 8689; tls_optional: its field TLS-Required: No. window: name of
    the sending hours; time_zone: the one they are in ("": as configured). unsubscribe: List-Unsubscribe is wanted;
    unsubscribe_scope: what that stops (`mail.addresses.link`), "": as configured. track: of opens and clicks, which
    are to be told: "yes", "no", "opens" or "clicks"; "": as configured.
    hashes: "relaxed" or "simple" → SHA-256 of the body in that canonical form (RFC 6376 3.4).

    A merged message has no body: `campaign` names the template that the sender fills for each recipient with its
    values, whose names are `columns`; size is then that of one typical message. columns: empty if it is not merged.
    source: the local address it is to be
    sent from. request: the client's key for this request, "" for none; digest: SHA-256 of what it asked for. life_h:
    hours after which it expires, 0: those of [retry]. token: by which its receiver asks for it if the queue dies
    before it answers. clock_ahead_ms: how far the clock was ahead of CLOCK_MONOTONIC when the intervals began that it
    asks for; the queue takes it out, 0: nothing was said. unsigned: its submitter is bound to no senders, so the
    keys of our domains do not sign it. account: whose it is (`config.accounts`), "" for none.
    lines: 1: all are short enough to be sent (`mail.lines`), 2: some are not, 0: nobody has looked.
    durability: "node": of a node of a cluster, it is accepted as soon as this one has it; the queue takes it out.
    notes: what plugins keep with it (`mail.notes`). scratch: what they keep while it is being received.
    edits: of its header section, since it was stored (`mail.edits`).
    meta: what whoever handed it in wants to get back (`mail.metadata`), None: nothing; each recipient's comes over it.
    chosen: header fields that come back likewise, lower-case name → value.
    """

    sender: str
    recipients: list[Recipient]
    size: int = 0
    ret: str | None = None
    envid: str | None = None
    body: str = "7BIT"
    smtputf8: bool = False
    origin: str = ""
    origin_name: str = ""
    user: str | None = None
    protocol: str = "ESMTP"
    received_ms: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    sending_zone: str | None = None
    campaign: str | None = None
    tenant: str | None = None
    priority: int | None = None
    hold_until_ms: int = 0
    hold_for: bool = False
    deadline_ms: int = 0
    deadline_mode: str = ""
    require_tls: bool = False
    tls_optional: bool = False
    window: str = ""
    time_zone: str = ""
    unsubscribe: bool = False
    unsubscribe_scope: str = ""
    track: str = ""
    hashes: dict[str, bytes] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    source: str = ""
    request: str = ""
    digest: bytes = b""
    life_h: float = 0
    token: str = ""
    clock_ahead_ms: int = 0
    unsigned: bool = False
    account: str = ""
    lines: int = 0
    durability: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    edits: list[Any] | None = None
    meta: dict[str, Any] | None = None
    chosen: dict[str, str] | None = None
    _scratch: dict[str, Any] | None = None

    @property
    def scratch(self) -> dict[str, Any]:
        """Anything; it is neither stored nor sent to another process."""
        if self._scratch is None:
            self._scratch = {}
        return self._scratch

    @property
    def merged(self) -> bool:
        """Whether each recipient gets a message of its own, made from the campaign's template."""
        if self.columns:
            return True
        for one in self.recipients:  # noqa: SIM110 (asked several times for each message; a generator costs more)
            if one.values is not None:
                return True
        return False

    def metadata(self) -> dict[str, Any]:
        """All but the recipients, as stored under `message <id> *`; fields at their default are left out."""
        row: dict[str, Any] = {"sender": self.sender, "size": self.size, "received_ms": self.received_ms}
        if self.priority is not None:
            row["priority"] = self.priority  # 0 is significant: it overrides the zone's default
        merged, told = bool(self.columns), bool(self.chosen)
        for one in self.recipients:
            if one.values is not None:
                merged = True
            if one.meta:
                told = True
        if merged:
            row["columns"] = self.columns
        values = _optional(self)
        row.update(compress(zip(_OPTIONAL, values, strict=True), values))
        if told and "meta" not in row:
            row["meta"] = {}  # one sign for all that has to come back
        return row

    @classmethod
    def from_metadata(cls, row: dict[str, Any], recipients: list[Recipient]) -> Envelope:
        if not row.keys() <= _FIELDS:
            row = {name: value for name, value in row.items() if name in _FIELDS}
        return cls(recipients=recipients, **row)

    def to_wire(self) -> list[Any]:
        rows = [
            [r.address, r.notify, r.orcpt] if r.values is None and not r.noted and not r.meta else r.to_wire()
            for r in self.recipients
        ]
        return [self.metadata(), rows]

    @classmethod
    def from_wire(cls, row: list[Any]) -> Envelope:
        return cls.from_metadata(row[0], list(starmap(Recipient, row[1])))


_OPTIONAL = (
    "ret", "envid", "body", "smtputf8", "origin", "origin_name", "user", "protocol", "headers", "sending_zone",
    "campaign", "tenant", "hold_until_ms", "hold_for", "deadline_ms", "deadline_mode", "require_tls", "tls_optional",
    "window", "time_zone", "unsubscribe", "unsubscribe_scope", "track",
    "hashes", "source", "request", "digest", "life_h",
    "token", "clock_ahead_ms", "unsigned", "account", "lines", "durability", "notes", "edits",
    "meta", "chosen",
)  # fmt: skip
_optional = attrgetter(*_OPTIONAL)
_FIELDS = frozenset(("sender", "size", "received_ms", "priority", "columns", *_OPTIONAL))

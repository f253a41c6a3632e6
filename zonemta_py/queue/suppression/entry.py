"""An entry of the suppression list: who gets no mail, of which scope, and why.

The scope says which mail an entry stops:

    all                everything
    zone:NAME          what leaves through that zone
    tenant:NAME        what that tenant sends
    campaigns          every campaign, all mail of zones that are for campaigns (`campaigns = true`), and what gets our
                       List-Unsubscribe
    campaigns:TENANT   the same, as far as that tenant sends it
    campaign:NAME      that campaign

Where none is said it is all, but for an unsubscribe: who leaves a newsletter leaves the campaigns of the tenant whose
campaign the entry names; all campaigns, where that has no tenant or none is named. Passwords and receipts still come.
A person can have an entry in each scope. A zone's `suppress` says which kinds stop its mail at all; an entry for the
zone itself always does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

from zonemta_py.config.zone import Kind, Zone
from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.records import Type, UnsuppressRecord
from zonemta_py.mail.address import AddressRefused, parse_mailbox
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.addresses.written import bare
from zonemta_py.mail.limits import ADDRESS_BYTES_MAX

KINDS: tuple[str, ...] = get_args(Kind)
"""What a person has said weighs more than what a machine found: the later ones take the place of the earlier ones."""
COMPLAINT, ERASED, UNSUBSCRIBE = "complaint", "erased", "unsubscribe"
ALL, CAMPAIGNS = "all", "campaigns"
SCOPES = "all, campaigns, campaigns:TENANT, campaign:NAME, tenant:NAME or zone:NAME"
WHOLE_BEGINS = UnsuppressRecord([], "whole")
"""The whole list follows. A SUPPRESS record without entries says that this was all of it."""
TEXT_CHARACTERS_MAX = 500
SCOPE_PATTERN = "^(all|campaigns|(campaigns|campaign|tenant|zone):[A-Za-z0-9][A-Za-z0-9._-]{0,62})$"
_SCOPE = re.compile(SCOPE_PATTERN.strip("^$"))


class Suppressed(NamedTuple):
    """A person on the list. since_ms: UNIX time. evidence: where the reason can be looked up. by: who said so.

    also: kinds of less weight that were said of the same person in the same scope. again: the record only repeats what
    an earlier one has said, which is counted already.
    """

    address: str
    kind: str
    since_ms: int
    reason: str
    evidence: str
    by: str
    campaign: str
    scope: str = ALL
    also: tuple[str, ...] = ()
    again: bool = False

    def key(self) -> bytes:
        return keys.suppressed(self.address, self.scope)

    def value(self) -> bytes:
        return records.pack([*self[1:7], self.also] if self.also else self[1:7])

    @classmethod
    def of(cls, key: bytes, value: bytes) -> Suppressed:
        """Raises ValueError, TypeError."""
        address, scope = keys.suppressed_place(key)
        fields = records.unpack(value)
        return cls(address, *fields[:6])._replace(scope=scope, also=tuple(*fields[6:7]))

    @classmethod
    def from_row(cls, row: list[Any]) -> Suppressed:
        """A row of a SUPPRESS record; the scope of those from before there were any is all."""
        more = row[7:10]
        scope, also, again = more + [ALL, [], False][len(more) :]
        return cls(*row[:7])._replace(scope=scope, also=tuple(also), again=bool(again))

    def row(self) -> list[Any]:
        """For a SUPPRESS record."""
        return list(self if self.again else self[:9] if self.also else self[:8] if self.scope != ALL else self[:7])

    def stops(self, zone: Zone) -> bool:
        """Whether it stops mail of its scope in that zone."""
        return self.scope == f"zone:{zone.name}" or any(kind in zone.suppress for kind in (self.kind, *self.also))

    def because(self) -> str:
        """What a REMOVED record says of it."""
        return self.kind if self.scope == ALL else f"{self.kind}, scope {self.scope}"

    def shown(self) -> dict[str, Any]:
        """As questions are answered."""
        row = self._asdict() | {"also": list(self.also)}
        del row["again"]
        return row


def joined(before: Suppressed, row: Suppressed) -> Suppressed:
    """What the list has once both are said of a person in one scope."""
    heavier = KINDS.index(row.kind) > KINDS.index(before.kind)
    base, other = (row, before) if heavier else (before, row)
    also = {*base.also, *other.also, other.kind} - {base.kind}
    return base._replace(also=tuple(sorted(also, key=KINDS.index)), again=not heavier)


def scopes_of(zone: Zone, tenant: str | None, campaign: str | None, bulk: bool = False) -> list[str]:
    """Every scope that this mail is of. bulk: it gets List-Unsubscribe."""
    found = [ALL, f"zone:{zone.name}"]
    if tenant:
        found.append(f"tenant:{tenant}")
    if campaign or bulk or zone.campaigns:
        found.append(CAMPAIGNS)
        if tenant:
            found.append(f"campaigns:{tenant}")
    if campaign:
        found.append(f"campaign:{campaign}")
    return found


def usual_scope(kind: str, tenant: str) -> str:
    """Of an entry that says none. tenant: of the campaign that it names."""
    if kind != UNSUBSCRIBE:
        return ALL
    return f"{CAMPAIGNS}:{tenant}" if tenant else CAMPAIGNS


def operations(kind: Type, body: Sequence[Any]) -> list[Operation]:
    """What a record of the list changes in the store."""
    if kind == Type.SUPPRESS:
        return [(entry.key(), entry.value()) for entry in map(Suppressed.from_row, body)]
    return [(keys.suppressed(address, scope), None) for address, scope in taken_off(body)]


def taken_off(body: Sequence[Any]) -> Iterable[tuple[str, str]]:
    """Address and scope of those that an UNSUPPRESS record speaks of."""
    record = UnsuppressRecord.of(body)
    scopes = [ALL] * len(record.addresses) if record.scopes is None else record.scopes
    return zip(record.addresses, scopes, strict=True)


def checked(row: list[Any], now_ms: int) -> Suppressed:
    """[address, kind, reason, evidence, by, campaign, since_ms, scope], the last six may be missing, the scope be "".

    Raises ValueError.
    """
    if not isinstance(row, list | tuple) or len(row) < 2 or not all(isinstance(text, str) for text in row[:6]):
        raise ValueError(f"{row!r} is not an entry; give address, kind, reason, evidence, by, campaign")
    given: list[Any] = [*row, *["", "", "", "", now_ms, ""][len(row) - 2 :]]
    address, kind, reason, evidence, by, campaign, since_ms, scope = given[:8]
    if kind not in KINDS:
        raise ValueError(f"{address}: there is no kind {kind!r}; use {', '.join(KINDS)}")
    texts = (text[:TEXT_CHARACTERS_MAX] for text in (reason, evidence, by, campaign))
    entry = Suppressed(checked_person(address), kind, int(since_ms or now_ms), *texts)
    return entry._replace(scope=checked_scope(scope) if scope else "")


def checked_scope(scope: Any) -> str:
    """Raises ValueError."""
    if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
        raise ValueError(f"{scope!r} is not a scope; use {SCOPES}")
    return scope


def checked_person(address: Any) -> str:
    """The address in its one spelling, also where it has a name beside it. Raises ValueError for what is no address."""
    if not isinstance(address, str) or not address.isprintable():
        raise ValueError(f"{address!r} is not an address; give one such as ann@example.com")
    try:
        spelling = person(parse_mailbox(bare(address)))
    except AddressRefused:
        spelling = ""
    if not spelling or len(spelling.encode()) > ADDRESS_BYTES_MAX:
        raise ValueError(f"{address!r} is not an address; give one such as ann@example.com")
    return spelling

"""An entry of the suppression list: who gets no mail (`spelling.py`), of which scope, and why.

The scope says which mail an entry stops:

    all                everything
    zone:NAME          mail that leaves through that zone
    tenant:NAME        that tenant's mail
    campaigns          every campaign, all mail of zones that are for campaigns (`campaigns = true`), and mail that gets
                       our List-Unsubscribe
    campaigns:TENANT   the same, of that tenant only
    list:NAME          mail of that list, by its List-Id (`mail.list_id`), that is of no tenant
    list:TENANT/NAME   the same, of that tenant
    campaign:NAME      mail of that campaign that is of no tenant
    campaign:TENANT/NAME   the same, of that tenant

Versions that did not know the last one wrote campaign:NAME for every tenant's mail. Their entries are not `exact`, and
go on stopping that campaign of whatever tenant: whoever left gets no mail again.

The default is all, except for an unsubscribe: that covers the campaigns of the tenant whose campaign the entry names;
all campaigns, if it has no tenant or none is named. Passwords and receipts still arrive. A person can have an entry in
each scope. A zone's `suppress` setting lists the kinds that stop its mail; an entry for the zone itself always does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from zonemta_py.config.zone import Kind, Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import SuppressRow, UnsuppressRecord
from zonemta_py.mail.addresses import entries as spelling
from zonemta_py.mail.list_id import campaign_scope, list_scope
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.queue.questions.question import Refused

KINDS: tuple[str, ...] = get_args(Kind)
"""By rank, lowest first: what a person has said ranks above what a machine found."""
COMPLAINT, ERASED, UNSUBSCRIBE = "complaint", "erased", "unsubscribe"
ALL, CAMPAIGNS = "all", "campaigns"
SCOPES = (
    "all, campaigns, campaigns:TENANT, campaign:NAME, campaign:TENANT/NAME, list:NAME, list:TENANT/NAME, tenant:NAME "
    "or zone:NAME"
)
WHOLE_BEGINS = UnsuppressRecord([], "whole")
"""The whole list follows. A SUPPRESS record without entries ends it."""
TEXT_CHARACTERS_MAX = 500
_PART = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
SCOPE_PATTERN = f"^(all|campaigns|(campaigns|tenant|zone):{_PART}|(list|campaign):({_PART}/)?{_PART})$"
_SCOPE = re.compile(SCOPE_PATTERN.strip("^$"))
_EVERY = re.compile(f"(list|campaign):{_PART}/")


class Suppressed(SuppressRow):
    """A person on the list, or what stands for many; address: as `spelling` has it."""

    __slots__ = ()

    def key(self) -> bytes:
        return keys.suppressed(self.address, self.scope)

    def value(self) -> bytes:
        more = [self.also, True] if self.exact else [self.also] if self.also else []
        return packing.pack([*self[1:7], *more])

    @classmethod
    def kept(cls, key: bytes, value: bytes) -> Suppressed:
        """As the store has it. Raises ValueError, TypeError."""
        address, scope = keys.suppressed_place(key)
        fields = packing.unpack(value)
        kind, since_ms, reason, evidence, by, campaign, *more = fields
        also = tuple(more[0]) if more else ()
        return cls(address, kind, since_ms, reason, evidence, by, campaign, scope, also, False, more[1:] == [True])

    @property
    def tenant(self) -> str:
        """Whose mail it stops; "" everybody's, or that of none."""
        kind, _, name = self.scope.partition(":")
        whose, slash, _ = name.partition("/")
        return whose if slash or kind in ("tenant", CAMPAIGNS) else ""

    def stops(self, zone: Zone, tenant: str | None) -> bool:
        """Whether it stops mail of its scope and that tenant in that zone."""
        if self.exact and tenant:
            return False
        return self.scope == f"zone:{zone.name}" or any(kind in zone.suppress for kind in (self.kind, *self.also))

    def because(self) -> str:
        """The reason as a REMOVED record has it."""
        said = self.kind if self.scope == ALL else f"{self.kind}, scope {self.scope}"
        return f"{said}, entry {self.address}" if spelling.is_covering(self.address) else said

    def shown(self) -> dict[str, Any]:
        """As shown in answers."""
        row = self._asdict() | {"address": spelling.literal(self.address), "also": list(self.also)}
        del row["again"], row["exact"]
        return row

    def as_new(self) -> Suppressed:
        """As this version writes it."""
        return self._replace(exact=self.scope.startswith("campaign:") and "/" not in self.scope)


def joined(before: Suppressed, row: Suppressed) -> Suppressed:
    """The entry that results from two for one person in one scope."""
    heavier = KINDS.index(row.kind) > KINDS.index(before.kind)
    base, other = (row, before) if heavier else (before, row)
    also = {*base.also, *other.also, other.kind} - {base.kind}
    exact = before.exact and row.exact  # an earlier version's entry goes on meaning what it did
    return base._replace(also=tuple(sorted(also, key=KINDS.index)), again=not heavier, exact=exact)


def scopes_of(
    zone: Zone, tenant: str | None, campaign: str | None, bulk: bool = False, list_name: str = ""
) -> list[str]:
    """Every scope that this mail belongs to. bulk: it gets List-Unsubscribe. list_name: of its list, "" none."""
    found = [ALL, f"zone:{zone.name}"]
    if tenant:
        found.append(f"tenant:{tenant}")
    if campaign or bulk or zone.campaigns:
        found.append(CAMPAIGNS)
        if tenant:
            found.append(f"campaigns:{tenant}")
    if list_name:
        found.append(list_scope(list_name, tenant or ""))
    if campaign:
        found += dict.fromkeys(campaign_scope(campaign, whose) for whose in (tenant or "", ""))
    return found


def usual_scope(kind: str, tenant: str) -> str:
    """The scope of an entry that names none. tenant: of the campaign that it names."""
    if kind != UNSUBSCRIBE:
        return ALL
    return f"{CAMPAIGNS}:{tenant}" if tenant else CAMPAIGNS


def operations(kind: Type, body: Sequence[Any]) -> list[Operation]:
    """The changes that a record of the list makes in the store."""
    if kind == Type.SUPPRESS:
        return [(entry.key(), entry.value()) for entry in map(Suppressed.of, body)]
    return [(keys.suppressed(address, scope), None) for address, scope in taken_off(body)]


def taken_off(body: Sequence[Any]) -> Iterable[tuple[str, str]]:
    """Address and scope of each entry in an UNSUPPRESS record."""
    record = UnsuppressRecord.of(body)
    scopes = [ALL] * len(record.addresses) if record.scopes is None else record.scopes
    return zip(record.addresses, scopes, strict=True)


def checked(row: list[Any], now_ms: int) -> Suppressed:
    """[address, kind, reason, evidence, by, campaign, since_ms, scope]; the last six may be missing, the scope may be
    "".

    Raises ValueError.
    """
    if not isinstance(row, list | tuple) or len(row) < 2 or not all(isinstance(text, str) for text in row[:6]):
        raise Refused(f"{row!r} is not an entry; give address, kind, reason, evidence, by, campaign")
    given: list[Any] = [*row, *["", "", "", "", now_ms, ""][len(row) - 2 :]]
    address, kind, reason, evidence, by, campaign, since_ms, scope = given[:8]
    if kind not in KINDS:
        raise Refused(f"{address}: there is no kind {kind!r}; use {', '.join(KINDS)}")
    texts = (text[:TEXT_CHARACTERS_MAX] for text in (reason, evidence, by, campaign))
    entry = Suppressed(checked_spelling(address), kind, int(since_ms or now_ms), *texts)
    return entry._replace(scope=checked_scope(scope) if scope else "")


def checked_scope(scope: Any) -> str:
    """Raises ValueError."""
    if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
        raise Refused(f"{scope!r} is not a scope; use {SCOPES}")
    if not scope.startswith("list:"):
        return scope
    whose, slash, name = scope.rpartition("/")
    return f"{whose}/{name.lower()}" if slash else scope.lower()


def checked_range(scope: Any) -> str:
    """The same, or all lists or campaigns of a tenant, "list:TENANT/" (`keys.suppressed_range`). Raises ValueError."""
    return scope if isinstance(scope, str) and _EVERY.fullmatch(scope) else checked_scope(scope)


def checked_spelling(text: object) -> str:
    """What an order names, as stored. Raises Refused."""
    return _refusing(spelling.checked, text)


def checked_person(address: object) -> str:
    """The same, where only an address will do. Raises Refused."""
    return _refusing(spelling.checked_person, address)


def _refusing(check: Callable[[object], str], text: object) -> str:
    try:
        return check(text)
    except InvalidValue as wrong:
        raise Refused(str(wrong)) from None

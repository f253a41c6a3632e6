"""A sender domain as an object: whose it is, its DKIM keys, the names of its return paths and links, and what DNS says.

Nothing of it is used before DNS was seen to have the record that belongs to it: a key signs once its record is there,
return paths and links get the domain's own names once those lead here. What was seen holds until it was seen to be
wrong for LOST_MS: a name server that answers nothing, or wrongly for an hour, breaks no signature that is right again
when it is checked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from zonemta_py.mail.addresses.domain import canonical

KeyState = Literal["waits", "signs", "retired"]
"""waits: its record was not seen yet; signs; retired: a newer one signs, and its record has to stay for mail that is on
its way."""
RETURN_PATH, SPF, LINK = "return_path", "spf", "link"
LOST_MS = 3 * 86_400_000
SOON_MS, LATER_MS, DAILY_MS = 120_000, 3_600_000, 86_400_000
"""How long after it was asked DNS is asked again: within FRESH_MS after a change, where something lacks; after that;
where nothing lacks."""
FRESH_MS = 2 * 86_400_000
KEYS_MAX = 8
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+")
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class DomainRefused(ValueError):
    """One sentence: what is wrong with a domain, or with what it is to have."""


class DomainKey(NamedTuple):
    """A DKIM key of a domain. pem: private. record: its TXT record. since_ms: of its state."""

    selector: str
    pem: str
    record: str
    state: KeyState
    since_ms: int


class Seen(NamedTuple):
    """What DNS said about a record. status: ok, missing, wrong or unknown (DNS could not be asked). words: what is
    there instead. ok_ms: when it was right last; 0: never. at_ms: when it was asked."""

    status: str
    words: str
    ok_ms: int
    at_ms: int

    @property
    def holds(self) -> bool:
        """Whether what belongs to it is used."""
        return self.ok_ms > 0 and (self.status in ("ok", "unknown") or self.at_ms < self.ok_ms + LOST_MS)


class SenderDomain(NamedTuple):
    """tenant: whose it is; "": nobody's in particular. return_path, link: names below it or its own; "": those of the
    configuration. seen: by record: selector of a key, RETURN_PATH, SPF, LINK. by: who has changed it last."""

    name: str
    tenant: str = ""
    keys: tuple[DomainKey, ...] = ()
    return_path: str = ""
    link: str = ""
    seen: Mapping[str, Seen] = {}
    made_ms: int = 0
    changed_ms: int = 0
    by: str = ""

    def pack(self) -> list[Any]:
        """Plain values."""
        return [
            self.name, self.tenant, [list(key) for key in self.keys], self.return_path, self.link,
            {name: list(one) for name, one in self.seen.items()}, self.made_ms, self.changed_ms, self.by,
        ]  # fmt: skip

    @classmethod
    def of(cls, values: list[Any]) -> SenderDomain:
        name, tenant, keys, return_path, link, seen, *rest = values
        return cls(
            name, tenant, tuple(DomainKey(*key) for key in keys), return_path, link,
            {record: Seen(*one) for record, one in seen.items()}, *rest[:3],
        )  # fmt: skip

    # -- when it is looked at

    def next_look_ms(self) -> int:
        """When DNS is to be asked again: soon after a change, until all is right; then daily."""
        asked_ms = max((one.at_ms for one in self.seen.values()), default=0)
        needed = [key.selector for key in self.keys if key.state != "retired"]
        needed += [RETURN_PATH, SPF] if self.return_path else []
        needed += [LINK] if self.link else []
        if all(name in self.seen and self.seen[name].status == "ok" for name in needed):
            return asked_ms + DAILY_MS
        return asked_ms + (SOON_MS if asked_ms < self.changed_ms + FRESH_MS else LATER_MS)

    # -- what of it is used

    def signing(self) -> list[DomainKey]:
        """The keys that sign."""
        return [key for key in self.keys if key.state == "signs"]

    @property
    def verp(self) -> str:
        """The domain of return paths, "": not its own, or what comes there would be lost."""
        mx, spf = self.seen.get(RETURN_PATH), self.seen.get(SPF)
        return self.return_path if mx is not None and spf is not None and mx.holds and spf.holds else ""

    @property
    def links(self) -> str:
        """The name that links begin with, "": not its own."""
        one = self.seen.get(LINK)
        return self.link if one is not None and one.holds else ""

    # -- changes

    def put(self, change: Mapping[str, Any], now_ms: int, by: str) -> SenderDomain:
        """With what somebody wants of it: tenant, return_path, link, key: [selector, pem, record]. A name that is
        changed has to be seen anew. Raises DomainRefused."""
        found = self._replace(changed_ms=now_ms, by=by, made_ms=self.made_ms or now_ms)
        if (tenant := change.get("tenant")) is not None:
            found = found._replace(tenant=checked_tenant(tenant))
        for field, records in (("return_path", (RETURN_PATH, SPF)), ("link", (LINK,))):
            if (name := change.get(field)) is not None and (name := self._own(field, name)) != getattr(found, field):
                seen = {record: one for record, one in found.seen.items() if record not in records}
                found = found._replace(**{field: name}, seen=seen)
        if (key := change.get("key")) is not None:
            selector, pem, record = map(str, key)
            found = found._with(DomainKey(selector, pem, record, "waits", now_ms))
        return found

    def _own(self, field: str, name: Any) -> str:
        own = checked_domain(name) if name else ""
        if own and own != self.name and not own.endswith(f".{self.name}"):
            raise DomainRefused(f"{field}: {own} is not below {self.name}; give a name such as mail.{self.name}")
        return own

    def _with(self, key: DomainKey) -> SenderDomain:
        if any(one.selector == key.selector for one in self.keys):
            raise DomainRefused(f"{self.name} has a key {key.selector!r} already; choose another selector")
        kept = [one for one in self.keys if one.state != "waits"]
        kept = kept[len(kept) + 1 - KEYS_MAX :] if len(kept) >= KEYS_MAX else kept
        return self._replace(keys=(*kept, key))  # one that still waits has signed nothing

    def looked(self, found: Mapping[str, tuple[str, str]], now_ms: int) -> SenderDomain:
        """With what DNS says now: record → status and words. The newest key whose record is there signs."""
        seen = dict(self.seen)
        for record, (status, words) in found.items():
            before = seen.get(record)
            ok_ms = now_ms if status == "ok" else before.ok_ms if before is not None else 0
            seen[record] = Seen(status, words, ok_ms, now_ms)
        return self._replace(seen=seen)._keys_by(seen, now_ms)

    def _keys_by(self, seen: Mapping[str, Seen], now_ms: int) -> SenderDomain:
        there = [key for key in self.keys if (one := seen.get(key.selector)) is not None and one.holds]
        newest = there[-1] if there else None
        keys = list[DomainKey]()
        for key in self.keys:
            state: KeyState = "signs" if key is newest else key.state
            if state == "signs" and key is not newest:
                state = "retired" if newest is not None else "waits"
            keys.append(key if state == key.state else key._replace(state=state, since_ms=now_ms))
        return self._replace(keys=tuple(keys))


def checked_domain(name: object) -> str:
    """In its one spelling. Raises DomainRefused."""
    text = canonical(name) if isinstance(name, str) else ""
    if not _DOMAIN.fullmatch(text):
        raise DomainRefused(f"{str(name)[:80]!a} is not a domain; write one such as example.com")
    return text


def checked_tenant(name: object) -> str:
    """Raises DomainRefused."""
    if not isinstance(name, str) or (name and not _TENANT.fullmatch(name)):
        raise DomainRefused(f"{str(name)[:80]!a} is not a tenant's name; use lower-case letters, digits, . _ and -")
    return name

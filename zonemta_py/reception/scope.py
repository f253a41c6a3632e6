"""Which tenants' and campaigns' mail somebody may see and change. Pure. The tenant "" has what is of no tenant.

What is asked is narrowed before it is asked: a filter gets the names of the scope, so that nothing of others is ever
read. Failures: OutOfScope, one sentence, for a filter that names only others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.glob import expression
from zonemta_py.mail.reply import Reply


class OutOfScope(Exception):
    """One sentence, without its subject."""


@dataclass(frozen=True, slots=True)
class KeyScope:
    """Empty: everything. With both, both must hold."""

    tenants: frozenset[str] = field(default_factory=frozenset)
    campaigns: frozenset[str] = field(default_factory=frozenset)

    @property
    def bound(self) -> bool:
        return bool(self.tenants or self.campaigns)

    def covers(self, tenant: str | None, campaign: str | None) -> bool:
        """Whether mail of that tenant and campaign is in it."""
        mine = not self.tenants or (tenant or "") in self.tenants
        return mine and (not self.campaigns or (campaign or "") in self.campaigns)

    def narrowed(self, where: dict[str, Any]) -> dict[str, Any]:
        """The same filter (`queue/tasks/where.py`), of what is in the scope. Raises OutOfScope."""
        found = dict(where)
        for name, own in self._named():
            found[name] = chosen(name, where.get(name), own)
        return found

    def holds(self, where: dict[str, Any]) -> bool:
        """Whether a filter means nothing but what is in it."""
        return all(0 < len(_listed(where.get(name))) == len(own.intersection(_listed(where.get(name))))
                   for name, own in self._named())  # fmt: skip

    def owner(self, named: str) -> str:
        """Whose what somebody brings is: the tenant that they name, or if they name none ("") the scope's, if there is
        just one. Raises OutOfScope."""
        if self.campaigns and not self.tenants:
            raise OutOfScope("is for campaigns, and attachments are a tenant's; give it tenants, too")
        if not self.tenants:
            return named
        tenant = named or (min(self.tenants) if len(self.tenants) == 1 else "")
        if tenant not in self.tenants:
            raise OutOfScope(f"is not for the tenant {tenant[:80]!r}; name one of {names(self.tenants)}"[:400])
        return tenant

    def take(self, envelope: Envelope) -> Reply | None:
        """Makes mail that names no tenant or campaign one of the scope's, if there is just one; why it is refused."""
        for name, own in self._named():
            said = getattr(envelope, name) or ""
            if not said and len(own) == 1:
                setattr(envelope, name, next(iter(own)) or None)
            elif said not in own:
                what = f"the {name} {said[:80]!r} is not" if said else f"which {name} is it of? it is none"
                remedy = f"name one of {names(own)}" if any(own) else "leave it out"
                return Reply(550, "5.7.1", f"{what} in this key's scope; {remedy}"[:400])
        return None

    def _named(self) -> list[tuple[str, frozenset[str]]]:
        return [(name, own) for name, own in (("tenant", self.tenants), ("campaign", self.campaigns)) if own]


EVERYTHING = KeyScope()


def chosen(name: str, wanted: Any, own: frozenset[str]) -> list[str]:
    """Those of `own` that a filter's value means; None: all. Raises OutOfScope."""
    found = sorted(own) if wanted is None else sorted(_meant(_listed(wanted), own))
    if not found:
        raise OutOfScope(f"is not for that {name}; it is for {names(own)}"[:400])
    return found


def names(own: Iterable[str]) -> str:
    """As a part of a sentence."""
    return ", ".join(one or "what is of none" for one in sorted(own))


def _meant(wanted: Iterable[Any], own: frozenset[str]) -> set[str]:
    patterns = [expression(one) for one in wanted if isinstance(one, str)]
    return {name for name in own for pattern in patterns if re.fullmatch(pattern, name)}


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]

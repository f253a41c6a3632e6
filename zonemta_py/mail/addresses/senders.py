"""Which addresses and domains a submitter may send as; checked for the return path and for the author.

A pattern is an address (ann@example.com), a domain (example.com), its subdomains (*.example.com) or all (*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zonemta_py.mail.addresses.authors import authors
from zonemta_py.mail.addresses.domain import canonical


class Senders:
    """patterns: None allows all. bound: any sender is forbidden. signed: mail of these is signed with our keys."""

    __slots__ = ("_addresses", "_domains", "_parents", "bound", "signed")

    def __init__(self, patterns: Sequence[str] | None, signed: bool = True) -> None:
        self.signed = signed
        self.bound = patterns is not None and "*" not in patterns
        rules = [_lower(pattern) for pattern in patterns or ()]
        self._addresses = frozenset(rule for rule in rules if "@" in rule)
        self._domains = frozenset(rule for rule in rules if "@" not in rule and rule[:2] != "*.")
        self._parents = tuple(rule[1:] for rule in rules if rule[:2] == "*.")

    def may(self, address: str) -> bool:
        """address: without angle brackets. The null one, "", is allowed to all: it names no one."""
        if not self.bound or not address:
            return True
        address = _lower(address)
        domain = address.rpartition("@")[2]
        return address in self._addresses or domain in self._domains or domain.endswith(self._parents)

    def refused(self, fields: Iterable[str]) -> str | None:
        """fields: the values of all From fields. The first author that is not allowed, or None.

        A field without an address is an author that is never allowed: a submitter bound to senders must name one.
        """
        if not self.bound:
            return None
        for value in fields:
            named = authors(value)
            if not named:
                return value.strip()[:80]
            for address in named:
                if not self.may(address):
                    return address
        return None


def _lower(address: str) -> str:
    local, at, domain = address.rpartition("@")
    if domain[:2] == "*.":
        return "*." + canonical(domain[2:])
    return local.lower() + at + canonical(domain)


ANYBODY = Senders(None)
"""All senders, and signed: for the machine's own mail."""
UNBOUND = Senders(None, signed=False)
"""The configuration does not say whom this submitter may send as, and there are other submitters."""

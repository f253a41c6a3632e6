"""Which of several queues on one machine takes a message.

What is pushed to a named queue goes to one queue by that name, what is of an account with a quota by the account, and
what has an idempotency key, as batches of a campaign do, by the key: to no other, or nobody would find it, it would be
counted in two places, or the same could be taken twice. All else goes by its first recipient's domain, however that is
written, so that one destination's connections, learned rates and limits stay together; where its queue takes nothing
now, the next one does.

Each name has one of SLOTS places, and each place its own order of the queues (rendezvous hashing): of N queues each is
first for about an Nth, and when one comes or goes only what it takes, or had, moves. The order depends on nothing else:
every process, and every start, finds the same.

Pure. Failures: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from zonemta_py.config import Config, Zone, queue_numbers
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.envelope import Envelope
from zonemta_py.zones.pull import PUSHED, queue_of
from zonemta_py.zones.router import Router

SLOTS = 4096
DOMAINS_MAX = 20_000
"""Domains whose order is remembered."""


def of(config: Config, numbers: Iterable[int] = ()) -> Placement:
    """Of the queues that a configuration wants; numbers: or of these."""
    accounts = [one.name for one in config.accounts if one.messages or one.recipients or one.sessions]
    return Placement([*numbers] or queue_numbers(config), accounts, config.zones)


class Placement:
    """Of the queues with these numbers. accounts: those that have a quota. zones: of the configuration; what comes as
    mail into a zone that clients fetch from goes where its named queue is."""

    def __init__(self, numbers: Iterable[int], accounts: Iterable[str] = (), zones: Sequence[Zone] = ()) -> None:
        self.numbers, self._accounts = tuple(sorted(set(numbers))), frozenset(accounts)
        self._fetched = {zone.name: queue_of(zone) for zone in zones if zone.pulled}
        self._router = Router(list(zones)) if self._fetched else None
        self._slots: list[tuple[int, ...] | None] = [None] * SLOTS
        self._domains: dict[str, tuple[int, ...]] = {}

    def order(self, envelope: Envelope) -> Sequence[int]:
        """The queue that takes it, and behind it those that do if it does not; only one: it is that one's alone."""
        if envelope.protocol == PUSHED:
            return (self.of_queue(envelope.recipients[0].address.rpartition("@")[0]),)
        if self._router is not None and envelope.recipients and (name := self._fetched_from(envelope)):
            return (self.of_queue(name),)
        if envelope.account and envelope.account in self._accounts:
            return (self.of_account(envelope.account),)
        if envelope.request:
            return (self.of_key(envelope.request),)
        return self.of_domain(envelope.recipients[0].domain if envelope.recipients else "")

    def _fetched_from(self, envelope: Envelope) -> str:
        """The named queue that its first recipient goes to, by the rules of the zones; "": to none."""
        assert self._router is not None
        first, headers = envelope.recipients[0].address, envelope.headers
        zone = self._router.route(envelope.sender, first, envelope.origin, envelope.sending_zone, headers).zone
        return self._fetched.get(zone, "")

    def of_domain(self, domain: str) -> tuple[int, ...]:
        """All of them, the nearest first. domain: also an address literal, or "", which are names like others."""
        found = self._domains.get(domain)
        if found is None:
            if len(self._domains) >= DOMAINS_MAX:
                self._domains.clear()
            found = self._domains[domain] = self._order("domain", canonical(domain))
        return found

    def of_queue(self, name: str) -> int:
        """The one that has what is pushed to a named queue."""
        return self._order("queue", name.lower())[0]

    def of_account(self, name: str) -> int:
        """The one that counts an account's quotas."""
        return self._order("account", name)[0]

    def of_plugin(self, plugin: str, name: str) -> int:
        """The one that has what a plugin keeps under a name (`api.store`)."""
        return self._order("plugin", f"{plugin} {name}")[0]

    def of_campaign(self, tenant: str, name: str) -> int:
        """The one that takes over the figures of a campaign from a queue that is to be no more."""
        return self._order("campaign", f"{tenant}~{name}")[0]

    def of_key(self, request: str) -> int:
        """The one that knows an idempotency key."""
        return self._order("key", request)[0]

    def _order(self, kind: str, name: str) -> tuple[int, ...]:
        said = f"{kind} {name}".encode("utf-8", "surrogatepass")
        slot = int.from_bytes(blake2b(said, digest_size=2).digest()) % SLOTS
        found = self._slots[slot]
        if found is None:
            found = self._slots[slot] = tuple(sorted(self.numbers, key=lambda number: _weight(slot, number)))
        return found


def _weight(slot: int, number: int) -> bytes:
    return blake2b(b"%d %d" % (slot, number), digest_size=16).digest()

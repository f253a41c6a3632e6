"""Which [[destinations]] tables apply to a recipient, and what zone and retry schedule come out of them.

Of the tables that claim its domain the most exact rule counts ("a.example.com" before "*.example.com" before "*"), of
those for its site likewise, and of two for the same thing the one that names its zone. Each key then comes from the
table of the domain, else from that of the site, else from that of the provider, else from the zone and [retry].

Promise: the order of the tables does not matter; a repeated question costs a look-up, and the memory for answers is
bounded. Pure; replaced as a whole when the configuration changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zonemta_py.config import Config, Retry, Zone
from zonemta_py.config import DestinationTable as Table
from zonemta_py.mail.addresses.domain import canonical

_CACHE_ENTRIES_MAX = 16_384
_BETWEEN = "+"


class SendingTerms(NamedTuple):
    """What holds for some mail of a zone. names: of the tables that apply, the first counts first. zone, retry: with
    their settings."""

    names: tuple[str, ...]
    zone: Zone
    retry: Retry


class Claims(NamedTuple):
    """What tables say of a recipient. apart: the names of those because of which its mail is kept apart from other mail
    to the same site, joined; "" if none. relayed: they name smart hosts."""

    apart: str
    terms: SendingTerms
    relayed: bool


class Destinations:
    """The tables of a configuration; false if there are none."""

    def __init__(self, config: Config) -> None:
        self._retry = config.retry
        self._zones = {zone.name: zone for zone in config.zones}
        self._tables = {table.name: table for table in config.destinations}
        self._domains = _Rules((table, map(canonical, table.domains)) for table in config.destinations)
        self._sites = _Rules((table, (rule.lower() for rule in table.sites)) for table in config.destinations)
        self._providers = _Rules((table, table.providers) for table in config.destinations)
        lives = [table.life_h for table in config.destinations if table.life_h is not None]
        self.shortest_life_h = min([config.retry.life_h, *lives])
        self._claims: dict[tuple[str, str, str, str], Claims] = {}
        self._terms: dict[tuple[str, tuple[str, ...]], SendingTerms] = {}

    def __bool__(self) -> bool:
        return bool(self._tables)

    def of(self, zone: Zone, domain: str, site: str, provider: str) -> Claims:
        """About a domain's mail; site and provider: where it would go without smart hosts, "" if unknown."""
        key = (zone.name, domain, site, provider)
        found = self._claims.get(key)
        if found is None:
            if len(self._claims) >= _CACHE_ENTRIES_MAX:
                self._claims.clear()
            found = self._claims[key] = self._find(zone, domain, site, provider)
        return found

    def _find(self, zone: Zone, domain: str, site: str, provider: str) -> Claims:
        own = self._domains.find(canonical(domain), zone.name)
        wider = self._wider(zone, site, provider)
        tables = [table for table in (own, *wider) if table is not None]
        terms = self.terms(zone, tuple(dict.fromkeys(table.name for table in tables)))
        relayed = any(table.hosts for table in tables)
        if relayed:  # then its site and provider are others, and only the name of its place says what applies
            return Claims(_BETWEEN.join(terms.names), terms, True)
        return Claims(own.name if own is not None and own.apart else "", terms, False)

    def _wider(self, zone: Zone, site: str, provider: str) -> list[Table]:
        found = (self._sites.find(site.partition("+")[0], zone.name), self._providers.find(provider, zone.name))
        return [table for table in found if table is not None]

    def apart(self, zone: Zone, domain: str) -> str:
        """The name of the table of its domain, if that keeps its mail apart."""
        own = self._domains.find(canonical(domain), zone.name)
        return own.name if own is not None and own.apart else ""

    def relayed(self, zone: Zone, domain: str) -> bool:
        """Whether smart hosts get its mail, wherever its domain's MX records point."""
        own = self._domains.find(canonical(domain), zone.name)
        return own is not None and bool(own.hosts)

    def there(self, zone: Zone, apart: str, site: str, provider: str) -> SendingTerms:
        """What holds for all mail of one place. apart: as in `Claims`; names that there are no more do not count."""
        names = [name for name in apart.split(_BETWEEN) if name in self._tables]
        names += [table.name for table in self._wider(zone, site, provider)]
        return self.terms(zone, tuple(dict.fromkeys(names)))

    def for_domain(self, terms: SendingTerms, zone: Zone, domain: str) -> SendingTerms:
        """What holds for a domain's mail in a place where that of others goes too."""
        own = self._domains.find(canonical(domain), zone.name)
        if own is None or own.name in terms.names:
            return terms
        return self.terms(zone, (own.name, *terms.names))

    def terms(self, zone: Zone, names: tuple[str, ...]) -> SendingTerms:
        """What comes out of these tables; unknown names do not count."""
        key = (zone.name, names)
        found = self._terms.get(key)
        if found is None or found.zone.name != zone.name:
            if len(self._terms) >= _CACHE_ENTRIES_MAX:
                self._terms.clear()
            found = self._terms[key] = self._made(zone, names)
        return found

    def _made(self, zone: Zone, names: tuple[str, ...]) -> SendingTerms:
        tables = [self._tables[name] for name in names if name in self._tables]
        sending: dict[str, object] = {}
        retry: dict[str, object] = {}
        for table in reversed(tables):
            sending |= table.sending
            retry |= table.retry
        zone = self._zones.get(zone.name, zone)
        return SendingTerms(
            tuple(table.name for table in tables),
            zone.model_copy(update=sending) if sending else zone,
            self._retry.model_copy(update=retry) if retry else self._retry,
        )


class _Rules:
    """Exact names in one table, "*.suffix" in another ("*" is the empty suffix); one zone's before those of all."""

    def __init__(self, claims: Iterable[tuple[Table, Iterable[str]]]) -> None:
        self._exact: dict[tuple[str, str], Table] = {}
        self._suffixes: dict[tuple[str, str], Table] = {}
        for table, rules in claims:
            for rule in rules:
                for zone in table.zones or ("",):
                    if rule.startswith("*"):
                        self._suffixes[zone, rule[2:]] = table
                    else:
                        self._exact[zone, rule] = table

    def find(self, name: str, zone: str) -> Table | None:
        if not name:
            return None
        found = self._exact.get((zone, name)) or self._exact.get(("", name))
        rest = name if self._suffixes else ""
        while rest and found is None:
            rest = rest.partition(".")[2]
            found = self._suffixes.get((zone, rest)) or self._suffixes.get(("", rest))
        return found

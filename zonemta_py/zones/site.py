"""A destination as limits count it: domains that share a set of mail exchangers are one site; sites have a provider.

`site_key` names a site, `order` says in which order its hosts are tried, `without_ourselves` prevents loops,
`Providers` knows which hosts belong to whom (config/providers.toml). Nothing here asks DNS.

Failures: `Providers.load` raises ConfigError, one sentence that names the file, the place in it and the remedy.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
import tomllib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonemta_py.config.section import NAME, ConfigError

Exchanges = tuple[tuple[int, str], ...]
"""(preference, host) as MX records say."""
Hosts = tuple[tuple[str, tuple[str, ...]], ...]
"""(host, its addresses); a host whose addresses could not be asked for now has none."""

_NEAR_MAX = 3
_UNFIT = re.compile(r"[^\w.:+\-\[\]]", re.ASCII)
_KEYS = {"name", "mx", "domains"}
_SUFFIX = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a domain's mail goes.

    key: see `site_key`. provider: its group, "" if none. hosts: in an order to try them, at least one with addresses.
    mx: the records, most preferred first, () where the domain itself is the host. ttl_s: seconds all of it may be kept.
    secure: DNSSEC vouches for the MX records, or for there being none (each host's own records are another question).
    """

    key: str
    provider: str
    hosts: Hosts
    mx: Exchanges
    ttl_s: float
    secure: bool


def site_key(domain: str, exchanges: Iterable[tuple[int, str]]) -> str:
    """The same for domains whose MX hosts are equal and preferred in the same order, whatever the numbers; readable:
    without MX the domain, with one host that host, else the most preferred one, "+" and a hash. Without blanks, "/" and
    "~". A host named twice counts where it is preferred more, for there it is tried.

    An address literal ([192.0.2.1]) stays as it is.
    """
    records = sorted(((preference, _plain(host)) for preference, host in exchanges), reverse=True)
    best = {host: preference for preference, host in records}
    if not best:
        return _fit(_plain(domain))
    ranks = {preference: rank for rank, preference in enumerate(sorted(set(best.values())))}
    ranked = sorted((ranks[preference], host) for host, preference in best.items())
    first = _fit(ranked[0][1])
    if len(ranked) == 1:
        return first
    text = "\n".join(f"{rank} {host}" for rank, host in ranked)
    return f"{first}+{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _fit(name: str) -> str:
    """What DNS allows in names and keys do not: escaped, so that different names stay different."""
    return _UNFIT.sub(lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), name)


def order(site: Site, chance: random.Random) -> list[list[Any]]:
    """[[host, [address …]] …] to try: by preference, at random within one (RFC 5321 5.1), and a host's addresses at
    random within each family, IPv4 first. Every call draws anew, so equals share the load.
    """
    preference = {host: number for number, host in reversed(site.mx)}
    hosts = [(preference.get(host, 0), chance.random(), host, addresses) for host, addresses in site.hosts]
    return [[host, shuffled(addresses, chance)] for _, _, host, addresses in sorted(hosts)]


def shuffled(addresses: Iterable[str], chance: random.Random) -> list[str]:
    """IPv4 first, each family in random order."""
    return sorted(addresses, key=lambda address: (":" in address, chance.random()))


def without_ourselves(exchanges: Exchanges, ours: Container[str]) -> Exchanges:
    """Cut off at the first host that is us: it and all that are not preferred to it (RFC 5321 5.1), or mail would loop.

    ours: hosts, as in the exchanges, that are ourselves.
    """
    bound = min((preference for preference, host in exchanges if host in ours), default=None)
    if bound is None:
        return exchanges
    return tuple((preference, host) for preference, host in exchanges if preference < bound)


class Providers:
    """The provider of hosts: suffixes of MX hosts and recipient domains → provider."""

    def __init__(self, mx: dict[str, str] | None = None, domains: dict[str, str] | None = None) -> None:
        self._mx, self._domains = mx or {}, domains or {}

    def of(self, mx_hosts: Iterable[str], domain: str) -> str:
        """The provider of the first host (give the most preferred first) that has one, else the domain's; "" if none.

        A suffix matches the host itself and everything below it; the longest counts.
        """
        for host in mx_hosts:
            name = _longest(self._mx, _plain(host))
            if name:
                return name
        return _longest(self._domains, _plain(domain))

    @property
    def domains(self) -> dict[str, str]:
        """Recipient domain → provider."""
        return dict(self._domains)

    @property
    def names(self) -> list[str]:
        return sorted({*self._mx.values(), *self._domains.values()})

    def unknown(self, name: str) -> str:
        """Why that is none of them: a part of a sentence; "" if it is one."""
        if name in (names := self.names):
            return ""
        near = difflib.get_close_matches(name, names, _NEAR_MAX)
        remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else f"use one of {', '.join(names)}"
        return f"there is no provider {name!r}; {remedy}"

    @classmethod
    def load(cls, path: Path) -> Providers:
        """Reads [[providers]]: name, mx (suffixes of MX hosts), domains (recipient domains). Raises ConfigError."""
        try:
            document = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error.strerror}); name an existing file in dns.providers"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: is not TOML: {error}; correct that line") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
        return cls.parse(document, str(path))

    @classmethod
    def parse(cls, document: dict[str, Any], where: str) -> Providers:
        """Takes the file's content; `where` names it in errors. Raises ConfigError."""
        providers = cls()
        tables = document.get("providers")
        if set(document) != {"providers"} or not isinstance(tables, list):
            raise ConfigError(f"{where}: has other things than [[providers]] tables in it; leave only those")
        for number, table in enumerate(tables, 1):
            providers._add(table, number, where)
        return providers

    def _add(self, table: Any, number: int, where: str) -> None:
        name = table.get("name") if isinstance(table, dict) else None
        if not isinstance(name, str) or not re.match(NAME, name):
            raise ConfigError(f"{where}: provider {number}: has no valid name; give it one such as name = 'google'")
        place = f"{where}: provider {name}"
        unknown = sorted(set(table) - _KEYS)
        if unknown:
            raise ConfigError(f"{place}: unknown key {unknown[0]}; there are name, mx and domains")
        if name in self.names:
            raise ConfigError(f"{place}: appears twice; merge the two tables")
        if not table.get("mx") and not table.get("domains"):
            raise ConfigError(f"{place}: has neither mx nor domains; give it one of them, or remove it")
        for key, known in (("mx", self._mx), ("domains", self._domains)):
            _claim(table.get(key, []), known, name, f"{place}: {key}")


def _claim(values: Any, known: dict[str, str], name: str, place: str) -> None:
    if not isinstance(values, list):
        raise ConfigError(f"{place}: is not a list; write {place.rpartition(' ')[2]} = ['example.com']")
    for value in values:
        if not isinstance(value, str) or not _SUFFIX.fullmatch(value):
            raise ConfigError(f"{place}: {value!r} is not a lower-case domain; write it such as 'example.com'")
        if value in known:
            raise ConfigError(f"{place}: {value!r} is {known[value]}'s already; leave it in one")
        known[value] = name


def _longest(known: dict[str, str], name: str) -> str:
    while name:
        if name in known:
            return known[name]
        name = name.partition(".")[2]
    return ""

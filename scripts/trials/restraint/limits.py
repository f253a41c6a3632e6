"""Every kind of limit on everything that it may count by: its configuration, its mail, and whose mail it counts.

Each limit has zones, two source addresses, domains and hosts of its own, so any number of them hold at the same time in
one MTA. Its mail is of two groups, a (two domains) and b (one): two zones, sites, providers, tenants or campaigns where
the limit counts by these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from restraint.names import Records
from restraint.traffic import Flow

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "all": (),
    "zone": ("zone",),
    "source": ("source",),
    "site": ("site",),
    "provider": ("provider",),
    "source-site": ("source", "site"),
    "tenant": ("tenant",),
    "campaign": ("campaign",),
}
DOMAINS = {"a1": "a", "a2": "a", "b1": "b"}
"""First label of a domain → its group."""


class Kind(NamedTuple):
    """config: the throttle's lines. rate: units a second (connections: at once). load: messages a second that reach it.

    recipients, sizes: of the messages, by turns. zone: more lines for the zones.
    """

    config: str
    rate: float
    burst: float
    load: float
    recipients: tuple[int, ...] = (1,)
    sizes: tuple[int, ...] = (400,)
    zone: str = ""


KINDS = {
    "connections": Kind("connections = 4", 4, 0, 45),
    "messages": Kind('messages = "40/s"\nburst = 5', 40, 5, 40),
    "recipients": Kind('recipients = "3600/min"\nburst = 10', 60, 10, 24, recipients=(1, 3, 5, 2)),
    "new_connections": Kind('new_connections = "600/min"\nburst = 2', 10, 2, 10, zone="messages_per_connection = 1\n"),
    "bytes": Kind('bytes = "200KB/s"\nburst = 20_000', 200_000, 20_000, 48, sizes=(700, 6000, 2500, 9000)),
}
Key = tuple[str, ...]
"""What one bucket of a limit counts: source and group, as far as the limit tells them apart."""


@dataclass(frozen=True)
class Limit:
    """number: makes its addresses its own. own: terms other than the usual ones of its kind."""

    dimension: str
    kind: str
    number: int
    own: Kind | None = None

    @property
    def name(self) -> str:
        return f"{self.dimension}-{self.kind.replace('_', '-')}"

    @property
    def terms(self) -> Kind:
        return self.own or KINDS[self.kind]

    @property
    def per(self) -> tuple[str, ...]:
        return DIMENSIONS[self.dimension]

    @property
    def sources(self) -> list[str]:
        return [f"127.2.{self.number}.{last}" for last in (1, 2)]

    @property
    def hosts(self) -> dict[str, str]:
        """MX host → its address."""
        return {
            host: f"127.1.{self.number}.{last}" for last, host in enumerate(sorted({*self._exchangers().values()}), 1)
        }

    def zone_of(self, group: str) -> str:
        """One for each group where that is how the limit counts, or where it must not matter."""
        return f"{self.name}.{group if self.dimension in ('all', 'zone') else 'a'}"

    def domain(self, label: str) -> str:
        return f"{label}.{self.name}.test"

    def _exchangers(self) -> dict[str, str]:
        """Domain → MX host: a site is two domains, where sites are counted; else each domain is one."""
        together = "site" in self.per
        return {
            self.domain(label): f"mx{'' if together else label}.{group}.{self.name}.test"
            for label, group in DOMAINS.items()
        }

    def records(self) -> Records:
        exchangers = {(domain, "MX"): f"10 {host}." for domain, host in self._exchangers().items()}
        return exchangers | {(host, "A"): address for host, address in self.hosts.items()}

    def config(self) -> str:
        zones = {
            self.zone_of(group): [
                self.domain(label) for label in DOMAINS if self.zone_of(DOMAINS[label]) == self.zone_of(group)
            ]
            for group in "ab"
        }
        text = ""
        for zone, domains in zones.items():
            text += f'[[zones]]\nname = "{zone}"\nport = {{port}}\ntls = "none"\nallow_private = true\n'
            text += f"recipient_domains = {domains}\nsources = {self.sources}\n{self.terms.zone}"
        only = f'{{{{ zone = "{self.name}.*" }}}}'
        return (
            text + f'[[throttles]]\nname = "{self.name}"\nper = {list(self.per)}\nonly = {only}\n{self.terms.config}\n'
        )

    def providers(self) -> str:
        """For dns.providers: two sites to a provider."""
        return "".join(
            f'[[providers]]\nname = "{self.name}.{group}"\nmx = ["{group}.{self.name}.test"]\n' for group in "ab"
        )

    def flows(self, seconds: float) -> dict[Flow, int]:
        """So many messages that all of its buckets have enough of them for so long."""
        buckets = len(self.buckets()) / (1 if self.per in ((), ("source",)) else 2)
        count = int(self.terms.load * buckets * seconds * 1.3) + 50
        flows = {}
        for label, group in DOMAINS.items():
            fields = {"X-Tenant": f"{self.name}.{group}"} if self.dimension == "tenant" else {}
            if self.dimension == "campaign":
                fields = {"X-Campaign": f"{self.name}.{group}"}
            flow = Flow(self.domain(label), self.terms.recipients, self.terms.sizes, fields)
            flows[flow] = count if group == "b" else count // 2 + 1
        return flows

    # -- whose mail it counts

    def key(self, source: str, group: str) -> Key:
        by_source = (source,) if "source" in self.per else ()
        return (*by_source, group) if set(self.per) - {"source"} else by_source

    def buckets(self) -> list[Key]:
        return sorted({self.key(source, group) for source in self.sources for group in "ab"})

    def question(self, key: Key) -> str:
        """What an operator asks `zonemta explain` about, to find this limit."""
        group = key[-1] if key and key[-1] in "ab" else "a"
        if self.dimension == "source":
            return key[0]
        if self.per in ((), ("zone",)):
            return self.zone_of(group)
        return self.domain(f"{group}1") if "site" in self.per else f"{self.name}.{group}"


def chosen(dimensions: Iterable[str], kinds: Iterable[str]) -> list[Limit]:
    """Every kind on every dimension."""
    every = ((dimension, kind) for dimension in dimensions for kind in kinds)
    return [Limit(dimension, kind, number) for number, (dimension, kind) in enumerate(every, 1)]


def parse(names: Iterable[str]) -> Iterator[Limit]:
    """ "source-site/bytes" … → limits."""
    for number, name in enumerate(names, 1):
        dimension, _, kind = name.partition("/")
        yield Limit(dimension, kind, number)


def config(limits: Iterable[Limit], port: int, dns_port: int, providers: str) -> str:
    """More lines for the configuration. providers: path of the file with `Limit.providers`."""
    dns = f'[dns]\nservers = ["127.0.0.1"]\nport = {dns_port}\nproviders = "{providers}"\n'
    return dns + "".join(limit.config().format(port=port) for limit in limits)

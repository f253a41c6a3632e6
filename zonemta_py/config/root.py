"""The whole file: all sections, and checks across them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import PrivateAttr, ValidationInfo, model_validator

from zonemta_py.config.accounts import Account
from zonemta_py.config.cluster import ClusterSection, node_name
from zonemta_py.config.limits import Learning, SharesSection, Throttle, Window
from zonemta_py.config.reception import Limits, Listener
from zonemta_py.config.section import ConfigError, Faults, FileContext, Place, Section
from zonemta_py.config.security import DkimKey, Signing, Tls
from zonemta_py.config.server import Dns, LogSection, MetadataSection, Plugins, Queue, RulesSection, ServerSection
from zonemta_py.config.services.events import EventSink
from zonemta_py.config.services.http import OF_ALL, Http
from zonemta_py.config.services.links import Links, Unsubscribing
from zonemta_py.config.services.notices import NoticesSection
from zonemta_py.config.services.pull import PullSection
from zonemta_py.config.services.reports import ReportsSection
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.config.sources import Pool, Source, Warmup
from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.config.values import Refers, SenderRule, marked
from zonemta_py.config.zone import DestinationTable, Retry, Zone
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.reroute import POOL, ZONE, RerouteTarget


class Config(Section):
    """The whole file."""

    server: ServerSection = ServerSection.model_construct()
    log: LogSection = LogSection.model_construct()
    metadata: MetadataSection = MetadataSection.model_construct()
    listeners: list[Listener] = [Listener.model_construct()]
    users: dict[str, str] = {}
    """User name → password hash, made by `zonemta config password`."""
    senders: dict[str, list[SenderRule]] = {}
    """User name → whom the user may send as, in MAIL FROM and in From: addresses, domains, *.domain, *
    (ann = ["ann@example.com", "news.example.com"]); the same is relay_senders of a listener, and senders of an HTTP
    key. One that is not named may be anybody, but where several users, keys and networks hand in mail, [[dkim]] keys
    do not sign its mail: write ["*"] for one that may send as any domain. This machine itself always may."""
    accounts: list[Account] = []
    http: Http = Http.model_construct()
    pull: PullSection = PullSection.model_construct()
    links: Links = Links.model_construct()
    limits: Limits = Limits.model_construct()
    retry: Retry = Retry.model_construct()
    queue: Queue = Queue.model_construct()
    zones: list[Zone] = [Zone.model_construct(name="default", default=True)]
    destinations: list[DestinationTable] = []
    dns: Dns = Dns.model_construct()
    pools: list[Pool] = []
    warmups: list[Warmup] = []
    throttles: list[Throttle] = []
    learning: Learning = Learning.model_construct()
    shares: SharesSection = SharesSection.model_construct()
    windows: list[Window] = []
    rules: RulesSection = RulesSection.model_construct()
    suppression: SuppressionSection = SuppressionSection.model_construct()
    tls: Tls = Tls.model_construct()
    dkim: list[DkimKey] = []
    signing: Signing = Signing.model_construct()
    return_path: ReturnPath = ReturnPath.model_construct()
    notices: NoticesSection = NoticesSection.model_construct()
    event_sinks: list[EventSink] = []
    reports: ReportsSection = ReportsSection.model_construct()
    plugins: Plugins = Plugins.model_construct()
    cluster: ClusterSection = ClusterSection.model_construct()
    _queue: int = PrivateAttr(0)
    _queues: tuple[int, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Config:
        """All that is wrong between the tables."""
        names = info.context.names if isinstance(info.context, FileContext) else {}
        found = [
            *self._twice(), *self._references(names), *self._claims(), *self._places(), *self._destinations(),
            *self._of_accounts(), *self._signing(), *self._return_path(), *self._durabilities(names),
        ]  # fmt: skip
        if found:
            raise Faults(found)
        return self

    def _twice(self) -> Iterator[tuple[Place, str]]:
        for kind in (
            "accounts", "zones", "destinations", "listeners", "pools", "warmups", "throttles", "windows", "event_sinks",
        ):  # fmt: skip
            names = [section.name for section in getattr(self, kind)]
            for number, name in enumerate(names):
                if name in names[:number]:
                    yield (kind, number), f"two {kind} are named {name!r}; give each its own name"
        instances = [one.name for one in self.plugins.instances]
        for number, name in enumerate(instances):
            if name in instances[:number]:
                what = f"two plugins.instances are named {name!r}; give each its own name"
                yield ("plugins", "instances", number), what
        writers: dict[Path | None, str] = {}
        for number, sink in enumerate(self.event_sinks):
            if sink.kind == "file" and (other := writers.setdefault(sink.path, sink.name)) != sink.name:
                what = f"event_sinks {other!r} and {sink.name!r} write to the same path; give each its own file"
                yield ("event_sinks", number, "path"), what
        if not self.zones:
            yield ("zones",), "there is no zone; add a [[zones]] table with a name"
        if sum(zone.default for zone in self.zones) > 1:
            yield ("zones",), "more than one zone has default = true; keep it in one"

    def _references(self, names: dict[str, set[str]]) -> Iterator[tuple[Place, str]]:
        """Names of other tables are those of tables that there are. names: of tables in which something is wrong."""
        known: dict[str, set[str]] = {
            kind: {section.name for section in getattr(self, kind)} | names.get(kind, set())
            for kind in ("zones", "pools", "warmups", "windows")
        }
        known["users"], known["http.keys"] = set(self.users), {key.name for key in self.http.keys}
        known["http.keys"] |= names.get("http.keys", set())
        taking = [*self.listeners, *([self.http.listener] if self.http.enabled else [])]
        known["listeners"] = {one.name for one in taking} | names.get("listeners", set())
        pulled = {zone.name for zone in self.zones if zone.pulled}
        for place, name, mark in marked(self, Refers):
            there = known[mark.kind] - (pulled if mark.sends else set())
            if name not in there:
                yield place, _nobody(name, mark, there, name in pulled)
        if self.tls.dane and not self.dns.dnssec:
            yield (
                ("tls", "dane"),
                "needs dns.dnssec = true and a validating resolver, otherwise anybody could forge TLSA records",
            )
        for number, throttle in enumerate(self.throttles):
            for dimension, wrong in throttle.elsewhere(
                known["zones"], self.source_addresses, bool(self.plugins.enabled)
            ):
                yield ("throttles", number, "only", dimension), wrong

    def _reroutes(self, names: dict[str, set[str]]) -> Iterator[tuple[Place, str]]:
        """The pools and zones that zones reroute to are there, and none of those reroutes again."""
        again = {zone.name for zone in self.zones if zone.reroute and zone.reroute.to.startswith("zone ")}
        for number, zone in enumerate(self.zones):
            if zone.reroute is None:
                continue
            to, place = RerouteTarget.of(zone.reroute.to), ("zones", number, "reroute", "to")
            known = {one.name for one in self.pools} | names.get("pools", set())
            sends = {one.name for one in self.zones if not one.pulled} | names.get("zones", set())
            if (to.kind == POOL and to.name not in known) or (to.kind == ZONE and to.name not in sends):
                yield place, f"there is no {to.kind} {to.name!r} that sends; name another"
            elif to.kind == ZONE and to.name in again:
                yield place, f"zone {to.name!r} reroutes to a zone itself, and mail is rerouted once; name another"

    @property
    def source_addresses(self) -> set[str]:
        """All that is sent from, but for what plugins choose."""
        named = [address for zone in self.zones for address in zone.sources]
        named += [address for table in self.destinations for address in table.sources or ()]
        return {*named, *(source.address for pool in self.pools for source in pool.sources)}

    def _places(self) -> Iterator[tuple[Place, str]]:
        """Sockets share ports here, so that the system would let two listeners have one, and mix up their clients."""
        taken: dict[tuple[str, int], str] = {}
        for one in self.all_listeners:
            place = one.address, one.port
            if (other := taken.get(place)) and other != one.name:
                where = f"{one.address} port {one.port}"
                yield ("listeners",), f"listeners {other!r} and {one.name!r} are both at {where}; give each its own"
            taken[place] = one.name

    def _destinations(self) -> Iterator[tuple[Place, str]]:
        """No two tables say the same kind of thing about one destination: their order in the file must not matter."""
        claimed: dict[tuple[str, str, str], str] = {}
        for number, table in enumerate(self.destinations):
            claims = [("domains", canonical(one)) for one in table.domains]
            claims += [("sites", one.lower()) for one in table.sites]
            claims += [("providers", one) for one in table.providers]
            for kind, rule in claims:
                for zone in table.zones or [""]:
                    other = claimed.setdefault((kind, rule, zone), table.name)
                    if other != table.name:
                        what = f"destinations {other!r} and {table.name!r} both claim {kind} {rule!r}; keep it in one"
                        yield ("destinations", number, kind), what

    def _of_accounts(self) -> Iterator[tuple[Place, str]]:
        """What they name is of one account."""
        claimed: dict[tuple[str, str], str] = {}
        for number, account in enumerate(self.accounts):
            for kind in ("users", "keys", "networks"):
                for name in getattr(account, kind):
                    if (other := claimed.setdefault((kind, name), account.name)) != account.name:
                        what = f"accounts {other!r} and {account.name!r} both have {kind} {name!r}; keep it in one"
                        yield ("accounts", number, kind), what
            yield from self._keys_of(number, account)

    def _keys_of(self, number: int, account: Account) -> Iterator[tuple[Place, str]]:
        """They are for its tenant, and for nothing that is of no tenant."""
        for key in self.http.keys if account.tenant else ():
            if key.name not in account.keys:
                continue
            where = f"the key {key.name!r} is of account {account.name!r} and its tenant {account.tenant!r}"
            if key.tenants and account.tenant not in key.tenants:
                yield (
                    ("accounts", number, "keys"),
                    f"{where}, but has other tenants; remove its tenants, or take it out of the account",
                )
            if wide := set(OF_ALL).intersection(key.rights or ()):
                yield (
                    ("accounts", number, "keys"),
                    f"{where}, and the right {min(wide)} is about things of no tenant; remove one of them",
                )

    def _signing(self) -> Iterator[tuple[Place, str]]:
        active = {key.domain for key in self.dkim if key.state == "active"}
        if self.signing.third_party and self.signing.third_party not in active:
            what = f"no active [[dkim]] key is for {self.signing.third_party}; add one"
            yield ("signing", "third_party"), what
        names: set[str] = set()
        for name in (key.name for key in self.dkim):
            if name in names:
                yield ("dkim",), f"two keys are named {name}; give each its own selector"
            names.add(name)
        signed = {name.lower() for name in self.signing.headers}
        if self.unsubscribing.wanted and self.dkim and not {"list-unsubscribe", "list-unsubscribe-post"} <= signed:
            yield (
                ("signing", "headers"),
                "signing.headers lacks List-Unsubscribe or List-Unsubscribe-Post; add both (RFC 8058)",
            )

    def _return_path(self) -> Iterator[tuple[Place, str]]:
        """What comes back finds somebody who takes it, and can go on."""
        path = self.return_path
        taking = [(number, one.name) for number, one in enumerate(self.listeners) if one.feedback]
        if taking and not path.takes:
            yield (
                ("listeners", taking[0][0], "feedback"),
                f"listener {taking[0][1]!r} has feedback = true, but [return_path] has no address that anything can"
                " come back to; set verp, srs, bounces, complaints, reports or unsubscribe_domain there",
            )
        if (path.bounces or path.complaints or path.reports) and not taking:
            yield (
                ("return_path",),
                "return_path has addresses for bounces, complaints or reports, but no listener takes mail there; set"
                " feedback = true in one of [[listeners]]",
            )
        if (path.verp or path.srs or path.unsubscribe_domain or path.list_unsubscribe) and not path.secret:
            yield (
                ("return_path", "secret"),
                "return_path needs a secret for its signatures; `zonemta config secret` makes one",
            )

    def _durabilities(self, names: dict[str, set[str]]) -> Iterator[tuple[Place, str]]:
        if self.cluster.enabled or names.get("cluster"):  # what is wrong with that table is said of it
            return
        places: list[Place] = [
            ("listeners", number, "durability") for number, one in enumerate(self.listeners) if one.durability == "node"
        ]
        if self.http.durability == "node":
            places.append(("http", "durability"))
        for place in places:
            yield (
                place,
                'durability = "node" is for a node of a cluster; without [cluster] 250 always means that this machine'
                " has it on its disk, so leave it out",
            )

    def _claims(self) -> Iterator[tuple[Place, str]]:
        """No rule in two zones: the order of zones in the file must not matter."""
        for rules in ("sender_domains", "recipient_domains", "origins", "headers"):
            claimed: dict[str, str] = {}
            for number, zone in enumerate(self.zones):
                claims = getattr(zone, rules)
                if rules == "headers":
                    claims = [f"{name}: {value}" for name, value in zone.headers.items()]
                for rule in claims:
                    key = canonical(rule) if rules.endswith("domains") else rule.lower()
                    other = claimed.setdefault(key, zone.name)
                    if other != zone.name:
                        what = f"zones {other!r} and {zone.name!r} both claim {rules} {rule!r}; keep it in one"
                        yield ("zones", number, rules), what

    @property
    def folder(self) -> Path:
        try:
            return self.server.folder.expanduser().absolute()
        except RuntimeError:  # no HOME, and a user without an entry
            raise ConfigError(
                f"server.folder: {self.server.folder} cannot be found because this user has no home folder;"
                " name one that begins with /, or give --folder"
            ) from None

    def for_queue(self, number: int, folder: Path) -> Config:
        """The same, for one of several queues (`queues.layout`). folder: that queue's."""
        found = self.model_copy(update={"server": self.server.model_copy(update={"folder": folder})})
        found._queue = number
        return found

    def with_queues(self, home: int, numbers: Iterable[int]) -> Config:
        """The same, of a node of a cluster whose queues have these numbers. home: of the one that has `folder`."""
        found = self.model_copy()
        found._queue, found._queues = home, (home, *sorted(set(numbers) - {home}))
        return found

    @property
    def queue_number(self) -> int:
        """Of the queue that it is for; of the MTA's: of the one that has `folder`, which is 0 without a cluster."""
        return self._queue

    @property
    def queues_given(self) -> tuple[int, ...]:
        """Numbers of this node's queues in a cluster, `home` first; (): `server.queues` says how many there are."""
        return self._queues

    @property
    def node(self) -> str:
        """This machine's name in its cluster."""
        return node_name(self.cluster, self.server.name)

    @property
    def reports_folder(self) -> Path | None:
        """Where reports on campaigns are put; None: none are made by themselves."""
        return self.folder / self.reports.folder if self.reports.folder is not None else None

    @property
    def all_listeners(self) -> list[Listener]:
        """Everything that accepts mail or messages: the listeners, and those of enabled services."""
        return [*self.listeners, *self.services]

    @property
    def services(self) -> list[Listener]:
        """The listeners that have a section and a process of their own, if they are enabled: http, pull, links."""
        return [section.listener for section in (self.http, self.pull, self.links) if section.enabled]

    @cached_property
    def unsubscribing(self) -> Unsubscribing:
        """Which mail gets List-Unsubscribe."""
        return Unsubscribing(self.return_path, self.links, self.zones)

    def sources(self, zone: Zone, pool: str = "") -> list[Source]:
        """The zone's source addresses; empty: the system's choice. pool: those of that one instead, if it is there."""
        for name in (pool, zone.pool) if pool else (zone.pool,):
            if name and (found := next((one.sources for one in self.pools if one.name == name), None)) is not None:
                return found
        return [Source(address=address) for address in zone.sources]

    @property
    def body_form(self) -> Literal["relaxed", "simple"] | None:
        """The canonical form that signatures need of bodies; None if nothing is signed."""
        signs = any(key.state == "active" for key in self.dkim)
        return self.signing.body_canonicalization if signs else None

    @property
    def default_zone(self) -> Zone:
        return next((zone for zone in self.zones if zone.default), self.zones[0])

    def zone(self, name: str) -> Zone | None:
        return next((zone for zone in self.zones if zone.name == name), None)


def _nobody(name: str, mark: Refers, there: set[str], pulled: bool) -> str:
    """The sentence for a name that no table has."""
    what = _WORDS[mark.kind]
    if pulled:
        return f"no zone that sends is named {name!r}, it is a pull zone; name another"
    table = f"[{mark.kind}]" if mark.kind == "users" else f"[[{mark.kind}]]"
    none = f"no zone that sends is named {name!r}" if mark.sends else f"there is no {what} {name!r} in {table}"
    if mark.kind == "listeners" and name == "http":
        return "there is no listener 'http', as HTTP is off; write [http] enabled = true, or remove it here"
    if near := difflib.get_close_matches(name.lower(), there, 1):
        return f"{none}; did you mean {near[0]!r}?"
    return f"{none}; add it there, or remove it here"


_WORDS = {
    "listeners": "listener",
    "zones": "zone", "pools": "pool", "warmups": "warm-up", "windows": "window", "users": "user", "http.keys": "key",
}  # fmt: skip

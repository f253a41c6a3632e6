"""The whole file: all sections, and checks across them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from zonemta_py.config.accounts import Account
from zonemta_py.config.limits import Learning, SharesSection, Throttle, Window
from zonemta_py.config.people.suppression import SuppressionSection
from zonemta_py.config.reception import Limits, Listener
from zonemta_py.config.section import ConfigError, Section, sender_patterns
from zonemta_py.config.security import DkimKey, Signing, Tls
from zonemta_py.config.server import Dns, LogSection, Plugins, Queue, RulesSection, ServerSection
from zonemta_py.config.services.events import EventSink
from zonemta_py.config.services.http import OF_ALL, Http
from zonemta_py.config.services.links import Links, Unsubscribing
from zonemta_py.config.services.notices import NoticesSection
from zonemta_py.config.services.pull import PullSection
from zonemta_py.config.services.reports import ReportsSection
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.config.sources import Pool, Source, Warmup
from zonemta_py.config.zone import DestinationTable, Retry, Zone
from zonemta_py.mail.addresses.domain import canonical


class Config(Section):
    """The whole file."""

    server: ServerSection = ServerSection.model_construct()
    log: LogSection = LogSection.model_construct()
    listeners: list[Listener] = [Listener.model_construct()]
    users: dict[str, str] = {}
    """User name → password hash, made by `zonemta config password`."""
    senders: dict[str, list[str]] = {}
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

    @model_validator(mode="after")
    def _check(self) -> Config:
        for kind in (
            "accounts", "zones", "destinations", "listeners", "pools", "warmups", "throttles", "windows", "event_sinks",
        ):  # fmt: skip
            names = [section.name for section in getattr(self, kind)]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two {kind} are named {name!r}; give each its own name")
        paths = [sink.path for sink in self.event_sinks if sink.kind == "file"]
        if len(set(paths)) < len(paths):
            raise ValueError("two event_sinks write to the same path; give each its own file")
        if not self.zones:
            raise ValueError("there is no zone; add a [[zones]] table with a name")
        if sum(zone.default for zone in self.zones) > 1:
            raise ValueError("more than one zone has default = true; keep it in one")
        for rules in ("sender_domains", "recipient_domains", "origins", "headers"):
            self._check_claims(rules)
        self._check_places()
        self._check_destinations()
        self._check_names()
        return self

    def _check_places(self) -> None:
        """Sockets share ports here, so that the system would let two listeners have one, and mix up their clients."""
        taken: dict[tuple[str, int], str] = {}
        for one in self.all_listeners:
            place = one.address, one.port
            if place in taken:
                where = f"{one.address} port {one.port}"
                raise ValueError(f"listeners {taken[place]!r} and {one.name!r} are both at {where}; give each its own")
            taken[place] = one.name

    def _check_destinations(self) -> None:
        """No two tables say the same kind of thing about one destination: their order in the file must not matter."""
        claimed: dict[tuple[str, str, str], str] = {}
        names = {zone.name for zone in self.zones}
        for table in self.destinations:
            for zone in table.zones:
                if zone not in names:
                    raise ValueError(f"destination {table.name!r} names zone {zone!r}, but there is none; remove it")
            claims = [("domains", canonical(one)) for one in table.domains]
            claims += [("sites", one.lower()) for one in table.sites]
            claims += [("providers", one) for one in table.providers]
            for kind, rule in claims:
                for zone in table.zones or [""]:
                    other = claimed.setdefault((kind, rule, zone), table.name)
                    if other != table.name:
                        raise ValueError(
                            f"destinations {other!r} and {table.name!r} both claim {kind} {rule!r}; keep it in one"
                        )

    def _check_names(self) -> None:
        """References from one section to another exist."""
        known = {kind: {section.name for section in getattr(self, kind)} for kind in ("pools", "warmups", "windows")}
        named = [("pools", f"zone {zone.name!r}", zone.pool) for zone in self.zones]
        named += [("pools", f"destination {one.name!r}", one.pool or "") for one in self.destinations]
        named += [("windows", f"zone {zone.name!r}", zone.window) for zone in self.zones]
        named += [("warmups", s.address, s.warmup) for pool in self.pools for s in pool.sources]
        for kind, where, name in named:
            if name and name not in known[kind]:
                raise ValueError(f"{where} names {name!r}, but there is no such table in [[{kind}]]; add it")
        self._check_notices()
        if self.tls.dane and not self.dns.dnssec:
            raise ValueError(
                "tls.dane needs dns.dnssec = true and a validating resolver, otherwise anybody could forge TLSA records"
            )
        self._check_accounts()
        self._check_signing()
        self._check_return_path()

    def _check_notices(self) -> None:
        sending = {zone.name for zone in self.zones if not zone.pulled}
        for where, zone in [
            ("[notices]", self.notices.zone),
            *((one.tenant, one.zone) for one in self.notices.tenants),
        ]:
            if zone and zone not in sending:
                raise ValueError(f"notices: {where} names zone {zone!r}, but no zone that sends has that name; add it")

    def _check_accounts(self) -> None:
        """What they name exists, and is of one account."""
        known = {"users": set(self.users), "keys": {key.name for key in self.http.keys}}
        claimed: dict[tuple[str, str], str] = {}
        for account in self.accounts:
            where = f"account {account.name!r}"
            if account.zone and account.zone not in {zone.name for zone in self.zones if not zone.pulled}:
                raise ValueError(
                    f"{where} names the zone {account.zone!r}, but no zone that sends has that name; add it"
                )
            for kind in ("users", "keys", "networks"):
                for name in getattr(account, kind):
                    if kind in known and name not in known[kind]:
                        table = "[users]" if kind == "users" else "[[http.keys]]"
                        raise ValueError(f"{where} names {name!r}, which is not in {table}; add it there")
                    if (other := claimed.setdefault((kind, name), account.name)) != account.name:
                        raise ValueError(
                            f"accounts {other!r} and {account.name!r} both have {kind} {name!r}; keep it in one"
                        )

            self._check_keys_of(account)

    def _check_keys_of(self, account: Account) -> None:
        """They are for its tenant, and for nothing that is of no tenant."""
        for key in self.http.keys if account.tenant else ():
            if key.name not in account.keys:
                continue
            where = f"the key {key.name!r} is of account {account.name!r} and its tenant {account.tenant!r}"
            if key.tenants and account.tenant not in key.tenants:
                raise ValueError(f"{where}, but has other tenants; remove its tenants, or take it out of the account")
            if wide := set(OF_ALL).intersection(key.rights or ()):
                raise ValueError(f"{where}, and the right {min(wide)} is about things of no tenant; remove one of them")

    def _check_signing(self) -> None:
        active = {key.domain for key in self.dkim if key.state == "active"}
        if self.signing.third_party and self.signing.third_party not in active:
            raise ValueError(f"signing.third_party: no active [[dkim]] key is for {self.signing.third_party}; add one")
        names: set[str] = set()
        for name in (f"{key.selector}._domainkey.{key.domain}" for key in self.dkim):
            if name in names:
                raise ValueError(f"two keys are named {name}; give each its own selector")
            names.add(name)

    def _check_return_path(self) -> None:
        path = self.return_path
        for zone in path.list_unsubscribe_zones:
            if zone not in {each.name for each in self.zones}:
                raise ValueError(f"return_path.list_unsubscribe_zones: there is no zone {zone!r}; remove it")
        for zone in self.links.track_zones:
            if zone not in {each.name for each in self.zones}:
                raise ValueError(f"links.track_zones: there is no zone {zone!r}; remove it")
        signed = {name.lower() for name in self.signing.headers}
        if self.unsubscribing.wanted and self.dkim and not {"list-unsubscribe", "list-unsubscribe-post"} <= signed:
            raise ValueError("signing.headers lacks List-Unsubscribe or List-Unsubscribe-Post; add both (RFC 8058)")
        self._check_returns(path)
        if (path.verp or path.srs or path.unsubscribe_domain or path.list_unsubscribe) and not path.secret:
            raise ValueError("return_path needs a secret for its signatures; `zonemta config secret` makes one")

    def _check_returns(self, path: ReturnPath) -> None:
        """What comes back finds somebody who takes it, and can go on."""
        if path.forward_zone and path.forward_zone not in {zone.name for zone in self.zones if not zone.pulled}:
            raise ValueError(f"return_path.forward_zone: no zone that sends is named {path.forward_zone!r}; add it")
        taking = [one.name for one in self.listeners if one.feedback]
        if taking and not path.takes:
            raise ValueError(
                f"listener {taking[0]!r} has feedback = true, but [return_path] has no address that anything can come"
                " back to; set verp, srs, bounces, complaints or unsubscribe_domain there"
            )
        if (path.bounces or path.complaints) and not taking:
            raise ValueError(
                "return_path has addresses for bounces or complaints, but no listener takes mail there; set"
                " feedback = true in one of [[listeners]]"
            )

    @field_validator("senders")
    @classmethod
    def _check_senders(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for senders in value.values():
            sender_patterns(senders)
        return value

    def _check_claims(self, rules: str) -> None:
        """No rule in two zones: the order of zones in the file must not matter."""
        claimed: dict[str, str] = {}
        for zone in self.zones:
            claims = getattr(zone, rules)
            if rules == "headers":
                claims = [f"{name}: {value}" for name, value in zone.headers.items()]
            for rule in claims:
                key = canonical(rule) if rules.endswith("domains") else rule.lower()
                other = claimed.setdefault(key, zone.name)
                if other != zone.name:
                    raise ValueError(f"zones {other!r} and {zone.name!r} both claim {rules} {rule!r}; keep it in one")

    @property
    def folder(self) -> Path:
        try:
            return self.server.folder.expanduser().absolute()
        except RuntimeError:  # no HOME, and a user without an entry
            raise ConfigError(
                f"server.folder: {self.server.folder} cannot be found because this user has no home folder;"
                " name one that begins with /, or give --folder"
            ) from None

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

    def sources(self, zone: Zone) -> list[Source]:
        """The zone's source addresses; empty: the system's choice."""
        if zone.pool:
            return next(pool.sources for pool in self.pools if pool.name == zone.pool)
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

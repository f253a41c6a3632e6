"""What all attempts in a sender process share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.dns.egress import Sources
from zonemta_py.delivery.dns.reachability import LocalIdentity
from zonemta_py.delivery.dns.routes import DeadHosts, Routes
from zonemta_py.delivery.message.gate import Gate
from zonemta_py.delivery.message.merged import Templates
from zonemta_py.delivery.message.outgoing import LinkMaker, Outgoing
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.smtp.session import SmtpSession
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.delivery.ways import Ways
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.queue.api import Dispatch
from zonemta_py.zones.destinations import Destinations

if TYPE_CHECKING:
    from zonemta_py.delivery.message.sender_checks import SenderChecks

FORGOTTEN_MAX = 10_000
"""Servers of which is remembered what they do not know."""


@dataclass(slots=True)
class SenderContext:
    """hostname: the server's name, kept because asking the system each time is slow.

    no_early_envelope: servers (`SmtpSession.remote`) that do not accept an envelope in the same write as the message
    before it. forgotten: of servers, extensions that they offer and do not know. noting: plugins may change the
    delivery's notes.
    """

    config: Config
    dispatch: Dispatch
    host: Host
    resolver: DnsDestinationResolver
    tls: TlsPolicies
    connections: Connections
    hostname: str
    sources: Sources = field(init=False)
    outgoing: Outgoing = field(init=False)
    templates: Templates = field(init=False)
    routes: Routes = field(init=False)
    ways: Ways = field(default_factory=Ways)
    gate: Gate = field(default_factory=Gate)
    no_early_envelope: set[str] = field(default_factory=set)
    forgotten: dict[str, frozenset[str]] = field(default_factory=dict)
    noting: bool = field(init=False)
    sender_checks: SenderChecks | None = field(init=False)
    merging: Host | None = field(init=False)
    """What changes the header sections of messages that are made here; None: nobody."""
    _zones: dict[str, Zone] = field(init=False)
    _destinations: Destinations = field(init=False)

    def __post_init__(self) -> None:
        self._zones = {zone.name: zone for zone in self.config.zones}
        self._destinations = Destinations(self.config)
        merging = self.host.at("http")
        self.merging = merging if merging.listens("message_headers") else None
        self.noting = any(self.host.listens(hook.name) for hook in HOOKS.values() if hook.process == "sender")
        self.sources = Sources(self.config)
        self.outgoing = Outgoing(self.config)
        links = LinkMaker(self.config) if self.config.links.enabled else None
        self.templates = Templates(self.dispatch, links=links)
        self.sender_checks = _sender_checks(self.config)
        self.routes = Routes(LocalIdentity(self.config), DeadHosts())

    def remember(self, session: SmtpSession) -> None:
        """What its server has refused is not tried with others."""
        if len(self.forgotten) >= FORGOTTEN_MAX:
            self.forgotten.clear()
        self.forgotten[session.remote] = session.forgotten | self.forgotten.get(session.remote, frozenset())

    def zone(self, name: str, tables: Sequence[str] = ()) -> Zone:
        """The zone as configured, with the settings of these [[destinations]] tables; the default zone's limits for a
        zone that only the queue still knows."""
        zone = self._zones.get(name) or self.config.default_zone
        return self._destinations.terms(zone, tuple(tables)).zone if tables else zone


def _sender_checks(config: Config) -> SenderChecks | None:
    if all(zone.sender_checks == "off" for zone in config.zones):
        return None
    from zonemta_py.delivery.message.sender_checks import SenderChecks

    return SenderChecks(config)

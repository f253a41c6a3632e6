"""One attempt to deliver one lease: find the hosts, get a connection, run the transaction, say what became of whom.

Hosts that cannot be reached (connect, banner, EHLO, TLS, AUTH) are passed over for the next one, at most ADDRESSES_MAX
of them and no new one after CONNECT_SHARE times the zone's connect timeout. Once MAIL has been answered nobody else is
asked in this attempt. A connection from the pool that is gone before it answers MAIL is replaced by a fresh one, once.

Plugins' verdicts: Reject bounces (or defers, if its code is 4xx), Defer defers for its seconds, Hold and Drop hold: at
this end of the queue nothing is ever thrown away. A plugin that fails defers, 451 4.3.0.

Failures: `run` returns a Result for everything that a server, DNS or a plugin can do.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.body import Body
from zonemta_py.delivery.connections import Connections, Key
from zonemta_py.delivery.resolver import Resolver, Target
from zonemta_py.delivery.session import Route, Session, TlsContexts, TlsFallback, open_session
from zonemta_py.delivery.transaction import Transaction
from zonemta_py.mail.classify import DeliveryError, TlsFailed, Unreachable, judge
from zonemta_py.plugin.arguments import ConnectOptions
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Verdict
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Delivery, Outcome, Outlet, QueueRefusal, Result

ADDRESSES_MAX = 6
CONNECT_SHARE = 2.0


@dataclass(slots=True)
class Means:
    """What every attempt of a sender process shares. hostname: the server's (asking the system each time is dear)."""

    config: Config
    outlet: Outlet
    host: Host
    resolver: Resolver
    contexts: TlsContexts
    connections: Connections
    hostname: str

    def zone(self, name: str) -> Zone:
        """The zone as configured; the default one's limits if the queue still knows a zone that we do not."""
        return self.config.zone(name) or self.config.default_zone


class Attempt:
    """One delivery, once."""

    __slots__ = ("_delivery", "_down", "_means", "_session", "_zone")

    def __init__(self, means: Means, delivery: Delivery) -> None:
        self._means, self._delivery = means, delivery
        self._zone = means.zone(delivery.zone)
        self._session: Session | None = None
        self._down = False

    async def run(self) -> Result:
        started_ms, begun = int(time.time() * 1000), time.monotonic()
        outcomes = await self._outcomes()
        session = self._session
        return Result(
            self._delivery.lease,
            outcomes,
            down_s=0 if self._down else None,
            remote=session.remote if session else "",
            local=session.local if session else "",
            tls=session.tls if session else "",
            started_ms=started_ms,
            took_ms=int((time.monotonic() - begun) * 1000),
        )

    async def _outcomes(self) -> list[Outcome]:
        everyone = list(range(len(self._delivery.recipients)))
        host = self._means.host
        try:
            if host.listens("sender_fetch"):
                await host.call("sender_fetch", delivery=self._delivery)
            body = Body(self._delivery, self._means.outlet)
            if host.listens("sender_headers"):
                await body.let_change(host)
            return await self._transact(body)
        except Verdict as verdict:
            return [decided(verdict, everyone)]
        except DeliveryError as error:
            judgement = judge(error.reply, error.stage)
            self._down = judgement.down
            return [Outcome(BOUNCED if judgement.permanent else DEFERRED, judgement.reply, error.stage, everyone)]
        except QueueRefusal as refusal:
            return [Outcome(DEFERRED, refusal.reply, "body", everyone)]

    # over which connection

    async def _transact(self, body: Body) -> list[Outcome]:
        host, connections = self._means.host, self._means.connections
        options = self._options()
        if host.listens("sender_connecting"):
            await host.call("sender_connecting", delivery=self._delivery, options=options)
        key = self._key(options)
        session = connections.take(key)
        if session is not None:
            transaction = await self._over(session, body, key)
            if not transaction.unsaid:
                return await self._reviewed(transaction, session)
        session = await self._fresh(options)
        transaction = await self._over(session, body, None if options.socket else key)
        return await self._reviewed(transaction, session)

    async def _over(self, session: Session, body: Body, key: Key | None) -> Transaction:
        """The transaction, and the connection goes to the pool (or ends, without key) whatever comes of it."""
        self._session = session
        session.sent += 1
        try:
            if self._means.host.listens("sender_connection"):
                await self._means.host.call("sender_connection", delivery=self._delivery, connection=session)
            transaction = Transaction(session, self._delivery, body)
            await transaction.run()
        finally:
            most = self._zone.messages_per_connection if key is not None else 0
            self._means.connections.give(key, session, most, self._zone.idle_s)
        return transaction

    async def _reviewed(self, transaction: Transaction, session: Session) -> list[Outcome]:
        """The outcomes, after plugins have had their say about each refusal."""
        self._down = transaction.down
        outcomes = transaction.outcomes
        if not self._means.host.listens("sender_response_error"):
            return outcomes
        for place, outcome in enumerate(outcomes):
            if outcome.verdict == DELIVERED:
                continue
            try:
                await self._means.host.call(
                    "sender_response_error", delivery=self._delivery, connection=session, reply=outcome.reply
                )
            except Verdict as verdict:
                outcomes[place] = decided(verdict, outcome.recipients)
        return outcomes

    def _options(self) -> ConnectOptions:
        delivery, zone = self._delivery, self._zone
        return ConnectOptions(
            delivery.host,
            delivery.port,
            source=delivery.source,
            tls=delivery.routing.get("tls") or zone.tls,
            hostname=zone.hostname or self._means.hostname,
        )

    def _auth(self) -> tuple[str, str] | None:
        given = self._delivery.routing.get("auth")
        if given:
            return (given[0], given[1])
        zone = self._zone
        return (zone.username, zone.password) if zone.username and self._delivery.host == zone.host else None

    def _key(self, options: ConnectOptions) -> Key:
        return (
            self._delivery.zone, self._delivery.destination, options.host, options.port, options.source, options.tls,
            options.hostname, self._auth(),
        )  # fmt: skip

    # to which host

    async def _fresh(self, options: ConnectOptions) -> Session:
        """Connects to the first host that lets us. Raises the last DeliveryError, or a Verdict."""
        last: DeliveryError = Unreachable("connect", "no address that our source address can reach")
        ends = time.monotonic() + CONNECT_SHARE * self._zone.connect_timeout_s
        tries = 0
        async for route in self._routes(options):
            tries += 1
            try:
                session = await open_session(route, self._means.contexts, self._fallback(options))
            except DeliveryError as error:
                last = error
                if tries >= ADDRESSES_MAX or time.monotonic() >= ends:
                    break
                continue
            self._session = session
            if self._means.host.listens("sender_connected"):
                await self._greeted(session)
            return session
        raise last

    async def _greeted(self, session: Session) -> None:
        try:
            await self._means.host.call("sender_connected", delivery=self._delivery, connection=session)
        except Verdict:
            session.dialogue.quit()
            raise

    async def _routes(self, options: ConnectOptions) -> AsyncIterator[Route]:
        listens = self._means.host.listens("sender_connect")
        for target in await self._targets(options):
            chosen = replace(options, host=target.host, addresses=list(target.addresses))
            if listens:
                await self._means.host.call("sender_connect", delivery=self._delivery, options=chosen)
                options.socket = chosen.socket
            for address in chosen.addresses:
                if chosen.socket is not None or not chosen.source or _same_family(chosen.source, address):
                    yield self._route(chosen, address)
                if chosen.socket is not None:
                    return  # there is only one of it

    async def _targets(self, options: ConnectOptions) -> list[Target]:
        resolver, now = self._means.resolver, time.monotonic()
        if options.host:
            return [Target(options.host, await resolver.addresses(options.host, now))]
        return await resolver.targets(self._delivery.destination, now)

    def _route(self, options: ConnectOptions, address: str) -> Route:
        zone = self._zone
        return Route(
            options.host, address, options.port, options.source, options.hostname, options.tls, self._auth(),
            zone.connect_timeout_s, zone.reply_timeout_s, zone.dot_timeout_s, options.socket,
        )  # fmt: skip

    def _fallback(self, options: ConnectOptions) -> TlsFallback | None:
        """Without a plugin the session knows what to do."""
        if not self._means.host.listens("sender_tls_error"):
            return None

        async def ask(error: TlsFailed) -> str:
            asked = replace(options, tls="none" if options.tls == "opportunistic" else options.tls)
            await self._means.host.call("sender_tls_error", delivery=self._delivery, options=asked, error=error)
            if asked.tls == "required":
                raise error
            return asked.tls

        return ask


def _same_family(one: str, other: str) -> bool:
    return ipaddress.ip_address(one).version == ipaddress.ip_address(other).version


def decided(verdict: Verdict, recipients: list[int]) -> Outcome:
    """A plugin's verdict as an outcome."""
    if isinstance(verdict, Defer):
        return Outcome(DEFERRED, verdict.reply, "plugin", recipients, delay_s=verdict.seconds)
    if isinstance(verdict, (Hold, Drop)):
        return Outcome(HELD, verdict.reply, "plugin", recipients)
    return Outcome(BOUNCED if verdict.reply.permanent else DEFERRED, verdict.reply, "plugin", recipients)

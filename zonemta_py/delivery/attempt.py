"""One attempt to deliver one lease: find the hosts, get a connection, run the transaction, report an outcome for every
recipient.

A host that cannot be used (connect, banner, EHLO, TLS, AUTH) is skipped for the next one: at most ADDRESSES_MAX hosts,
and no new one after CONNECT_SHARE times the zone's connect timeout. Then comes the next smart host, if there are
several (`ways`). Once MAIL has been answered, no other host is tried in this attempt. A pooled connection that closes
before it answers MAIL is replaced by a fresh one, once.

Plugins' verdicts: Reject bounces (or defers, if its code is 4xx), Defer defers for the given seconds, Hold and Drop
hold: accepted mail is never discarded here. A plugin that fails defers the message with 451 4.3.0.

Failures: `run` returns a Result for everything that a server, DNS or a plugin can do, and for a bug of ours: who has
been answered keeps the answer, who is past the dot without one is in doubt (`Transaction`), the others are deferred.
"""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.delivery.dns.routes import AddressTarget, Choice
from zonemta_py.delivery.pipelined import PipelinedBatch
from zonemta_py.delivery.portions import Portion, Portions, split
from zonemta_py.delivery.rendering import NotMade, for_server, letter, not_made
from zonemta_py.delivery.smtp.connections import Key
from zonemta_py.delivery.smtp.session import Route, SmtpSession, TlsFallback, open_session
from zonemta_py.delivery.smtp.transaction import Transaction
from zonemta_py.delivery.tls.failures import POLICY, UNDECIDED, TlsTrouble, TlsUnmet
from zonemta_py.delivery.tls.plan import Demands, TlsPlan, Trial
from zonemta_py.delivery.tls.reports import rows
from zonemta_py.delivery.verdicts import OUR_FAULT, decided, together
from zonemta_py.delivery.ways import Way, secure
from zonemta_py.logs.causes import from_outside
from zonemta_py.mail.classify import CONNECTING, LOCAL, TLS_POLICY, DeliveryError, TlsFailed, judge
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.plugin.arguments import ConnectOptions
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, POSTPONED, RELEASED, Delivery, Dispatch, Outcome, Result
from zonemta_py.zones.admittance import Admittance

log = logging.getLogger(__name__)

ADDRESSES_MAX = 6
CONNECT_SHARE = 2.0
NONE = Demands("none")


class Attempt:
    """A single attempt. pipelined: the messages that follow over the same connection. reported: outcomes that were
    reported to the queue before `run` returns."""

    __slots__ = (
        "_chosen",
        "_context",
        "_delivery",
        "_demands",
        "_down",
        "_kept",
        "_limited",
        "_lmtp",
        "_login",
        "_opened",
        "_pipelined",
        "_pool",
        "_portions",
        "_session",
        "_steered",
        "_trials",
        "_used",
        "_zone",
        "reported",
    )

    def __init__(self, context: SenderContext, delivery: Delivery, pipelined: PipelinedBatch | None = None) -> None:
        self._context, self._delivery, self._pipelined = context, delivery, pipelined
        self._zone = context.zone(delivery.zone, delivery.tables)
        self._session: SmtpSession | None = None
        self._used: ConnectOptions | None = None
        self._demands = NONE
        self._trials: list[Trial] = []
        self._login: tuple[str, str] | None = None
        self._portions = Portions(context, delivery)
        self.reported = self._portions.reported
        self._down = self._opened = self._kept = self._limited = False
        self._chosen = self._steered = False
        protocol, self._pool = self._zone.protocol, ""
        if routing := delivery.routing:
            protocol, self._pool = routing.get("protocol") or protocol, routing.get("pool") or ""
        self._lmtp = protocol == "lmtp"

    async def run(self) -> Result:
        started_ms, begun = int(time.time() * 1000), time.monotonic()
        try:
            outcomes = await self._outcomes()
        except (Exception, CancelledError) as error:
            if from_outside(error):
                raise
            outcomes = self._after_a_bug()
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
            opened=self._opened,
            chosen=self._chosen,
            security=self._security() if self._trials else [],
            kept=self._kept,
            recipients_max=self._portions.recipients_max,
            stalled=self._portions.stalled,
            manner=self._portions.manner,
        )

    def _after_a_bug(self) -> list[Outcome]:
        delivery, portions = self._delivery, self._portions
        log.exception("internal error while delivering message %s of zone %s", delivery.id, delivery.zone)
        if portions.running is not None:
            portions.over(portions.running)
        if portions.open:
            portions.outcomes.append(Outcome(DEFERRED, OUR_FAULT, "plugin", portions.open))
        return portions.outcomes

    def _security(self) -> list[Any]:
        return rows(self._demands, self._trials) if self._context.tls.reports else []

    async def _outcomes(self) -> list[Outcome]:
        portions = self._portions
        try:
            if len(self._delivery.recipients) == 1 or not self._context.host.listens("sender_headers"):
                everyone = list(range(len(self._delivery.recipients)))
                portions.waiting.append(Portion(everyone, self._delivery, await letter(self._context, self._delivery)))
            else:
                portions.waiting, decisions = await split(self._context, self._delivery)
                portions.outcomes = together(decided(verdict, [index]) for index, verdict in decisions.items())
            if portions.waiting:
                await self._transact()
            return portions.outcomes
        except Verdict as verdict:
            return [*portions.outcomes, decided(verdict, portions.open)]
        except DeliveryError as error:
            judgement = judge(error.reply, error.stage)
            self._chosen = self._by_choice(error)
            self._down = not self._chosen and (judgement.down or self._against_zone(error))
            verdict_ = BOUNCED if judgement.permanent else DEFERRED
            return [
                *portions.outcomes,
                Outcome(verdict_, judgement.reply, error.stage, portions.open, kind=error.reply_class),
            ]
        except NotMade as error:
            return [*portions.outcomes, not_made(error, portions.open)]

    def _against_zone(self, error: DeliveryError) -> bool:
        """Whether the error is down to the zone's own TLS setting. Then resting the destination delays no mail that
        could go; a requirement of one domain, message or plugin is no reason to rest hosts that other mail uses too."""
        asked, zone = self._demands, self._zone.tls
        everybody = zone in ("required", "implicit") and asked.mode == zone
        return error.stage == TLS_POLICY and everybody and not (asked.sts or asked.dane or asked.require_tls)

    def _by_choice(self, error: DeliveryError) -> bool:
        """Whether what a plugin has chosen for these recipients may be why: other mail goes there in another way."""
        routing, stage = self._delivery.routing, error.stage
        if stage in LOCAL:
            return self._steered
        if stage not in CONNECTING and stage not in (TLS_POLICY, "dns"):
            return False
        if self._steered or (stage == "auth" and routing.get("auth")):
            return True
        zone = self._zone
        other = routing.get("tls", zone.tls) != zone.tls or self._lmtp != (zone.protocol == "lmtp")
        return stage not in ("connect", "dns") and other

    def _of_this_mail(self, error: DeliveryError) -> bool:
        """Whether a smart host may well do for other mail."""
        asked = self._demands
        demanded = error.stage == TLS_POLICY and (asked.sts or asked.dane or asked.require_tls)
        return bool(demanded) or self._by_choice(error)

    # connections

    async def _transact(self) -> None:
        options = self._options()
        if self._context.host.listens("sender_connecting"):
            await self._let_choose(options)
        error: DeliveryError | None = None
        for way in self._context.ways.of(self._zone, self._delivery, options, time.monotonic()):
            options, self._login = way.options, way.login
            if self._zone.hosts:
                self._delivery.secure = await secure(way, self._delivery, self._context.resolver)
            self._demands = await self._context.tls.demands(
                self._delivery, self._zone, options.tls, named=bool(options.host)
            )
            key = self._key(options)
            if self._delivery.connection is not None:
                await self._context.connections.ready(key, self._delivery)
            if way.mx:
                place = await asked(self._delivery, self._context.resolver, self._context.dispatch)
                if not place.granted:
                    self._portions.outcomes.append(refused(place, self._delivery, self._portions.open))
                    return
                self._limited = place.limited
            session = None if self._limited else self._context.connections.take(key, self._delivery)
            if session is not None and await self._over(session, key):
                count("zonemta_connections_reused_total", (self._zone.name,))
                return
            if not self._delivery.may_connect:
                continue
            if (known := self._context.ways.refusal(way, time.monotonic())) is not None:
                error = known
                continue
            try:
                session = await self._fresh(options)
            except DeliveryError as failure:
                error = self._failed(way, failure, error)
                continue
            self._context.ways.worked(way)
            await self._over(session, None if self._limited else self._fresh_key(options), fresh=True)
            return
        if error is not None:
            raise error
        self._portions.outcomes.append(Outcome(RELEASED, NO_CONNECTION, "limit", self._portions.open))

    def _failed(self, way: Way, error: DeliveryError, before: DeliveryError | None) -> DeliveryError:
        """The error of a way, or of the one before: that MX lookup leads nowhere is nothing to bounce mail for that
        smart hosts might take. Raises it if it is our own."""
        if error.stage in LOCAL:
            raise error
        if not self._of_this_mail(error):
            self._context.ways.failed(way, time.monotonic(), self._zone.host_rest_s)
        elif error.stage == "auth":
            self._context.ways.refused(way, error, time.monotonic(), self._context.config.retry.down_s)
        return before if way.mx and before is not None and error.reply.permanent else error

    async def _over(self, session: SmtpSession, key: Key | None, fresh: bool = False) -> bool:
        """Runs the transactions, then returns the connection to the pool (or ends it if `key` is None), even on
        failure.

        False: a pooled connection was closed before the server said anything.
        """
        self._session = session
        self._context.connections.use(session, self._delivery)
        session.sent += 1
        delivery, portions, zone = self._delivery, self._portions, self._zone
        most = (delivery.messages_per_connection or zone.messages_per_connection) if key is not None else 0
        pipelined = self._pipelined if key is not None else None
        if pipelined is not None:
            pipelined.security = self._security() if self._trials else []
        started_ms = int(time.time() * 1000)
        if self._context.forgotten:
            session.forget(self._context.forgotten.get(session.remote, ()))
        try:
            if self._context.host.listens("sender_connection"):
                await self._context.host.call("sender_connection", delivery=delivery, connection=session.shown())
            first = portions.waiting[0]
            body = first.body
            if "8bitmime" not in session.keywords:
                body = await for_server(self._context, first.delivery, body, session.keywords)
            transaction = Transaction(session, self._context.outgoing.addressed(first.delivery), body)
            portions.running = transaction
            await transaction.run(pipelined)
            if transaction.unsaid and not fresh:
                portions.running = None
                return False
            if pipelined is not None and not transaction.unsaid:
                await pipelined.after(session, transaction)
            portions.over(transaction)
            if portions.waiting:
                transaction = await portions.after(session, transaction, most, started_ms)
        finally:
            if session.forgotten:
                self._context.remember(session)
            idle_s = zone.idle_s if delivery.idle_s is None else delivery.idle_s
            self._kept = self._context.connections.give(key, session, most, idle_s)
        self._chosen = transaction.down and self._steered
        self._down = transaction.down and not self._steered
        if self._context.host.listens("sender_response_error"):
            await self._review(session)
        if portions.waiting:
            portions.release()
        return True

    async def _review(self, session: SmtpSession) -> None:
        """Lets plugins review each refusal."""
        outcomes = self._portions.outcomes
        for place, outcome in enumerate(outcomes):
            if outcome.verdict == DELIVERED:
                continue
            try:
                await self._context.host.call(
                    "sender_response_error", delivery=self._delivery, connection=session.shown(), reply=outcome.reply
                )
            except Verdict as verdict:
                outcomes[place] = decided(verdict, outcome.recipients, outcome.reply)

    def _options(self) -> ConnectOptions:
        """The TLS mode is a plugin's, or the zone's. A rule (no_tls) can only switch off optional TLS."""
        delivery, routing = self._delivery, self._delivery.routing
        mode = routing.get("tls") or ("none" if delivery.host.startswith("/") else self._zone.tls)
        return ConnectOptions(
            delivery.host, delivery.port, source=delivery.source, hostname=self._hostname(delivery.source),
            tls="none" if mode == "opportunistic" and routing.get("no_tls") else str(mode),
        )  # fmt: skip

    def _hostname(self, source: str) -> str:
        own = self._context.sources.of(self._zone, source, self._pool).hostname
        return own or self._zone.hostname or self._context.hostname

    async def _let_choose(self, options: ConnectOptions) -> None:
        before = replace(options)
        await self._context.host.call("sender_connecting", delivery=self._delivery, options=options)
        self._steered = options != before
        self._rename(options, before)

    def _rename(self, options: ConnectOptions, before: ConnectOptions) -> None:
        """The EHLO name follows the source address a plugin has chosen, unless the plugin has set a name too."""
        if options.source != before.source and options.hostname == before.hostname:
            options.hostname = self._hostname(options.source)

    def _key(self, options: ConnectOptions) -> Key:
        delivery = self._delivery
        to_mx = delivery.host and not options.host  # as the last resort of smart hosts, which are the site
        site = delivery.destination if to_mx or not delivery.site else delivery.site
        return (
            delivery.zone, *delivery.tables, site, options.host, options.port, options.source, self._demands.shared,
            options.hostname, self._login, self._lmtp, self._pool, delivery.skip,
        )  # fmt: skip

    def _fresh_key(self, options: ConnectOptions) -> Key | None:
        """The pool key of the connection as it was really opened: a plugin may have changed source or TLS for one host.
        None: do not reuse it."""
        used = self._used or options
        return None if used.socket else self._key(replace(used, host=options.host))

    # hosts

    async def _fresh(self, options: ConnectOptions) -> SmtpSession:
        """Connects to the first host that accepts the connection. Raises the last DeliveryError, or a Verdict."""
        errors: list[DeliveryError] = []
        ends = time.monotonic() + CONNECT_SHARE * self._zone.connect_timeout_s
        tries = 0
        choice = Choice(self._context.routes, options.port, free=bool(options.host) or self._zone.allow_private)
        async for route in self._routes(options, choice):
            try:
                session = await self._secured(route, options)
            except DeliveryError as error:
                self._learn(route, error)
                errors.append(error)
                asked = not (isinstance(error, TlsTrouble) and error.kind == POLICY)
                tries += asked
                self._opened = self._opened or (asked and error.stage not in (*LOCAL, "connect"))
                if tries >= ADDRESSES_MAX or time.monotonic() >= ends or error.stage in LOCAL:
                    break
                continue
            self._learn(route, None)
            self._session, self._opened = session, True
            if self._context.host.listens("sender_connected"):
                await self._greeted(session)
            return session
        raise self._failure(errors or [choice.failure()])

    def _learn(self, route: Route, error: DeliveryError | None) -> None:
        if route.socket is None:
            self._context.routes.learn(route.egress.address, route.address, route.port, error, time.monotonic())

    async def _secured(self, route: Route, options: ConnectOptions) -> SmtpSession:
        """Opens a session with the TLS that this host needs. Raises DeliveryError."""
        tls = self._context.tls
        try:
            route.tls = await tls.plan(self._demands, route.host, route.port)
        except TlsTrouble as trouble:
            plan = TlsPlan(source=trouble.source)
            self._trials.append(Trial(plan, route.host, route.address, options.source, "none", trouble))
            raise
        session = await open_session(route, tls.contexts, tls.memory, self._fallback(options), self._trials)
        count("zonemta_connections_opened_total", (self._zone.name,))
        if self._demands.require_tls and not (session.tls and "requiretls" in session.keywords):
            await session.dialogue.leave()
            raise TlsUnmet(f"{route.host} does not offer REQUIRETLS", "5.7.30")
        return session

    def _failure(self, errors: list[DeliveryError]) -> DeliveryError:
        """The last error. Under REQUIRETLS it is final only if no remaining host could offer it (RFC 8689 4.2.1)."""
        last = errors[-1]
        if not self._demands.require_tls:
            return last
        for error in errors:
            if not isinstance(error, (TlsTrouble, TlsUnmet)) or error.reply.enhanced == UNDECIDED:
                return error
        return TlsUnmet(last.detail) if isinstance(last, TlsTrouble) else last

    async def _greeted(self, session: SmtpSession) -> None:
        try:
            await self._context.host.call("sender_connected", delivery=self._delivery, connection=session.shown())
        except Verdict:
            await session.dialogue.leave()
            raise

    async def _routes(self, options: ConnectOptions, choice: Choice) -> AsyncIterator[Route]:
        listens = self._context.host.listens("sender_connect")
        egress = self._context.sources.of(self._zone, options.source, self._pool)
        targets = await self._targets(options)
        for target in choice.narrowed(targets, egress, options.source, time.monotonic()):
            chosen = replace(options, host=target.host, addresses=list(target.addresses))
            if listens:
                before = replace(chosen)
                await self._context.host.call("sender_connect", delivery=self._delivery, options=chosen)
                same = replace(chosen, addresses=before.addresses, socket=before.socket)  # these are the host's still
                self._steered = self._steered or same != before
                self._rename(chosen, options)
                egress = self._context.sources.of(self._zone, chosen.source, self._pool)
                self._demands = await self._context.tls.demands(
                    self._delivery, self._zone, chosen.tls, named=bool(options.host)
                )
            self._used = chosen
            for address in chosen.addresses:
                if chosen.socket is not None or (egress.reaches(address) and choice.permits(chosen.host, address)):
                    yield self._route(chosen, address, egress)
                if chosen.socket is not None:
                    return  # only one address to try

    async def _targets(self, options: ConnectOptions) -> list[AddressTarget]:
        resolver, now = self._context.resolver, time.monotonic()
        if options.host.startswith("/"):  # the path of a unix socket; these have no port
            return [AddressTarget(options.host, (options.host,))]
        if options.host:
            return [AddressTarget(options.host, await resolver.named(options.host, now))]
        if self._delivery.hosts:
            found = [AddressTarget(host, tuple(addresses)) for host, addresses in self._delivery.hosts]
        else:
            found = await resolver.targets(self._delivery.destination, now)
        if skip := self._delivery.skip:  # where there is no other host, it goes there all the same
            found = [one for one in found if one.host.lower().rstrip(".") != skip] or found
        return found

    def _route(self, options: ConnectOptions, address: str, egress: Egress) -> Route:
        zone = self._zone
        return Route(
            options.host, address, options.port, options.hostname, TlsPlan(), self._login,
            zone.connect_timeout_s, zone.reply_timeout_s, zone.dot_timeout_s, options.socket,
            egress, self._lmtp,
        )  # fmt: skip

    def _fallback(self, options: ConnectOptions) -> TlsFallback | None:
        """None: there is no plugin, and the session decides by itself."""
        if not self._context.host.listens("sender_tls_error"):
            return None

        async def ask(error: TlsFailed) -> str:
            asked = replace(options, tls="none" if options.tls == "opportunistic" else options.tls)
            await self._context.host.call("sender_tls_error", delivery=self._delivery, options=asked, error=error)
            if asked.tls in ("required", "implicit"):
                if isinstance(error, TlsTrouble):
                    error.demanded()
                raise error
            return asked.tls

        return ask


NO_CONNECTION = Reply(451, "4.3.2", "no idle connection, and a new one is not allowed now")


async def asked(delivery: Delivery, resolver: DnsDestinationResolver, dispatch: Dispatch) -> Admittance:
    """The answer. If it is granted, the delivery is one to that site from now on. Raises QueueRefusal."""
    try:
        site = await resolver.site(delivery.destination, time.monotonic())
    except DeliveryError:  # it comes again when the hosts are looked up
        return Admittance(True)
    place = await dispatch.place(delivery.lease, site.key, site.provider)
    if place.granted:
        delivery.site, delivery.provider = site.key, site.provider
    if place.limited:
        delivery.counted, delivery.connection = True, delivery.connection or 0
    return place


def refused(place: Admittance, delivery: Delivery, recipients: list[int]) -> Outcome:
    """No attempt is counted."""
    if not place.wait_s:
        return Outcome(RELEASED, NO_CONNECTION, "limit", recipients)
    text = f"no smart host takes it, and there is no place for it at the MX hosts of {delivery.destination}"
    reply = Reply(450, "4.3.2", f"{text}: {place.cause}")
    return Outcome(POSTPONED, reply, "limit", recipients, delay_s=place.wait_s)

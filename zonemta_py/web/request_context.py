"""What all requests share, and the submission of mail, with the same rules as for SMTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from zonemta_py.config import Config, Zone, is_shared
from zonemta_py.config.senders import Rights, rights
from zonemta_py.events.hub import Hub
from zonemta_py.journal.folders import folder_of
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.trace import Trace
from zonemta_py.plugin.arguments import Info, Session
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.verdicts import Drop, Verdict
from zonemta_py.queue import questions
from zonemta_py.queue.api import EVERYBODY, Admin, Pull, QueueRefusal, Receipt, Reception, Unanswered
from zonemta_py.queue.questions.question import NO_CURSOR, A, P, Question
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import Login
from zonemta_py.reception.permission import bind
from zonemta_py.reception.pull import NamedQueues
from zonemta_py.reception.receiver import NOBODY, MessageRefused, Receiver, mark, take_whole, tell_refused, tell_stored
from zonemta_py.reception.scope import EVERYTHING, KeyScope
from zonemta_py.web.api.feedback.webhooks import Fetch, SignedWebhooks
from zonemta_py.web.api.templates.check import TemplateCheck, TemplateStore
from zonemta_py.web.api.uploads.attached import AttachmentDesk
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.keys import ApiKeys, Holder, token
from zonemta_py.web.shares import AccountSessions, HttpCounts, RequestShares, StreamShares

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

    from zonemta_py.events.hubs import Hubs

DROPPED = Receipt("", 0, 0, False)
TlsTerms = Callable[[Zone, str], Awaitable[dict[str, Any]]]


class QueueFace(Reception, Admin, Pull, TemplateStore, Protocol):
    """The queue interfaces that HTTP needs."""


@dataclass(slots=True)
class Visit:
    """One request. id: names it in logs and problem documents."""

    id: str
    client: str
    secure: bool
    holder: Holder | None = None

    @property
    def key(self) -> Holder:
        assert self.holder is not None
        return self.holder


def _hub(config: Config, queue: QueueFace) -> Hub | Hubs:
    if not is_shared(config):
        return Hub(config.folder, queue.ask)
    from zonemta_py.events.hubs import Hubs
    from zonemta_py.queues.client import Queues

    assert isinstance(queue, Queues)
    return Hubs({number: Hub(folder_of(config.folder, number), ask) for number, ask in queue.asks.items()})


class RequestContext:
    """queue: the queue's interfaces. local: the key of the token file. tls_terms: of senders, who know it."""

    def __init__(
        self, config: Config, queue: QueueFace, host: Host, gate: ConnectionLimits, local: str, tls_terms: TlsTerms,
        opened: HttpCounts, fetch: Fetch | None = None,
    ) -> None:  # fmt: skip
        self.config, self.queue, self.gate, self.tls_terms = config, queue, gate, tls_terms
        self.site = ListenerSettings(config, config.http.listener, queue, host, gate, Login({}))
        self.keys = ApiKeys(config.http.keys, local, self.site.permissions)
        self.templates = TemplateCheck(
            queue, self.site.rules.terms, config.links.enabled, self.site.asked, self.site.rules.chosen
        )
        self.attachments = AttachmentDesk(config, self.site.clock_ms)
        self.queues = NamedQueues(config, queue)
        self.shares = RequestShares(config.http.requests, config.http.requests_per_key, opened.requests)
        self.streams = StreamShares(config.http.streams, opened.streams)
        self.sessions = AccountSessions(self.site.accounts, queue)
        self.events = _hub(config, queue)
        self.streams.at_end(self.events.end)
        self._local, self.cursors = local, Cursors(local)
        self.webhooks = SignedWebhooks(config, lambda: self.site.clock_ms() / 1000, fetch)

    def open_metrics(self, client: str) -> bool:
        """Whether this client needs no key for metrics."""
        return self.config.http.metrics == "open" and bool(client) and ipaddress.ip_address(client).is_loopback

    def revise(self, now: Rights) -> None:
        """Another configuration holds: keys that have lost something are of no use here, and streams end, to go on at
        the next process if they may."""
        before = rights(self.config)
        if self.keys.revise(before["keys"], now["keys"], token(self.config.folder) == self._local):
            self.streams.end()

    # -- mail

    def address(self, envelope: Envelope, visit: Visit) -> Session:
        """Records the submitter in the envelope. Raises RequestProblem for an unknown zone."""
        protocol = "HTTPS" if visit.secure else "HTTP"
        envelope.origin, envelope.user, envelope.protocol = visit.client, visit.key.name, protocol
        envelope.account = self.site.accounts.of(visit.client, key=visit.key.name)
        if self.config.http.durability == "node":
            envelope.durability = "node"
        self.check_choices(visit, envelope.tenant, envelope.sending_zone, envelope.priority)
        envelope.received_ms = self.site.clock_ms()
        envelope.clock_ahead_ms = self.site.ahead_ms(envelope.received_ms)
        if envelope.sending_zone is not None and self.config.zone(envelope.sending_zone) is None:
            names = ", ".join(zone.name for zone in self.config.zones)
            raise invalid([FieldError("zone", f"there is no zone {envelope.sending_zone[:80]!a}; there are {names}")])
        return Session(
            id=visit.id, listener="http", client=visit.client, server=self.config.http.address, user=visit.key.name,
            protocol=protocol, senders=visit.key.senders, account=envelope.account,
        )  # fmt: skip

    async def hand_in(
        self, envelope: Envelope, visit: Visit, blocks: AsyncIterator[bytes], digest: Digest, contents: bool = True
    ) -> Receipt:  # fmt: skip
        """Submits a message, with its bytes as they come. contents: plugins look at them. Raises RequestProblem,
        QueueRefusal, Verdict, MessageRefused."""
        session, site = self.address(envelope, visit), self.site
        visit.key.speak(envelope.sender)
        try:
            if site.host.listens("api_mail"):
                await site.host.call("api_mail", envelope=envelope, session=session)
            opening = Trace(f"[{visit.client}]", visit.client, site.hostname, envelope.protocol).opening()
            fit = partial(self._in_scope, visit.key.scope) if visit.key.scope.bound else None
            receiver = Receiver(site, session, envelope, opening, visit.id, fit, contents=contents)
            digest.name(envelope)
            return await take_whole(receiver, self.config.limits, blocks, partial(digest.put_into, envelope))
        except Drop as verdict:
            await self._tell_refused(session, envelope, verdict)
            return DROPPED
        except (RequestProblem, QueueRefusal, Verdict, MessageRefused) as refused:
            await self._tell_refused(session, envelope, refused)
            raise

    async def hand_in_batch(self, envelope: Envelope, visit: Visit) -> Receipt:
        """Submits recipients of a campaign. Raises RequestProblem, QueueRefusal, Verdict, MessageRefused."""
        session, host = self.address(envelope, visit), self.site.host
        await self.own(envelope.campaign or "", visit)
        if session.account:
            tenant = await self.queue.ask(questions.campaign_tenant, name=envelope.campaign or "")
            self.check_choices(visit, "" if tenant == EVERYBODY else tenant)
        mark(self.site, session, envelope)
        if session.account and (refusal := bind(self.site.accounts.by_name[session.account], envelope)) is not None:
            raise MessageRefused(refusal)
        try:
            if host.listens("api_mail") or host.listens("message_queue"):
                await self._show_plugins(envelope, session)
            if not envelope.recipients:
                raise MessageRefused(NOBODY)
            await self.templates.check(envelope, visit.key)
            receipt = await self.queue.accept(envelope, b"")
        except Drop as verdict:
            await self._tell_refused(session, envelope, verdict)
            return DROPPED
        except (RequestProblem, QueueRefusal, Verdict, MessageRefused) as refused:
            await self._tell_refused(session, envelope, refused)
            raise
        if self.site.tells_stored:
            await tell_stored(host, session, envelope, receipt)
        return receipt

    async def _tell_refused(self, session: Session, envelope: Envelope, refused: Exception) -> None:
        """Plugins hear that it is not stored, unless that is unknown."""
        host = self.site.host
        if host.listens("message_refused") and not isinstance(refused, Unanswered):
            why = Reply(554, "5.6.0", refused.detail) if isinstance(refused, RequestProblem) else refused
            await tell_refused(host, session, envelope, "message", why)

    async def _show_plugins(self, envelope: Envelope, session: Session) -> None:
        """Fills in the campaign's values, which the queue would only do later, so that plugins see them."""
        host, campaign = self.site.host, await self.campaign(envelope.campaign or "")
        envelope.sender = campaign["sender"]
        envelope.tenant = envelope.tenant or campaign["tenant"] or None
        if host.listens("api_mail"):
            await host.call("api_mail", envelope=envelope, session=session)
        if host.listens("message_queue"):
            await host.call("message_queue", envelope=envelope, info=Info(session, envelope.size, None))

    async def own(self, campaign: str, visit: Visit) -> None:
        """A key with configured senders may use only their campaigns, one with a scope only those in it. Raises
        RequestProblem, QueueRefusal."""
        if visit.key.senders.bound or visit.key.scope.bound:
            visit.key.speak((await self.campaign(campaign, visit.key.scope))["sender"] or "<>")

    def check_choices(
        self, visit: Visit, tenant: str | None = None, zone: str | None = None, priority: int | None = None
    ) -> None:  # fmt: skip
        """An account that is not trusted names no tenant or zone but its own, and raises no priority, as header fields
        of its mail do not either; a tenant of its key's scope it may. Raises RequestProblem."""
        key, accounts = visit.key, self.site.accounts
        if key.role == "admin" or not (tenant or zone or priority):
            return
        account = accounts.by_name.get(accounts.of(visit.client, key=key.name))
        if account is None or account.trust_headers:
            return
        if tenant and not account.tenant and tenant not in key.scope.tenants:
            what = f"choose a tenant, and this names {tenant[:80]!r}"
            remedy = "tenant or trust_headers in its [[accounts]], or tenants in its [[http.keys]]"
        elif zone and not account.zone:
            what = f"choose a zone, and this names {zone[:80]!r}"
            remedy = "zone or trust_headers in its [[accounts]]"
        elif priority and priority > 0:
            what, remedy = "raise the priority of its mail", "trust_headers in its [[accounts]]"
        else:
            return
        raise RequestProblem("no-right", f"account {account.name!r} may not {what}; leave it out, or set {remedy}")

    async def _in_scope(self, scope: KeyScope, envelope: Envelope) -> Reply | None:
        """Why mail is refused whose header asks for what is not in the key's scope. A campaign's name is its tenant's:
        another's of the same name is no reason. Raises QueueRefusal."""
        refusal = scope.take(envelope)
        if refusal is None and scope.campaigns and not scope.tenants:
            return await self._of_campaign(envelope)
        return refusal

    async def _of_campaign(self, envelope: Envelope) -> Reply | None:
        """Mail of a key that is for campaigns alone has its account's tenant, else its campaign's, and no other. Raises
        QueueRefusal."""
        account = self.site.accounts.by_name.get(envelope.account or "")
        tenant = account.tenant if account is not None else ""
        if not tenant:
            of = await self.queue.ask(questions.campaign_tenant, name=envelope.campaign or "", registered=True)
            tenant = "" if of in (None, EVERYBODY) else of
        said = envelope.tenant or ""
        if said in ("", tenant):
            envelope.tenant = tenant or None
            return None
        what = f"the campaign {(envelope.campaign or '')[:80]!r} is not of the tenant {said[:80]!r}"
        return Reply(550, "5.7.1", f"{what}; leave that out")

    # -- questions

    async def campaign(self, name: str, scope: KeyScope = EVERYTHING) -> questions.CampaignRow:
        """Its full row. Raises RequestProblem, QueueRefusal; the same for one that is not in the scope."""
        if scope.bound:
            await self.check_campaign(name, scope)
        try:
            return await self.queue.ask(questions.campaign, name=name)
        except ValueError as error:
            raise RequestProblem("not-found", str(error)) from None

    async def check_campaign(self, name: str, scope: KeyScope) -> None:
        """Raises RequestProblem if it is not in the scope, whether it is there or not."""
        if not await self.owns(scope, name):
            sentence = f"there is no campaign {name!r} in this key's scope; GET /v1/campaigns shows those in it"
            raise RequestProblem("not-found", sentence)

    async def owns(self, scope: KeyScope, campaign: str) -> bool:
        """Whether all mail of a campaign is in the scope."""
        if scope.campaigns and campaign not in scope.campaigns:
            return False
        if not scope.tenants:
            return True
        tenant = await self.queue.ask(questions.campaign_tenant, name=campaign)
        return tenant is not None and tenant in scope.tenants

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        """Asks the queue; its refusal becomes a conflict. Raises RequestProblem, QueueRefusal."""
        try:
            return await self.queue.ask(question, *_, **arguments)
        except ValueError as error:
            raise RequestProblem("invalid" if NO_CURSOR in str(error) else "conflict", str(error)) from None


class Digest:
    """SHA-256 of a request's content, with its key. key: "" for none, then nothing is hashed."""

    def __init__(self, key: str, *parts: str | None) -> None:
        self._key = key
        self._sum = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")) if key else None

    async def over(self, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Passes the blocks on, and hashes them."""
        async for block in blocks:
            if self._sum is not None:
                self._sum.update(block)
            yield block

    def name(self, envelope: Envelope) -> None:
        """Its key, before its content has come: that says which of several queues has it."""
        envelope.request = self._key

    def put_into(self, envelope: Envelope) -> None:
        if self._sum is not None:
            envelope.request, envelope.digest = self._key, self._sum.digest()


_PURPOSE = b"zonemta-py: cursors of pages"


class Cursors:
    """Cursors of pages that name what a client must not see, sealed with a key made from that of the token file: they
    outlive reloads and restarts, and no longer that file.

    local: the key of the token file. The secret is made when it is first needed."""

    def __init__(self, local: str) -> None:
        self._local = local
        self._made: Fernet | None = None

    def sealed(self, who: str, cursor: str) -> str:
        """Text that only `opened` can read, for the same client."""
        return self._secret().encrypt(f"{who}\n{cursor}".encode()).decode()

    def opened(self, who: str, text: str) -> str:
        """Raises RequestProblem."""
        if not text:
            return ""
        from cryptography.fernet import InvalidToken

        try:
            owner, _, cursor = self._secret().decrypt(text.encode()).decode().partition("\n")
        except (InvalidToken, ValueError):
            owner, cursor = "", ""
        if owner != who:
            raise invalid([FieldError("query after", "is no cursor of a page; begin again without it")])
        return cursor

    def _secret(self) -> Fernet:
        if self._made is None:
            from cryptography.fernet import Fernet

            self._made = Fernet(base64.urlsafe_b64encode(hmac.digest(self._local.encode(), _PURPOSE, "sha256")))
        return self._made

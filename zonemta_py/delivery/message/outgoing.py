"""What every outgoing message gets: its return path (VERP, SRS), Feedback-ID, List-Unsubscribe, signatures.

Fields are prepended, signatures above what they sign, after plugins have run. A field that the message already has is
not added. Return paths: the null one stays null; VERP goes before SRS, for its domain is ours already. The sender
stored in the queue does not change: notifications go there.

Failures: `finish` raises Unsigned (see `signing`), and QueueRefusal where a body has to be read for its hash.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from zonemta_py.config import Config
from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.message.signing import UNSIGNED, Signer, Unsigned
from zonemta_py.mail import list_fields
from zonemta_py.mail.addresses import leaving, srs, verp
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.link import PRINTED, Link, Purpose, Scope, url
from zonemta_py.queue.api import Delivery

if TYPE_CHECKING:
    from zonemta_py.delivery.message.domain_terms import DomainTerms
    from zonemta_py.merge.html.tracking import Tracking

_DAY_S = 86_400
_NULL = "<>"
"""The null return path, as a plugin says it."""
_FEEDBACK = re.compile(rb"^feedback-id[ \t]*:", re.IGNORECASE | re.MULTILINE)
_UNSUBSCRIBE = re.compile(rb"^list-unsubscribe(-post)?[ \t]*:", re.IGNORECASE | re.MULTILINE)


class Outgoing:
    """For one process. active: there is something to add to messages; else only where a plugin has chosen a key."""

    def __init__(self, config: Config) -> None:
        self._path = config.return_path
        self._unsubscribing, self._links = config.unsubscribing, LinkMaker(config)
        self._signer = Signer(config) if config.dkim or config.server.sender_domains else None
        self._domains = _domain_terms(config)
        self._rewrites = bool(self._path.verp or self._path.srs)
        own = {canonical(rule) for rule in self._path.own_domains} | {self._path.srs}
        self._own = frozenset(rule for rule in own if rule[:2] != "*.")
        self._own_parents = tuple(rule[1:] for rule in own if rule[:2] == "*.")
        self.active = bool(self._signer or self._path.feedback_id or self._unsubscribing.wanted)

    def addressed(self, delivery: Delivery, unix_s: float | None = None) -> Delivery:
        """The delivery with the return path for MAIL."""
        if not delivery.sender or not (self._rewrites or delivery.routing):
            return delivery
        today = int(time.time() if unix_s is None else unix_s) // _DAY_S
        sender = self._return_path(delivery, today)
        return delivery if sender == delivery.sender else replace(delivery, sender=sender)

    def _return_path(self, delivery: Delivery, today: int) -> str:
        """As configured, or as a plugin has chosen. An address that a plugin names is said as it is, unless it wants it
        rewritten."""
        path, sender, by_verp, by_srs, own = self._path, delivery.sender, True, True, False
        if routing := delivery.routing:
            named = routing.get("sender")
            if named == _NULL:
                return ""
            sender = named or sender
            by_verp, by_srs = routing.get("verp", not named), routing.get("srs", not named)
            own = routing.get("srs", False)
        if by_verp and path.verp and len(delivery.recipients) == 1:
            own_domain = self._domains.of(delivery) if self._domains is not None else None
            at = (own_domain.verp if own_domain is not None else "") or path.verp
            address = verp.encode(delivery.id, delivery.recipients[0].address, at, path.secret, today)
            if address:
                return address
        if by_srs and path.srs and (own or not self._is_own(sender)):
            return srs.rewrite(sender, path.srs, path.secret, today)
        return sender

    def _is_own(self, sender: str) -> bool:
        domain = canonical(sender.rpartition("@")[2])
        return domain in self._own or "*" in self._own or domain.endswith(self._own_parents)

    async def finish(self, delivery: Delivery, body: Body) -> None:
        """Adds fields and signatures to this delivery's copy."""
        section = await body.section()
        fields = self._fields(delivery, section)
        if fields:
            body.put_on_top(fields)
            section = fields + section
        key = delivery.routing.get("dkim", "") if delivery.routing else ""  # a plugin's choice
        if key and key != UNSIGNED and not self._signer:
            raise Unsigned(f"{key} is not configured any more")
        if self._signer and key != UNSIGNED:
            form = self._signer.form
            # A merged message is made anew each time, perhaps from another template: nothing names its bytes.
            name, stored = delivery.id if delivery.values is None else "", delivery.hashes.get(form)
            if body.variant:  # other bytes, with a hash of their own
                name, stored = name and f"{name} {body.variant}", None
            signatures = await self._signer.sign(
                name, section, stored, lambda: body.hash(form), time.monotonic(),
                int(time.time()), not delivery.unsigned, key, delivery.tenant,
            )  # fmt: skip
            if signatures:
                body.put_on_top(signatures)

    def _fields(self, delivery: Delivery, section: bytes) -> bytes:
        path, fields = self._path, b""
        if not delivery.sender:  # a notice or an automatic reply: nobody subscribes to those
            return fields
        if path.feedback_id and not _FEEDBACK.search(section):
            fields += list_fields.feedback_id(
                path.feedback_id, campaign=delivery.campaign, tenant=delivery.tenant, zone=delivery.zone,
                id=delivery.id, sender=delivery.sender.rpartition("@")[2],
            )  # fmt: skip
        if self._leaves(delivery) and not _UNSUBSCRIBE.search(section):
            fields += self._unsubscribe(delivery)
        return fields

    def _leaves(self, delivery: Delivery) -> bool:
        """Whether the recipient may leave by a field: a merged message is a campaign's, so that our own link is there
        by itself."""
        asked = delivery.unsubscribe or (self._unsubscribing.own and delivery.values is not None)
        return self._unsubscribing.covers(delivery.zone, asked)

    def _unsubscribe(self, delivery: Delivery) -> bytes:
        """Empty where one link would have to serve several people."""
        if len(delivery.recipients) > 1 and self._unsubscribing.alone(delivery.zone, delivery.unsubscribe):
            return b""
        return list_fields.list_unsubscribe(*self._page(delivery), mailto=self._address(delivery))

    def _page(self, delivery: Delivery) -> list[str]:
        """The URL that takes the POST, if there is one."""
        if self._unsubscribing.linked:
            return [self._links.url("unsubscribe", delivery)]
        path, address = self._path, delivery.recipients[0].address
        if not path.list_unsubscribe:
            return []
        return [
            list_fields.unsubscribe_url(path.list_unsubscribe, path.secret, delivery.id, address, delivery.campaign)
        ]

    def _address(self, delivery: Delivery) -> str:
        """That takes a mail instead; "" if there is none."""
        domain, scope = self._path.unsubscribe_domain, delivery.unsubscribe_scope or self._links.scope
        if not domain:
            return ""
        today = int(time.time()) // _DAY_S
        return leaving.encode(delivery.id, delivery.recipients[0].address, scope, domain, self._path.secret, today)


class LinkMaker:
    """Links to our own listener ([links]), made for one recipient of one message: it needs no table of who got what."""

    def __init__(self, config: Config) -> None:
        self._links = config.links
        self.scope = config.links.scope
        self._domains = _domain_terms(config)

    def fields(self, delivery: Delivery, names: Iterable[str]) -> dict[str, str]:
        """What a template prints by these names."""
        return {name: self.url(PRINTED[name], delivery) for name in names}

    def tracking(self, delivery: Delivery) -> Tracking | None:
        """What its HTML gets, where tracking is on and wanted."""
        links, wanted = self._links, delivery.track or ("yes" if self._links.track == "on" else "no")
        if links.track == "off" or wanted == "no":
            return None
        if (links.track_zones and delivery.zone not in links.track_zones) or (
            links.track_tenants and delivery.tenant not in links.track_tenants
        ):
            return None
        from zonemta_py.merge.html import tracking

        link = partial(self.url, "click", delivery) if wanted in ("yes", "clicks") else None
        picture = self.url("open", delivery) if wanted in ("yes", "opens") else ""
        return tracking.Tracking(link, picture, self._base(delivery))

    def url(self, purpose: Purpose, delivery: Delivery, target: str = "") -> str:
        """For the delivery's first recipient; the only one, where it matters. Each attempt makes the same one."""
        scope = cast(Scope, delivery.unsubscribe_scope or self._links.scope)
        day = int(delivery.received_ms / 1000 or time.time()) // _DAY_S
        address = delivery.recipients[0].address
        name, title = (delivery.list_name, delivery.list_title) if purpose in PRINTED.values() else ("", "")
        link = Link(purpose, delivery.id, address, delivery.campaign, delivery.tenant, scope, day, target, name, title)
        return url(self._base(delivery), link, self._links.secrets)

    def _base(self, delivery: Delivery) -> str:
        """What links begin with: the sender domain's own name, if there is one that leads here."""
        if self._domains is None or (domain := self._domains.of(delivery)) is None or not domain.links:
            return self._links.url
        return f"https://{domain.links}{urlsplit(self._links.url).path}"


def _domain_terms(config: Config) -> DomainTerms | None:
    if not config.server.sender_domains:
        return None
    from zonemta_py.delivery.message.domain_terms import shared  # here: SQLite, where there may be any

    return shared(config)

"""The queue's side of the plugin host: `queue.hooks.Hooks` for plugins (queue_route, queue_delayed, …)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator

from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.notices.wording import Failed, OwnWords
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS, Attempts, Bounce, Deferral, NextTry, Notice, Routing
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Reject, Verdict
from zonemta_py.queue.api import ABOUT, Delivery, QueueRefusal
from zonemta_py.queue.hooks import PutOff, Routed, attributed

log = logging.getLogger(__name__)

_SMTP = 25
_CHOSEN = ("host", "source", "tls", "protocol", "pool", "dkim", "sender")
_SWITCHES = ("srs", "verp", "sts")
"""Fields of `Routing` that are kept with the recipient under their name."""


def _without_host(routing: Routing) -> Iterator[str]:
    """What plugins have set that means nothing, as they have set no host, with whose it is."""
    ignored = {"port": routing.port != _SMTP, "protocol": bool(routing.protocol)} if not routing.host else {}
    for field in (field for field, is_set in ignored.items() if is_set):
        who, value = routing._by.get(field, "?"), getattr(routing, field)
        yield (
            f"plugin {who}, hook queue_route: gives {routing.recipient} {field} {value} but no host, so it is ignored; "
            "set routing.host, too"
        )


class PluginHooks:
    """Calls the plugins that have the hook, and translates their verdicts for the queue."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.routes = host.listens("queue_route")
        self.delays = host.listens("queue_delayed")
        self.bounces = host.listens("queue_bounce")
        self.releases = host.listens("queue_release")
        self.sends = any(host.listens(hook.name) for hook in HOOKS.values() if hook.process == "sender")
        self.sends = self.sends or host.listens("message_headers")  # of merged messages
        self.retries = host.listens("queue_retry")
        self.defers = host.listens("queue_deferred")

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        asked, person, source = envelope.priority or 0, routed.recipient, (routed.routing or {}).get("source", "")
        routing = Routing(person.address, routed.zone, source=source, priority=asked, notes=person.notes)
        try:
            await self._host.call("queue_route", envelope=envelope, routing=routing)
        except Reject as verdict:
            return dataclasses.replace(routed, refusal=verdict.reply, by=(verdict.plugin, verdict.hook))
        except Drop as verdict:
            return dataclasses.replace(routed, drop=(verdict.plugin, verdict.hook, verdict.reason))
        except (Defer, Hold) as verdict:
            said, found = attributed(verdict.reply, verdict.plugin, verdict.hook), self._decided(routed, routing, asked)
            if isinstance(verdict, Defer):
                return dataclasses.replace(found, delay_s=verdict.seconds, said=said)
            return dataclasses.replace(found, said=said, held=(verdict.plugin, verdict.hook, verdict.reply))
        except Verdict as failure:
            raise QueueRefusal(failure.reply) from None
        return self._decided(routed, routing, asked)

    def _decided(self, routed: Routed, routing: Routing, priority: int) -> Routed:
        """As plugins have left it. priority: as it was before."""
        decided = {name: value for name in _CHOSEN if (value := getattr(routing, name))}
        decided |= {name: value for name in _SWITCHES if (value := getattr(routing, name)) is not None}
        if port := self._port(routing):
            decided["port"] = port
        else:
            decided.pop("protocol", None)
        if routing.auth:
            decided["auth"] = list(routing.auth)
        if routing.priority != priority:
            decided["priority"] = routing.priority
        routed.recipient.notes = routing.notes
        return dataclasses.replace(routed, zone=routing.zone, routing=decided or None, delay_s=routing.delay_s)

    def _port(self, routing: Routing) -> int:
        if routing.host:
            return routing.port
        for sentence in _without_host(routing):
            self.ignore(sentence)
        return 0

    def ignore(self, sentence: str) -> None:
        """Says what plugins have set in vain."""
        log.warning("%s", sentence)

    async def delayed(
        self, message_id: str, zone: str, envelope: Envelope, failed: Failed, first_ms: int
    ) -> Failed | None:
        delivery, notice = _delivery(message_id, zone, envelope, failed), Notice()
        previous_ms = first_ms if failed.attempts == 2 else 0  # of those between the queue keeps no times
        attempts = Attempts(first_ms, previous_ms, failed.last_ms)
        try:
            await self._host.call("queue_delayed", delivery=delivery, attempts=attempts, notice=notice)
        except Verdict:
            return None
        return dataclasses.replace(failed, own=_own(notice))

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        recipients, notice = [failure.recipient for failure in failed], Notice()
        bounce = Bounce(message_id, envelope.sender, recipients, failed[0].reply, zone, envelope.notes)
        try:
            await self._host.call("queue_bounce", bounce=bounce, notice=notice)
        except Verdict:
            return []
        kept, own = {recipient.address for recipient in bounce.recipients}, _own(notice)
        changed = bounce.reply if bounce.reply != failed[0].reply else None
        return [
            dataclasses.replace(failure, reply=changed or failure.reply, own=own)
            for failure in failed
            if failure.recipient.address in kept
        ]

    async def released(self, message_id: str, zone: str, envelope: Envelope) -> None:
        try:
            await self._host.call("queue_release", zone=zone, delivery=_delivery(message_id, zone, envelope))
        except Verdict:
            return  # the host has named and counted it; the message is gone either way

    async def retried(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, wait_s: float) -> float:
        delivery = _delivery(message_id, zone, envelope, put_off)
        retry = NextTry(wait_s, put_off.reply, put_off.attempts, put_off.first_ms, put_off.kind, put_off.remote)
        try:
            await self._host.call("queue_retry", delivery=delivery, retry=retry)
        except Verdict:
            return wait_s
        return retry.wait_s

    async def deferred(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, next_ms: int) -> None:
        delivery = _delivery(message_id, zone, envelope, put_off)
        deferral = Deferral(
            put_off.reply, put_off.attempts, put_off.first_ms, next_ms, put_off.kind, put_off.remote
        )  # fmt: skip
        try:
            await self._host.call("queue_deferred", delivery=delivery, deferral=deferral)
        except Verdict:
            return


def _own(notice: Notice) -> OwnWords | None:
    return OwnWords(notice.text, notice.sender, notice.zone) if notice != Notice() else None


def _delivery(message_id: str, zone: str, envelope: Envelope, failed: Failed | PutOff | None = None) -> Delivery:
    """failed: the one recipient it is about; None: the message."""
    return Delivery(
        lease=0,
        id=message_id,
        zone=zone,
        destination="",
        sender=envelope.sender,
        recipients=[failed.recipient] if failed else envelope.recipients,
        size=envelope.size,
        chunks=0,
        attempts=[failed.attempts] if failed else [],
        campaign=envelope.campaign or "",
        tenant=envelope.tenant or "",
        received_ms=envelope.received_ms,
        about={name: value for name in ABOUT if (value := getattr(envelope, name))},
    )

"""The queue's side of the plugin host: `queue.hooks.Hooks` for plugins (queue_route, queue_delayed, …)."""

from __future__ import annotations

import dataclasses
import logging

from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS, Attempts, Bounce, Deferral, NextTry, Routing
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Reject, Verdict
from zonemta_py.queue.api import ABOUT, Delivery, QueueRefusal
from zonemta_py.queue.hooks import PutOff, Routed

log = logging.getLogger(__name__)

_SMTP = 25


class PluginHooks:
    """Calls the plugins that have the hook, and translates their verdicts for the queue."""

    def __init__(self, host: Host, zones: set[str]) -> None:
        self._host, self._zones = host, zones
        self.routes = host.listens("queue_route")
        self.delays = host.listens("queue_delayed")
        self.bounces = host.listens("queue_bounce")
        self.releases = host.listens("queue_release")
        self.sends = any(host.listens(hook.name) for hook in HOOKS.values() if hook.process == "sender")
        self.retries = host.listens("queue_retry")
        self.defers = host.listens("queue_deferred")

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        asked = envelope.priority or 0
        person = routed.recipient
        routing = Routing(recipient=person.address, zone=routed.zone, priority=asked, notes=person.notes)
        try:
            await self._host.call("queue_route", envelope=envelope, routing=routing)
        except Reject as verdict:
            return dataclasses.replace(routed, refusal=verdict.reply)
        except Defer as verdict:
            said = f"{verdict.reply} (plugin {verdict.plugin}, hook {verdict.hook})"
            return dataclasses.replace(routed, delay_s=verdict.seconds, said=said)
        except Hold as verdict:
            said = f"{verdict.reply} (plugin {verdict.plugin}, hook {verdict.hook})"
            return dataclasses.replace(routed, said=said, held=(verdict.plugin, verdict.hook, verdict.reply))
        except Drop as verdict:
            return dataclasses.replace(routed, drop=verdict.reason)
        except Verdict as failure:
            raise QueueRefusal(failure.reply) from None
        decided = {
            "host": routing.host,
            "port": self._port(routing),
            "source": routing.source,
            "tls": routing.tls,
            "auth": list(routing.auth) if routing.auth else None,
        }
        decided = {name: value for name, value in decided.items() if value}
        if routing.priority != asked:
            decided["priority"] = routing.priority
        person.notes = routing.notes
        zone = self._zone(routing, routed.zone)
        return dataclasses.replace(routed, zone=zone, routing=decided or None, delay_s=routing.delay_s)

    def _zone(self, routing: Routing, before: str) -> str:
        if routing.zone in self._zones:
            return routing.zone
        log.warning(
            "plugins send %s through zone %r, which is not in the configuration; it stays in %s",
            routing.recipient, routing.zone, before,
        )  # fmt: skip
        return before

    def _port(self, routing: Routing) -> int:
        if routing.host:
            return routing.port
        if routing.port != _SMTP:
            log.warning("plugins give %s port %d but no host, so the port is ignored", routing.recipient, routing.port)
        return 0

    async def delayed(self, message_id: str, zone: str, envelope: Envelope, failed: Failed, first_ms: int) -> bool:
        delivery = _delivery(message_id, zone, envelope, failed)
        previous_ms = first_ms if failed.attempts == 2 else 0  # of those between the queue keeps no times
        attempts = Attempts(first_ms, previous_ms, failed.last_ms)
        try:
            await self._host.call("queue_delayed", delivery=delivery, attempts=attempts)
        except Verdict:
            return False
        return True

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        recipients = [failure.recipient for failure in failed]
        bounce = Bounce(message_id, envelope.sender, recipients, failed[0].reply, zone, envelope.notes)
        try:
            await self._host.call("queue_bounce", bounce=bounce)
        except Verdict:
            return []
        kept = {recipient.address for recipient in bounce.recipients}
        changed = bounce.reply if bounce.reply != failed[0].reply else None
        return [
            dataclasses.replace(failure, reply=changed or failure.reply)
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

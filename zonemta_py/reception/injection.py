"""Mail that plugins hand in (`api.inject`), in whatever process they run: as over a listener, with the same limits and
the hooks of the other plugins; its fields for us say nothing, and it is signed with our keys.

A hook that is called for mail that it hands in itself goes on for ever: as many as UNDER_WAY_MAX at once are taken of a
plugin in a process, no more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from zonemta_py.config import Config, Listener
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.trace import Trace
from zonemta_py.plugin.arguments import Session, StoredMessage
from zonemta_py.plugin.injection import CLIENT, PROTOCOL, Injection, InjectionRefused
from zonemta_py.plugin.verdicts import Drop, Verdict
from zonemta_py.queue.api import QueueRefusal, Reception, Unanswered
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import Login
from zonemta_py.reception.receiver import MessageRefused, Receiver, take_whole, tell_refused

if TYPE_CHECKING:
    from zonemta_py.plugin.host import Host

UNDER_WAY_MAX = 100
LISTENER = "plugin"
"""`Session.listener` of it."""
_DAY_MS = 86_400_000


class PluginReception:
    """Of one process. queue: where it goes. host: its plugins."""

    def __init__(self, config: Config, queue: Reception, host: Host) -> None:
        self._config, self._queue, self._host = config, queue, host
        self._sites: dict[str, ListenerSettings] = {}
        self._under_way = Counter[str]()

    async def inject(self, wanted: Injection) -> StoredMessage:
        """Returns once it is on stable storage. Raises InjectionRefused, ValueError."""
        plugin = wanted.plugin
        if self._under_way[plugin] >= UNDER_WAY_MAX:
            text = f"Plugin {plugin} hands in {UNDER_WAY_MAX} messages already, and may do so for each of them"
            raise InjectionRefused(Reply(451, "4.3.2", text))
        self._under_way[plugin] += 1
        try:
            return await self._hand_in(wanted, self._site(plugin))
        finally:
            self._under_way[plugin] -= 1

    def _site(self, plugin: str) -> ListenerSettings:
        """With the hooks of the others alone."""
        if plugin not in self._sites:
            gate = ConnectionLimits(self._config.limits)
            listener = Listener(name=LISTENER, trust_sending_zone=False, trust_headers=False)
            host = self._host.without(plugin)
            self._sites[plugin] = ListenerSettings(self._config, listener, self._queue, host, gate, Login({}))
        return self._sites[plugin]

    async def _hand_in(self, wanted: Injection, site: ListenerSettings) -> StoredMessage:
        envelope, host = wanted.envelope, site.host
        self._check(wanted, site)
        envelope.received_ms = site.clock_ms()
        envelope.clock_ahead_ms = site.ahead_ms(envelope.received_ms)
        transaction = site.next_id()
        session = Session(
            id=transaction, listener=LISTENER, client=CLIENT, server=CLIENT, user=envelope.user or "",
            protocol=PROTOCOL, account=envelope.account,
        )  # fmt: skip
        digest = hashlib.sha256(repr(_asked(wanted)).encode("utf-8", "surrogatepass"))
        if wanted.key:
            envelope.request = f"{envelope.user} {wanted.key}"  # before its content: that says which queue has it
        try:
            return await self._receive(wanted, site, session, digest)
        except Drop as verdict:
            await self._tell(host, session, wanted, verdict)
            return StoredMessage("", 0)
        except (QueueRefusal, Verdict, MessageRefused) as refused:
            await self._tell(host, session, wanted, refused)
            raise InjectionRefused(refused.reply) from None

    def _check(self, wanted: Injection, site: ListenerSettings) -> None:
        """Raises ValueError."""
        envelope, most = wanted.envelope, self._config.limits.recipients
        if len(envelope.recipients) > most:
            raise ValueError(f"{len(envelope.recipients):,} recipients; limits.recipients allows {most:,}")
        if envelope.sending_zone is not None and self._config.zone(envelope.sending_zone) is None:
            names = ", ".join(zone.name for zone in self._config.zones)
            raise ValueError(f"there is no zone {envelope.sending_zone[:80]!a}; there are {names}")
        if envelope.account and envelope.account not in site.accounts.by_name:
            raise ValueError(f"there is no account {envelope.account[:80]!a} in the configuration")
        days = self._config.limits.hold_days
        if envelope.hold_until_ms - site.clock_ms() > days * _DAY_MS:
            raise ValueError(f"messages are held for {days:g} days at most; hand it in later")

    async def _receive(
        self, wanted: Injection, site: ListenerSettings, session: Session, digest: hashlib._Hash
    ) -> StoredMessage:
        """Raises QueueRefusal, Verdict, MessageRefused."""
        envelope = wanted.envelope
        opening = Trace(LISTENER, CLIENT, site.hostname, PROTOCOL).opening()
        receiver = Receiver(site, session, envelope, opening, session.id)

        async def blocks() -> AsyncIterator[bytes]:
            async for block in wanted.blocks:
                digest.update(block)
                yield block

        def complete() -> None:
            if wanted.key:
                envelope.digest = digest.digest()

        receipt = await take_whole(receiver, self._config.limits, blocks(), complete)
        return StoredMessage(receipt.id, receipt.accepted, receipt.suppressed, receipt.repeated)

    @staticmethod
    async def _tell(host: Host, session: Session, wanted: Injection, refused: Exception) -> None:
        if host.listens("message_refused") and not isinstance(refused, Unanswered):
            await tell_refused(host, session, wanted.envelope, "message", refused)


def _asked(wanted: Injection) -> tuple[object, ...]:
    one = wanted.envelope
    people = [person.address for person in one.recipients]
    return (one.sender, people, one.sending_zone, one.campaign, one.tenant, one.account, one.priority)

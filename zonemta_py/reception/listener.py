"""What all connections of one listener share in one process: settings, limits, the queue's interface, the plugins."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import ssl
import time
import zoneinfo
from collections.abc import Callable, Container
from functools import cache

from zonemta_py.config import Config, Listener
from zonemta_py.mail.fields import utc
from zonemta_py.mail.schedule_fields import BY_S_MIN, Terms
from zonemta_py.plugin.arguments import Server
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.streams import BodyHooks
from zonemta_py.queue.api import Reception
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import ConnectionLimits, Networks
from zonemta_py.reception.feedback.returns import Returns
from zonemta_py.reception.ingest import KEPT, IngestRules
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.login import Login
from zonemta_py.reception.permission import Accounts, Permissions

log = logging.getLogger(__name__)
_KEYWORD = re.compile(r"[!-~]+( [!-~]+)*")


def unix_ms() -> int:
    """The real clock; tests pass another."""
    return time.time_ns() // 1_000_000


class _TimeZones(Container[str]):
    """The time zones of this machine: many files, read when the first message names one."""

    def __contains__(self, name: object) -> bool:
        return name in _time_zones()


@cache
def _time_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def asked_headers(config: Config, host: Host) -> frozenset[str]:
    """Lower-case names of the header fields by which zones and plugins decide."""
    return host.headers.union(name.lower() for zone in config.zones for name in zone.headers)


def chosen_headers(config: Config) -> tuple[str, ...]:
    """Lower-case names of the header fields that come back with what is told of mail."""
    return tuple(dict.fromkeys(name.lower() for name in config.metadata.headers))


def ingest_rules(config: Config, listener: Listener, host: Host) -> IngestRules:
    """What becomes of a message that comes in by that listener, whoever hands it in."""
    windows = frozenset(window.name for window in config.windows)
    chosen = chosen_headers(config)
    return IngestRules(
        config.server.name, listener.trust_sending_zone, config.limits.header_bytes, config.limits.hops,
        BodyHooks.wanted(host), trust_fields=listener.trust_headers,
        kept=(*KEPT, *sorted(asked_headers(config, host).union(chosen) - {*KEPT})), body_form=config.body_form,
        terms=Terms(config.limits.hold_days, windows, _TimeZones()), chosen=chosen,
    )  # fmt: skip


class ListenerSettings:
    """Raises ConfigError where certificate or password hashes cannot be used. server: what `smtp_init` added.

    notes: for lines of log that clients cause. returns: takes what comes back, where the listener does."""

    def __init__(
        self, config: Config, listener: Listener, submission: Reception, host: Host, gate: ConnectionLimits, login:
        Login, notes: LogThrottle | None = None, clock_ms: Callable[[], int] = unix_ms,
        returns: Returns | None = None,
    ) -> None:  # fmt: skip
        self.notes, host = notes or LogThrottle(log), host.at(listener.name)
        self.listener, self.limits, self.hostname = listener, config.limits, config.server.name
        self.tells_stored = host.listens("message_stored")
        self.telling: set[asyncio.Task[None]] = set()
        """What plugins have yet to be told of sessions."""
        self.submission, self.host, self.gate, self.login, self.clock_ms = submission, host, gate, login, clock_ms
        self.returns = returns if listener.feedback else None
        self.loop, self.turns = asyncio.get_running_loop(), gate.turns
        self.tls: ssl.SSLContext | None = tls.context(listener, host)
        if self.tls is not None:
            tls.Renewal(listener, self.tls).watch(self.loop)
        self.may_relay = Networks(listener.relay_networks).contain
        self.permissions = Permissions(config, listener)
        self.accounts = Accounts(config)
        self.may_proxy = Networks(listener.proxy_networks).contain
        self.server = Server(listener.name)
        self.hooked = BodyHooks.wanted(host)
        self.asked = asked_headers(config, host)
        self.rules = ingest_rules(config, listener, host)
        self.distrusting, self.strange = self.rules.distrusting(), self.rules.of_strangers()
        self.banner = f"220 {self.hostname} ESMTP\r\n".encode()
        self._greetings: dict[tuple[bool, bool], bytes] = {}
        self._greetings_min = 0
        self._ids = itertools.count(1)
        self._prefix = secrets.token_hex(5)

    def rules_for(self, account: str) -> IngestRules:
        """Those for mail of an account, "" for none."""
        if not account or self.accounts.by_name[account].trust_headers:
            return self.rules
        return self.distrusting

    async def init(self) -> None:
        """Lets plugins add to the listener, before it opens."""
        if self.host.listens("smtp_init"):
            await self.host.call("smtp_init", server=self.server)
        self.server.ehlo_keywords = [word for word in self.server.ehlo_keywords if _KEYWORD.fullmatch(word)]

    @staticmethod
    def ahead_ms(now_ms: int) -> int:
        """How far the clock, which says now_ms, is ahead of CLOCK_MONOTONIC: from it the queue sees that the clock was
        set."""
        return now_ms - time.monotonic_ns() // 1_000_000

    def next_id(self) -> str:
        """Names a session; random, so unique among all processes and restarts."""
        return f"{self._prefix}{next(self._ids):x}"

    def greeting(self, under_tls: bool, authenticated: bool) -> bytes:
        """The reply to EHLO."""
        key = (under_tls, authenticated)
        minute = self.clock_ms() // 60_000
        if minute != self._greetings_min:  # the date they name moves on
            self._greetings_min = minute
            self._greetings.clear()
        if key not in self._greetings:
            words = self._keywords(under_tls, authenticated)
            lines = [f"250-{word}\r\n" for word in [self.hostname, *words]]
            lines[-1] = lines[-1].replace("-", " ", 1)
            self._greetings[key] = "".join(lines).encode()
        return self._greetings[key]

    def _keywords(self, under_tls: bool, authenticated: bool) -> list[str]:
        words = ["PIPELINING", f"SIZE {self.limits.message_bytes}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        words += ["DSN", "MT-PRIORITY MIXER", f"DELIVERBY {BY_S_MIN}", "FUTURERELEASE " + self._longest_hold()]
        if under_tls:
            words.append("REQUIRETLS")
        if self.listener.tls == "starttls" and not under_tls:
            words.append("STARTTLS")
        if self.listener.auth and under_tls and not authenticated:
            words.append("AUTH PLAIN LOGIN")
        return words + self.server.ehlo_keywords

    def _longest_hold(self) -> str:
        """In seconds, and as a date (RFC 4865)."""
        longest_s = int(self.limits.hold_days * 86_400)
        return f"{longest_s} {utc(self._greetings_min * 60_000 + longest_s * 1000)}"

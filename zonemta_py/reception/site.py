"""What all connections of one listener share in one process: settings, limits, the queue's face, the plugins."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import ssl
import time
from collections.abc import Callable

from zonemta_py.config import Config, Listener
from zonemta_py.plugin.arguments import Server
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.streams import BodyHooks
from zonemta_py.queue.api import Intake
from zonemta_py.reception import tls
from zonemta_py.reception.arrival import Rules
from zonemta_py.reception.gate import Gate, Networks
from zonemta_py.reception.login import Login

_KEYWORD = re.compile(r"[!-~]+( [!-~]+)*")


def unix_ms() -> int:
    """The real clock; tests pass another."""
    return time.time_ns() // 1_000_000


class Site:
    """Raises ConfigError where certificate or password hashes cannot be used. server: what `smtp_init` added."""

    def __init__(
        self, config: Config, listener: Listener, intake: Intake, host: Host, gate: Gate, login: Login,
        clock_ms: Callable[[], int] = unix_ms,
    ) -> None:  # fmt: skip
        self.listener, self.limits, self.hostname = listener, config.limits, config.server.name
        self.intake, self.host, self.gate, self.login, self.clock_ms = intake, host, gate, login, clock_ms
        self.loop = asyncio.get_running_loop()
        self.tls: ssl.SSLContext | None = tls.context(listener, host)
        self.may_relay = Networks(listener.relay_networks).contain
        self.may_proxy = Networks(listener.proxy_networks).contain
        self.server = Server(listener.name)
        self.hooked = BodyHooks.wanted(host)
        self.rules = Rules(
            self.hostname, listener.trust_sending_zone, self.limits.header_bytes, self.limits.hops, self.hooked
        )
        self.banner = f"220 {self.hostname} ESMTP\r\n".encode()
        self._greetings: dict[tuple[bool, bool], bytes] = {}
        self._ids = itertools.count(1)
        self._prefix = secrets.token_hex(5)

    async def init(self) -> None:
        """Lets plugins add to the listener, before it opens."""
        if self.host.listens("smtp_init"):
            await self.host.call("smtp_init", server=self.server)
        self.server.ehlo_keywords = [word for word in self.server.ehlo_keywords if _KEYWORD.fullmatch(word)]

    def next_id(self) -> str:
        """Names a session; unique among all processes and restarts, as good as chance makes it."""
        return f"{self._prefix}{next(self._ids):x}"

    def greeting(self, under_tls: bool, authenticated: bool) -> bytes:
        """The reply to EHLO."""
        key = (under_tls, authenticated)
        if key not in self._greetings:
            words = self._keywords(under_tls, authenticated)
            lines = [f"250-{word}\r\n" for word in [self.hostname, *words]]
            lines[-1] = lines[-1].replace("-", " ", 1)
            self._greetings[key] = "".join(lines).encode()
        return self._greetings[key]

    def _keywords(self, under_tls: bool, authenticated: bool) -> list[str]:
        words = ["PIPELINING", f"SIZE {self.limits.message_bytes}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        words.append("DSN")
        if self.listener.tls == "starttls" and not under_tls:
            words.append("STARTTLS")
        if self.listener.auth and under_tls and not authenticated:
            words.append("AUTH PLAIN LOGIN")
        return words + self.server.ehlo_keywords

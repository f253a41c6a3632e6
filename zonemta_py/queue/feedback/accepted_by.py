"""Who had taken mail that bounced later: the recipient's provider, or the site if that is no provider's, as deliveries
name it, so that the guard (`queue.suppression.guard`) counts both ways.

By what the queue knows of the domain since it has delivered there; else by the provider's domains in providers.toml;
else by DNS, for which a bounce waits WAITS_S at most, AT_ONCE domains at a time. Behind a smart host, and where nothing
is found, the domain stands for itself.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path

from zonemta_py.config import ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.disk.files import changed
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.queue.core.core import Core
from zonemta_py.zones.site import Providers

WAITS_S = 1.0
AT_ONCE = 20


class Takers:
    """Of all domains."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asking = 0

    def of(self, address: str, zone: str) -> str:
        """zone: of its message, "" unknown."""
        domain = canonical(address.rpartition("@")[2])
        found = self._core.schedule.zones.get(zone)
        if found is not None and found.flow_queues.own is not None:
            return domain
        return self._known(domain) or domain

    async def look(self, addresses: list[str]) -> None:
        """Asks DNS about domains of which nothing is known."""
        sites = self._core.schedule.sites
        if not sites.asks:
            return
        domains = dict.fromkeys(canonical(address.rpartition("@")[2]) for address in addresses if "@" in address)
        unknown = [domain for domain in domains if domain and not self._known(domain)][: max(0, AT_ONCE - self._asking)]
        if not unknown:
            return
        loop = asyncio.get_running_loop()
        told = [loop.create_future() for _ in unknown]
        for domain, future in zip(unknown, told, strict=True):
            sites.look(domain, lambda _, future=future: None if future.done() else future.set_result(None))  # type: ignore[misc]
        self._asking += len(unknown)
        try:
            await asyncio.wait(told, timeout=WAITS_S)
        finally:
            self._asking -= len(unknown)

    def _known(self, domain: str) -> str:
        return self._core.schedule.sites.place(domain) or self._by_name(domain)

    def _by_name(self, domain: str) -> str:
        path = self._core.config.dns.providers or _shipped()
        return _loaded(path, changed(path)).of((), domain)


@lru_cache(1)
def _shipped() -> Path:
    return shipped("providers.toml")  # it looks in several folders


@lru_cache(2)
def _loaded(path: Path, _: tuple[int, ...]) -> Providers:
    """Again if the file has changed."""
    try:
        return Providers.load(path)
    except ConfigError:
        return Providers()

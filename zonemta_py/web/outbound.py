"""What the HTTP process needs of delivery: which TLS mail gets, and fetching what proves webhooks. It is loaded when
somebody asks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config, Zone

if TYPE_CHECKING:
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.delivery.tls_explain import TlsExplainer
    from zonemta_py.web.api.feedback.webhooks import Fetch

FETCHED_BYTES_MAX = 64 * 1024


def tls_terms(config: Config) -> Callable[[Zone, str], Awaitable[dict[str, Any]]]:
    """Which TLS mail of a zone for a domain gets."""

    @cache
    def explainer() -> TlsExplainer:
        from zonemta_py.delivery.tls_explain import TlsExplainer

        return TlsExplainer(config)

    async def asked(zone: Zone, domain: str) -> dict[str, Any]:
        return (await explainer().of(zone, domain)).row()

    return asked


def fetching(config: Config) -> Fetch:
    """Gets what proves webhooks."""

    @cache
    def names() -> DnsDestinationResolver:
        from zonemta_py.delivery.dns.destination import DnsDestinationResolver

        return DnsDestinationResolver(config)

    async def fetched(host: str, path: str) -> bytes:
        from zonemta_py.delivery.tls import https
        from zonemta_py.mail.classify import NoRoute
        from zonemta_py.web.api.feedback.webhooks import FetchFailed

        context = ssl.create_default_context(cafile=config.tls.ca_file)
        try:
            addresses = await names().addresses(host, asyncio.get_running_loop().time())
            most, barred = FETCHED_BYTES_MAX, https.barred_by(config)
            return await https.get(host, 443, path, addresses, context, kind="", bytes_max=most, barred=barred)
        except (https.HttpsFailed, NoRoute) as error:
            raise FetchFailed(str(error)) from None

    return fetched

"""One query, by dnspython, which is imported here only. Failures are answers too (`NoRoute`), but for missing name
servers, which are raised as one."""

from __future__ import annotations

from typing import Any

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.resolver

from zonemta_py.delivery.dns.answer import Answer, Found
from zonemta_py.mail.classify import NoRoute

TTL_MAX_S = 86_400.0
TTL_MIN_S = 1.0
"""Also for a TTL of 0: the recipients of one message share one query."""
NEGATIVE_MAX_S = 3600.0
"""Upper limit for caching "does not exist", whatever the zone says."""
RECORDS_MAX = 100
"""Records of one answer that are used."""
TRY_TIMEOUT_S = 2.0
"""Seconds until a query is repeated, or sent to the next name server."""
UDP_BYTES = 1232
"""Largest UDP answer: what fits without fragmentation (DNS flag day 2020); larger ones use TCP."""


class Asker:
    """As `Resolver`."""

    def __init__(self, nameservers: list[str] | None, port: int, timeout_s: float, dnssec: bool) -> None:
        self._nameservers, self._port, self._timeout_s, self._dnssec = nameservers, port, timeout_s, dnssec
        self._dns: dns.asyncresolver.Resolver | None = None

    async def ask(self, name: str, kind: str) -> Found:
        try:
            answer = await self._library().resolve(
                dns.name.from_text(f"{name}."), kind, raise_on_no_answer=False, search=False, lifetime=self._timeout_s
            )
            return self._answer(answer.response, True)
        except dns.resolver.NXDOMAIN as error:
            return self._nothing(name, error)
        except NoRoute as error:
            return error
        except (dns.exception.DNSException, OSError) as error:
            reason = "no answer" if isinstance(error, dns.exception.Timeout) else "name server failure"
            return NoRoute(451, "4.4.3", f"DNS lookup of {name} ({kind}) failed: {reason}")

    def _nothing(self, name: str, error: dns.resolver.NXDOMAIN) -> Found:
        asked: Any = error
        [response] = asked.responses().values()
        try:
            return self._answer(response, False)
        except dns.exception.DNSException:  # malformed, such as an answer section for a missing name
            return NoRoute(451, "4.4.3", f"DNS lookup of {name} failed: name server failure")

    def _answer(self, response: dns.message.QueryMessage, exists: bool) -> Answer:
        chain = response.resolve_chaining()
        values = tuple(_value(record) for record in list(chain.answer or ())[:RECORDS_MAX])
        longest = TTL_MAX_S if values else NEGATIVE_MAX_S
        return Answer(
            values,
            exists,
            self._dnssec and bool(response.flags & dns.flags.AD),
            chain.canonical_name.to_text(omit_final_dot=True).lower(),
            min(max(float(chain.minimum_ttl), TTL_MIN_S), longest),
        )

    def _library(self) -> dns.asyncresolver.Resolver:
        """Created on first use: a relay with a fixed host never reads resolv.conf."""
        if self._dns is None:
            try:
                made = dns.asyncresolver.Resolver(configure=not self._nameservers)
            except dns.resolver.NoResolverConfiguration:
                raise NoRoute(
                    451, "4.4.3", "no name server: /etc/resolv.conf is missing or empty; correct it, or set dns.servers"
                ) from None
            if self._nameservers:
                made.nameservers = list(self._nameservers)
                made.port = self._port
            made.timeout = min(TRY_TIMEOUT_S, self._timeout_s)
            made.use_edns(0, 0, UDP_BYTES)
            made.flags = dns.flags.RD | dns.flags.AD  # AD without the signatures (RFC 6840 5.7)
            self._dns = made
        return self._dns


def _value(record: Any) -> Any:
    match record.rdtype.name:
        case "MX":
            return record.preference, record.exchange.to_text(omit_final_dot=True).lower()
        case "TXT":
            return b"".join(record.strings).decode("utf-8", "replace")
        case "TLSA":
            return record.usage, record.selector, record.mtype, bytes(record.cert)
        case "PTR":
            return record.target.to_text(omit_final_dot=True).lower()
    return str(record.address)

"""The DNS queries of TLS policies; `dns.destination` implements them."""

from __future__ import annotations

from typing import Protocol


class Names(Protocol):
    """DNS queries. Each raises NoRoute; `now` is monotonic seconds."""

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        """Whether the answer is DNSSEC-validated, and the texts."""

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        """Whether the answer is DNSSEC-validated, and the records."""

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        """IPv4 and IPv6."""

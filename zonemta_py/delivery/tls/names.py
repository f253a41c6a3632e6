"""What TLS policies ask of DNS; `dns.destination` answers."""

from __future__ import annotations

from typing import Protocol


class Names(Protocol):
    """What is asked of DNS. Each raises NoRoute; `now` is monotonic seconds."""

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        """Whether DNSSEC vouches for the answer, and the texts."""

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        """Whether DNSSEC vouches for the answer, and the records."""

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        """IPv4 and IPv6."""

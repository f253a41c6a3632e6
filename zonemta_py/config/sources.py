"""Where mail is sent from: source IPs, weighted pools of them, and how new ones are warmed up."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.secret import hidden
from zonemta_py.config.section import NAME, Section
from zonemta_py.config.values import DomainRule, EhloName, LocalAddress, WarmupName


class Source(Section):
    """One local address to send from, and how it presents itself."""

    address: LocalAddress
    """The local IP address; with a proxy, the one that the proxy sends from."""
    hostname: EhloName = ""
    """Name in EHLO; empty: the zone's, or the server's."""
    weight: float = Field(1, gt=0)
    """Its weight in the pool."""
    interface: str = ""
    """Network interface to bind to (SO_BINDTODEVICE, needs CAP_NET_RAW); empty: by routing."""
    family: Literal["any", "ipv4", "ipv6", "prefer-ipv4", "prefer-ipv6"] = "any"
    """Which addresses of a destination it may connect to, or tries first."""
    proxy: str = ""
    """Egress through socks5://[user:password@]host:port or haproxy://host:port (PROXY protocol version 2)."""
    disabled_domains: list[DomainRule] = []
    """Destinations (recipient domains) that never see this address (*.example.com matches subdomains)."""
    warmup: WarmupName = ""
    """Name of the [[warmups]] schedule that holds it back while it is new; empty: it is warm."""
    warmup_since: datetime.date | None = None
    """First day of its warm-up, from midnight UTC on; empty: the first day it sends."""

    @field_validator("proxy")
    @classmethod
    def _check_proxy(cls, value: str) -> str:
        try:
            url = urlsplit(value)
            known = url.scheme in ("socks5", "haproxy") and url.hostname and url.port and url.path in ("", "/")
        except ValueError:
            known = False
        if value and not known:
            raise ValueError(
                f"{hidden('proxy', value)!r} is not a proxy; write socks5://host:port or haproxy://host:port"
            )
        if value and url.scheme == "haproxy" and "@" in url.netloc:
            raise ValueError(f"haproxy://{url.hostname}:{url.port} takes no user or password; remove them")
        return value


class Pool(Section):
    """Source IPs that stand in for each other."""

    name: str = Field(pattern=NAME)
    """Name that zones refer to."""
    sources: list[Source]
    """Its addresses: [[pools.sources]] tables."""

    @model_validator(mode="after")
    def _check_sources(self) -> Pool:
        addresses = [source.address for source in self.sources]
        if not addresses:
            raise ValueError(f"pool {self.name!r} has no address; add a [[pools.sources]] table")
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"pool {self.name!r} names {address} twice; keep one")
        return self


class Warmup(Section):
    """A schedule of daily caps for new addresses, per provider; it advances only on days that went well. A day begins
    at midnight UTC."""

    name: str = Field(pattern=NAME)
    """Name that sources refer to."""
    caps: list[Annotated[int, Field(ge=1)]] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 75_000, 150_000, 250_000, 500_000,
    ]  # fmt: skip
    """Recipients on the 1st, 2nd … good day, to one provider; after the last one the address is warm."""
    deferred_max: float = Field(0.1, ge=0, le=1)
    """A day goes well while no more than this share of attempts is deferred …"""
    blocked_max: float = Field(0.01, ge=0, le=1)
    """… and no more than this share is refused for reputation, policy or a block."""
    least: int = Field(20, ge=1)
    """Fewer attempts than this, unless the cap is used, do not count as a day: it neither advances nor holds back."""

    @model_validator(mode="after")
    def _check_caps(self) -> Warmup:
        if not self.caps:
            raise ValueError(f"warm-up {self.name!r}: caps is empty; give at least one number, or omit caps")
        for before, after in pairwise(self.caps):
            if after < before:
                raise ValueError(f"warm-up {self.name!r}: caps falls from {before} to {after}; caps must not fall")
        return self

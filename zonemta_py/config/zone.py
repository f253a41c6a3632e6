"""Sending zones, and retries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import NAME, Network, Port, Section, domain_rules, ip_address, networks
from zonemta_py.mail import limits

_FIELD_NAME = re.compile(r"[!-9;-~]+")
Kind = Literal["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
"""Why somebody is on the suppression list, in the order of their weight."""


class Retry(Section):
    """When temporary failures are tried again, and when recipients expire."""

    schedule_min: list[Annotated[float, Field(gt=0)]] = [5, 7, 8, 25, 75, 120, 240]
    """Minutes until the next attempt after the 1st, 2nd … failure; the last one repeats."""
    jitter: float = Field(0.1, ge=0, le=0.5)
    """Share by which each wait is varied at random, both ways."""
    life_h: float = Field(48, gt=0)
    """Hours after which an undelivered recipient expires (5.4.7). Time stopped by an operator does not count."""
    delay_notice_h: float = Field(4, ge=0)
    """Hours after which a sender who asked for it (NOTIFY=DELAY) is notified of a delay; 0: never."""
    down_s: float = Field(30, gt=0)
    """Seconds a destination that cannot be reached is rested at first; doubles up to down_max_s."""
    down_max_s: float = Field(600, gt=0)
    """Longest such rest."""


class Zone(Section):
    """A sending zone: which mail goes through it, from where, how, and how much at once."""

    name: str = Field(pattern=NAME)
    """Name, also the value of X-Sending-Zone."""
    delivery: Literal["smtp", "pull"] = "smtp"
    """pull: its mail waits to be taken, by [pull] or HTTP, and nobody connects to anybody."""
    connections: int = Field(100, ge=1)
    """Connections open at once, all destinations and sender processes together; without a smart host, a quarter is kept
    for destinations that have none yet, and those not known to be quick get one at first."""
    connections_per_destination: int = Field(20, ge=1)
    """Connections open at once to one destination."""
    messages_per_connection: int = Field(100, ge=1)
    """Messages sent over one connection before it is closed."""
    idle_s: float = Field(5, ge=0)
    """Seconds an idle connection is kept for the next message."""
    sources: list[str] = []
    """Local addresses to send from, a message's always the same; empty: the pool's, or the system's choice."""
    pool: str = ""
    """Name of the pool of source addresses to send from, instead of `sources`."""
    hostname: str = ""
    """Name in EHLO; empty: the server's."""
    host: str = ""
    """Smart host that gets everything: its name or IP, or the path of a unix socket; empty: MX lookup."""
    port: Port = 25
    """Port to connect to."""
    protocol: Literal["smtp", "lmtp"] = "smtp"
    """lmtp: LHLO, and a reply for each recipient after the dot (RFC 2033); needs a host."""
    allow_private: bool = False
    """Connect to hosts in loopback, private and link-local networks that MX lookup finds (a named host always may)."""
    tls: Literal["none", "opportunistic", "required", "implicit"] = "opportunistic"
    """STARTTLS never, when offered (certificates are not validated), always (validated), or TLS from the first byte
    (validated)."""
    tls_required_domains: list[str] = []
    """Recipient domains for which TLS is required whatever the zone says (*.example.com matches subdomains)."""
    tls_min: Literal["1.2", "1.3"] = "1.2"
    """Oldest version of TLS."""
    client_certificate: Path | None = None
    """PEM file with the certificate (and key) shown to servers that ask for one."""
    username: str = ""
    """AUTH at the smart host; needs tls = 'required'."""
    password: str = ""
    """Its password."""
    sender_domains: list[str] = []
    """Mail from these domains takes this zone (*.example.com matches subdomains, * every domain)."""
    recipient_domains: list[str] = []
    """Recipients at these domains take this zone."""
    origins: list[Network] = []
    """Mail handed in from these networks takes this zone."""
    headers: dict[str, str] = {}
    """Mail whose header field (name) has this value takes this zone; * matches any part."""
    priority: int = Field(0, ge=-9, le=9)
    """MT-PRIORITY (RFC 6710) of mail that comes without; each step doubles its share of the zone."""
    window: str = ""
    """Name of the [[windows]] hours in which it sends; empty: always."""
    suppress: list[Kind] = ["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
    """Kinds of entries of the suppression list that stop its mail; passwords and receipts are wanted also by those who
    unsubscribed. An entry for this zone alone (scope zone:NAME) always stops it."""
    campaigns: bool = False
    """All its mail counts as campaign mail, even without a campaign: those who unsubscribed get none of it."""
    default: bool = False
    """Everything that no rule claims; exactly one zone is the default (the first, if none says so)."""
    in_doubt: Literal["retry", "hold"] = "retry"
    """Recipients whose final reply was awaited at a crash: send again, or hold for an operator."""
    recipients_per_delivery: int = Field(limits.RECIPIENTS_PER_DELIVERY_MAX, ge=1, le=1000)
    """Recipients in one transaction."""
    connect_timeout_s: float = Field(30, gt=0)
    """Seconds until a connection and its banner must be there."""
    reply_timeout_s: float = Field(300, gt=0)
    """Seconds a remote server may take for a reply, or to take a block of the body."""
    dot_timeout_s: float = Field(600, gt=0)
    """Seconds it may take for the final reply (RFC 5321 4.5.3.2.6)."""

    @field_validator("origins")
    @classmethod
    def _check_networks(cls, values: list[str]) -> list[str]:
        return networks(values)

    @field_validator("sender_domains", "recipient_domains", "tls_required_domains")
    @classmethod
    def _check_domains(cls, values: list[str]) -> list[str]:
        return domain_rules(values)

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, values: dict[str, str]) -> dict[str, str]:
        for name in values:
            if not _FIELD_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a header field such as List-Id")
        return values

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, values: list[str]) -> list[str]:
        return [ip_address(value) for value in values]

    @model_validator(mode="after")
    def _check_auth(self) -> Zone:
        if self.username and (not self.host or self.tls not in ("required", "implicit")):
            raise ValueError(
                "username needs host and tls = 'required' or 'implicit': a password must not travel in the clear"
            )
        if self.protocol == "lmtp" and not self.host:
            raise ValueError("protocol = 'lmtp' needs host: MX records name SMTP servers only (RFC 2033 5)")
        if self.pool and self.sources:
            raise ValueError("a zone has either sources or a pool; remove one")
        if self.pulled and (self.host or self.sources or self.pool):
            raise ValueError("delivery = 'pull' connects to nobody; remove host, sources and pool")
        return self

    @property
    def pulled(self) -> bool:
        """Whether its mail waits to be taken."""
        return self.delivery == "pull"

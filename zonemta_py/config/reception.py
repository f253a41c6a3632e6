"""Reception: listeners, and limits for clients."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, model_validator

from zonemta_py.config.section import NAME, Port, Section
from zonemta_py.config.values import FilePath, LocalAddress, Network, SenderRule
from zonemta_py.mail import limits


class Listener(Section):
    """One address and port that accepts mail."""

    name: str = Field("smtp", pattern=NAME)
    """Name in logs and events."""
    address: LocalAddress = "127.0.0.1"
    """Address to listen on; the default is loopback only."""
    port: Port = 2525
    """TCP port."""
    tls: Literal["none", "starttls", "implicit"] = "none"
    """none, starttls (offered; see require_tls), or implicit (TLS from the first byte)."""
    certificate: FilePath | None = None
    """PEM file with the certificate chain; needed for starttls and implicit."""
    key: FilePath | None = None
    """PEM file with the private key; empty: it is in the certificate file."""
    require_tls: bool = False
    """Refuse MAIL before STARTTLS."""
    auth: bool = False
    """Offer AUTH PLAIN and LOGIN (only under TLS) against [users]."""
    feedback: bool = False
    """Take mail from everybody at the addresses of [return_path]: bounces, complaints, unsubscribes. Nobody can relay
    by that."""
    relay_networks: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Clients in these networks may relay; everyone else must authenticate."""
    relay_senders: dict[Network, list[SenderRule]] = {}
    """Network within relay_networks → whom its clients may send as, in MAIL FROM and in From: addresses, domains,
    *.domain, * ({ "10.1.0.0/16" = ["example.com"] }); the smallest counts. Not named: see senders."""
    open_relay: bool = False
    """Says once more that relay_networks is meant to cover most of the Internet, or proxy_networks everybody who could
    then claim an address in it: anybody may send anything to anybody through here."""
    proxy_protocol: bool = False
    """Expect a PROXY protocol header (version 1 or 2) before anything else."""
    proxy_networks: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Who may send that header; others are cut off."""
    trust_sending_zone: bool = True
    """Let the header X-Sending-Zone choose the zone (it is always taken out)."""
    trust_headers: bool = True
    """Let the headers X-Campaign, X-Tenant, X-Priority-Level, X-Deliver-After, X-Deliver-By, X-Window, X-Time-Zone,
    X-Unsubscribe and X-Track speak (they are always taken out). The parameters of MAIL that EHLO offers (MT-PRIORITY,
    HOLDFOR, HOLDUNTIL, BY) are the client's own and hold either way."""

    durability: Literal["quorum", "node"] = "quorum"
    """When 250 is said on a node of a [cluster]: quorum: most NATS servers have the message too, so that it is not lost
    with this machine; node: it is on this machine's own disk, and goes to the others by itself: also while they cannot
    be reached, up to cluster.node_bytes."""

    @model_validator(mode="after")
    def _check_relay_senders(self) -> Listener:
        relay = [ipaddress.ip_network(network) for network in self.relay_networks]
        for name in self.relay_senders:
            inner = ipaddress.ip_network(name)
            if not any(inner.version == outer.version and inner.subnet_of(outer) for outer in relay):  # type: ignore[arg-type]
                raise ValueError(f"relay_senders names {name}, which may not relay; add it to relay_networks")
        return self

    @model_validator(mode="after")
    def _check_open(self) -> Listener:
        """Who reaches the listener is whoever its address says, unless a proxy speaks for others."""
        if self.open_relay or (ipaddress.ip_address(self.address).is_loopback and not self.proxy_protocol):
            return self
        wide = _widest(self.relay_networks)
        named = f"relay_networks has {wide}"
        if self.proxy_protocol and self.relay_networks and not wide:
            wide = _widest(self.proxy_networks)
            named = f"proxy_networks has {wide}, and whoever speaks for others there may claim to be in relay_networks"
        if wide:
            raise ValueError(
                f"{named}: this is an open relay, found within hours and blocklisted; name the networks of your own"
                " clients, or set open_relay = true if all the world is meant"
            )
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Listener:
        if self.tls != "none" and self.certificate is None:
            raise ValueError(f"tls = {self.tls!r} needs certificate = a PEM file")
        if self.auth and self.tls == "none":
            raise ValueError("auth = true needs tls = 'starttls' or 'implicit'; passwords must not travel in the clear")
        if self.require_tls and self.tls == "none":
            raise ValueError("require_tls = true needs tls = 'starttls' or 'implicit'")
        return self


class Limits(Section):
    """Limits for each client, and for all of them together."""

    connections: int = Field(1000, ge=1)
    """Connections open at once, of all clients and to all receivers together; a quarter of them is kept for those that
    may relay. The HTTP listener has as many of its own; if all are taken, one on which nothing is asked gives way to a
    client that has fewer."""
    connections_per_client: int = Field(200, ge=1)
    """Connections open at once from one address, or from one /64 of IPv6."""
    commands_per_connection: int = Field(10_000, ge=10)
    """Commands without a message that was accepted until the connection ends with 421."""
    errors_per_connection: int = Field(20, ge=1)
    """Refused commands until the connection ends with 421."""
    recipients: int = Field(limits.RECIPIENTS_MAX, ge=1, le=100_000)
    """RCPT commands in one transaction; more get 452."""
    header_bytes: int = Field(limits.HEADER_BYTES_MAX, ge=1000)
    """Longest header section."""
    hops: int = Field(limits.HOPS_MAX, ge=1)
    """Received fields before a message counts as looping."""
    message_bytes: int = Field(limits.MESSAGE_BYTES_MAX, ge=1000)
    """Largest message (SIZE)."""
    line_bytes: int = Field(limits.LINE_BYTES_MAX, ge=1000)
    """Longest body line."""
    hold_days: float = Field(30, gt=0, le=3650)
    """Longest time a client may have a message held (FUTURERELEASE, X-Deliver-After)."""
    timeout_s: float = Field(300, gt=0)
    """Time for each command, all of it, after which a client is cut off (RFC 5321 4.5.3.2.7)."""
    least_bytes_s: float = Field(500, gt=0)
    """Bytes a second that a message has to come at; a client that is slower for timeout_s in all is cut off."""
    login_s: float = Field(60, gt=0)
    """Time that a client outside relay_networks has to authenticate."""
    line_ends: Literal["normalise", "refuse"] = "normalise"
    """Bare CR and bare LF in DATA: made CRLF, or the message refused."""
    nul: Literal["refuse", "pass"] = "refuse"
    """NUL bytes in DATA."""


def _widest(values: list[str]) -> str:
    """The widest of the networks, those beside each other taken together, if it is more than anybody's own."""
    networks = [ipaddress.ip_network(value) for value in values]
    four = [one for one in networks if isinstance(one, ipaddress.IPv4Network)]
    six = [one for one in networks if isinstance(one, ipaddress.IPv6Network)]
    wide = [one for one in ipaddress.collapse_addresses(four) if one.prefixlen < 8]
    wider = [one for one in ipaddress.collapse_addresses(six) if one.prefixlen < 16 and not one.is_private]
    return str([*wide, *wider][0]) if wide or wider else ""

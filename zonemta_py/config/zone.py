"""Sending zones, smart hosts, retries, and settings for some destinations only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import NAME, Port, Section
from zonemta_py.config.values import (
    DomainRule,
    EhloName,
    FieldName,
    FilePath,
    Host,
    HostOrNone,
    LocalAddress,
    Network,
    PoolName,
    Site,
    Tenant,
    WindowName,
    ZoneName,
    is_ip,
    unbracketed,
)  # fmt: skip
from zonemta_py.mail import limits
from zonemta_py.mail.reroute import RerouteTarget

Kind = Literal["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
"""Why somebody is on the suppression list, in the order of their weight."""


_RETRY = ("schedule_min", "life_h", "delay_notice_h", "down_s", "down_max_s")
_OF_PATH = ("down_s", "down_max_s")
"""Of these, what a destination has, and not each of its recipients."""
_CLAIMS = ("name", "domains", "sites", "providers", "zones")


class Retry(Section):
    """When temporary failures are tried again, and when recipients expire."""

    schedule_min: list[Annotated[float, Field(gt=0)]] = Field([5, 7, 8, 25, 75, 120, 240], min_length=1)
    """Minutes until the next attempt after the 1st, 2nd … failure; the last one repeats."""
    jitter: float = Field(0.1, ge=0, le=0.5)
    """Share by which each wait is varied at random, both ways."""
    life_h: float = Field(48, gt=0)
    """Hours after which an undelivered recipient expires (5.4.7). Time in which it was stopped or held by an operator,
    or its sending hours were closed, does not count. A campaign has its own: `zonemta campaign send --life`, over HTTP
    its life_h; 168 unless that is said."""
    delay_notice_h: float = Field(4, ge=0)
    """Hours after which a sender who asked for it (NOTIFY=DELAY) is notified of a delay; 0: never."""
    down_s: float = Field(30, gt=0)
    """Seconds a destination that cannot be reached is rested at first; doubles up to down_max_s."""
    down_max_s: float = Field(600, gt=0)
    """Longest such rest."""
    source_failures: int = Field(3, ge=1)
    """Failures of its own in a row (its proxy cannot be reached or refuses, nothing is routed from it) after which a
    source address rests until a probe finds it usable; one that this machine has lost rests at the first."""


class SmartHost(Section):
    """One of several smart hosts, which are tried in their order: hosts = ["relay1.example:587", "relay2.example"], or
    tables as this one. The next one is tried when a host cannot be connected to, refuses at its greeting or EHLO, or
    TLS or login fail; not when it refuses a message or a recipient. The last may be "mx": the recipient domain's own
    MX hosts."""

    host: Host = Field(min_length=1)
    """Its name or IP, or the path of a unix socket; mx: the MX hosts of the recipient's domain."""
    port: Port = 25
    """Port to connect to."""
    weight: float = Field(0, ge=0)
    """Hosts that follow each other and have a weight share the mail by it, and stand in for each other; 0: it has its
    place in the order."""
    tls: Literal["none", "opportunistic", "required", "implicit"] | None = None
    """none, opportunistic, required or implicit, instead of the zone's."""
    username: str = ""
    """AUTH there; needs tls = 'required' or 'implicit', here or in the zone."""
    password: str = ""
    """Its password."""

    @property
    def mx(self) -> bool:
        """Whether it stands for the MX hosts of each domain."""
        return self.host == "mx"


def host_of(value: Any) -> Any:
    """A smart host from the text host, host:port or [IPv6]:port; anything else as it is. Raises ValueError."""
    if not isinstance(value, str) or value.startswith("/"):
        return {"host": value} if isinstance(value, str) else value
    host, colon, port = value.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        return {"host": unbracketed(host), "port": int(port)}
    if colon and port.isdecimal() and len(port) > 1 and is_ip(host) and is_ip(value):
        raise ValueError(f"{value!r} may be an address and a port, or an address; write [{host}]:{port} or [{value}]")
    return {"host": unbracketed(value)}


def check_sources(sources: list[str]) -> None:
    """Raises ValueError."""
    for number, address in enumerate(sources):
        if address in sources[:number]:
            raise ValueError(f"sources: {address} is there twice; keep one")


def check_hosts(hosts: list[SmartHost], tls: str | None) -> None:
    """tls: where they have none of their own; None: that is not said here. Raises ValueError."""
    if any(host.mx for host in hosts[:-1]) or (len(hosts) == 1 and hosts[0].mx):
        raise ValueError('hosts: "mx" can only be the last of several; remove it, or put it there')
    places = [(host.host.lower(), host.port) for host in hosts]
    for host, place in zip(hosts, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"hosts: {host.host} port {host.port} is there twice; keep one")
        if host.username and (host.tls or tls or "") not in ("required", "implicit"):
            raise ValueError(
                f"hosts: {host.host} has a username, and so needs tls = 'required' or 'implicit': a password must not "
                "travel in the clear"
            )


class Persistence(Section):
    """What a zone does with recipients that were tried several times, in vain."""

    after_tries: int = Field(ge=1, le=1000)
    """From so many tries on."""
    to: str
    """Where they go then: 'pool NAME', 'zone NAME', 'host NAME:PORT' (a smart host) or 'skip MX-HOST'."""

    @field_validator("to")
    @classmethod
    def _read(cls, value: str) -> str:
        return RerouteTarget.of(value).text


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
    sources: list[LocalAddress] = []
    """Local addresses to send from, a message's always the same; empty: the pool's, or the system's choice."""
    pool: PoolName = ""
    """Name of the pool of source addresses to send from, instead of `sources`."""
    hostname: EhloName = ""
    """Name in EHLO; empty: the server's."""
    host: HostOrNone = ""
    """Smart host that gets everything: its name (of the hosts file, else of DNS) or IP, or the path of a unix socket;
    empty: MX lookup."""
    port: Port = 25
    """Port to connect to."""
    hosts: list[SmartHost] = []
    """Several smart hosts in their order, instead of `host`: [[zones.hosts]] tables, or strings."""
    host_rest_s: float = Field(60, ge=0)
    """Seconds one of `hosts` that failed is passed over, while another one works."""
    protocol: Literal["smtp", "lmtp"] = "smtp"
    """lmtp: LHLO, and a reply for each recipient after the dot (RFC 2033); needs a host."""
    long_lines: Literal["recode", "refuse", "send"] = "recode"
    """Mail with lines of more than 998 octets (RFC 5321 4.5.3.1.6): recode such parts before it is signed, return it
    with 5.6.0, or send it as it is."""
    eight_bit: Literal["recode", "refuse", "send"] = "recode"
    """8-bit mail to a server that does not offer 8BITMIME (RFC 6152): recode it to 7 bits before it is signed, return
    it with 5.6.3, or send it as it is. What must not be changed (multipart/signed) is returned, not recoded."""
    allow_private: bool = False
    """Connect to hosts in loopback, private and link-local networks that MX lookup finds (a named host always may)."""
    tls: Literal["none", "opportunistic", "required", "implicit"] = "opportunistic"
    """STARTTLS never, when offered (certificates are not validated), always (validated), or TLS from the first byte
    (validated)."""
    tls_required_domains: list[DomainRule] = []
    """Recipient domains for which TLS is required whatever the zone says (*.example.com matches subdomains)."""
    tls_min: Literal["1.2", "1.3"] = "1.2"
    """Oldest version of TLS."""
    client_certificate: FilePath | None = None
    """PEM file with the certificate (and key) shown to servers that ask for one."""
    username: str = ""
    """AUTH at the smart host; needs tls = 'required'."""
    password: str = ""
    """Its password."""
    sender_domains: list[DomainRule] = []
    """Mail from these domains takes this zone (*.example.com matches subdomains, * every domain)."""
    recipient_domains: list[DomainRule] = []
    """Recipients at these domains take this zone."""
    origins: list[Network] = []
    """Mail handed in from these networks takes this zone."""
    headers: dict[FieldName, str] = {}
    """Mail whose header field (name) has this value takes this zone; * matches any part."""
    priority: int = Field(0, ge=-9, le=9)
    """MT-PRIORITY (RFC 6710) of mail that comes without; each step doubles its share of the zone."""
    window: WindowName = ""
    """Name of the [[windows]] hours in which it sends; empty: always."""
    suppress: list[Kind] = ["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
    """Kinds of entries of the suppression list that stop its mail; passwords and receipts are wanted also by those who
    unsubscribed. An entry for this zone alone (scope zone:NAME) always stops it."""
    campaigns: bool = False
    """All its mail counts as campaign mail, even without a campaign: those who unsubscribed get none of it."""
    sender_checks: Literal["off", "warn", "hold", "refuse"] = "off"
    """What happens to mail that big receivers would refuse or put into the spam folder, once it is made as it would be
    sent (docs/OPERATING.md): warn (a line in the log, and metrics), hold (for an operator), refuse (it bounces)."""
    sender_check_names: list[Literal["signed", "aligned", "spf", "reverse", "unsubscribe"]] = Field(
        ["signed", "aligned", "spf", "reverse", "unsubscribe"], min_length=1
    )
    """What is checked. signed: a DKIM signature. aligned: that or the return path is of the domain in From (DMARC).
    spf: the return path's domain names each source address. reverse: each has a name that leads back to it.
    unsubscribe: campaigns, lists and zones with campaigns = true have a one-click unsubscribe (RFC 8058)."""
    sender_check_tenants: list[Tenant] = []
    """Tenants whose mail it is for; empty: all mail."""
    default: bool = False
    """Everything that no rule claims; exactly one zone is the default (the first, if none says so)."""
    reroute: Persistence | None = None
    """Another way for recipients that were tried several times: [zones.reroute]."""
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

    @field_validator("hosts", mode="before")
    @classmethod
    def _read_hosts(cls, values: Any) -> Any:
        return [host_of(value) for value in values] if isinstance(values, list) else values

    @model_validator(mode="after")
    def _check_auth(self) -> Zone:
        if self.host and self.hosts:
            raise ValueError("a zone has either host or hosts; remove one")
        check_hosts(self.hosts, self.tls)
        check_sources(self.sources)
        if self.username and (not self.host or self.tls not in ("required", "implicit")):
            raise ValueError(
                "username needs host and tls = 'required' or 'implicit': a password must not travel in the clear"
            )
        if self.protocol == "lmtp" and (not self.smart or self.last_mx):
            raise ValueError("protocol = 'lmtp' needs host: MX records name SMTP servers only (RFC 2033 5)")
        if self.pool and self.sources:
            raise ValueError("a zone has either sources or a pool; remove one")
        if self.pulled and self.reroute is not None:
            raise ValueError("delivery = 'pull' connects to nobody; remove reroute")
        if self.pulled and (self.smart or self.sources or self.pool):
            raise ValueError("delivery = 'pull' connects to nobody; remove host, sources and pool")
        return self

    @property
    def smart(self) -> bool:
        """Whether smart hosts get its mail."""
        return bool(self.host or self.hosts)

    @property
    def places(self) -> list[tuple[str, int]]:
        """Its smart hosts, in their order."""
        return [(host.host, host.port) for host in self.hosts] or ([(self.host, self.port)] if self.host else [])

    @property
    def last_mx(self) -> bool:
        """Whether the MX hosts of each domain stand in for its smart hosts."""
        return bool(self.hosts) and self.hosts[-1].mx

    @property
    def pulled(self) -> bool:
        """Whether its mail waits to be taken."""
        return self.delivery == "pull"


class DestinationTable(Section):
    """Settings for mail to some domains, sites or providers, instead of those of its zone and of [retry]. What is not
    set here stays as there. Several tables may apply to one recipient: then each key comes from the one for its domain,
    else from that for its site, else from that for its provider. The order of the tables does not matter."""

    name: str = Field(pattern=NAME)
    """Name, as `zonemta route`, `explain` and `lanes` show it."""
    domains: list[DomainRule] = []
    """Recipients at these domains (*.example.com matches subdomains, * every domain; the most exact rule counts)."""
    sites: list[Site] = []
    """Mail that goes to these sites: the name of the most preferred MX host (*.example.net matches any below it), or
    the host:port of a smart host."""
    providers: list[str] = []
    """Mail that goes to these providers (see dns.providers)."""
    zones: list[ZoneName] = []
    """Only mail of these zones; empty: all. A table that names its zones counts before one that does not."""
    schedule_min: list[Annotated[float, Field(gt=0)]] | None = Field(None, min_length=1)
    """As in [retry]; so are the next four."""
    life_h: float | None = Field(None, gt=0)
    """Hours after which an undelivered recipient expires, if its campaign does not say."""
    delay_notice_h: float | None = Field(None, ge=0)
    """Hours after which a sender who asked for it is notified of a delay; 0: never."""
    down_s: float | None = Field(None, gt=0)
    """Seconds it is rested at first when it cannot be reached. Mail for `domains` with this setting, or one of those
    that follow, has connections of its own, which it does not share with other mail to the same hosts."""
    down_max_s: float | None = Field(None, gt=0)
    """Longest such rest."""
    connections_per_destination: int | None = Field(None, ge=1)
    """As in [[zones]]; so are all that follow. Connections open at once to one destination."""
    messages_per_connection: int | None = Field(None, ge=1)
    """Messages sent over one connection before it is closed."""
    idle_s: float | None = Field(None, ge=0)
    """Seconds an idle connection is kept for the next message."""
    recipients_per_delivery: int | None = Field(None, ge=1, le=1000)
    """Recipients in one transaction."""
    connect_timeout_s: float | None = Field(None, gt=0)
    """Seconds until a connection and its banner must be there."""
    reply_timeout_s: float | None = Field(None, gt=0)
    """Seconds a remote server may take for a reply, or to take a block of the body."""
    dot_timeout_s: float | None = Field(None, gt=0)
    """Seconds it may take for the final reply."""
    tls: Literal["none", "opportunistic", "required", "implicit"] | None = None
    """none, opportunistic, required or implicit. What domains publish (DANE, MTA-STS) may raise it, as with zones."""
    tls_min: Literal["1.2", "1.3"] | None = None
    """Oldest version of TLS: 1.2 or 1.3."""
    client_certificate: FilePath | None = None
    """PEM file with the certificate (and key) shown to servers that ask for one."""
    hostname: EhloName | None = Field(None, min_length=1)
    """Name in EHLO, where the source address has none of its own."""
    long_lines: Literal["recode", "refuse", "send"] | None = None
    """Mail with lines of more than 998 octets: recode, refuse or send."""
    eight_bit: Literal["recode", "refuse", "send"] | None = None
    """8-bit mail to a server that does not offer 8BITMIME: recode, refuse or send."""
    allow_private: bool | None = None
    """Connect to hosts in loopback, private and link-local networks that MX lookup finds."""
    sources: list[LocalAddress] | None = Field(None, min_length=1)
    """Local addresses to send from."""
    pool: PoolName | None = Field(None, min_length=1)
    """Name of the pool of source addresses to send from, instead of `sources`."""
    hosts: list[SmartHost] = []
    """Smart hosts that get this mail, in order: [[destinations.hosts]] tables, or strings as in [[zones]]."""
    host_rest_s: float | None = Field(None, ge=0)
    """Seconds one of `hosts` that failed is passed over, while another one works."""

    @field_validator("hosts", mode="before")
    @classmethod
    def _read_hosts(cls, values: Any) -> Any:
        return [host_of(value) for value in values] if isinstance(values, list) else values

    @model_validator(mode="after")
    def _check(self) -> DestinationTable:
        if not (self.domains or self.sites or self.providers):
            raise ValueError(f"destination {self.name!r}: is for nothing; give it domains, sites or providers")
        if not self.settings:
            raise ValueError(f"destination {self.name!r}: sets nothing; give it a setting such as life_h, or remove it")
        if self.pool and self.sources:
            raise ValueError(f"destination {self.name!r}: has sources and a pool; remove one")
        check_hosts(self.hosts, self.tls)
        check_sources(self.sources or [])
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings: key → value."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in _CLAIMS and self._set(key)}

    def _set(self, key: str) -> bool:
        return bool(self.hosts) if key == "hosts" else getattr(self, key) is not None

    @property
    def retry(self) -> dict[str, Any]:
        """Those of [retry]."""
        return {key: value for key, value in self.settings.items() if key in _RETRY}

    @property
    def apart(self) -> bool:
        """Whether its domains' mail cannot share connections and rests with other mail to the same hosts."""
        return any(key in _OF_PATH or key not in _RETRY for key in self.settings)

    @property
    def sending(self) -> dict[str, Any]:
        """Those of [[zones]]; a pool takes the place of sources, and hosts that of a host."""
        found = {key: value for key, value in self.settings.items() if key not in _RETRY}
        if self.pool or self.sources:
            found |= {"pool": self.pool or "", "sources": self.sources or []}
        return found | ({"host": ""} if self.hosts else {})

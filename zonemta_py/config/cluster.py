"""Several machines as one MTA, which meet in NATS JetStream."""

from __future__ import annotations

import re
from urllib.parse import SplitResult

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import Section
from zonemta_py.config.services.events import is_here, split
from zonemta_py.config.values import FilePath

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_OTHER = re.compile(r"[^a-z0-9]+")
NODE_MOST = 32
"""Characters."""


class ClusterSection(Section):
    """Several machines as one MTA: what one has accepted, the others deliver when it is gone. They meet in NATS
    JetStream, three servers or more that sync always (jetstream { sync_interval: always }). A reload changes none of
    this."""

    name: str = ""
    """Name of the cluster, the same on all of its machines: what it keeps in NATS begins with it; empty: this machine
    is one MTA for itself, and NATS is not asked."""
    node: str = ""
    """Name of this machine in the cluster, which no other has; empty: the first part of server.hostname."""
    servers: list[str] = []
    """The NATS servers: tls://host:4222, or nats://host:4222 without TLS. One that is there is enough to begin with."""
    cleartext: bool = False
    """Permits nats:// to another machine; all mail goes over these connections."""
    username: str = ""
    """Login, if the servers want one."""
    password: str = Field("", repr=False)
    """Its password; without a username: a token."""
    credentials: FilePath | None = None
    """File with the JWT and seed of a NATS user (.creds), instead of username and password."""
    ca_file: FilePath | None = None
    """PEM file with the certificates of authorities to trust instead of the system's."""
    client_certificate: FilePath | None = None
    """PEM file with the certificate and key shown to the servers."""
    replicas: int = Field(3, ge=1, le=5)
    """On how many servers JetStream keeps each thing. More than half of them must be there; 1 is for trials: what is
    on the one server is lost with it."""
    node_bytes: int = Field(64 * 1024 * 1024, ge=1024 * 1024, le=4 * 1024 * 1024 * 1024)
    """Bytes of messages that each queue of this node may have accepted for listeners with durability = "node" before
    the others have them; they are in memory too. More waits for most servers, as with durability = "quorum"."""
    dead_after_s: float = Field(5, ge=2, le=3600)
    """Seconds without a sign of life after which a node counts as dead, and others take its mail over. It takes
    3 until a node notices that its NATS server has died without a word: with less than 5 that node may count as dead
    with it."""
    zone_wait_s: float = Field(3600, ge=0)
    """How long mail of a zone that this machine does not have (or none of whose source addresses) waits for a machine
    that has it, once none is alive; then it goes on in the default zone, or as well as it can. 0: at once. As long as
    such a machine lives, it gets that mail."""
    system_username: str = ""
    """User of the servers' system account ($SYS), who is asked once at the start whether each server syncs always."""
    system_password: str = Field("", repr=False)
    """Its password."""
    monitor: list[str] = []
    """Instead of that user: the monitoring addresses of all servers, such as http://nats1.example.com:8222."""

    @field_validator("name", "node")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value and not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is no name here; use up to {NODE_MOST} of a-z, 0-9 and -, none - at an end")
        return value

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, values: list[str]) -> list[str]:
        for value in values:
            if _place(value, ("tls", "nats")) is None:
                raise ValueError(f"{value!r} must be such as tls://nats1.example.com:4222, and nothing more")
        return values

    @field_validator("monitor")
    @classmethod
    def _check_monitor(cls, values: list[str]) -> list[str]:
        for value in values:
            if _place(value, ("http", "https")) is None:
                raise ValueError(f"{value!r} must be such as http://nats1.example.com:8222, and nothing more")
        return values

    @model_validator(mode="after")
    def _check(self) -> ClusterSection:
        if not self.name:
            return self
        if not self.servers:
            raise ValueError("servers is empty; name the NATS servers, such as ['tls://nats1.example.com:4222', …]")
        parts = [split(one) for one in self.servers]
        for part in filter(None, parts):
            if part.scheme == "nats" and not self.cleartext and not is_here(part.hostname or ""):
                raise ValueError(
                    f"{part.geturl()!r} would carry all mail in the clear; use tls://, or set cleartext = true"
                )
        if not self.monitor and not self.system_username:
            raise ValueError(
                "nothing says whether the servers sync always; set system_username and system_password, or monitor"
            )
        return self

    @property
    def enabled(self) -> bool:
        return bool(self.name)


def node_name(section: ClusterSection, hostname: str) -> str:
    """Of this machine."""
    return section.node or _OTHER.sub("-", hostname.partition(".")[0].lower())[:NODE_MOST].strip("-") or "node"


def _place(value: str, schemes: tuple[str, ...]) -> SplitResult | None:
    parts = split(value)
    nothing_more = parts is not None and not (parts.path.strip("/") or parts.query or parts.fragment)
    return parts if parts and parts.scheme in schemes and parts.hostname and nothing_more and "@" not in value else None

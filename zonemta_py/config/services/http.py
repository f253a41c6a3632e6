"""The HTTP listener: where it listens, who has a key, and how many requests at once."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.reception import Listener
from zonemta_py.config.section import NAME, Port, Section
from zonemta_py.config.services.pull import queue_patterns
from zonemta_py.config.services.webhooks import Webhook
from zonemta_py.config.values import FilePath, LocalAddress, SenderRule

Right = Literal[
    "inject", "campaigns", "suppressions", "read", "events", "push", "pop", "metrics", "feedback", "domains"
]
Role = Literal["inject", "read", "operate", "admin"]
OF_ALL: tuple[Right, ...] = ("push", "pop", "metrics")
"""Rights that a key with a scope cannot have: named queues and figures belong to no tenant."""
SCOPE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class HttpKey(Section):
    """A key for the HTTP listener; `zonemta api-key new NAME` makes one and prints these lines."""

    name: str = Field(pattern=NAME)
    """Name in logs and for plugins (session.user); recipients never see it."""
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the key in hexadecimal; the key itself is kept nowhere."""
    role: Role | None = None
    """What a person or program at it is there for: inject (hand in mail), read (see everything but content), operate
    (also change what happens to mail: tasks, suspensions, warm-up, campaigns, the suppression list), admin (also
    content and the configuration, and all rights). Rights that are given come on top."""
    tenants: list[Annotated[str, Field(pattern=SCOPE_NAME)]] = []
    """Its scope: mail and campaigns of these tenants only; it neither sees nor changes anything else. Mail that it
    hands in is of one of them."""
    campaigns: list[Annotated[str, Field(pattern=SCOPE_NAME)]] = []
    """Its scope: mail of these campaigns only; with tenants, both must hold."""
    rights: list[Right] | None = Field(None, min_length=1)
    """What it may do besides what its role says; not given, and no role: inject. inject (hand in mail), campaigns
    (create and control them), suppressions (change the list, erase people), read (only read campaigns and
    suppressions; the two rights before include it for their own), events (follow what happens to all mail, whoever's
    it is), push and pop (named queues; see queues), metrics (GET /metrics; read includes it), feedback (tell what came
    back about mail, POST /v1/feedback), domains (make and change sender domains)."""
    queues: list[str] = Field(["*"], min_length=1)
    """Which named queues push and pop are for: names, or beginnings of names with * at the end."""
    senders: list[SenderRule] | None = None
    """Whom it may send as (return path, From, its campaigns' too): addresses, domains, *.domain, *. Not given: see
    senders."""

    @property
    def scoped(self) -> bool:
        return bool(self.tenants or self.campaigns)

    @model_validator(mode="after")
    def _check_scope(self) -> HttpKey:
        for right in OF_ALL if self.scoped else ():
            if right in (self.rights or ()):
                raise ValueError(
                    f"the key {self.name!r} has a scope (tenants, campaigns), and the right {right} is about things of"
                    " no tenant; remove one of them"
                )
        return self

    @field_validator("queues")
    @classmethod
    def _check_queues(cls, values: list[str]) -> list[str]:
        return queue_patterns(values)


class Http(Section):
    """The HTTP listener: mail, batches of campaigns and the suppression list as JSON (config/openapi.json). Programs of
    this machine may use the key in the file http.token of server.folder, which may do all; for a new one, remove the
    file and reload."""

    enabled: bool = False
    """Enable it."""
    address: LocalAddress = "127.0.0.1"
    """Address to listen on; any but loopback needs a certificate."""
    port: Port = 8525
    """TCP port."""
    certificate: FilePath | None = None
    """PEM file with the certificate chain; then it speaks HTTPS only."""
    key: FilePath | None = None
    """PEM file with the private key; empty: it is in the certificate file."""
    durability: Literal["quorum", "node"] = "quorum"
    """As of a listener, for messages without an idempotency key."""
    body_bytes: int = Field(8 * 1024 * 1024, ge=1000, le=64 * 1024 * 1024)
    """Largest JSON body; a message handed in as message/rfc822 may have limits.message_bytes."""
    attachment_bytes: int = Field(10 * 1024 * 1024, ge=1000, le=48 * 1024 * 1024)
    """Largest attachment that is uploaded once (PUT /v1/attachments/{file}), to which requests refer."""
    attachments_bytes: int = Field(1024 * 1024 * 1024, ge=1000)
    """What all such attachments of one tenant may have together."""
    attachment_days: float = Field(30, gt=0, le=3660)
    """How long such an attachment is kept after it was last uploaded, by this machine's clock; mail that refers to it
    has a copy of its own."""
    requests: int = Field(80, ge=1, le=10_000)
    """Requests with a key in progress at once; more get 503 and a Retry-After. An eighth is kept for keys that operate,
    and a key may have another while it has fewer than are free. Clients without a key (who log in, or post a signed
    webhook) have a quarter of the number beside these, and one address an eighth of that."""
    requests_per_key: int = Field(32, ge=1, le=10_000)
    """Of these with one key; more get 429."""
    streams: int = Field(100, ge=1, le=10_000)
    """Event streams (GET /v1/events) open at once, beside these requests. One key, or with http.token one client's
    address, may open another while it has fewer than are free."""
    metrics: Literal["key", "open"] = "key"
    """GET /metrics, for Prometheus, needs a key with the right metrics or read; open: none from this machine itself,
    also what a proxy on it passes on."""
    metrics_campaigns: int = Field(20, ge=0, le=500)
    """So many campaigns have metrics of their own, by name: those of which most recipients wait, then those tried last;
    0: none."""
    dashboard: bool = False
    """Pages for people at /dashboard, to be looked at with a browser: what happens, what waits and why, and orders with
    their undo. People log in with a key that may read (docs/DASHBOARD.md)."""
    keys: list[HttpKey] = []
    webhooks: list[Webhook] = []

    @model_validator(mode="after")
    def _check(self) -> Http:
        if self.certificate is None and not ipaddress.ip_address(self.address).is_loopback:
            raise ValueError(
                f"address {self.address} is not loopback and there is no certificate; keys must not "
                "travel in the clear:"
                " set certificate = a PEM file, or keep 127.0.0.1 behind a TLS proxy"
            )
        for names in ([key.name for key in self.keys], [key.hash for key in self.keys]):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two keys have {name!r}; give each its own name and hash")
        hooks = [hook.name for hook in self.webhooks]
        if len(set(hooks)) < len(hooks):
            raise ValueError("two webhooks have the same name; give each its own")
        if any(key.name == "local" for key in self.keys):
            raise ValueError("the key name 'local' is reserved for the file http.token; choose another")
        return self

    @property
    def listener(self) -> Listener:
        """The same as one of [[listeners]]: clients with a key are trusted with the fields meant for this server."""
        tls: Literal["none", "implicit"] = "implicit" if self.certificate else "none"
        return Listener(
            name="http", address=self.address, port=self.port, tls=tls, certificate=self.certificate, key=self.key,
            relay_networks=[], durability=self.durability,
        )  # fmt: skip

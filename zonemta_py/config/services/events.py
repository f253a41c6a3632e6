"""Event sinks: where the live event feed goes, in which form, and how much may wait for each."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import NAME, Section
from zonemta_py.config.values import AnyPath, Campaign, DomainRule, FilePath, Tenant, ZoneName

EventType = Literal[
    "accepted", "queued", "attempted", "delivered", "deferred", "bounced", "expired", "held", "requeued", "postponed",
    "in_doubt", "released", "deleted", "removed", "task", "finished", "suppressed", "unsuppressed", "feedback",
    "dmarc_report", "tls_report", "reputation",
    "suspended", "resumed", "rerouted", "reroute_ended", "guard_raised", "guard_lifted", "rate_changed",
    "concurrency_changed", "manner_changed",
    "warmup_changed", "campaign_begun", "campaign_canceled", "campaign_completed", "campaign_decided",
    "configuration_changed", "clock_set", "orders_lost", "policy_changed", "records_lost",
]  # fmt: skip
"""As `events.schema.TYPES`, which is a floor higher; docs/EVENTS.md says when each comes."""
SinkKind = Literal["webhook", "file", "syslog", "amqp", "nats", "redis", "kafka", "plugin"]
PAGE_BYTES = 4096
SECRET_PREFIX = "whsec_"
SCHEMES: dict[str, tuple[tuple[str, ...], str]] = {
    "webhook": (("https", "http"), "https://events.example.com/zonemta"),
    "syslog": (("tls", "tcp", "udp", "unix"), "tls://logs.example.com:6514"),
    "amqp": (("amqps", "amqp"), "amqps://rabbit.example.com/vhost"),
    "nats": (("tls", "nats"), "tls://nats.example.com"),
    "redis": (("rediss", "redis"), "rediss://redis.example.com/0"),
    "kafka": (("tls", "kafka"), "tls://kafka.example.com:9093"),
}
"""Of a kind's url: the schemes it may have, and an example."""
BROKERS = frozenset({"amqp", "nats", "redis", "kafka"})
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SAFE = frozenset({"https", "tls", "unix", "amqps", "rediss"})
"""Schemes that nobody on the way can read."""


class EventSink(Section):
    """One place that events go to. What cannot be sent waits in memory, then in a ring file below events/NAME in
    server.folder; when that is full too, the oldest are dropped and counted, and `zonemta events replay` sends them
    again."""

    name: str = Field(pattern=NAME)
    """Name, in commands, logs and of its folder."""
    kind: SinkKind
    """What is there: webhook (HTTP), file (JSON lines), syslog (RFC 5424), amqp (RabbitMQ), nats, redis (a stream),
    kafka, plugin (its `event`)."""
    url: str = ""
    """Where: https://host/path for a webhook; tls://host:6514, tcp://host:514, udp://host:514 or unix:///dev/log for
    syslog, which confirms nothing: what the network or the log server loses is lost; amqps://host/vhost, tls://host
    (nats, kafka), rediss://host/0 (the number of the database); without TLS http, amqp, nats, redis, kafka."""
    cleartext: bool = False
    """Permits a url without TLS to another machine; events have addresses of people in them."""
    types: list[EventType] = []
    """Types of events that it gets; empty: all."""
    zones: list[ZoneName] = []
    """Only events of these zones; empty: all."""
    domains: list[DomainRule] = []
    """Only events of recipients at these domains (*.example.com matches subdomains); empty: all."""
    campaigns: list[Campaign] = []
    """Only events of these campaigns; empty: all."""
    tenants: list[Tenant] = []
    """Only events of these tenants; empty: all."""
    batch_events: int = Field(500, ge=1, le=10_000)
    """Most events sent at once."""
    batch_bytes: int = Field(256 * 1024, ge=16 * 1024, le=64 * 1024 * 1024)
    """Most bytes of events sent at once."""
    batch_s: float = Field(0.5, ge=0, le=60)
    """Seconds an event waits for others to be sent with."""
    timeout_s: float = Field(10, gt=0, le=600)
    """Seconds that connecting, or a confirmation, may take."""
    retry_s: float = Field(1, gt=0)
    """Seconds until the first try again after a failure; doubles up to retry_max_s."""
    retry_max_s: float = Field(60, gt=0)
    """Longest wait between two tries."""
    memory_events: int = Field(10_000, ge=100)
    """Most events that wait in memory."""
    memory_bytes: int = Field(8 * 1024 * 1024, ge=64 * 1024)
    """Most bytes of them."""
    ring_bytes: int = Field(64 * 1024 * 1024, ge=0)
    """Size of the ring file, which is made when memory is full for the first time; 0: none."""
    page_bytes: int = Field(16 * 1024, ge=3 * PAGE_BYTES, le=1024 * 1024, multiple_of=PAGE_BYTES)
    """Size of the ring's pages, which are written when full: the erase block of a flash medium is best."""
    ring_flush_s: float = Field(0, ge=0)
    """Seconds after which a page that was begun is written though it is not full; 0: never, which spares the medium:
    after a crash its events come from the journal."""
    dead_bytes: int = Field(16 * 1024 * 1024, ge=64 * 1024)
    """Most bytes of dead letters, which are events that the other side refuses for good; the oldest go first."""
    format: Literal["batch", "jsonlines", "single"] = "batch"
    """Body of a webhook's request: batch (a JSON array, CloudEvents' batch mode), jsonlines, single (one event)."""
    secret: list[str] = Field([], repr=False)
    """Keys that sign a webhook's requests (Standard Webhooks: whsec_ and base64); each signs, so that one can be
    replaced. `zonemta config secret --webhook` makes one."""
    username: str = ""
    """Login, if the other side wants one (HTTP: Basic)."""
    password: str = Field("", repr=False)
    """Its password; of a webhook without a username: a bearer token."""
    path: AnyPath | None = None
    """File that a sink of kind file writes to."""
    rotate_bytes: int = Field(128 * 1024 * 1024, ge=0)
    """Size at which it is rotated: FILE.1 is the newest of the old ones; 0: at no size."""
    rotate_daily: bool = False
    """Also rotated at midnight."""
    keep: int = Field(10, ge=1, le=10_000)
    """How many old ones are kept."""
    compress: Literal["", "gzip", "zstd"] = ""
    """Old ones are compressed so; empty: they are not."""
    sync: bool = True
    """An event counts as delivered once the file with it is on stable storage."""
    facility: Literal[
        "mail", "daemon", "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"
    ] = "mail"
    """Facility of syslog messages."""
    ca_file: FilePath | None = None
    """PEM file with the certificates of authorities to trust instead of the system's."""
    client_certificate: FilePath | None = None
    """PEM file with the certificate (and key) shown to servers that ask for one."""

    plugin: str = ""
    """plugin: the name of an enabled plugin that has an `event` (docs/PLUGINS.md)."""
    exchange: str = ""
    """amqp: exchange that events are published to, which must exist; empty: the default exchange, where the routing key
    is the name of a queue."""
    routing_key: str = "zonemta.{type}"
    """amqp: routing key, with {type} and {zone} of the event."""
    mandatory: bool = True
    """amqp: an event that no queue takes is a dead letter; false: the server drops it."""
    subject: str = "zonemta.{type}"
    """nats: subject, with {type} and {zone} of the event."""
    acknowledged: bool = True
    """nats: a stream (JetStream) acknowledges each event; false: core NATS, which acknowledges nothing, so what nobody
    listens to, or is on the way when a server dies, is lost."""
    stream: str = "zonemta"
    """redis: key of the stream, with {type} and {zone} of the event."""
    stream_max: int = Field(1_000_000, ge=0)
    """redis: about how many entries the stream keeps (MAXLEN ~); 0: all."""
    replicas: int = Field(0, ge=0, le=100)
    """redis: how many replicas must have an event (WAIT)."""
    topic: str = "zonemta"
    """kafka: topic, which must exist, with {type} and {zone} of the event; events of a message stay in order within a
    topic."""
    bootstrap: list[str] = []
    """kafka: more brokers of the cluster, host:port, to ask when the one in url does not answer."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """kafka: how username and password are shown."""
    idempotent: bool = True
    """kafka: the broker drops what the library sends twice on its own; false for brokers that cannot."""

    @field_validator("routing_key", "subject", "stream")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if not value or re.search(r"[\s{}*>]", value.replace("{type}", "").replace("{zone}", "")):
            wrong = "must not be empty, nor have blanks, *, > or other placeholders than {type} and {zone}"
            raise ValueError(f"{value!r} {wrong}; write a name such as zonemta.{{type}}")
        return value

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, value: str) -> str:
        if not _TOPIC.fullmatch(value.replace("{type}", "t").replace("{zone}", "z")):
            wrong = "is no topic: A-Z a-z 0-9 . _ - and the placeholders {type} and {zone} are permitted"
            raise ValueError(f"{value!r} {wrong}; write a name such as zonemta")
        return value

    @field_validator("bootstrap")
    @classmethod
    def _check_bootstrap(cls, values: list[str]) -> list[str]:
        for value in values:
            parts = split(f"kafka://{value}")
            if parts is None or not parts.hostname or not parts.port or parts.netloc != value or "@" in value:
                raise ValueError(f"{value!r} must be host:port, such as kafka2.example.com:9093")
        return values

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, values: list[str]) -> list[str]:
        for value in values:
            if len(signing_key(value)) < 24:
                remedy = "`zonemta config secret --webhook` makes one"
                raise ValueError(f"a secret is whsec_ and 24 bytes or more in base64; {remedy}")
        return values

    @model_validator(mode="after")
    def _check(self) -> EventSink:
        if self.kind == "file" and (self.path is None or not self.path.is_absolute()):
            raise ValueError("a file needs a path, such as /var/log/zonemta/events.jsonl")
        if self.kind == "plugin" and not self.plugin:
            raise ValueError("a sink of kind plugin needs plugin, the name of a plugin that has an `event`")
        if self.kind in SCHEMES:
            self._check_url()
        if self.retry_max_s < self.retry_s:
            raise ValueError("retry_max_s is less than retry_s; raise it")
        return self

    def _check_url(self) -> None:
        schemes, example = SCHEMES[self.kind]
        parts = split(self.url)
        if parts is None or parts.scheme not in schemes or not (parts.hostname or parts.path.strip("/")):
            raise ValueError(f"{'an' if self.kind == 'amqp' else 'a'} {self.kind} needs a url such as {example}")
        hosts = [parts.hostname or "", *(urlsplit(f"kafka://{one}").hostname or "" for one in self.bootstrap)]
        if parts.scheme not in SAFE and not self.cleartext and not all(map(is_here, hosts)):
            raise ValueError(
                f"{parts.scheme}:// would carry addresses of people in the clear; use {schemes[0]}://, or set"
                " cleartext = true"
            )
        if self.kind in BROKERS:
            _check_broker(self.kind, parts)


def _check_broker(kind: str, parts: SplitResult) -> None:
    path = parts.path.strip("/")
    if "@" in parts.netloc:
        raise ValueError("url must not contain a login; write username and password")
    if not parts.hostname or parts.query or parts.fragment or (kind in ("nats", "kafka") and path):
        raise ValueError(f"the url of {kind} must be such as {SCHEMES[kind][1]}, and nothing more")
    if kind == "redis" and path and not path.isdecimal():
        raise ValueError(f"{path!r} is not the number of a database; write a url such as {SCHEMES[kind][1]}")


def split(url: str) -> SplitResult | None:
    """None if it is no URL, or its port no port."""
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port > 0 else None
    except ValueError:
        return None


def signing_key(secret: str) -> bytes:
    """b"": it is none."""
    try:
        return (
            base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True) if SECRET_PREFIX in secret[:6] else b""
        )
    except binascii.Error:
        return b""


def is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

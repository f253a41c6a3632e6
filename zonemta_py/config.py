"""The configuration: typed classes whose docstrings are the reference (config/zonemta.toml is generated from them).

`load(path)` reads TOML; every mistake is a `ConfigError` of one sentence that names file, key and remedy. Without a
file the defaults make a relay on loopback that keeps its queue under ~/.local/state/zonemta.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from zonemta_py.mail import limits

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Port = Annotated[int, Field(ge=1, le=65535)]
Network = str
_DOMAIN_RULE = re.compile(r"\*|(\*\.)?[^\s*@.]+(\.[^\s*@.]+)*\.?")


class ConfigError(Exception):
    """One sentence: file, key, what is wrong, what to do."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _networks(values: list[str]) -> list[str]:
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not a network such as 192.0.2.0/24 ({error})") from None
    return values


def _address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address such as 127.0.0.1 or ::1") from None
    return value


class Server(_Section):
    """The machine as a whole."""

    hostname: str = ""
    """Name in banner, EHLO and trace fields; empty: the machine's own name."""
    folder: Path = Path("~/.local/state/zonemta")
    """Where the queue lives: store/, journal/, archive/, quarantine/ and the socket."""
    receivers: int = Field(0, ge=0, le=64)
    """Receiver processes; 0: half of the processors, at least 1."""
    senders: int = Field(0, ge=0, le=64)
    """Sender processes; 0: half of the processors, at least 1."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe line that is written to standard error."""

    @property
    def name(self) -> str:
        """The host name to use on the wire."""
        return self.hostname or socket.gethostname() or "localhost"


class Listener(_Section):
    """One address and port that accepts mail."""

    name: str = Field("smtp", pattern=NAME)
    """Name in logs and events."""
    address: str = "127.0.0.1"
    """Address to listen on; the default is loopback only."""
    port: Port = 2525
    """TCP port."""
    tls: Literal["none", "starttls", "implicit"] = "none"
    """none, starttls (offered; see require_tls), or implicit (TLS from the first byte)."""
    certificate: Path | None = None
    """PEM file with the certificate chain; needed for starttls and implicit."""
    key: Path | None = None
    """PEM file with the private key; empty: it is in the certificate file."""
    require_tls: bool = False
    """Refuse MAIL before STARTTLS."""
    auth: bool = False
    """Offer AUTH PLAIN and LOGIN (only under TLS) against [users]."""
    relay_networks: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Clients in these networks may relay; everyone else must authenticate."""
    proxy_protocol: bool = False
    """Expect a PROXY protocol header (version 1 or 2) before anything else."""
    proxy_networks: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Who may send that header; others are cut off."""
    trust_sending_zone: bool = True
    """Let the header X-Sending-Zone choose the zone (it is always taken out)."""

    @field_validator("relay_networks", "proxy_networks")
    @classmethod
    def _check_networks(cls, values: list[str]) -> list[str]:
        return _networks(values)

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        return _address(value)

    @model_validator(mode="after")
    def _check_tls(self) -> Listener:
        if self.tls != "none" and self.certificate is None:
            raise ValueError(f"tls = {self.tls!r} needs certificate = a PEM file")
        if self.auth and self.tls == "none":
            raise ValueError("auth = true needs tls = 'starttls' or 'implicit', passwords never travel in the clear")
        if self.require_tls and self.tls == "none":
            raise ValueError("require_tls = true needs tls = 'starttls' or 'implicit'")
        return self


class Limits(_Section):
    """What one client may ask of us, and all of them together."""

    connections: int = Field(1000, ge=1)
    """Connections open at once, all clients together (divided among the receiver processes)."""
    connections_per_client: int = Field(200, ge=1)
    """Connections open at once from one address (the same)."""
    commands_per_connection: int = Field(100_000, ge=10)
    """Commands until the connection ends with 421."""
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
    timeout_s: float = Field(300, gt=0)
    """Silence after which a client is cut off (RFC 5321 4.5.3.2.7)."""
    line_ends: Literal["normalise", "refuse"] = "normalise"
    """Bare CR and bare LF in DATA: made CRLF, or the message refused."""
    nul: Literal["refuse", "pass"] = "refuse"
    """NUL bytes in DATA."""


class Retry(_Section):
    """When temporary failures are tried again, and when we give up."""

    schedule_min: list[Annotated[float, Field(gt=0)]] = [5, 7, 8, 25, 75, 120, 240]
    """Minutes until the next attempt after the 1st, 2nd … failure; the last one repeats."""
    jitter: float = Field(0.1, ge=0, le=0.5)
    """Share by which each wait is varied at random, both ways."""
    life_h: float = Field(48, gt=0)
    """Hours after which an undelivered recipient is given up (5.4.7)."""
    delay_notice_h: float = Field(4, ge=0)
    """Hours after which a sender who asked for it (NOTIFY=DELAY) is told of a delay; 0: never."""
    down_s: float = Field(30, gt=0)
    """Seconds a destination that cannot be reached is rested at first; doubles up to down_max_s."""
    down_max_s: float = Field(600, gt=0)
    """Longest such rest."""


class Queue(_Section):
    """Store and journal."""

    segment_bytes: int = Field(16 * 1024 * 1024, ge=64 * 1024)
    """Size at which a journal segment is closed."""
    archive_days: float = Field(30, ge=0)
    """How long finished segments stay in archive/; 0: for ever."""
    archive_bytes: int = Field(0, ge=0)
    """How much archive/ may hold before its oldest segments go; 0: no bound."""
    reserve_bytes: int = Field(64 * 1024 * 1024, ge=0)
    """Free space below which mail is refused with 452, before the disk is really full."""
    position_s: float = Field(5, gt=0)
    """Seconds between position records (restart positions)."""
    window: int = Field(10_000, ge=100)
    """Recipients held ready in memory, for each zone."""
    write_buffer_bytes: int = Field(18 * 1024 * 1024, ge=64 * 1024)
    """LevelDB's write buffer (two of them may exist at once)."""


class Zone(_Section):
    """A sending zone: which mail goes through it, from where, how, and how much at once."""

    name: str = Field(pattern=NAME)
    """Name, also the value of X-Sending-Zone."""
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
    """Local addresses to send from, taken in turn; empty: the system's choice."""
    hostname: str = ""
    """Name in EHLO; empty: the server's."""
    host: str = ""
    """Smart host that gets everything; empty: MX lookup."""
    port: Port = 25
    """Port to connect to."""
    tls: Literal["none", "opportunistic", "required"] = "opportunistic"
    """STARTTLS never, when offered (certificates are not validated), or always (validated)."""
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
        return _networks(values)

    @field_validator("sender_domains", "recipient_domains")
    @classmethod
    def _check_domains(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _DOMAIN_RULE.fullmatch(value):
                raise ValueError(f"{value!r} is not a domain such as example.com or *.example.com")
        return values

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, values: list[str]) -> list[str]:
        return [_address(value) for value in values]

    @model_validator(mode="after")
    def _check_auth(self) -> Zone:
        if self.username and (not self.host or self.tls != "required"):
            raise ValueError("username needs host and tls = 'required', passwords never travel in the clear")
        return self


class Plugins(_Section):
    """Which plugins run, in which order, with which options."""

    enabled: list[str] = []
    """Names of bundled plugins, paths of files, or names of installed entry points, in the order they are called."""
    folder: Path | None = None
    """Where names are looked up first; empty: the bundled plugins."""
    timeout_s: float = Field(5, gt=0)
    """Longest a single hook call may take."""
    options: dict[str, dict[str, Any]] = {}
    """[plugins.options.NAME]: handed to the plugin, checked by it."""


class Config(_Section):
    """The whole file."""

    server: Server = Server()
    listeners: list[Listener] = [Listener()]
    users: dict[str, str] = {}
    """User name → password hash, made by `zonemta config password`."""
    limits: Limits = Limits()
    retry: Retry = Retry()
    queue: Queue = Queue()
    zones: list[Zone] = [Zone(name="default", default=True)]
    plugins: Plugins = Plugins()

    @model_validator(mode="after")
    def _check(self) -> Config:
        for kind, names in (("zone", [z.name for z in self.zones]), ("listener", [x.name for x in self.listeners])):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two {kind}s are named {name!r}, give each a name of its own")
        if not self.zones:
            raise ValueError("there is no zone, add a [[zones]] table with a name")
        if sum(zone.default for zone in self.zones) > 1:
            raise ValueError("more than one zone says default = true, leave it in one")
        for rules in ("sender_domains", "recipient_domains", "origins"):
            self._check_claims(rules)
        return self

    def _check_claims(self, rules: str) -> None:
        """No rule in two zones: the order of zones in the file must not matter."""
        claimed: dict[str, str] = {}
        for zone in self.zones:
            for rule in getattr(zone, rules):
                other = claimed.setdefault(rule.lower().rstrip("."), zone.name)
                if other != zone.name:
                    raise ValueError(f"zones {other!r} and {zone.name!r} both claim {rules} {rule!r}, leave it in one")

    @property
    def folder(self) -> Path:
        try:
            return self.server.folder.expanduser().absolute()
        except RuntimeError:  # no HOME, and a user without an entry
            raise ConfigError(
                f"server.folder: {self.server.folder} cannot be found, for this user has no home folder;"
                " name one that begins with /, or give --folder"
            ) from None

    @property
    def default_zone(self) -> Zone:
        return next((zone for zone in self.zones if zone.default), self.zones[0])

    def zone(self, name: str) -> Zone | None:
        return next((zone for zone in self.zones if zone.name == name), None)


def load(path: Path | None) -> Config:
    """Reads and checks a configuration; None gives the defaults. Raises ConfigError."""
    if path is None:
        return Config()
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name an existing file with --config") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}; mend that line") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_sentence(path, document, error)) from None


def _sentence(path: Path, document: dict[str, Any], error: ValidationError) -> str:
    first = error.errors()[0]
    key = _place(document, first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), _keys(), 1)
        remedy = (
            f"did you mean {near[0]!r}?" if near else "remove it, or see `zonemta config show` for the keys there are"
        )
        return f"{path}: unknown key {key}; {remedy}"
    if first["type"] == "missing":
        return f"{path}: {key}: is missing; give it a value, see `zonemta config show`"
    if first["type"] == "value_error":  # from our own checks: they say what to do
        return f"{path}: {key}: {first['ctx']['error']}"
    message = first["msg"].removeprefix("Input ").removeprefix("Value ")
    return f"{path}: {key}: {message}, not {str(first['input'])[:60]!r}; see `zonemta config show`"


def _place(document: Any, parts: tuple[int | str, ...]) -> str:
    """The key as a person would name it: tables of an array by their name, "zones[bulk].port"."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            document = document[part]
            text += f"[{(document.get('name') if isinstance(document, dict) else None) or part}]"
        else:
            document = document.get(part) if isinstance(document, dict) else None
            text += f".{part}"
    return text.removeprefix(".")


def _keys() -> list[str]:
    sections = (Config, Server, Listener, Limits, Retry, Queue, Zone, Plugins)
    return sorted({key for section in sections for key in section.model_fields})


def processes(wanted: int) -> int:
    """How many receivers or senders `wanted` means (0: half the processors, at least one)."""
    return wanted or max(1, (os.cpu_count() or 2) // 2)

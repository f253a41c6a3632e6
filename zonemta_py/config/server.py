"""The machine as a whole: its name and processes, name servers, its disk, its plugins."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from zonemta_py.config.section import NAME, Port, Section
from zonemta_py.config.values import (
    AnyPath,
    EhloName,
    FieldName,
    FilePath,
    FolderPath,
    IpAddress,
    ListenerName,
    ZoneName,
)  # fmt: skip
from zonemta_py.mail.metadata import HEADERS_MAX

Bound = Literal["least", "deferred", "bounced", "blocked", "complaints"]


class ServerSection(Section):
    """The machine as a whole."""

    hostname: EhloName = ""
    """Name in banner, EHLO and trace fields; empty: the machine's own name."""
    folder: AnyPath = Path("~/.local/state/zonemta")
    """Where the queue lives: store/, bodies/, journal/, archive/, receipts/, quarantine/, events/, reporting/,
    configurations/, identity and the socket."""
    user: str = ""
    """User that root becomes once the ports are open, who must own the folder, and be able to read the configuration
    for a reload; empty: the user does not change."""
    group: str = ""
    """Group that goes with it; empty: all groups of that user."""
    receivers: int = Field(0, ge=0, le=64)
    """Receiver processes; 0: half of the processors, at least 1."""
    senders: int = Field(0, ge=0, le=64)
    """Sender processes; 0: half of the processors, at least 1."""
    queues: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 1
    """Queue processes that share what comes in, limits and orders; auto: half of the processors, at least 1. Each has
    files of its own, the first in this folder, the others in queues/1, queues/2 … in it, and at least one sender
    process. Throttles and the connections of zones hold for all together; of a warm-up's cap each has its part; a rate
    or a number of connections that a provider taught one queue is that one's own."""
    sender_domains: bool = False
    """Sender domains with keys, return paths and links of their own, made while it runs (`zonemta domain`,
    /v1/domains); docs/DOMAINS.md. Without it mail is spared looking for them."""
    stop_s: float = Field(5, ge=0)
    """Seconds that SIGTERM leaves for deliveries and messages in progress; 0: none. Then all processes are killed."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe line that is written to standard error."""

    @field_validator("queues", mode="before")
    @classmethod
    def _check_queues(cls, value: Any) -> Any:
        """One sentence, instead of one for each kind of value."""
        number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 64
        if not number and value != "auto":
            raise ValueError(f'is {value!r}; write a number from 1 to 64, or "auto"')
        return value

    @model_validator(mode="after")
    def _check_user(self) -> ServerSection:
        if self.user and not self.folder.is_absolute():
            raise ValueError(f"user {self.user!r} needs a folder that begins with /, such as /var/lib/zonemta")
        if self.group and not self.user:
            raise ValueError("group needs user, which is not set; set both")
        return self

    @property
    def name(self) -> str:
        """The host name to use on the wire."""
        return self.hostname or socket.gethostname() or "localhost"


class LogSection(Section):
    """What is written to standard error."""

    format: Literal["text", "json"] = "text"
    """How lines are written: text for people, json for programs (one object a line)."""
    mail: bool = True
    """One line for each message that is accepted and each answer about a recipient, whatever server.log_level is."""
    metadata: bool = False
    """Those lines, and lines about what came back, also say the metadata and chosen header fields of message and
    recipient, as JSON."""
    personal: Literal["whole", "hashed", "cut"] = "whole"
    """Addresses in log lines, and in lines about mail also user names and clients' IP addresses: as they are; hashed,
    with the key in the file log.key of server.folder; or cut to domains and networks."""


class MetadataSection(Section):
    """What is kept of mail to come back with all that is told of it: its metadata do, without being asked."""

    headers: list[FieldName] = Field([], max_length=HEADERS_MAX)
    """Header fields that come back likewise, with 200 characters of each, such as List-Id and X-Mailer."""


class Dns(Section):
    """Resolvers of MX, address, TLSA and policy records."""

    servers: list[IpAddress] = []
    """IP addresses of the resolvers to ask; empty: the system's."""
    port: Port = 53
    """Their port."""
    timeout_s: float = Field(10, gt=0)
    """Seconds a query may take, all tries together."""
    dnssec: bool = False
    """The resolvers validate and the way to them is safe (loopback): their AD bit is trusted, which DANE needs."""
    providers: FilePath | None = None
    """File with groups of MX hosts by provider; empty: the one shipped (config/providers.toml)."""


class Queue(Section):
    """Store and journal."""

    segment_bytes: int = Field(16 * 1024 * 1024, ge=64 * 1024)
    """Size at which a journal segment is closed."""
    segment_s: float = Field(3600, gt=0)
    """Age at which a segment with records is closed and moved to archive/, if no command needs it earlier."""
    archive_days: float = Field(30, ge=0)
    """How long segments stay in archive/, once all their mail has ended; 0: for ever."""
    archive_bytes: int = Field(0, ge=0)
    """How much archive/ may hold before its oldest segments go; 0: no bound."""
    summaries: bool = False
    """Count each segment in the background when it is closed, so that `zonemta summary` answers at once; else the first
    question does."""
    reserve_bytes: int = Field(64 * 1024 * 1024, ge=0)
    """Free space below which mail is refused with 452, before the disk is full. Less than 16 MB means 16 MB:
    the queue needs that to empty itself."""
    lease_s: float = Field(30, ge=0.1)
    """Seconds after which a stuck sender process loses its leases; others then deliver that mail."""
    arriving_bytes: int = Field(4 * 1024**3, ge=1024**2)
    """Disk space that large messages not yet acknowledged may take together; never more than half of what is free. More
    is refused with 452."""
    arriving_bytes_per_client: int = Field(1024**3, ge=1024**2)
    """The same for one client: an IPv4 address, an IPv6 network of 64 bits."""
    position_s: float = Field(5, gt=0)
    """Seconds between position records (restart positions)."""
    window: int = Field(10_000, ge=100)
    """Recipients held ready in memory, for each zone."""
    write_buffer_bytes: int = Field(4 * 1024 * 1024, ge=64 * 1024)
    """LevelDB's write buffer. Two may exist at once: with this size a large message costs the process < 16 MB."""
    request_h: float = Field(24, gt=0)
    """Hours for which a client's idempotency key is kept; that of a campaign as long as the campaign."""
    undo_s: float = Field(600, ge=0, le=2_592_000)
    """Seconds for which a task (delete, hold, move …) can be undone after it was done, and what was deleted is kept; 0:
    not at all."""
    keep_bounced_s: float = Field(0, ge=0, le=2_592_000)
    """Seconds for which recipients that have bounced are kept with their message, so that `zonemta queue requeue` can
    queue them again; 0: they are deleted at once. It keeps mail that has ended, on the disk and for others to see: so
    it is off. When space is short, what has bounced first goes first."""
    campaign_days: float = Field(7, gt=0)
    """How long a campaign that has ended is listed, and its template and the keys of its requests are kept."""
    campaign_names: int = Field(1000, ge=0, le=100_000)
    """Campaigns nobody has created, but that mail names (X-Campaign), of which figures are kept; those without mail the
    longest are forgotten first. Of more only what waits is counted."""
    campaign_bounds: dict[Bound, Annotated[float, Field(ge=0)]] = {}
    """Shares of attempts at which such a campaign is paused ({ least = 100, bounced = 0.05 }): deferred, bounced,
    blocked, complaints; least: attempts from which they are checked."""

    @field_validator("campaign_bounds")
    @classmethod
    def _check_bounds(cls, values: dict[str, float]) -> dict[str, float]:
        for name, value in values.items():
            if name != "least" and value > 1:
                raise ValueError(f"{name} = {value:g} is no share; write 0.05 for 5%")
        return values


class RulesSection(Section):
    """How replies of other servers are classified."""

    file: FilePath | None = None
    """File with the rules; empty: the one shipped (config/rules.toml)."""
    extra: FilePath | None = None
    """File with rules of your own, which take precedence; empty: none."""


class OptionTables(dict[str, dict[str, Any]]):
    """Options by plugin; and the folder of the file that they are in, from which their paths go."""

    folder: Path | None = None


class PluginInstance(Section):
    """A plugin once more, or with limits: of one plugin there may be any number, each with options, values, counters
    and log lines of its own. Its name stands in plugins.enabled, where it is called in its turn."""

    name: str = Field(pattern=NAME)
    """Name in plugins.enabled, in [plugins.options.NAME], in logs, metrics and the journal."""
    plugin: str = ""
    """Which plugin it is, as plugins.enabled would name it; empty: the one of that name itself."""
    listeners: list[ListenerName] = []
    """Hooks of reception are called at these [[listeners]] only ("http" is that of [http]); empty: at all."""
    zones: list[ZoneName] = []
    """Hooks of queue and senders are called for recipients in these zones only; empty: in all. queue_route: for those
    that the rules, or plugins before it, have put there."""
    failing: Literal["closed", "open"] = "closed"
    """What becomes of mail when the plugin itself fails, is too slow, is skipped. closed: it is deferred (451). open:
    it goes on without the plugin, whose failure is logged and counted all the same. What the plugin refuses or defers
    is no failure."""


class Plugins(Section):
    """Which plugins run, in which order, with which options."""

    enabled: list[str] = []
    """Names of bundled plugins, paths of files (from this file's folder) or of folders with __init__.py ("./links"), or
    names of installed entry points (group zonemta.plugins), in the order they are called."""
    folder: FolderPath | None = None
    """Where names are looked up first; empty: the bundled plugins."""
    timeout_s: float = Field(5, gt=0)
    """Longest a single hook call may take."""
    unknown_zone: Literal["default", "refuse", "hold"] = "default"
    """When a plugin sends a recipient to a zone that is not configured: "default" leaves it in the zone that it had,
    with a warning that names the plugin; "refuse" counts as the plugin's failure, and the message is deferred (451);
    "hold" keeps it there for an operator."""
    options: dict[str, dict[str, Any]] = {}
    """[plugins.options.NAME]: handed to the plugin, checked by it."""
    instances: list[PluginInstance] = []
    """Plugins that are enabled several times, at some listeners, for some zones, or open."""

    def instance(self, wanted: str) -> PluginInstance:
        """What an entry of `enabled` means."""
        name = wanted
        if "/" in wanted or wanted.endswith(".py"):
            name = Path(wanted).name.removesuffix(".py")
        found = next((one for one in self.instances if one.name == name), None)
        if found is None:
            return PluginInstance.model_construct(name=name, plugin=wanted)
        return found if found.plugin else found.model_copy(update={"plugin": wanted})

    @field_validator("options")
    @classmethod
    def _note_folder(cls, value: dict[str, dict[str, Any]], info: ValidationInfo) -> dict[str, dict[str, Any]]:
        tables = OptionTables(value)
        tables.folder = info.context.folder if info.context is not None else None
        return tables

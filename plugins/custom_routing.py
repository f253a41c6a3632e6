"""Routes recipients by a table: rules from the configuration, tried in order, the first that matches decides.

    [plugins]
    enabled = ["custom_routing"]

    [[plugins.options.custom_routing.rules]]
    name = "partners"
    recipient = ["partner.example", "*.partner.example"]
    host = "smtp.partner.example"
    port = 587

    [[plugins.options.custom_routing.rules]]
    name = "newsletter"
    header = { list-id = "*<news.example.com>*" }
    zone = "bulk"
    priority = -1

All conditions of a rule must hold. What a rule does not name stays as the zones decided. If no rule matches, `table` is
asked, a CSV file of `domain,host` or `domain,host,port` lines, read again when it changes: write a new file and rename
it into place. While the table is broken or missing, the last good one is used, and the log says why.
"""

from __future__ import annotations

import asyncio
import csv
import fnmatch
import ipaddress
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zonemta_py.plugin import Envelope, PluginApi, Reject, Routing

TABLE_CHECK_S = 1.0
"""How often the table's file is checked."""

_REJECT = re.compile(r"(?:([45]\d\d)\s+)?(\S.*)", re.DOTALL)
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}")
_DOMAINS = re.compile(r"[^\s/@:,<>]*")
_FIELD = re.compile(r"[!-9;-~]+")
_STEERING = frozenset(("zone", "host", "port", "protocol", "tls", "source", "pool", "delay_s", "priority"))

Condition = Callable[[Envelope, Routing], bool]


class Rule(BaseModel):
    """Conditions first; patterns know * (anything) and ? (one character), in upper or lower case."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str = ""
    """Name in counters; empty: its number, from 1."""
    recipient: list[str] = []
    """Domains of the recipient; *.example.com matches subdomains only."""
    sender: list[str] = []
    """Domains of the return path; "" is the null sender's."""
    header: dict[str, str] = {}
    """Header fields and the pattern that the first of each name must match, in its first 200 characters."""
    user: list[str] = []
    """Names of authenticated users."""
    campaign: list[str] = []
    """Campaigns."""

    zone: str = ""
    """Sending zone to use."""
    host: str = ""
    """Server to hand the mail to, instead of the recipient's MX."""
    port: int = Field(25, ge=1, le=65535)
    """Its port."""
    protocol: Literal["", "smtp", "lmtp"] = ""
    """What it speaks."""
    tls: Literal["", "none", "opportunistic", "required", "implicit"] = ""
    """TLS instead of the zone's."""
    source: str = ""
    """Local IP address to send from."""
    pool: str = ""
    """Pool of source addresses to send from."""
    delay_s: float = Field(0, ge=0, le=30 * 86400)
    """Seconds before the first attempt."""
    priority: int | None = Field(None, ge=-9, le=9)
    """Each step doubles the share of the zone that this mail has."""
    reject: str = ""
    """Refuse instead: a text, or code and text ("550 5.7.1 Not here")."""

    @field_validator("recipient", "sender")
    @classmethod
    def _check_domains(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _DOMAINS.fullmatch(value):
                raise ValueError(f"{value!r} is not a domain such as example.com or *.example.com")
        return values

    @field_validator("header")
    @classmethod
    def _check_header(cls, values: dict[str, str]) -> dict[str, str]:
        for name in values:
            if not _FIELD.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a header field such as List-Id")
        return values

    @field_validator("source")
    @classmethod
    def _check_source(cls, value: str) -> str:
        if value:
            ipaddress.ip_address(value)
        return value

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        if value and not _HOST.fullmatch(value):
            raise ValueError("is not a host name or IP address")
        name, colon, port = value.rpartition(":")
        if colon and ":" not in name:
            raise ValueError(f"{value!r} has a port in it; write host = {name!r} and port = {port}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Rule:
        steering = self.model_fields_set & _STEERING
        if self.reject and steering:
            raise ValueError(f"a rule that rejects cannot set {', '.join(sorted(steering))} as well; make it two rules")
        if not self.reject and not steering:
            raise ValueError("the rule does nothing; give zone, host, tls, source, pool, delay_s, priority or reject")
        for name in ("port", "protocol"):
            if name in steering and not self.host:
                raise ValueError(f"{name} requires host")
        return self

    @property
    def conditions(self) -> list[Condition]:
        """Tests that must all hold."""
        found: list[Condition] = []
        if self.recipient:
            wanted = _matcher(self.recipient)
            found.append(lambda envelope, routing: wanted(_domain(routing.recipient)))
        if self.sender:
            sending = _matcher(self.sender)
            found.append(lambda envelope, routing: sending(_domain(envelope.sender)))
        if self.user:
            users = _matcher(self.user)
            found.append(lambda envelope, routing: users(envelope.user or ""))
        if self.campaign:
            campaigns = _matcher(self.campaign)
            found.append(lambda envelope, routing: campaigns(envelope.campaign or ""))
        found += (_header_condition(name.lower(), pattern) for name, pattern in self.header.items())
        return found

    def apply(self, routing: Routing) -> None:
        """Sets where the mail goes. Raises Reject."""
        if self.reject:
            found = _REJECT.fullmatch(self.reject.strip())
            raise Reject(int(found[1] or 550) if found else 550, found[2] if found else self.reject)
        if self.host:
            routing.host, routing.port, routing.protocol = self.host, self.port, self.protocol
        routing.tls, routing.pool = self.tls or routing.tls, self.pool or routing.pool
        routing.zone = self.zone or routing.zone
        routing.source = self.source or routing.source
        routing.delay_s = self.delay_s or routing.delay_s
        routing.priority = routing.priority if self.priority is None else self.priority


class Options(BaseModel):
    """[plugins.options.custom_routing]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    rules: list[Rule] = []
    """Tried in order; the first that matches decides."""
    table: Path | None = None
    """CSV file of domain,host[,port] for recipients that no rule claims."""

    @model_validator(mode="after")
    def _check(self) -> Options:
        for number, rule in enumerate(self.rules[:-1], 1):
            if not rule.conditions:
                raise ValueError(
                    f"rule {number} matches everything, so those below it are never reached; make it the last"
                )
        return self


class Table:
    """Domain → (host, port) from a CSV file, kept in memory; the file is watched by its change time and size."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError if the file cannot be used."""
        self._path = path.expanduser()
        self._stamp = self._look()
        self.hosts = _read(self._path)
        self._looked = time.monotonic()
        self._reading = False

    def due(self) -> bool:
        """Whether it is time to look, and the file has changed."""
        now = time.monotonic()
        if self._reading or now - self._looked < TABLE_CHECK_S:
            return False
        self._looked = now
        return self._look() != self._stamp

    async def reload(self) -> None:
        """Reads the file in a thread while others are routed. Raises ValueError if the new file cannot be used."""
        self._reading = True
        try:
            self._stamp = self._look()
            self.hosts = await asyncio.to_thread(_read, self._path)
        finally:
            self._reading = False

    def find(self, domain: str) -> tuple[str, int] | None:
        return self.hosts.get(domain)

    def _look(self) -> tuple[int, int, int]:
        try:
            seen = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (seen.st_mtime_ns, seen.st_size, seen.st_ino)


class _Router:
    def __init__(self, api: PluginApi, options: Options) -> None:
        self._api = api
        self._rules = [
            (rule.name or str(number), rule, tuple(rule.conditions)) for number, rule in enumerate(options.rules, 1)
        ]
        self._table = Table(options.table) if options.table else None
        for name, rule, _ in self._rules:
            api.keep_headers(*rule.header)
            if rule.zone and api.zones and rule.zone not in api.zones:
                raise ValueError(
                    f"rule {name}: there is no zone {rule.zone!r}; there are {', '.join(sorted(api.zones))}"
                )
            if rule.source and not _is_here(rule.source):
                api.log.warning(
                    "rule %s: this machine does not have the address %s; nothing can be sent from it", name, rule.source
                )

    async def route(self, envelope: Envelope, routing: Routing) -> None:
        for name, rule, conditions in self._rules:
            if all(holds(envelope, routing) for holds in conditions):
                self._api.count(f"rule_{name}")
                rule.apply(routing)
                return
        if self._table is not None:
            await self._ask(self._table, routing)

    async def _ask(self, table: Table, routing: Routing) -> None:
        if table.due():
            try:
                await table.reload()
            except ValueError as error:
                self._api.count("table_broken")
                self._api.log.warning("%s; the previous table stays in use", error)
        found = table.find(_domain(routing.recipient))
        if found:
            self._api.count("table")
            routing.host, routing.port = found


_router: _Router


def setup(api: PluginApi, options: Options) -> None:
    """Compiles the rules and reads the table."""
    global _router
    _router = _Router(api, options)


async def queue_route(envelope: Envelope, routing: Routing) -> None:
    """Routes one recipient."""
    await _router.route(envelope, routing)


def _is_here(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _matcher(patterns: list[str]) -> Callable[[str], bool]:
    """Plain words cost one set look-up, patterns one regular expression for all of them."""
    words = frozenset(pattern.lower() for pattern in patterns if not re.search(r"[*?]", pattern))
    wild = [fnmatch.translate(re.sub(r"\[", "[[]", p.lower())) for p in patterns if re.search(r"[*?]", p)]
    if not wild:
        return lambda value: value.lower() in words
    matches = re.compile("|".join(wild)).match
    return lambda value: value.lower() in words or matches(value.lower()) is not None


def _header_condition(name: str, pattern: str) -> Condition:
    matches = _matcher([pattern])
    return lambda envelope, routing: name in envelope.headers and matches(envelope.headers[name])


def _read(path: Path) -> dict[str, tuple[str, int]]:
    """Raises ValueError, one sentence with file and line, for anything that is not a table."""
    hosts: dict[str, tuple[str, int]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if row and not row[0].lstrip().startswith("#"):
                    domain, where = _entry(path, number, [cell.strip() for cell in row])
                    hosts[domain] = where
    except OSError as error:
        raise ValueError(f"table {path}: cannot be read ({error.strerror}); put the file there") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"table {path}: is not CSV in UTF-8 ({error}); save it as such") from None
    if not hosts:
        raise ValueError(f"table {path}: has no entries; write lines such as example.com,mx.example.com,25")
    return hosts


def _entry(path: Path, number: int, row: list[str]) -> tuple[str, tuple[str, int]]:
    port = row[2] if len(row) > 2 and row[2] else "25"
    if len(row) not in (2, 3) or not row[0] or not _HOST.fullmatch(row[1]):
        raise ValueError(f"table {path}:{number}: write domain,host or domain,host,port")
    if not re.fullmatch(r"\d{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        raise ValueError(f"table {path}:{number}: {port!r} is not a port; write 1 to 65535")
    return row[0].lower(), (row[1], int(port))

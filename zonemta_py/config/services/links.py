"""The listener for links in mail: unsubscribes, preferences, and, where wanted, opens and clicks."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.reception import Listener
from zonemta_py.config.section import Port, Section
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.config.values import FilePath, FolderPath, LocalAddress, Network, Tenant, ZoneName
from zonemta_py.config.zone import Zone

_URL = re.compile(r"https://[A-Za-z0-9.\[\]:-]+(/[A-Za-z0-9._~-]+)*/?")


class Links(Section):
    """The listener that answers unsubscribe links (RFC 8058), in a process of its own. It is open to everybody, and
    does nothing but what a signed link says; docs/FEEDBACK.md shows how."""

    enabled: bool = False
    """Enable it. Messages made from a campaign's template, zones with campaigns = true,
    return_path.list_unsubscribe_zones and mail with X-Unsubscribe then get List-Unsubscribe with a link to it, unless
    return_path.list_unsubscribe names another."""
    address: LocalAddress = "127.0.0.1"
    """Address to listen on; any but loopback needs a certificate."""
    port: Port = 8526
    """TCP port."""
    certificate: FilePath | None = None
    """PEM file with the certificate chain; then it speaks HTTPS only."""
    key: FilePath | None = None
    """PEM file with the private key; empty: it is in the certificate file."""
    url: str = ""
    """How the world reaches it, such as https://mail.example.com or https://example.com/mail: what links begin with."""
    trusted_proxies: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Networks of proxies whose X-Forwarded-For is believed; others speak for themselves."""
    secrets: list[str] = []
    """Sign links: the first one signs, all of them verify; `zonemta config secret` makes one. To change it, put the new
    one in front, and remove the old one when its links are too old."""
    days: int = Field(365, ge=30, le=10_000)
    """How long a link is valid."""
    scope: Literal["campaign", "list", "campaigns", "all"] = "campaigns"
    """What leaving by a link stops, where X-Unsubscribe does not say: the campaign; the list, by its List-Id (without
    one as campaigns); campaigns (of its tenant, if it has one); or all mail (of its tenant, if it has one): receipts
    too."""
    choices: list[Literal["campaign", "list", "campaigns", "all"]] = ["list", "campaigns"]
    """What people may leave and rejoin on the page of their settings, besides what the link stops."""
    track: Literal["off", "asked", "on"] = "off"
    """Opens and clicks of mail made from a campaign's template, by a picture and links in its HTML that are each
    recipient's own. on: all of it, but what has X-Track: no; asked: what has X-Track: yes, opens or clicks. Mail that
    comes complete is never changed. In many countries people must have agreed to it."""
    track_zones: list[ZoneName] = []
    """Zones in which it may be; empty: all."""
    track_tenants: list[Tenant] = []
    """Tenants whose mail it may be; empty: all, also mail of none."""
    pages: FolderPath | None = None
    """Folder of templates that dress the pages: NAME.html.j2 for the tenant NAME, default.html.j2 for all others."""
    wrong_per_minute: int = Field(30, ge=1, le=100_000)
    """Requests a minute with links that are not ours or no longer valid, from one client's address; more get 429."""
    pages_per_minute: int = Field(600, ge=1, le=100_000)
    """Pages a minute to one client's address; more get 429. One-click requests with a valid link are never refused:
    those of a provider come from few addresses."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value and not _URL.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a base such as https://mail.example.com or https://example.com/mail; RFC 8058"
                " requires https, and it has neither a query nor blanks"
            )
        return value.rstrip("/")

    @field_validator("secrets")
    @classmethod
    def _check_secrets(cls, values: list[str]) -> list[str]:
        for value in values:
            if len(value) < 16:
                raise ValueError("a secret needs at least 16 characters; `zonemta config secret` makes one")
        if len(set(values)) < len(values):
            raise ValueError("the same secret is there twice; remove one of them")
        return values

    @model_validator(mode="after")
    def _check(self) -> Links:
        if self.certificate is None and not ipaddress.ip_address(self.address).is_loopback:
            raise ValueError(
                f"address {self.address} is not loopback and there is no certificate; mailbox providers speak https"
                " only: set certificate = a PEM file, or keep 127.0.0.1 behind a TLS proxy"
            )
        for key, value in (("url", self.url), ("secrets", self.secrets)):
            if self.enabled and not value:
                remedy = "write how the world reaches it" if key == "url" else "`zonemta config secret` makes one"
                raise ValueError(f"enabled = true needs {key}; {remedy}")
        return self

    @property
    def listener(self) -> Listener:
        """The same as one of [[listeners]]."""
        tls: Literal["none", "implicit"] = "implicit" if self.certificate else "none"
        return Listener(
            name="links", address=self.address, port=self.port, tls=tls, certificate=self.certificate, key=self.key,
            relay_networks=[],
        )  # fmt: skip


class Unsubscribing:
    """Which mail gets List-Unsubscribe. linked: with a link to our own listener, since no other is named. own: with
    that, or an address of ours; each names its recipient."""

    __slots__ = ("_named", "_verp", "_zones", "linked", "own", "wanted")

    def __init__(self, path: ReturnPath, links: Links, zones: list[Zone]) -> None:
        self.linked = links.enabled and not path.list_unsubscribe
        self.own = self.linked or bool(path.unsubscribe_domain)
        self.wanted = self.own or bool(path.list_unsubscribe)
        self._named = self.own or "{recipient}" in path.list_unsubscribe or "{token}" in path.list_unsubscribe
        bulk = [zone.name for zone in zones if zone.campaigns] if self.own else []
        self._zones = frozenset((*path.list_unsubscribe_zones, *bulk))
        self._verp = bool(path.verp)

    def covers(self, zone: str, asked: bool) -> bool:
        """Whether a message in that zone gets it."""
        return self.wanted and (asked or zone in self._zones)

    def alone(self, zone: str, asked: bool) -> bool:
        """Whether each recipient of a message needs a delivery of its own, since its return path or header will name
        it."""
        return self._verp or (self._named and self.covers(zone, asked))

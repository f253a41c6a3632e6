"""Notices to senders: in whose name, in which languages, by which zone, and about which delays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, field_validator

from zonemta_py.config.section import Section
from zonemta_py.config.values import AddressOrNone, FolderPath, SendingZoneName, Tenant

Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$")]
Delays = Literal["asked", "always", "never"]


class NoticeTerms(NamedTuple):
    """What holds for the mail of one tenant. Every value as in NoticesSection."""

    address: str
    name: str
    languages: tuple[str, ...]
    texts: Path | None
    zone: str
    delays: Delays


class TenantNotices(Section):
    """Notices about the mail of one tenant; what is not set here is as in [notices]."""

    tenant: Tenant = Field(min_length=1)
    """Its name."""
    address: AddressOrNone | None = None
    """Address in From."""
    name: str | None = None
    """Name beside it."""
    languages: list[Language] | None = Field(None, min_length=1)
    """Languages of the text, one after the other."""
    texts: FolderPath | None = None
    """Folder with texts of its own, instead of the other one."""
    zone: SendingZoneName | None = None
    """Zone they leave through; "": by the rules of the zones."""
    delays: Delays | None = None
    """Who is told of delays: asked, always or never."""


class NoticesSection(Section):
    """Notices to senders: of failures, delays and, where asked for, success (RFC 3464). They have the null return path,
    so nobody answers them."""

    address: AddressOrNone = ""
    """Address in From; empty: mailer-daemon@ the server's name."""
    name: str = ""
    """Name beside it; empty: as the language says, in English Mail Delivery System."""
    languages: list[Language] = Field(["en"], min_length=1)
    """Languages of the text, one after the other; the first has the subject. There are texts in de, en, es, fr, it, ja,
    nl, pl, pt, ru, tr and zh."""
    texts: FolderPath | None = None
    """Folder with texts of your own: en.toml, de.toml … of the form of config/notices/en.toml, each with those texts
    that are to be different; empty: none."""
    zone: SendingZoneName = ""
    """Zone they leave through; empty: by the rules of the zones."""
    delays: Delays = "asked"
    """Who is told, after retry.delay_notice_h, that a message is late: asked, those who asked for it (NOTIFY=DELAY);
    always, also the senders of all mail that did not say and is of no campaign; never, nobody."""
    tenants: list[TenantNotices] = []

    @field_validator("tenants")
    @classmethod
    def _check_tenants(cls, values: list[TenantNotices]) -> list[TenantNotices]:
        names = [value.tenant for value in values]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tenants are {name!r}; keep one table for it")
        return values

    def terms(self, tenant: str = "") -> NoticeTerms:
        """Those for mail of that tenant, "" for mail of none."""
        own = next((one for one in self.tenants if one.tenant == tenant), None) if tenant else None
        values = {name: getattr(self, name) for name in NoticeTerms._fields}
        if own is not None:
            values |= {name: said for name in NoticeTerms._fields if (said := getattr(own, name)) is not None}
        return NoticeTerms(**values | {"languages": tuple(values["languages"])})

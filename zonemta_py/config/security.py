"""TLS with other servers, and what is signed or added to a message on its way out."""

from __future__ import annotations

import re
import string
from typing import Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import Section
from zonemta_py.config.values import (
    AddressOrNone,
    Domain,
    DomainOrNone,
    DomainRule,
    FieldName,
    FilePath,
    ZoneName,
)  # fmt: skip

_SELECTOR = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
"""RFC 6376 3.1."""
_SIGNED_NEVER = ("dkim-signature", "received", "return-path")


class Tls(Section):
    """TLS with other servers, for all zones."""

    ca_file: FilePath | None = None
    """PEM file with the authorities that certificates are checked against; empty: the system's."""
    mta_sts: bool = False
    """Look up MTA-STS policies (RFC 8461) and apply them."""
    mta_sts_port: int = Field(443, ge=1, le=65535)
    """Port of the policy hosts."""
    dane: bool = False
    """Look up TLSA records (RFC 7672) and apply them; needs dns.dnssec."""
    remember_h: float = Field(24, ge=0)
    """Hours for which it is remembered what a host's TLS cannot do (1.3, then any), before it is tried again."""
    reports: bool = False
    """Collect the results of TLS and send daily reports to those who ask for them (TLSRPT, RFC 8460)."""
    report_from: AddressOrNone = ""
    """Address reports are sent from; empty: postmaster@ the server's name."""
    report_organization: str = ""
    """Name of the reporting organization; empty: the server's name."""
    report_contact: str = ""
    """Contact in reports; empty: report_from."""


class DkimKey(Section):
    """A key that signs the mail of a domain (RFC 6376, RFC 8463)."""

    domain: Domain
    """d=: mail whose From is at this domain, or below it, is signed."""
    selector: str
    """s=: the name under _domainkey."""
    key: FilePath
    """PEM file with the private key (RSA or Ed25519); read again when it changes."""
    state: Literal["active", "published", "retired"] = "active"
    """active signs; published and retired are only checked against DNS (see `zonemta dkim rotate`)."""
    identity: str = ""
    """i=: an address, or @ and a domain, at `domain` or below it; empty: none."""

    @property
    def name(self) -> str:
        """Where its record is in DNS."""
        return f"{self.selector}._domainkey.{self.domain}"

    @field_validator("selector")
    @classmethod
    def _check_selector(cls, value: str) -> str:
        if not _SELECTOR.fullmatch(value):
            raise ValueError(f"{value!r} is not a selector such as 2026a; it stands before ._domainkey, without that")
        return value.lower()

    @model_validator(mode="after")
    def _check_identity(self) -> DkimKey:
        host = self.identity.rpartition("@")[2].lower()
        if self.identity and ("@" not in self.identity or not f".{host}".endswith(f".{self.domain}")):
            raise ValueError(f"identity {self.identity!r} must be at {self.domain} or below it, such as @{self.domain}")
        return self


class Signing(Section):
    """How DKIM signatures are made, for all keys."""

    canonicalization: Literal["relaxed", "simple"] = "relaxed"
    """c=: of the header section."""
    body_canonicalization: Literal["relaxed", "simple"] = "relaxed"
    """c=: of the body."""
    headers: list[FieldName] = [
        "From", "To", "Cc", "Subject", "Date", "Message-ID", "Reply-To", "MIME-Version", "Content-Type",
        "Content-Transfer-Encoding", "List-Unsubscribe", "List-Unsubscribe-Post", "Feedback-ID", "In-Reply-To",
        "References",
    ]  # fmt: skip
    """Fields that are signed where they are there."""
    oversign: list[FieldName] = ["From", "To", "Subject", "Date", "Message-ID", "Reply-To"]
    """Fields that are signed once more than they are there, so that none can be added."""
    expire_days: float = Field(0, ge=0)
    """x=: days until a signature is no longer valid; 0: none."""
    third_party: DomainOrNone = ""
    """Domain of a key that signs all mail once more (the sender's own, beside the customer's); empty: none."""

    @field_validator("headers", "oversign")
    @classmethod
    def _check_names(cls, values: list[str]) -> list[str]:
        for value in values:
            if value.lower() in _SIGNED_NEVER or ";" in value:
                raise ValueError(f"{value!r} is not the name of a header field that can be signed; remove it")
        return values


class OutgoingPath(Section):
    """What goes out: return paths and fields that tie bounces and complaints to message and recipient."""

    verp: DomainOrNone = ""
    """Domain of VERP return paths that carry message and recipient, signed; empty: return paths stay as they are."""
    srs: DomainOrNone = ""
    """Domain of SRS: return paths of other domains than `own_domains` are rewritten to it, but for those whose local
    part would then exceed 64 octets (servers refuse such a sender); empty: none are."""
    own_domains: list[DomainRule] = []
    """Domains whose return paths are ours (*.example.com matches subdomains): never rewritten by SRS."""
    secret: str = ""
    """Signs VERP and SRS addresses; at least 16 characters. `zonemta config secret` makes one."""
    srs_days: int = Field(21, ge=1, le=100)
    """How many days an SRS address is accepted back."""
    verp_days: int = Field(0, ge=0, le=100)
    """How many days after a message was sent what comes back about it is taken by its VERP address, also where that
    stands only in the original that a report encloses; for so long it is remembered what a message was, and what has
    come, so that nothing counts twice. 0: as `srs_days`. Complaints may come weeks later."""
    feedback_id: str = ""
    """Feedback-ID field that is added: a text with {campaign}, {tenant}, {zone}, {id}, {sender} (the return path's
    domain); empty: none."""
    list_unsubscribe: str = ""
    """List-Unsubscribe URL (https) of a page of your own that is added where asked for, with {id}, {recipient},
    {campaign}, {token}; empty: that of [links], if it is enabled."""
    list_unsubscribe_zones: list[ZoneName] = []
    """Zones in which all mail gets it, asked for or not."""

    @property
    def days(self) -> int:
        """How long what comes back about a message is taken, and remembered."""
        return self.verp_days or self.srs_days

    @field_validator("feedback_id")
    @classmethod
    def _check_feedback(cls, value: str) -> str:
        placeholders(value, {"campaign", "tenant", "zone", "id", "sender"})
        return value

    @field_validator("list_unsubscribe")
    @classmethod
    def _check_url(cls, value: str) -> str:
        placeholders(value, {"id", "recipient", "campaign", "token"})
        if value and not value.startswith("https://"):
            raise ValueError(f"{value!r} does not begin with https://, which RFC 8058 requires")
        if re.search(r"[\s<>]", value):
            raise ValueError(f"{value!r} is not a URL: it contains blanks or angle brackets")
        return value

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: str) -> str:
        if value and len(value) < 16:
            raise ValueError("a secret needs at least 16 characters; `zonemta config secret` makes one")
        return value


def placeholders(template: str, known: set[str]) -> None:
    """Raises ValueError for a text with other placeholders than the known, or with what no header field may hold."""
    if not template.isascii() or not template.isprintable():
        raise ValueError(f"{template!r} has characters that a header field must not contain; write ASCII on one line")
    shown = ", ".join(f"{{{name}}}" for name in sorted(known))
    try:
        fields = [field for field in string.Formatter().parse(template) if field[1] is not None]
    except ValueError:
        raise ValueError(f"{template!r} has a brace too many or too few; known are {shown}") from None
    for _, name, form, conversion in fields:
        if name not in known or form or conversion:
            raise ValueError(f"{template!r} has {{{name}}}, which is none of {shown}")

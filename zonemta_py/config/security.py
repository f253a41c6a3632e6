"""TLS towards other servers, and what is signed or written into a message on its way out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from zonemta_py.config.section import Section, domain_rules


class Tls(Section):
    """TLS towards other servers, for all zones."""

    ca_file: Path | None = None
    """PEM file with the authorities that certificates are checked against; empty: the system's."""
    mta_sts: bool = False
    """Look for MTA-STS policies (RFC 8461) and obey them."""
    mta_sts_port: int = Field(443, ge=1, le=65535)
    """Port of the policy hosts."""
    dane: bool = False
    """Look for TLSA records (RFC 7672) and obey them; needs dns.dnssec."""
    remember_h: float = Field(24, ge=0)
    """Hours for which it is remembered what a host's TLS cannot do (1.3, then any), before it is tried again."""
    reports: bool = False
    """Collect the results of TLS and send daily reports to those who ask for them (TLSRPT, RFC 8460)."""
    report_from: str = ""
    """Address reports are sent from; empty: postmaster@ the server's name."""
    report_organization: str = ""
    """Name of the reporting organization; empty: the server's name."""
    report_contact: str = ""
    """Contact in reports; empty: report_from."""


class DkimKey(Section):
    """A key that signs the mail of a domain (RFC 6376, RFC 8463)."""

    domain: str
    """d=: mail whose From is at this domain, or below it, is signed."""
    selector: str
    """s=: the name under _domainkey."""
    key: Path
    """PEM file with the private key (RSA or Ed25519); read again when it changes."""
    state: Literal["active", "published", "retired"] = "active"
    """active signs; published and retired are only checked against DNS (see `zonemta dkim rotate`)."""
    identity: str = ""
    """i=; empty: none."""


class Signing(Section):
    """How DKIM signatures are made, for all keys."""

    canonicalization: Literal["relaxed", "simple"] = "relaxed"
    """c=: of the header section."""
    body_canonicalization: Literal["relaxed", "simple"] = "relaxed"
    """c=: of the body."""
    headers: list[str] = [
        "From", "To", "Cc", "Subject", "Date", "Message-ID", "Reply-To", "MIME-Version", "Content-Type",
        "Content-Transfer-Encoding", "List-Unsubscribe", "List-Unsubscribe-Post", "Feedback-ID", "In-Reply-To",
        "References",
    ]  # fmt: skip
    """Fields that are signed where they are there."""
    oversign: list[str] = ["From", "To", "Subject", "Date", "Message-ID", "Reply-To"]
    """Fields that are signed once more than they are there, so that none can be added."""
    expire_days: float = Field(0, ge=0)
    """x=: days until a signature is no longer valid; 0: none."""
    third_party: str = ""
    """Domain of a key that signs all mail once more (the sender's own, beside the customer's); empty: none."""


class ReturnPath(Section):
    """Return paths and fields that tie bounces and complaints to message and recipient."""

    verp: str = ""
    """Domain of VERP return paths that carry message and recipient, signed; empty: return paths stay as they are."""
    srs: str = ""
    """Domain of SRS: return paths of other domains than `own_domains` are rewritten to it; empty: none are."""
    own_domains: list[str] = []
    """Domains whose return paths are ours (*.example.com matches subdomains): never rewritten by SRS."""
    secret: str = ""
    """Signs VERP and SRS addresses; at least 16 characters. `zonemta config secret` makes one."""
    srs_days: int = Field(21, ge=1, le=100)
    """How long an SRS or VERP address is accepted back."""
    feedback_id: str = ""
    """Feedback-ID field that is added: a text with {campaign}, {tenant}, {zone}, {id}, {sender}; empty: none."""
    list_unsubscribe: str = ""
    """List-Unsubscribe URL (https) that is added where asked for, with {id}, {recipient}, {campaign}, {token}; empty:
    none."""

    @field_validator("own_domains")
    @classmethod
    def _check_domains(cls, values: list[str]) -> list[str]:
        return domain_rules(values)

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: str) -> str:
        if value and len(value) < 16:
            raise ValueError("a secret needs at least 16 characters; `zonemta config secret` makes one")
        return value

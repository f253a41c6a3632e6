"""What comes back: which addresses take it, from whom it is believed, and how much of it at once."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.section import Section
from zonemta_py.config.security import OutgoingPath
from zonemta_py.config.values import Domain, DomainOrNone, Network, SenderRule, SendingZoneName
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.ours import ReturnDomains


class TrustedReporter(Section):
    """A mailbox provider whose reports are believed where no token of ours proves them, if its mail proves to be its
    own. What proves neither is recorded, and suppresses nobody."""

    domain: Domain
    """Whose mail it is: d= of its DKIM signature, or the domain that SPF speaks for, at it or below."""
    senders: list[SenderRule] = []
    """Who may be its author (From): addresses (mailer-daemon@example.com), domains, *.domain; empty: `domain` and what
    is below it. Name addresses where the provider's customers send from the same domain."""
    dkim: bool = True
    """A valid DKIM signature (RFC 6376) proves it."""
    spf: bool = False
    """SPF (RFC 7208) that passes for the client's address proves it."""

    @model_validator(mode="after")
    def _check_proof(self) -> TrustedReporter:
        if not (self.dkim or self.spf):
            raise ValueError(f"reporter {self.domain} can prove nothing; set dkim = true, spf = true or both")
        return self


class ReturnPath(OutgoingPath):
    """Return paths and fields that tie bounces and complaints to message and recipient, and what is taken back at
    listeners with feedback = true (docs/FEEDBACK.md)."""

    earlier_secrets: list[str] = []
    """What `secret` was before: what it signed is still taken. To change the secret, move it here, and remove it when
    what it signed is too old (srs_days, verp_days, unsubscribe_days)."""
    bounces: list[str] = []
    """Addresses that bounces come to besides VERP's, such as bounce@example.com: all that comes there is read, and only
    what proves to be genuine suppresses."""
    complaints: list[str] = []
    """Addresses that complaints of mailbox providers come to (feedback loops), such as fbl@example.com."""
    reports: list[str] = []
    """Addresses that DMARC aggregate reports and TLS reports come to (rua=mailto:dmarc@example.com in DNS)."""
    own_networks: list[Network] = []
    """Networks that our mail is seen to come from, besides the source addresses of zones and pools: behind NAT, by a
    smart host, by other servers. Reports tell mail from there apart from mail of those who forge our domains."""
    unsubscribe_domain: DomainOrNone = ""
    """Domain of addresses, signed for message and recipient, that people write to in order to unsubscribe; they stand
    in List-Unsubscribe (RFC 2369); empty: none do."""
    unsubscribe_days: int = Field(365, ge=30, le=1000)
    """How long such an address is accepted."""
    forward_zone: SendingZoneName = ""
    """Zone for bounces that go on to the original sender (SRS); empty: as for other mail."""
    read_bytes: int = Field(1_000_000, ge=10_000, le=50_000_000)
    """How much is read of a message that comes back; what follows is taken and dropped."""
    at_once: int = Field(50, ge=4, le=10_000)
    """Messages that strangers may be handing in at these addresses at once, to each receiver process, and a quarter of
    them from one client's address; more get 451 and come again."""
    per_second: float = Field(200, gt=0)
    """The same for messages a second, over ten seconds."""
    unread: int = Field(1_000, ge=0, le=100_000)
    """So many messages that came back and that nobody understood are kept for an operator, 64 KB each at most (`zonemta
    feedback list --unread`); the oldest make room. 0: none."""
    reporters: list[TrustedReporter] = []

    @field_validator("bounces", "complaints", "reports")
    @classmethod
    def _check_addresses(cls, values: list[str]) -> list[str]:
        return [_address(value) for value in values]

    @field_validator("earlier_secrets")
    @classmethod
    def _check_earlier(cls, values: list[str]) -> list[str]:
        if any(len(value) < 16 for value in values):
            raise ValueError("each has at least 16 characters, as `secret` had; remove what never was one")
        return values

    @model_validator(mode="after")
    def _check_path(self) -> ReturnPath:
        lists = {"bounces": self.bounces, "complaints": self.complaints, "reports": self.reports}
        for (one, first), (other, second) in combinations(lists.items(), 2):
            if both := set(first) & set(second):
                raise ValueError(f"{min(both)} is in {one} and in {other}; keep it in one")
        if len({self.secret, *self.earlier_secrets}) <= len(self.earlier_secrets):
            raise ValueError("earlier_secrets has a secret twice, or the one in force; remove it")
        domains = [reporter.domain for reporter in self.reporters]
        if len(set(domains)) < len(domains):
            raise ValueError("two reporters have the same domain; make one of them")
        return self

    @property
    def takes(self) -> bool:
        """Whether there is an address that something can come back to."""
        fixed = self.bounces or self.complaints or self.reports
        return bool(self.verp or self.srs or self.unsubscribe_domain or fixed)

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """All that are accepted; the first one signs."""
        return tuple(one for one in (self.secret, *self.earlier_secrets) if one)

    @cached_property
    def domains(self) -> ReturnDomains:
        """Which addresses are ours."""
        return ReturnDomains(
            self.verp, self.srs, self.unsubscribe_domain, frozenset(self.bounces), frozenset(self.complaints),
            self.secrets, self.srs_days, self.days, self.unsubscribe_days, frozenset(self.reports),
        )  # fmt: skip


def _address(value: str) -> str:
    """In lower case and A-labels. Raises ValueError."""
    from zonemta_py.mail.address import AddressRefused, parse_mailbox  # a start needs it only where one is configured

    try:
        local, _, domain = parse_mailbox(value).rpartition("@")
    except AddressRefused:
        raise ValueError(f"{value!r} is not an address such as bounce@example.com") from None
    return f"{local.lower()}@{canonical(domain)}"

"""Accounts: who hands in mail, what that mail is, and how much of it is taken."""

from __future__ import annotations

from pydantic import Field, field_validator

from zonemta_py.config.limits import rate
from zonemta_py.config.section import NAME, Section
from zonemta_py.config.values import KeyName, Network, SenderRule, SendingZoneName, Tenant, UserName


class Account(Section):
    """A customer or program that hands in mail: its users, HTTP keys and networks, whatever process they reach. Clients
    of no account are not limited here."""

    name: str = Field(pattern=NAME)
    """Name in refusals, logs and `zonemta accounts`."""
    users: list[UserName] = []
    """Names of [users] that are this account's."""
    keys: list[KeyName] = []
    """Names of [[http.keys]] that are."""
    networks: list[Network] = []
    """Clients in these networks are, if their login or key is no account's; the smallest network of all accounts
    counts."""
    tenant: Tenant = ""
    """Tenant that all its mail is of; mail that names another is refused, and its HTTP keys see and order nothing of
    others, whatever their role. Empty: its mail is of none, and its keys see and order what is of no tenant, that of
    other such accounts, too; unless the account has trust_headers, or the key tenants or the role admin."""
    zone: SendingZoneName = ""
    """Zone that all its mail takes; empty: by the rules of the zones. Mail that asks for another is refused."""
    senders: list[SenderRule] | None = None
    """Whom its members may send as, where they have no senders of their own: addresses, domains, *.domain, *."""
    trust_headers: bool = False
    """Let X-Sending-Zone, X-Campaign, X-Tenant, X-Priority-Level and the other fields meant for this server speak, as
    far as the listener does; let its HTTP requests choose a tenant and a zone, if it has none of its own, and these and
    MT-PRIORITY raise priorities."""
    message_bytes: int = Field(0, ge=0)
    """Its largest message; 0: limits.message_bytes."""
    messages: list[str] = []
    """Quotas of messages, all of which hold (["10/s", "5000/day"]). Each begins anew with its time: an hour's at the
    full hour, a day's at midnight, UTC. Counted exactly for all processes together, and across restarts; messages that
    are pushed to named queues count, too. More gets 450 (HTTP: 503) until then."""
    recipients: list[str] = []
    """The same for recipients; those that the suppression list leaves out do not count."""
    sessions: int = Field(0, ge=0)
    """Sessions that it may have open at once, in all processes together: SMTP connections, and HTTP requests in
    progress, but for event streams; 0: any number. One more gets 421 when it connects or logs in (HTTP: 429)."""

    @field_validator("messages", "recipients")
    @classmethod
    def _check_quotas(cls, values: list[str]) -> list[str]:
        for value in values:
            found = rate(value)
            if "b" in value.partition("/")[0].lower() or found.amount < 1:
                raise ValueError(f"{value!r} is not a quota; write a whole number per time, such as 1000/h")
        return values

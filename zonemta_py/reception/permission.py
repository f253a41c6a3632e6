"""Whom a client may send as: a user, a relay network and an HTTP key each have their senders (`config.senders`).

The machine itself (loopback, the key in http.token) may send as anybody. So may a client without configured senders;
but where it is not the only one that submits mail here, it is UNBOUND, and our keys do not sign its mail.

Whose account its mail is of, and what that makes of it, is here too (`config.accounts`): `bind` returns the reply for
mail that asks for what is not its account's.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from zonemta_py.config import Account, Config, HttpKey, Listener
from zonemta_py.config.senders import parties
from zonemta_py.mail.addresses.senders import ANYBODY, UNBOUND, Senders
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply


class Accounts:
    """The accounts, by user, HTTP key and address."""

    def __init__(self, config: Config) -> None:
        self.by_name = {account.name: account for account in config.accounts}
        self._users = {user: account for account in config.accounts for user in account.users}
        self._keys = {key: account for account in config.accounts for key in account.keys}
        rules = [(ipaddress.ip_network(one), account) for account in config.accounts for one in account.networks]
        self._networks = sorted(rules, key=lambda rule: -rule[0].prefixlen)
        self.network = lru_cache(maxsize=4096)(self._network)

    def of(self, address: str, user: str = "", key: str = "") -> str:
        """Name of the account of a client that has logged in, or has an HTTP key, or else of its network; "": none."""
        if not self.by_name:
            return ""
        account = self._users.get(user) or self._keys.get(key) or self.network(address)
        return account.name if account else ""

    def key(self, name: str) -> Account | None:
        """Of that HTTP key."""
        return self._keys.get(name)

    def _network(self, address: str) -> Account | None:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return None
        return next((account for network, account in self._networks if parsed in network), None)


class Permissions:
    """Who may do what at one listener."""

    def __init__(self, config: Config, listener: Listener) -> None:
        several = sum(1 for _ in parties(config)) > 1
        self._default = UNBOUND if several else ANYBODY
        self._accounts = Accounts(config)
        bound = [account for account in config.accounts if account.senders is not None]
        self._users = {user: Senders(account.senders or []) for account in bound for user in account.users}
        self._users |= {user: Senders(senders) for user, senders in config.senders.items()}
        named = {network: account.senders or [] for account in bound for network in account.networks}
        named |= listener.relay_senders
        rules = [(ipaddress.ip_network(network), Senders(said)) for network, said in named.items()]
        self._networks = sorted(rules, key=lambda rule: -rule[0].prefixlen)
        self.network = lru_cache(maxsize=4096)(self._network)

    def user(self, name: str) -> Senders:
        """Of an authenticated client."""
        return self._users.get(name, self._default)

    def key(self, name: str, senders: list[str] | None) -> Senders:
        """senders: of the HTTP key of that name."""
        if senders is None and (account := self._accounts.key(name)) is not None:
            senders = account.senders
        return self._default if senders is None else Senders(senders)

    def tenants(self, key: HttpKey) -> list[str]:
        """Whose mail and campaigns the key sees and orders about; none: everybody's. An account's are its tenant's; of
        one without, what is of no tenant (""), unless it may name any."""
        account = self._accounts.key(key.name)
        if account is None:
            return key.tenants
        if account.tenant:
            return [account.tenant]
        return key.tenants or ([] if account.trust_headers or key.role == "admin" else [""])

    def _network(self, address: str) -> Senders:
        """Of a client that may relay because of its address: those of the smallest network it is in."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return UNBOUND
        for network, senders in self._networks:
            if parsed in network:
                return senders
        return ANYBODY if parsed.is_loopback else self._default


def refusal(address: str) -> Reply:
    """The reply to a client that may not send as that address."""
    return Reply(
        550, "5.7.1", f"You may not send as <{address[:80]}>; senders in the configuration says who you may send as"
    )


def bind(account: Account, envelope: Envelope) -> Reply | None:
    """Gives the mail its account's tenant and zone; why it is refused: it asks for others."""
    for name, field in (("tenant", "tenant"), ("zone", "sending_zone")):
        own, said = getattr(account, name), getattr(envelope, field)
        if not own:
            continue
        if said and said != own:
            sentence = f"account {account.name!r} is for the {name} {own!r}, not {said[:80]!r}; leave it out"
            return Reply(550, "5.7.1", sentence)
        setattr(envelope, field, own)
    if account.message_bytes and envelope.size > account.message_bytes:
        return Reply(552, "5.3.4", f"Message is larger than the {account.message_bytes:,} bytes of its account")
    return None

"""Who submits mail here, and whom each may send as. A party without senders may send as anybody, but where there are
several parties, our keys do not sign its mail: nothing says that it may use their domains.

What gives clients their rights is here too, without secrets, so that processes of two configurations can compare it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from zonemta_py.config.accounts import Account
from zonemta_py.config.reception import Listener
from zonemta_py.config.root import Config

Rights = dict[str, Any]
"""users, keys, tokens: name → a digest of what their rights depend on, of users the password; networks: listener → its
relay networks; terms: user → a digest of the senders and the account that it has; network_terms: listener → [network,
digest of the same] for each that says something of its clients."""


class Party(NamedTuple):
    """A party that submits mail. where: the key to set its senders. senders: None where none are set."""

    name: str
    where: str
    senders: list[str] | None


def parties(config: Config) -> Iterator[Party]:
    """All but the machine itself: its own addresses, and the key in the file http.token."""
    accounts = {("user", user): account for account in config.accounts for user in account.users}
    accounts |= {("key", key): account for account in config.accounts for key in account.keys}
    for user in config.users:
        senders = config.senders.get(user, _of(accounts.get(("user", user))))
        yield Party(f"user {user!r}", f"senders.{user}", senders)
    for key in config.http.keys:
        senders = key.senders if key.senders is not None else _of(accounts.get(("key", key.name)))
        yield Party(f"HTTP key {key.name!r}", f"http.keys[{key.name}].senders", senders)
    for network, place, senders in networks(config):
        if senders is not None or not ipaddress.ip_network(network).is_loopback:
            yield Party(f"network {network}", place, senders)


def _of(account: Account | None) -> list[str] | None:
    return account.senders if account else None


def networks(config: Config) -> Iterator[tuple[str, str, list[str] | None]]:
    """(network, place, senders) of all relay networks; those of one listener are there once for each."""
    seen: set[tuple[str, str]] = set()
    within = {network: account.senders for account in config.accounts for network in account.networks}
    for listener in config.listeners:
        place = f"listeners[{listener.name}].relay_senders"
        for network in (*listener.relay_networks, *listener.relay_senders):
            if (network, place) not in seen:
                seen.add((network, place))
                yield network, place, listener.relay_senders.get(network, within.get(network))


def unsigned(config: Config) -> list[Party]:
    """Those whose mail our keys do not sign: they have no senders, and are not the only party."""
    if config.body_form is None:
        return []
    everybody = list(parties(config))
    return [party for party in everybody if party.senders is None] if len(everybody) > 1 else []


def rights(config: Config) -> Rights:
    """As this configuration gives them."""
    accounts = {name: one for one in config.accounts for name in one.keys}
    return {
        "users": {name: password_digest(hashed) for name, hashed in config.users.items()},
        "keys": {
            key.name: _digest(key.model_dump(), accounts[key.name].model_dump() if key.name in accounts else None)
            for key in config.http.keys
        },
        "tokens": {token.name: _digest(token.model_dump()) for token in config.pull.tokens},
        "networks": {one.name: list(one.relay_networks) for one in config.listeners},
        "terms": _user_terms(config),
        "network_terms": {one.name: _network_terms(config, one) for one in config.listeners},
    }


def _user_terms(config: Config) -> dict[str, str]:
    accounts = {user: account for account in config.accounts for user in account.users}
    named = {*config.users, *config.senders, *accounts}
    return {user: _terms(config.senders.get(user), accounts.get(user)) for user in named}


def _network_terms(config: Config, listener: Listener) -> list[list[str]]:
    own = [[network, _terms(senders, None)] for network, senders in listener.relay_senders.items()]
    return own + [[network, _terms(None, account)] for account in config.accounts for network in account.networks]


def _terms(senders: list[str] | None, account: Account | None) -> str:
    """Quotas are not among them: the queue counts them, and a session has none of its own."""
    if account is None:
        return _digest(senders)
    bounds = (account.name, account.tenant, account.zone, account.trust_headers, account.message_bytes)
    return _digest(senders if senders is not None else account.senders, bounds)


def password_digest(hashed: str) -> str:
    """Of a user's password."""
    return _digest(hashed)


def _digest(*parts: Any) -> str:
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

"""Who submits mail here, and whom each may send as. A party without senders may send as anybody, but where there are
several parties, our keys do not sign its mail: nothing says that it may use their domains."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from zonemta_py.config.root import Config


class Party(NamedTuple):
    """A party that submits mail. where: the key to set its senders. senders: None where none are set."""

    name: str
    where: str
    senders: list[str] | None


def parties(config: Config) -> Iterator[Party]:
    """All but the machine itself: its own addresses, and the key in the file http.token."""
    for user in config.users:
        yield Party(f"user {user!r}", f"senders.{user}", config.senders.get(user))
    for key in config.http.keys:
        yield Party(f"HTTP key {key.name!r}", f"http.keys[{key.name}].senders", key.senders)
    for network, place, senders in networks(config):
        if senders is not None or not ipaddress.ip_network(network).is_loopback:
            yield Party(f"network {network}", place, senders)


def networks(config: Config) -> Iterator[tuple[str, str, list[str] | None]]:
    """(network, place, senders) of all relay networks; those of one listener are there once for each."""
    seen: set[tuple[str, str]] = set()
    for listener in config.listeners:
        place = f"listeners[{listener.name}].relay_senders"
        for network in (*listener.relay_networks, *listener.relay_senders):
            if (network, place) not in seen:
                seen.add((network, place))
                yield network, place, listener.relay_senders.get(network)


def unsigned(config: Config) -> list[Party]:
    """Those whose mail our keys do not sign: they have no senders, and are not the only party."""
    if config.body_form is None:
        return []
    everybody = list(parties(config))
    return [party for party in everybody if party.senders is None] if len(everybody) > 1 else []

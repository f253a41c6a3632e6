"""Whom a client may send as: a user, a relay network and an HTTP key each have their senders (`config.senders`).

The machine itself (loopback, the key in http.token) may send as anybody. So may a client without configured senders;
but where it is not the only one that submits mail here, it is UNBOUND, and our keys do not sign its mail.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from zonemta_py.config import Config, Listener
from zonemta_py.config.senders import parties
from zonemta_py.mail.addresses.senders import ANYBODY, UNBOUND, Senders
from zonemta_py.mail.reply import Reply


class Permissions:
    """For one listener."""

    def __init__(self, config: Config, listener: Listener) -> None:
        several = sum(1 for _ in parties(config)) > 1
        self._default = UNBOUND if several else ANYBODY
        self._users = {user: Senders(senders) for user, senders in config.senders.items()}
        rules = [(ipaddress.ip_network(network), Senders(said)) for network, said in listener.relay_senders.items()]
        self._networks = sorted(rules, key=lambda rule: -rule[0].prefixlen)
        self.network = lru_cache(maxsize=4096)(self._network)

    def user(self, name: str) -> Senders:
        """Of an authenticated client."""
        return self._users.get(name, self._default)

    def key(self, senders: list[str] | None) -> Senders:
        """senders: of an HTTP key."""
        return self._default if senders is None else Senders(senders)

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

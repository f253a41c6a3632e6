"""What another configuration makes of sessions that are open here: it may have taken a right away, or changed it."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from itertools import chain
from typing import Any

from zonemta_py.config.senders import Rights
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Session
from zonemta_py.reception.connection_limits import Networks
from zonemta_py.reception.smtp import replies


class Revision:
    """before: what this process gives. now: what the other configuration does."""

    def __init__(self, before: Rights, now: Rights) -> None:
        self._before, self._now = before, now
        self._network = lru_cache(maxsize=4096)(self._of_network)

    def user(self, session: Session, password: str) -> Reply | None:
        """What a client that has logged in hears from now on. password: digest of its own; "": a plugin let it in."""
        name = session.user
        if password and self._now["users"].get(name) != password:
            return replies.LOGIN_GONE
        return replies.RIGHTS_CHANGED if self._before["terms"].get(name) != self._now["terms"].get(name) else None

    def network(self, listener: str, client: str) -> Reply | None:
        """The same of one that relays because of its address. A listener that is gone leaves what any other one
        gives."""
        return self._network(listener, client)

    def _of_network(self, listener: str, client: str) -> Reply | None:
        given, rules = self._now["networks"], self._now["network_terms"]
        own = given[listener] if listener in given else chain(*given.values())
        if not Networks(list(own)).contain(client):
            return replies.NETWORK_GONE
        before = _within(self._before["network_terms"].get(listener, []), client)
        others = [rules[listener]] if listener in rules else rules.values()
        return None if any(_within(rows, client) == before for rows in others) else replies.RIGHTS_CHANGED


def _within(rules: list[Any], client: str) -> list[list[str]]:
    """Those of networks that it is in."""
    address = ipaddress.ip_address(client)
    return sorted([network, terms] for network, terms in rules if address in ipaddress.ip_network(network))

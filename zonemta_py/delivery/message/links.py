"""Links to our own listener ([links]), made for one recipient of one message: it needs no table of who got what."""

from __future__ import annotations

import time
from typing import cast

from zonemta_py.config import Config
from zonemta_py.mail.addresses.link import Link, Purpose, Scope, encode
from zonemta_py.queue.api import Delivery

PATHS: dict[Purpose, str] = {"unsubscribe": "u", "preferences": "p", "open": "o", "click": "c"}
"""Below links.url: what comes before the token."""
_DAY_S = 86_400


class LinkMaker:
    """For one process."""

    def __init__(self, config: Config) -> None:
        self._links = config.links
        self.enabled, self.scope = config.links.enabled, config.links.scope

    def url(self, purpose: Purpose, delivery: Delivery, target: str = "", unix_s: float | None = None) -> str:
        """For the delivery's first recipient; the only one, where it matters."""
        scope = cast(Scope, delivery.unsubscribe_scope or self._links.scope)
        day = int(time.time() if unix_s is None else unix_s) // _DAY_S
        address = delivery.recipients[0].address
        link = Link(purpose, delivery.id, address, delivery.campaign, delivery.tenant, scope, day, target)
        return f"{self._links.url}/{PATHS[purpose]}/{encode(link, self._links.secrets)}"

"""Links to our own listener ([links]), made for one recipient of one message: it needs no table of who got what."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import cast

from zonemta_py.config import Config
from zonemta_py.mail.addresses.link import PRINTED, Link, Purpose, Scope, url
from zonemta_py.merge.html.tracking import Tracking
from zonemta_py.queue.api import Delivery

_DAY_S = 86_400


class LinkMaker:
    """For one process."""

    def __init__(self, config: Config) -> None:
        self._links = config.links
        self.scope = config.links.scope

    def fields(self, delivery: Delivery, names: Iterable[str]) -> dict[str, str]:
        """What a template prints by these names."""
        return {name: self.url(PRINTED[name], delivery) for name in names}

    def tracking(self, delivery: Delivery) -> Tracking | None:
        """What its HTML gets, where tracking is on and wanted."""
        links, wanted = self._links, delivery.track or ("yes" if self._links.track == "on" else "no")
        if links.track == "off" or wanted == "no":
            return None
        if (links.track_zones and delivery.zone not in links.track_zones) or (
            links.track_tenants and delivery.tenant not in links.track_tenants
        ):
            return None
        link = partial(self.url, "click", delivery) if wanted in ("yes", "clicks") else None
        picture = self.url("open", delivery) if wanted in ("yes", "opens") else ""
        return Tracking(link, picture, links.url)

    def url(self, purpose: Purpose, delivery: Delivery, target: str = "") -> str:
        """For the delivery's first recipient; the only one, where it matters. Each attempt makes the same one."""
        scope = cast(Scope, delivery.unsubscribe_scope or self._links.scope)
        day = int(delivery.received_ms / 1000 or time.time()) // _DAY_S
        address = delivery.recipients[0].address
        name, title = (delivery.list_name, delivery.list_title) if purpose in PRINTED.values() else ("", "")
        link = Link(purpose, delivery.id, address, delivery.campaign, delivery.tenant, scope, day, target, name, title)
        return url(self._links.url, link, self._links.secrets)

"""Asks the queue for a place at a domain's own MX hosts, where they are the last resort of smart hosts."""

from __future__ import annotations

import time

from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import POSTPONED, RELEASED, Delivery, Dispatch, Outcome
from zonemta_py.zones.admittance import Admittance

NO_CONNECTION = Reply(451, "4.3.2", "no idle connection, and a new one is not allowed now")


async def asked(delivery: Delivery, resolver: DnsDestinationResolver, dispatch: Dispatch) -> Admittance:
    """The answer. If it is granted, the delivery is one to that site from now on. Raises QueueRefusal."""
    try:
        site = await resolver.site(delivery.destination, time.monotonic())
    except DeliveryError:  # it comes again when the hosts are looked up
        return Admittance(True)
    place = await dispatch.place(delivery.lease, site.key, site.provider)
    if place.granted:
        delivery.site, delivery.provider = site.key, site.provider
    if place.limited:
        delivery.counted, delivery.connection = True, delivery.connection or 0
    return place


def refused(place: Admittance, delivery: Delivery, recipients: list[int]) -> Outcome:
    """No attempt is counted."""
    if not place.wait_s:
        return Outcome(RELEASED, NO_CONNECTION, "limit", recipients)
    text = f"no smart host takes it, and there is no place for it at the MX hosts of {delivery.destination}"
    reply = Reply(450, "4.3.2", f"{text}: {place.cause}")
    return Outcome(POSTPONED, reply, "limit", recipients, delay_s=place.wait_s)

"""Names of pull zones: which zone a named queue is, and which queues there are without a table of their own.

A configured zone with `delivery = "pull"` is the queue of its name. Any other name is the zone `queue/NAME`, which no
table can have, as it has a slash: it is made when the first message comes, and again after a restart. As names of zones
are lower-case, so are those of queues: `Jobs` is `jobs`.
"""

from __future__ import annotations

from zonemta_py.config import QUEUE_NAME, Config, Zone

DOMAIN = "queue"
"""What is pushed to NAME has the recipient NAME@queue."""
PUSHED = "PULL"
"""The protocol by which it comes (`Envelope.protocol`)."""
PREFIX = "queue/"


def zone_of(config: Config, queue: str) -> str:
    """The name of the zone that a queue is, however it is written."""
    queue = queue.lower()
    zone = config.zone(queue)
    return queue if zone is not None and zone.pulled else PREFIX + queue


def queue_of(zone: Zone) -> str:
    """What the queue that a pull zone is, is called."""
    return zone.name.removeprefix(PREFIX)


def is_made(zone: str) -> bool:
    """Whether a zone's name is that of a queue without a table of its own. Older versions made some with capitals."""
    return zone.startswith(PREFIX) and QUEUE_NAME.fullmatch(zone, len(PREFIX)) is not None and zone == zone.lower()


def made(zone: str) -> Zone:
    """The settings of a queue without a table of its own."""
    return Zone.model_construct(name=zone, delivery="pull")


def settings_of(config: Config, zone: str) -> Zone | None:
    """The settings of a zone by its name, also of a queue without a table of its own; None: there is no such zone."""
    found = config.zone(zone)
    return made(zone) if found is None and is_made(zone) and zone_of(config, zone[len(PREFIX) :]) == zone else found

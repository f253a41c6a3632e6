"""Takes another configuration while the queue runs: all of it in one turn of the event loop, or nothing.

Nothing is rebuilt: recipients in memory, leases that are out and batches on their way to a disk keep the zone, flow
queue and egress path they have; these take the new settings, and what waits moves to where it belongs by them. What is
used of a limit stays used, as after a restart; leases and open connections count at the new limits at once.

`prepare` does all that may fail, and changes nothing. Promise: `faults` says everything that would lose or strand mail;
if it says nothing, `take` succeeds. tests/queue walk
over all objects of a queue after a reload: none may know the old configuration any more.
"""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.config.difference import FIXED, leaves
from zonemta_py.logs.mail import MailLog
from zonemta_py.mail.reroute import RerouteTarget
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core, Prepared
from zonemta_py.queue.hooks import Hooks
from zonemta_py.queue.lifecycle import settle
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule.reroutes import lacking
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.zones import pull
from zonemta_py.zones.router import Router


def faults(queue: QueueContext, config: Config) -> list[str]:
    """Why it cannot be taken, each in one sentence with its remedy."""
    core = queue.core
    found = list[str]()
    for name, place in core.schedule.zones.items():
        zone = pull.settings_of(config, name)
        if (zone is not None and zone.pulled == place.zone.pulled) or (zone is None and name in core.schedule.foreign):
            continue
        if sentence := _not_empty(core, name):
            what = "is gone from the configuration" if zone is None else f"is to have delivery = {zone.delivery!r}"
            if pull.is_made(name):
                what = "is to be the zone of that name in the configuration"
            found.append(f"zone {name!r} {what}, but {sentence}")
    before, after = leaves(core.config), leaves(config)
    fixed = "{} cannot be changed while the MTA runs: put it back, or stop the MTA, change it and start again"
    keys = [
        key
        for one in FIXED
        for key in sorted({*before, *after})
        if key == one or (one[-1] == "." and key.startswith(one))
    ]
    return [fixed.format(key) for key in keys if before.get(key) != after.get(key)] + found


def remarks(queue: QueueContext, config: Config) -> list[str]:
    """Which reroutes would have no effect by it; their mail would go as ever. Each in one sentence."""
    pools, zones = [pool.name for pool in config.pools], [zone.name for zone in config.zones if not zone.pulled]
    return [
        f"the reroute {name!r} has no effect without {lack}: its mail goes as ever until it is back; `zonemta reroute"
        " list` shows it"
        for name, stop in queue.core.schedule.policy.reroutes_now().items()
        if (lack := lacking(RerouteTarget.of(stop.to), pools, zones))
    ]


def _not_empty(core: Core, name: str) -> str:
    """What is still in a zone, and the remedy; "" if nothing is."""
    place, counts = core.schedule.zones[name], core.counters.sizes.zones.get(name, sizes.NONE)
    remedy = "give the zone back, wait until it is empty, or restart the MTA, which moves its mail to the default zone"
    kept, deleted = counts[sizes.BOUNCED], counts[sizes.DELETED]
    if waiting := sum(counts) - kept - deleted:
        more = f", and {deleted:,} more are deleted, which can be undone for a while" if deleted else ""
        return f"{waiting:,} recipients wait in it{more}; `zonemta queue move --zone {name} --to ZONE`, {remedy}"
    if deleted:
        return (
            f"{deleted:,} recipients of it are deleted, which can be undone for a while (`zonemta task list`); {remedy}"
        )
    if kept:
        return f"{kept:,} recipients that have bounced are kept in it (queue.keep_bounced_s); {remedy}"
    if place.active or place.loaded:
        return f"mail of it is just being delivered; {remedy}"
    return ""


def prepare(
    config: Config, hooks: Hooks, resolver: DestinationResolver | None, mail_log: MailLog | None = None
) -> Prepared:  # fmt: skip
    """Needs no queue, so a thread can do it. Raises ConfigError."""
    return Prepared(config, Router(config.zones), settle.load(config), hooks, resolver, mail_log)


def take(queue: QueueContext, prepared: Prepared) -> None:
    """The configuration is this one from now on. Not for one with `faults`."""
    out = [lease.batch for lease in queue.leases.out.values()]
    queue.core.configure(prepared, out)
    queue.settling.configure(prepared.rules)
    queue.sender_domains.start()

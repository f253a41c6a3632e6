"""What a cluster needs of the NATS servers, checked at a node's start: that each syncs before it acknowledges, and that
there are as many as replicas.

JetStream acknowledges before it syncs unless `sync_interval: always` is set: then a power failure of several machines
at once loses mail for which "250" was said. Servers tell how they are set through their system account, or their
monitoring addresses. One that does not answer now is warned of: it counts, but is not known.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from zonemta_py.cluster.nats import Nats, NatsError, NatsRefusal
from zonemta_py.config import ClusterSection, Config
from zonemta_py.logs.causes import cause

log = logging.getLogger(__name__)

OLDEST = (2, 11)
"""The first that give several messages at once."""
PAYLOAD_LEAST = 768 * 1024
ASK = "$SYS.REQ.SERVER.PING.JSZ"
QUIET_S, ASK_S = 0.5, 5.0


class Server(NamedTuple):
    """How one is set. size: servers of its cluster. peers: their names."""

    name: str
    has_jetstream: bool
    always_syncs: bool
    size: int
    peers: frozenset[str]


async def check(nats: Nats, config: Config) -> None:
    """Raises NatsRefusal with one sentence: what to change, or several, a line each; NatsError where nobody answers."""
    section = config.cluster
    try:
        await nats.account()
    except NatsRefusal as error:
        raise NatsRefusal(
            f"NATS at {_where(section)}: {error}; write `jetstream {{ sync_interval: always }}` in the configuration of"
            " its servers, and jetstream: enabled in that of the account"
        ) from None
    version, most = nats.version, nats.payload_max
    if version < OLDEST:
        shown, oldest = (".".join(map(str, one)) for one in (version, OLDEST))
        raise NatsRefusal(f"NATS at {_where(section)} is {shown}; install nats-server {oldest} or a later one")
    if most < PAYLOAD_LEAST:
        raise NatsRefusal(
            f"NATS at {_where(section)} takes no more than {most:,} bytes at once; raise max_payload to 1MB there"
        )
    found = await (_by_system_account(section) if section.system_username else _by_monitor(section))
    faults, unknown = verdict(found, section.replicas)
    if faults:
        raise NatsRefusal("\n".join(faults))
    if unknown:
        log.warning(
            "NATS server %s does not answer, so it is not known whether it syncs always; compare its configuration",
            ", ".join(sorted(unknown)),
        )


def verdict(servers: list[Server], replicas: int) -> tuple[list[str], frozenset[str]]:
    """What is wrong, each a sentence; and names of servers that have not answered."""
    using = [one for one in servers if one.has_jetstream]
    faults = [
        f"NATS server {one.name} does not sync always, so that what it has acknowledged may be lost; write `jetstream"
        " { sync_interval: always }` in its configuration, and start it again"
        for one in using
        if not one.always_syncs
    ]
    names = frozenset(one.name for one in using)
    peers = names.union(*(one.peers for one in using)) - {one.name for one in servers if not one.has_jetstream}
    there = max([len(peers), *(one.size for one in using)])
    if there < replicas:
        faults.append(
            f"cluster.replicas is {replicas}, and NATS has {there} server{'s' if there != 1 else ''} with JetStream"
            f" ({', '.join(sorted(peers)) or 'none'}); add servers to it, or lower that"
        )
    return faults, peers - names


async def _by_system_account(section: ClusterSection) -> list[Server]:
    as_system = section.model_copy(
        update={"username": section.system_username, "password": section.system_password, "credentials": None}
    )
    try:
        nats = await Nats.connect(as_system, "check of the servers")
    except NatsRefusal as error:
        raise NatsRefusal(
            f"{error}".replace("cluster.username and password", "cluster.system_username and system_password")
        ) from None
    try:
        answers = await nats.ask_all(ASK, b"", QUIET_S, ASK_S)
    except NatsError:
        answers = []
    finally:
        await nats.close()
    if not answers:
        raise NatsRefusal(
            f"no NATS server tells the user {section.system_username!r} how it is set; let cluster.system_username be a"
            " user of their system account ($SYS)"
        )
    rows = [json.loads(answer) for answer in answers]
    return [parsed(row.get("data") or {}, row["server"]["name"]) for row in rows]


async def _by_monitor(section: ClusterSection) -> list[Server]:
    asked = await asyncio.gather(*(asyncio.to_thread(_asked, url) for url in section.monitor), return_exceptions=True)
    found = [one for one in asked if isinstance(one, Server)]
    wrong = [
        f"cluster.monitor: {url} does not tell how its server is set ({cause(one)})"
        for url, one in zip(section.monitor, asked, strict=True)
        if isinstance(one, BaseException)
    ]
    if not found:
        raise NatsRefusal("\n".join(f"{one}; correct it, or let the server answer there" for one in wrong))
    for sentence in wrong:
        log.warning("%s; it is not known whether it syncs always", sentence)
    return found


def _asked(url: str) -> Server:
    """Raises OSError, ValueError."""

    def get(page: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/{page}", timeout=ASK_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.URLError as error:
            raise error.reason if isinstance(error.reason, OSError) else error from None

    return parsed(get("jsz"), str(get("varz").get("server_name", url)))


def parsed(row: dict[str, Any], name: str) -> Server:
    """row: what a server says of its JetStream."""
    settings, group = row.get("config") or {}, row.get("meta_cluster") or {}
    peers = {str(one["name"]) for one in group.get("replicas") or ()}
    peers |= {str(group["leader"])} if group.get("leader") else set()
    return Server(
        name, bool(settings) and not row.get("disabled"), bool(settings.get("sync_always")),
        int(group.get("cluster_size", 1)), frozenset(one for one in peers if not re.search(r"\s", one)),
    )  # fmt: skip


def _where(section: ClusterSection) -> str:
    return ", ".join(section.servers)

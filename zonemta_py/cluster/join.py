"""A node joins the cluster: before its queues are started it learns which are its own, and gets new ones if it has none.

A queue that others have taken over meanwhile is set aside: its files stay as an archive (`queues/layout.py`). The folder
of an MTA that was alone until now can begin a cluster as its queue 0; it cannot join one whose queue 0 is another's.
`queues/node` (JSON: {cluster, node, instance}) says as whom this folder has joined. Failures: ValueError with one
sentence, OSError.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from zonemta_py.cluster import servers
from zonemta_py.cluster.nats import NatsError
from zonemta_py.cluster.nodes import Membership
from zonemta_py.config import Config, queue_count
from zonemta_py.config.cluster import node_name
from zonemta_py.disk.files import fresh_file
from zonemta_py.queues import layout

NODE = "node"


class NodeName(NamedTuple):
    """As whom a folder has joined. instance: tells two folders apart that use one name."""

    cluster: str
    node: str
    instance: str


def named(folder: Path) -> NodeName | None:
    """None: it has joined no cluster. Raises ValueError, OSError."""
    path = folder / layout.FOLDER / NODE
    try:
        found = json.loads(path.read_bytes())
        return NodeName(str(found["cluster"]), str(found["node"]), str(found["instance"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: cannot be read; remove it if this node is to join as a new one") from None


def write(folder: Path, who: NodeName) -> None:
    """Raises OSError."""
    path = folder / layout.FOLDER / NODE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with fresh_file(path) as file:
        file.write(json.dumps(who._asdict()).encode())


async def join(config: Config) -> None:
    """`layout` says then which queues this node has."""
    from zonemta_py.cluster.agent import connected

    folder, section = config.folder, config.cluster
    name = node_name(section, config.server.hostname)
    who = named(folder)
    if who is not None and (who.cluster, who.node) != (section.name, name):
        raise ValueError(
            f"{folder} is node {who.node} of cluster {who.cluster}; name another server.folder, or set cluster.name and"
            " cluster.node to these"
        )
    nats = await connected(config, f"zonemta {name} joins")
    try:
        await servers.check(nats, config)
        known = layout.numbers(folder) if who is not None or (folder / "store").exists() else []
        who = who or NodeName(section.name, name, token_hex(8))
        write(folder, who)
        members = Membership(nats, config, who.instance)
        joined = await members.join(queue_count(config), known, layout.home_of(folder) if known else None)
    except NatsError as error:
        raise ValueError(str(error)) from None
    finally:
        await nats.close()
    home = layout.home_of(folder)
    for number in joined.replaced:
        print(
            f"zonemta: other nodes have taken over queue {number}: its files are set aside", file=sys.stderr, flush=True
        )
        if number == home:
            layout.set_home_aside(folder)
        else:
            layout.set_aside(folder, number)
    layout.write(folder, joined.numbers, home=joined.home)

"""A node joins the cluster: before its queues start it learns which are its own, and gets new ones if it has none.

A queue that others have taken over meanwhile is set aside: its files stay as an archive (`queues/layout.py`). The
folder of an MTA that was alone until now can begin a cluster as its queue 0; it cannot join one that has a queue 0.
Failures: ValueError with one sentence, OSError.
"""

from __future__ import annotations

import asyncio
import sys

from zonemta_py.cluster import servers
from zonemta_py.cluster.nats import Nats, NatsError, NatsRefusal
from zonemta_py.cluster.nodes import NodeMembership, NotAdmitted
from zonemta_py.config import Config, queue_count
from zonemta_py.queues import layout

AGAIN_S = 1.0


async def join(config: Config) -> None:
    """`layout` says then which queues this node has. It waits until NATS can be reached."""
    folder = config.folder
    there = (folder / "store").exists() or (folder / "journal").exists() or (folder / layout.FOLDER).exists()
    nats = await connected(config, f"{config.node} joins")
    try:
        await servers.check(nats, config)
        members = NodeMembership(nats, config, folder)
        joined = await members.join(queue_count(config), layout.numbers(folder) if there else [])
    except (NatsError, NotAdmitted) as error:
        raise ValueError(str(error)) from None
    finally:
        await nats.close()
    home = layout.home_of(folder)
    for number in joined.replaced:
        print(
            f"zonemta: other nodes have taken over queue {number}; its files are set aside", file=sys.stderr, flush=True
        )
        if number == home:
            layout.set_home_aside(folder)
        else:
            layout.set_aside(folder, number)
    layout.write(folder, joined.numbers, home=joined.home)


async def leave(config: Config) -> None:
    """This node's queues are nobody's from now on, and others take them over at once."""
    try:
        nats = await Nats.connect(config.cluster, f"{config.node} leaves")
    except NatsError as error:
        raise ValueError(f"{error}; its mail is taken over once it counts as dead") from None
    try:
        members = NodeMembership(nats, config, config.folder)
        await members.join(0, layout.numbers(config.folder))
        await members.release(layout.numbers(config.folder))
    except (NatsError, NotAdmitted) as error:
        raise ValueError(str(error)) from None
    finally:
        await nats.close()


async def connected(config: Config, name: str) -> Nats:
    """As soon as NATS can be reached; meanwhile it says why that cannot be. Raises ValueError where it refuses."""
    said = ""
    while True:
        try:
            return await Nats.connect(config.cluster, name)
        except NatsRefusal as error:
            raise ValueError(str(error)) from None
        except NatsError as error:
            if str(error) != said:
                said = str(error)
                print(f"zonemta: {said}; trying again", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_S)

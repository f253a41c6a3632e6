"""A node joins the cluster: before its queues start it learns which are its own, and gets new ones if it has none.

A queue that others have taken over meanwhile is set aside: its files stay as an archive (`queues/layout.py`). Who has
it now is asked to give it back, with its mail, once what it has leased has ended; if that fails, there is a new one.
The folder of an MTA that was alone until now can begin a cluster as its queue 0; it cannot join one that has a queue 0.
Failures: ValueError with one sentence, OSError.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from zonemta_py.cluster import agreed, servers, versions
from zonemta_py.cluster.calls import AGENT, subject_of
from zonemta_py.cluster.log_stream import QueueLogStream, stream_of
from zonemta_py.cluster.nats import Nats, NatsError, NatsRefusal, NotThere
from zonemta_py.cluster.nodes import NodeMembership, NotAdmitted
from zonemta_py.cluster.restore import restored
from zonemta_py.cluster.stream import NotReached
from zonemta_py.config import Config, queue_count
from zonemta_py.disk import keys
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.folders import LAYOUT
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queues import layout

AGAIN_S, SAY_S = 1.0, 4.0
GIVE_S, LOOK_S = 15.0, 0.25
FURNISHING, NUMBERS = "furnishing", "numbers"
"""A folder beside those of queues, while the new ones get what all have; the file in it says which those are."""
NOTICED_S = 2.0
"""After so long whoever leads knows of a new queue."""


async def join(config: Config) -> None:
    """`layout` says then which queues this node has. It waits until NATS can be reached."""
    folder = config.folder
    there = any((folder / name).exists() for name in ("store", "journal", f"{layout.FOLDER}/{LAYOUT}"))
    nats = await connected(config, f"{config.node} joins")
    try:
        await servers.check(nats, config)
        members = NodeMembership(nats, config, folder)
        joined = await members.join(0, layout.numbers(folder) if there else [], fresh_ones=False)
        await _agreed(nats, config, members)
        for number in joined.replaced:
            _say(f"other nodes have taken over queue {number}; its files are set aside")
            _set_aside(folder, number)
        numbers, wanted = list(joined.numbers), queue_count(config)
        for number in joined.replaced:
            if len(numbers) < wanted and await _given_back(nats, config, members, number):
                _say(f"queue {number} comes back, with its mail")
                numbers.append(number)
        fresh = await _unfinished(nats, config, members, numbers)
        for number in set(fresh) & set(numbers):
            _set_aside(folder, number)
        fresh += [await members.fresh() for _ in range(len({*numbers, *fresh}), wanted)]
        numbers = [*dict.fromkeys([*numbers, *fresh])]
        known = [number for number in members.owners() if number not in numbers]
    except (NatsError, NotAdmitted) as error:
        raise ValueError(str(error)) from None
    finally:
        await nats.close()
    if fresh and known:
        (folder / layout.FOLDER / FURNISHING).mkdir(mode=0o700, exist_ok=True)
        replace_file(folder / layout.FOLDER / FURNISHING / NUMBERS, json.dumps(fresh).encode(), 0o600)
    layout.write(folder, numbers, home=joined.home if joined.home >= 0 else numbers[0])
    if fresh and known:
        await asyncio.sleep(NOTICED_S)  # from now on orders are kept for them
        await furnish(config, known, fresh)


async def _agreed(nats: Nats, config: Config, members: NodeMembership) -> None:
    """Compares what all nodes must have alike. Raises ValueError, NatsError, OSError."""
    state = await versions.declared(nats, config, "the start", members.others(), starts=True)
    if state.had < state.number:
        _say(versions.sentence(config.node, state))


async def declare(config: Config, by: str, check: bool) -> None:
    """The same of a configuration that is to hold while the node runs: it may, or (not check) does now. Without NATS
    one may that changes nothing of that. Raises ValueError, OSError."""
    before = agreed.noted(config.folder)
    nats: Nats | None = None
    try:
        nats = await Nats.connect(config.cluster, f"{config.node} reloads", SAY_S)
        members = NodeMembership(nats, config, config.folder)
        await members.look()
        state = await versions.declared(nats, config, by, members.others(), check=check)
    except NatsError as error:
        if before.own == agreed.values_of(config):
            return
        raise ValueError(
            f"what all nodes must have alike cannot be compared with the other nodes' now ({error}); try again"
        ) from None
    finally:
        if nats is not None:
            await nats.close()
    if state.had < state.number:
        _say(versions.sentence(config.node, state))


async def _unfinished(nats: Nats, config: Config, members: NodeMembership, numbers: list[int]) -> list[int]:
    """Queues of this node that were never started, since a crash came before they had what all have: nothing is in
    their logs, which each begins at its first start. Where only a log is lost, the queue's files count. Raises
    NatsError."""
    begun, found = set[int](), list[int]()
    with suppress(OSError, ValueError):
        begun = set(json.loads((config.folder / layout.FOLDER / FURNISHING / NUMBERS).read_bytes()))
    for number, owner in members.owners().items():
        if owner.instance != members.instance or (number in numbers and number not in begun):
            continue
        with suppress(NotThere):
            if (await nats.info(stream_of(config.cluster.name, number))).last:
                continue
        found.append(number)
    return found


async def furnish(config: Config, known: list[int], fresh: list[int]) -> None:
    """New queues get what all others have alike (suppressions, stops, campaigns …), as the first of those has it whose
    log can be read, and the idempotency keys of all: from now on some of those are looked for in a new queue. The files
    of each are made of its log, beside, for that long. Raises ValueError, OSError."""
    from zonemta_py.queues import moving

    place = config.folder / layout.FOLDER / FURNISHING / "source"
    nats = await connected(config, f"{config.node} joins")
    queues, carried = dict[int, LocalQueue](), None
    try:
        for number in known:
            stream = await QueueLogStream.make(nats, config.cluster.name, number)
            extent = await stream.info()
            if extent.last < extent.first:
                continue
            _say(f"the new queue gets what all have alike, and keys of requests, from the log of queue {number}")
            await restored(stream, number, extent.first, extent.last, place)
            source = await moving.resting(config.for_queue(number, place))
            source.tasks.engine.rest()
            for one in fresh:
                if one not in queues:
                    queues[one] = await moving.resting(layout.config_of(config, one))
                    await moving.furnish(source, queues[one])
                    carried = source.core.disk.store.get(keys.ORDERED) if carried is None else carried
                await moving.copy_requests(source.core, queues[one].core)
            moving.abandon(source)
        for one, queue in queues.items():
            told = unpack(carried) if carried is not None else 0
            await moving.closed(await moving.furnished(queue, layout.config_of(config, one), told))
        shutil.rmtree(place.parent)
    except (NotReached, QueueRefusal, StoreError) as error:
        raise ValueError(f"the new queue cannot get what the others have: {error}; start again") from None
    finally:
        await nats.close()


def _say(sentence: str) -> None:
    print(f"zonemta: {sentence}", file=sys.stderr, flush=True)


def _set_aside(folder: Path, number: int) -> None:
    if number == layout.home_of(folder):
        layout.set_home_aside(folder)
    else:
        layout.set_aside(folder, number)


async def _given_back(nats: Nats, config: Config, members: NodeMembership, number: int) -> bool:
    """Whether a queue that this node had is its own again: the node that has it gives it away when what it has leased
    has ended. So there are not more queues with each node that dies and comes back. Raises NatsError."""
    owner = members.owners().get(number)
    if owner is None:
        return False
    if not owner.instance:  # nobody has taken it
        return await members.take(number) is not None
    call = pack([AGENT, str(questions.cluster_move), {"number": number, "node": config.node}, ""])
    end = time.monotonic() + GIVE_S
    while time.monotonic() < end:
        with suppress(NatsError):  # who has it may not know yet that this node is back
            await nats.request(subject_of(config.cluster.name, owner.node), call, GIVE_S)
        await members.look()
        owner = members.owners().get(number, owner)
        if owner.instance == members.instance:
            return True
        await asyncio.sleep(LOOK_S)
    return False


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
            return await Nats.connect(config.cluster, name, SAY_S)
        except NatsRefusal as error:
            raise ValueError(str(error)) from None
        except NatsError as error:
            if str(error) != said:
                said = str(error)
                print(f"zonemta: {said}; trying again", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_S)

"""After a start: what this node had accepted before its queue had it (`core/spool.py`), and the queue does not have, is
accepted now. What is left of queues that other nodes have taken over goes to the node's first queue, unless one of all
queues has it.

Failures: what is refused now, or cannot be asked, is tried again; said once. Nothing is forgotten before it is in a
queue.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from zonemta_py.disk import keys, packing
from zonemta_py.disk.files import sync
from zonemta_py.logs.causes import cause
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core import spool
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.spool import Spool, Spooled
from zonemta_py.queue.lifecycle.accept import Acceptance

log = logging.getLogger(__name__)

AGAIN_S, LOOK_S = 1.0, 5.0
AT_ONCE = 500
Known = Callable[[list[str]], Awaitable[list[str]]]
"""Of these ids, those that any queue has, or had. Raises ValueError, QueueRefusal, OSError."""


def opened(core: Core, folder: Path) -> Spool:
    """The spool of this queue. folder: the node's. Raises OSError."""
    place = spool.folder_of(folder, core.config.queue_number)
    found = Spool(place, core.config.cluster.node_bytes, core.clock.ms, lambda ids: _forget(core, ids))
    for fault in found.faults:
        log.error("%s; what this node had accepted there is lost, see the client's own records", fault)
    core.known |= {one.token: (one.receipt[0], one.receipt[1], one.receipt[2]) for one in found.before.values()}
    core.disk.spool = found
    return found


def has(core: Core, ids: list[str]) -> list[str]:
    """Those of them that this queue has, or had."""
    return [one for one in ids if core.disk.store.get(keys.spooled(one)) is not None]


def _forget(core: Core, ids: list[str]) -> None:
    core.disk.lines.submit([(keys.spooled(one), None) for one in ids], immediately, sync=False, keep=True)


async def take_up(core: Core, acceptance: Acceptance, folder: Path) -> None:
    """Until the queue has all that its spool has from before. folder: the node's."""
    found = core.disk.spool
    if found is None:
        return
    before, found.before = found.before, {}
    left = {one.id for place in spool.left_before(folder) for one in spool.read(place)}
    """Of these it is still to be asked who has them: this queue may have been away, and have come back."""
    own, node = list[str](), core.config.node
    for key, value in core.disk.store.scan(keys.SPOOLED, keys.end(keys.SPOOLED)):
        message_id = key.removeprefix(keys.SPOOLED).decode()
        if message_id in before:
            del before[message_id]
            found.done(message_id)
        elif packing.unpack(value)[0] == node and not (message_id in left or found.has(message_id)):
            own.append(message_id)  # its file is gone
    if own:
        _forget(core, own)
    if before:
        log.warning(
            "%d messages that this node had accepted are handed to queue %d", len(before), core.config.queue_number
        )
    await _accepted(acceptance, list(before.values()), found.done)
    found.tidy()


async def _accepted(acceptance: Acceptance, rows: list[Spooled], then: Callable[[str], None]) -> None:
    said = False
    while rows:
        refused = list[Spooled]()
        for one in rows:
            try:
                await acceptance.accept_spooled(one)
            except QueueRefusal as error:
                if not said:
                    log.error(
                        "message %s, which this node had accepted, is refused by its queue (%s); it is kept, and tried"
                        " again", one.id, error,
                    )  # fmt: skip
                said = True
                refused.append(one)
            else:
                then(one.id)
        rows = refused
        if rows:
            await asyncio.sleep(LOOK_S)


async def take_up_left(
    core: Core, acceptance: Acceptance, folder: Path, numbers: Callable[[], list[int]], known: Known
) -> None:
    """For ever, in the process of the node's first queue. folder: the node's; numbers: of its queues now."""
    said = False
    while True:
        try:
            for place in await asyncio.to_thread(spool.left, folder, numbers()):
                await _take_up_one(core, acceptance, place, known)
            said = False
        except (ValueError, QueueRefusal, OSError) as error:
            if not said:
                why = cause(error) if isinstance(error, OSError) else str(error)
                log.warning(
                    "what this node alone has of a queue that it had cannot be handed over: %s; trying again", why
                )
            said = True
        await asyncio.sleep(LOOK_S)


async def _take_up_one(core: Core, acceptance: Acceptance, place: Path, known: Known) -> None:
    rows = await asyncio.to_thread(spool.read, place)
    for at in range(0, len(rows), AT_ONCE):
        portion = rows[at : at + AT_ONCE]
        there = set(await known([one.id for one in portion]))
        lacking = [one for one in portion if one.id not in there]
        if lacking:
            log.warning(
                "%d messages that this node alone had are handed to queue %d", len(lacking), core.config.queue_number
            )
        await _accepted(acceptance, lacking, lambda _: None)
    await core.disk.lines.stable()
    await asyncio.to_thread(_removed, place)
    _forget(core, has(core, [one.id for one in rows]))


def _removed(place: Path) -> None:
    shutil.rmtree(place)
    sync(place.parent)

"""Drains under full load: each is canceled after a moment, or comes to its end and is followed by a start.

Clients hand in all the while, and somebody is in the middle of DATA, so that no drain ends before it can be canceled.
What must not be: anything lost or twice, somebody in doubt, an end with another exit status than 0, a drain that cannot
be canceled, an MTA that does not take mail after that, or more processes than before.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from survival.client import Client, Connection
from survival.ledger import Ledger
from survival.rig import PATIENCE_S, Mta, sink
from zonemta_py.wire.blocking_client import QueueGone, ask

FOR_S = 60.0


async def trial(home: Path, drains: int) -> dict[str, Any]:
    """Figures; `broken` names what must not be."""
    ledger = Ledger(kinds="plain", large=0.01)
    wrong, doubtful, done = list[str](), set[str](), Counter[str]()
    async with sink(ledger, rules=()) as running:
        mta = Mta(home / "queue", running.port, home=home)
        mta.start()
        try:
            await mta.taking()
            over = asyncio.Event()
            numbers = itertools.takewhile(lambda _: not over.is_set(), itertools.count(1))
            client = Client(mta.port, ledger, kinds="plain", large=0.01)
            handing = asyncio.create_task(client.hand_in(numbers, sessions=6))  # type: ignore[arg-type]
            dice = random.Random(1)
            for number in range(1, drains + 1):
                await asyncio.sleep(dice.random())
                what = "canceled" if number % 3 else "ended"
                done[what] += 1
                wrong += [f"{number}: {one}" for one in await (_canceled if number % 3 else _ended)(mta, dice)]
                await mta.taking()
                doubtful |= set(await asyncio.to_thread(mta.in_doubt))
            over.set()
            await handing
            await mta.drained()
            doubtful |= set(mta.in_doubt())
            wrong += await _settled(mta)
        finally:
            mta.end()
        await asyncio.sleep(0.5)
    judged = ledger.judge(doubtful)
    figures = dict(done) | {"recipients": judged.recipients, "acknowledged": judged.acknowledged}
    figures |= {"replies": dict(client.replies), "in_doubt": len(doubtful)}
    if doubtful:
        wrong.append(f"in doubt: {len(doubtful)}")
    return figures | {"broken": [*judged.broken, *wrong]}


async def _canceled(mta: Mta, dice: random.Random) -> list[str]:
    """What was wrong."""
    writer = (await Connection.open(mta.port))._writer
    writer.write(b"MAIL FROM:<a@held.test>\r\nRCPT TO:<b@held.test>\r\nDATA\r\n")
    await writer.drain()
    await asyncio.sleep(0.1)
    try:
        await asyncio.to_thread(mta.ask, "drain", for_s=FOR_S, by="the trial")
        await asyncio.sleep(dice.random())
        said = await asyncio.to_thread(ask, mta.folder, "drain", by="the trial", cancel=True)
    except (QueueGone, ValueError) as error:
        return [f"not canceled: {error}"]
    finally:
        writer.close()
    return [] if said == {"canceled": True} and mta.alive else [f"not canceled: {said}"]


async def _ended(mta: Mta, _: random.Random) -> list[str]:
    """The same."""
    with suppress(QueueGone):
        await asyncio.to_thread(ask, mta.folder, "drain", for_s=FOR_S, by="the trial")
    status = await asyncio.to_thread(mta.waited, FOR_S + PATIENCE_S)
    mta.start()
    return [f"exit status {status}"] if status else []


async def _settled(mta: Mta) -> list[str]:
    """What is wrong with the processes, once those have ended that were to."""
    wanted = {"queue": 1, "receiver": 2, "sender": 2}
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while Counter(mta.children().values()) != wanted:  # noqa: ASYNC110 (other processes are waited for)
                await asyncio.sleep(0.1)
            return []
    return [f"processes: {dict(Counter(mta.children().values()))}"]

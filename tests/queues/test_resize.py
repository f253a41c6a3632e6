"""More queues and fewer by the number and a reload, under load: every recipient exactly once, also where it is
killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from survival import resize
from survival.client import Client
from survival.ledger import Ledger
from survival.rig import Mta, sink

from zonemta_py.queues import layout
from zonemta_py.wire.blocking_client import QueueGone


async def reload(mta: Mta, queues: int) -> None:
    """Returns when they are there."""
    text = mta.config_file.read_text()
    before = next(line for line in text.splitlines() if line.startswith("queues = "))
    mta.config_file.write_text(text.replace(before, f"queues = {queues}"))
    answer = await asyncio.to_thread(mta.ask, "reload", by="test")
    assert not answer["refused"], answer
    await settled(mta, queues)


async def settled(mta: Mta, queues: int) -> None:
    for _ in range(1200):
        if layout.settled(mta.folder) and layout.numbers(mta.folder) == list(range(queues)):
            try:
                await asyncio.to_thread(mta.ask, "size")
                return
            except QueueGone:
                pass
        await asyncio.sleep(0.05)
    raise AssertionError(f"there are no {queues} queues: {mta.log_tail()}")


async def test_one_three_one_under_load(tmp_path: Path) -> None:
    ledger = Ledger()
    async with sink(ledger) as destination:
        mta = Mta(tmp_path, destination.port)
        mta.start()
        try:
            await mta.taking()
            client = Client(mta.port, ledger)
            await asyncio.to_thread(mta.ask, "stop", kind="zone", name="bulk")
            await client.hand_in(range(60))
            handing = asyncio.create_task(client.hand_in(range(60, 260)))
            await reload(mta, 3)
            standing = await asyncio.to_thread(mta.ask, "standing")
            assert [(row["kind"], row["name"]) for row in standing if row["group"] == "suspended"] == [("zone", "bulk")]
            await asyncio.sleep(1)
            await reload(mta, 2)
            await handing
            await reload(mta, 1)
            await asyncio.to_thread(mta.ask, "lift", kind="zone", name="bulk")
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
        problems = await mta.problems()
    assert ledger.judge(in_doubt).broken == []
    assert problems == []


async def test_killed_while_mail_is_moved(tmp_path: Path) -> None:
    """Whatever is killed, and whenever: the next start goes on with it."""
    dice, ledger = random.Random(11), Ledger()
    async with sink(ledger) as destination:
        mta = Mta(tmp_path, destination.port)
        mta.start()
        try:
            await mta.taking()
            for zone in ("bulk", "default"):
                await asyncio.to_thread(mta.ask, "stop", kind="zone", name=zone)
            await Client(mta.port, ledger).hand_in(range(150))
            for queues in (3, 1, 2):
                changing = asyncio.create_task(reload(mta, queues))
                await asyncio.sleep(0.3 + dice.random() * 1.5)
                mta.kill("all")
                mta.dead()
                changing.cancel()
                await asyncio.gather(changing, return_exceptions=True)
                mta.start()
                await settled(mta, queues)
            sizes = await asyncio.to_thread(mta.ask, "size")
            assert sizes["total"]["messages"] > 0
            for zone in ("bulk", "default"):
                await asyncio.to_thread(mta.ask, "lift", kind="zone", name=zone)
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
        problems = await mta.problems()
    assert ledger.judge(in_doubt).broken == []
    assert problems == []


async def test_mail_of_every_kind_under_kills(tmp_path: Path) -> None:
    """scripts/trials/resize in short: keys of requests, campaigns and orders hold, too."""
    figures = await resize.trial(tmp_path / "queue", letters=150, changes=2, kills=3, seed=3)
    assert figures["broken"] == []
    assert figures["changes"] == {"3 to 1": 1, "1 to 3": 1}
    assert sum(figures["kills"].values()) == 3

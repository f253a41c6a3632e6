"""More queues and fewer by the number and a reload, under load: every recipient exactly once, also where it is
killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from survival import one_to_three, resize
from survival.client import Client
from survival.ledger import Ledger
from survival.rig import Mta, sink
from survival.sized import resized, settled


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
            answers = [await resized(mta, 3)]
            standing = await asyncio.to_thread(mta.ask, "standing")
            assert [(row["kind"], row["name"]) for row in standing if row["group"] == "suspended"] == [("zone", "bulk")]
            await asyncio.sleep(1)
            answers.append(await resized(mta, 2))
            await handing
            answers.append(await resized(mta, 1))
            assert [one["number"] for one in answers] == [one["generation"] for one in answers] == [2, 3, 4]
            found = await asyncio.to_thread(mta.ask, "generation")
            for _ in range(100):
                if found["number"]:
                    break
                await asyncio.sleep(0.1)  # it is being noted
                found = await asyncio.to_thread(mta.ask, "generation")
            assert found == {"generation": 4, "number": 4}
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
                changing = asyncio.create_task(resized(mta, queues))
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


async def test_a_folder_with_all_there_can_be(tmp_path: Path) -> None:
    """scripts/trials/one-to-three in short: what is said of it stays, and everybody gets what is theirs."""
    figures = await one_to_three.trial(tmp_path, people=40, turns=2, every=5, seed=2)
    assert figures["broken"] == []
    assert figures["came"] == figures["owed"] > 100

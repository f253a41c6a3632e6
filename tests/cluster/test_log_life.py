"""Random lives of a queue whose log another machine takes over, by the model of tests/queue/test_model.py: all that was
acknowledged is there again, and nothing else is; `zonemta fsck` finds nothing to say about the folder."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.cluster.houses import KeptHouse
from tests.cluster.memory import MemoryStream
from tests.queue.test_families import BODY, contents, lived, request
from tests.queue.test_model import Life
from zonemta_py.cluster import log
from zonemta_py.cluster.blocks import Joiner
from zonemta_py.disk.packing import pack
from zonemta_py.queue.recovery.open_store import REPAIR_MARK
from zonemta_py.queues import layout

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))


class KeptLife(Life):
    """Bodies of all sizes; copies of what lives begin at any time."""

    damage = None  # type: ignore[assignment]

    @rule()
    def large(self) -> None:
        self.number += 1
        address = f"r{self.number}-0@x.test"
        body = b"Subject: large\r\n\r\n" + random.Random(self.number).randbytes(700_000)
        message_id = self._run(self.home.put(address, sender="", body=body))
        self._comes((message_id, address), "", "default")

    @rule()
    def copy(self) -> None:
        self.home.log.mark = self.home.log.mark._replace(appended=1 << 40)


@pytest.mark.parametrize("ways", [("there",), ("here", "power", "there")])
@pytest.mark.parametrize("faulty", [0.0, 0.02])
def test_any_life_goes_on_elsewhere(
    ways: tuple[str, ...], faulty: float, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was struck."""
    monkeypatch.setattr(log, "RESTS", 0.0)
    monkeypatch.setattr(log, "TRY_S", 0.1)
    monkeypatch.setattr(log, "TICK_S", 0.02)
    monkeypatch.setattr(log, "AGAIN_S", 0.005)
    number = 0

    class OneLife(KeptLife):
        def make(self) -> Any:
            nonlocal number
            number += 1
            zones = [{"name": "default", "default": True}, {"name": "bulk", "recipient_domains": ["b.test"]}]
            house = KeptHouse(
                memory / str(number), MemoryStream(number, 0.002, faulty), zones=zones,
                retry={"jitter": 0, "life_h": 10_000}, queue={"undo_s": 1e6, "keep_bounced_s": 1e6},
            )  # fmt: skip
            house.ways = ways
            return house

    run_state_machine_as_test(
        OneLife,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),
        ),
    )  # fmt: skip


async def test_files_of_a_time_before_others_had_the_queue_count_for_nothing(memory: Path) -> None:
    """Found where the queue comes back to, they are set aside: what others accepted and sent meanwhile is in the log,
    also if that was begun anew."""
    home = KeptHouse(memory / "house", MemoryStream(1))
    await home.open()
    await home.put("ann@x.test")
    await home.rest()
    stale = home.image()
    await home.lost()
    for lease in await home.leases():
        await home.settle(lease)
    bob = await home.put("bob@x.test")
    await home.rest()
    home.ways = ("here",)
    (home.folder / REPAIR_MARK).touch()
    await home.lost()
    home.abandon()
    home.folder, home.epoch = stale, home.epoch + 1
    await home.begin()
    home.queue.start()
    assert [(row["id"], row["recipient"]) for row in await home.listed()] == [(bob, "bob@x.test")]
    assert list(stale.glob("before-log-*"))
    home.abandon()


def test_what_a_queue_has_beside_is_set_aside_when_it_becomes_the_one_at_home(tmp_path: Path) -> None:
    """Else it would be found, and taken for the queue's, when another queue is at home later."""
    layout.write(tmp_path, [1, 2], home=1)
    (tmp_path / "queues" / "2" / "store").mkdir(parents=True)
    layout.set_home_aside(tmp_path)
    layout.write(tmp_path, [2], home=2)
    assert layout.folder_of(tmp_path, 2) == tmp_path
    assert not (tmp_path / "queues" / "2").exists()
    assert len(layout.gone(tmp_path)) == 1


async def test_every_family_of_keys_is_there_again(memory: Path) -> None:
    """Campaigns with merged mail, suppressions, tasks, keys of requests, who is in doubt: each as it was, with its
    index."""
    made: list[KeptHouse] = []

    async def house(**options: Any) -> KeptHouse:
        made.append(KeptHouse(memory / "house", MemoryStream(1), **options))
        await made[0].open()
        return made[0]

    home = await lived(house)
    image = home.image()
    before = contents(image)
    assert [name for name, rows in before.items() if not rows] == ["moving", "ordered", "probe"]
    home.abandon()
    home.folder = memory / "there"
    await home.take_over()
    after = contents(home.folder)
    assert {name for name in before if before[name] != after[name]} == {"log"}
    await home.open()
    again = await home.queue.accept(request("one", "one@r.test"), BODY)
    assert again.repeated
    assert again.id == home.asked[0].id
    await home.sound()
    home.abandon()


async def test_who_is_erased_is_gone_from_the_log(memory: Path) -> None:
    """As soon as the records about it are not needed any more."""
    home = KeptHouse(memory / "house", MemoryStream(1))
    await home.open()
    await home.put("eve@x.test", sender="")
    await home.put("bob@x.test", sender="")
    await home.queue.ask("forget", address="eve@x.test")

    async def names_it() -> bool:
        found = [block async for block in log.blocks_of(home.stream, home.stream.first, home.stream.last, Joiner())]
        return any(b"eve@x.test" in pack(block.value) for block in found)

    assert await names_it()
    async with asyncio.timeout(30):
        while await names_it():
            await home.queue.position()
            await home.rest()
    await home.crash()
    assert {row["recipient"] for row in await home.listed()} == {"bob@x.test"}
    home.abandon()

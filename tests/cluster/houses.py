"""A `House` (tests/queue/conftest.py) whose queue has a log; after a crash another machine takes it over."""

from __future__ import annotations

import random
import shutil
from typing import Any

from tests.cluster.memory import MemoryStream
from tests.queue.conftest import House
from zonemta_py.cluster import restore
from zonemta_py.cluster.catch_up import catch_up
from zonemta_py.cluster.log import Replaced, ReplicatedLog
from zonemta_py.queue.lifecycle import spooled
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import Opening, begin


class KeptHouse(House):
    """ways: what a crash may be: "here" (the same machine starts again), "power" (it does after a power cut), "there"
    (another one takes the log over)."""

    ways: tuple[str, ...] = ("there",)
    spools = False
    """Mail may be accepted before the log has it; the spool is the machine's that has accepted it, which is there in
    any case."""

    def __init__(self, folder: Any, stream: Any = None, **options: Any) -> None:
        super().__init__(folder, **options)
        self.stream = stream if stream is not None else MemoryStream()
        self.log: ReplicatedLog
        self.epoch = 1
        self.replaced: list[Replaced] = []
        self.said: list[str] = []

    async def begin(self) -> Opening:
        self.log = await ReplicatedLog.fenced(self.stream, 0, self.epoch, f"node{self.epoch}", self.replaced.append)
        await catch_up(self.config, self.log)
        opening = await begin(self.config, self.hooks, self.clock, self.damages.append, self.resolver, replica=self.log)
        self.queue = opening.queue
        if self.spools:
            spooled.opened(self.queue.core, self.base)
        self._watch()
        return opening

    async def crash(self, *arguments: Any, **more: Any) -> LocalQueue:
        queue = await super().crash(*arguments, **more)
        await spooled.take_up(queue.core, queue.acceptance, self.base)
        return queue

    def abandon(self) -> None:
        lines = self.queue.core.disk.lines
        lines._kept = lambda *_: None  # type: ignore[method-assign]
        self.queue.core.disk.journal._there = lambda *_: None  # type: ignore[method-assign]
        self.log.close()
        super().abandon()
        assert self.replaced == []

    async def crash_and_begin(
        self, power: bool = False, die: random.Random | None = None, drop: bool = False, fsck: str = ""
    ) -> Opening:
        die = die or random.Random(0)
        way = die.choice(self.ways)
        if way != "there":
            self.log.close()
            return await super().crash_and_begin(way == "power", die, drop, fsck)
        self.abandon()
        before = self.folder
        self.generation += 1
        self.folder = self.base / str(self.generation)
        await self.take_over()
        shutil.rmtree(before)
        problems = [one for one in self.check().problems if one.severity != "harmless"]
        assert problems == [], f"what is made of the log has no damage: {problems}"
        return await self.begin()

    async def take_over(self) -> None:
        self.epoch += 1
        log = await ReplicatedLog.fenced(self.stream, 0, self.epoch, f"node{self.epoch}", self.replaced.append)
        log.close()
        made = await restore.restored(self.stream, 0, log.first, log.last, self.folder)
        assert made.sentences == []

    async def lost(self) -> LocalQueue:
        """The machine is gone, and another one has the queue."""
        return await self.crash()

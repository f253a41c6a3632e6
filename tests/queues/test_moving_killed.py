"""The process that moves mail is killed wherever it has just written, or is about to: the next one goes on, and all is
there once."""

import asyncio
import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import BODY, Hand, House
from tests.queue.conftest import folder as folder
from tests.queue.lives import shared
from tests.queue.pull.test_pulling import push
from tests.queue.tasks.test_tasks import done
from tests.queue.test_campaigns import batch, template
from tests.queues.test_moving import joined, rebalanced, sound, stopped, with_tasks
from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal.segments import Writer
from zonemta_py.queue.lifecycle import moved
from zonemta_py.queues import layout
from zonemta_py.queues.placement import Placement

KILLED = 9
EVERY = "ZONEMTA_LIVES" in os.environ
"""Every write; otherwise every eighth, from two places on."""


async def small(folder: Path) -> House:
    """A queue with a little of what is moved, in the folder "0" of that one."""
    home = House(folder, queue={"keep_bounced_s": 86_400})
    await home.open()
    names = Placement(range(3))
    there = next(name for name in map(str, range(99)) if names.of_queue(name) == 2)
    spring = next(name for name in map("c{}".format, range(99)) if names.of_campaign("", name) == 1)
    await home.queue.ask("suppress", rows=[["never@x.test", "complaint"]])
    await home.queue.ask("campaign-put", name=spring, sender="news@src.test", template=template())
    await home.queue.accept(batch("merged@m.test", campaign=spring), b"")
    await home.put("ann@a.test", campaign=spring)
    await home.put("bob@deleted.test", "cat@b.test", campaign=spring, body=BODY + b"x" * 600_000)
    for _ in range(2):
        await push(home.queue, name=there)
    await done(home, "delete", where={"domain": "deleted.test"}, undo_s=86_400)
    return home


def child(config: Config, clock: Hand, count: int, at: int) -> bool:
    """Moves in a process of its own, which ends with the write of that number, done or not; whether it came so far."""
    pid = os.fork()
    if not pid:
        try:
            left = [at]

            def struck(method: Callable[..., Any]) -> Callable[..., Any]:
                def write(*arguments: Any) -> Any:
                    left[0] -= 1
                    if not left[0]:
                        os._exit(KILLED)
                    found = method(*arguments)
                    left[0] -= 1
                    if not left[0]:
                        os._exit(KILLED)
                    return found

                return write

            for owner, name in ((Store, "write"), (Writer, "write"), (moved, "copy_body"), (layout, "set_aside")):
                setattr(owner, name, struck(getattr(owner, name)))
            asyncio.run(again(config, clock, count))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, KILLED), at
    return code == KILLED


async def again(config: Config, clock: Hand, count: int) -> None:
    home = House(config.folder)
    home.clock = clock
    await rebalanced(home, config, count)


async def tasks_of_others(config: Config, clock: Hand) -> None:
    home = House(config.folder)
    home.clock = clock
    await with_tasks(home, "delete", config, [1, 2])


@pytest.mark.parametrize("turn", [False, True])
def test_a_kill_costs_nothing(folder: Path, turn: bool) -> None:
    """At every write, when there are more queues, and when there are fewer."""

    async def begin() -> tuple[House, Config]:
        home = await small(folder)
        return home, await stopped(home)

    home, config = asyncio.run(begin())
    at = 0
    for count in (3, 1):
        if count == 1:  # what is deleted waits where the first queue has nothing of it
            asyncio.run(tasks_of_others(config, home.clock))
        before = joined(config)
        whole = folder / f"whole{count}"
        shutil.copytree(config.folder, whole, ignore=shutil.ignore_patterns("identity"))  # it is no copy of a queue
        for at in shared(range(1, 10_000), turn)[:: 1 if EVERY else 4]:
            shutil.rmtree(config.folder)
            shutil.copytree(whole, config.folder)
            if not child(config, home.clock, count, at):
                break
            asyncio.run(again(config, home.clock, count))
            assert joined(config) == before, at
            assert layout.numbers(config.folder) == list(range(count))
        asyncio.run(sound(home, config))
        assert at > 20

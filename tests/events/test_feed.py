"""The feed in a real MTA: receivers that are away, processes that are killed, files that are damaged or deleted."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import Mta, sink
from survival.webhook import WebhookReceiver, expected, judged

SINK = '[[event_sinks]]\nname = "{name}"\nkind = "webhook"\nurl = "http://127.0.0.1:{port}/"\nbatch_s = 0.05\n'
SINK += "retry_s = 0.05\nretry_max_s = 0.2\n{more}\n"


async def until(found: Callable[[], Any], what: str, patience_s: float = 60) -> Any:
    end = asyncio.get_running_loop().time() + patience_s
    while not (value := found()):
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.02)
    return value


class Run:
    """An MTA with a feed, and what was handed in."""

    def __init__(self, mta: Mta, hook: WebhookReceiver) -> None:
        self.mta, self.hook, self.client = mta, hook, Client(mta.port, Ledger())
        self.count = 0

    async def mail(self, count: int) -> None:
        await self.client.hand_in(range(self.count, self.count + count))
        self.count += count

    def kill_events(self, how: int = signal.SIGKILL) -> bool:
        found = [pid for pid, role in self.mta.children().items() if role == "events"]
        for pid in found:
            os.kill(pid, how)
        return bool(found)

    def state(self, name: str = "hook") -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.mta.folder / "events" / name / "state.json").read_text())
            return found
        except (OSError, ValueError):
            return {}

    async def all_sent(self) -> list[str]:
        """Every event of the journal has arrived, once the mail has come to rest."""
        await self.mta.drained()
        wanted: list[str] = []

        def come() -> bool:
            wanted[:] = expected(self.mta.folder)
            return set(wanted) <= {one.id for one in self.hook.arrived}

        await until(come, f"{self.state()} {self.mta.log_tail()}")
        return wanted


@asynccontextmanager
async def running(folder: Path, more: str = "") -> AsyncIterator[Run]:
    hook = WebhookReceiver()
    await hook.start()
    async with sink(Ledger(), rules=()) as destination:
        mta = Mta(folder, destination.port, more=SINK.format(name="hook", port=hook.port, more=more), processes=1)
        mta.start()
        try:
            await mta.taking()
            run = Run(mta, hook)
            await until(lambda: (folder / "events/hook/cursor.json").exists(), mta.log_tail())
            yield run
        finally:
            mta.end()
            await hook.stop()


async def test_every_event_arrives_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.mail(200)
        wanted = await run.all_sent()
        found = judged(wanted, run.hook.arrived)
        assert (found["missing"], found["disorder"], found["repeated"], found["unexpected"]) == (0, 0, 0, 0)
        assert found["events"] >= 200 * 5  # accepted, queued, attempted, delivered, finished
        assert not (tmp_path / "events/hook/ring").exists()

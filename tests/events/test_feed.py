"""The feed in a real MTA: receivers that are away, processes that are killed, files that are damaged or deleted."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from survival.client import Client
from survival.disk_mounted import cannot_mount, mounted
from survival.ledger import Ledger
from survival.rig import Mta, sink
from survival.webhook import WebhookReceiver, expected, judged

from zonemta_py.disk.ring.ring import Ring
from zonemta_py.events.dead_letters import DeadLetters

SINK = '[[event_sinks]]\nname = "{name}"\nkind = "webhook"\nurl = "http://127.0.0.1:{port}/"\nbatch_s = 0.05\n'
SINK += "retry_s = 0.05\nretry_max_s = 0.2\n{more}\n"


async def until(found: Callable[[], Any], what: str, patience_s: float = 60) -> Any:
    end = asyncio.get_running_loop().time() + patience_s
    while not (value := found()):
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.1)
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
async def running(
    folder: Path, more: str = "", early: bool = False, environment: dict[str, str] | None = None
) -> AsyncIterator[Run]:
    """early: mail is accepted before the feed's process is there. environment: of the MTA."""
    hook = WebhookReceiver()
    await hook.start()
    async with sink(Ledger(), rules=()) as destination:
        text = SINK.format(name="hook", port=hook.port, more=more)
        mta = Mta(folder, destination.port, more=text, processes=1, environment=environment)
        mta.start()
        try:
            await mta.taking()
            run = Run(mta, hook)
            if not early:
                await until(lambda: run.state().get("state") == "ok", mta.log_tail())
            yield run
        finally:
            mta.end()
            await hook.stop()


async def test_every_event_arrives_in_order(memory: Path) -> None:
    """From the first one on."""
    async with running(memory, early=True) as run:
        await run.mail(100)
        wanted = await run.all_sent()
        found = judged(wanted, run.hook.arrived)
        assert (found["missing"], found["disorder"], found["repeated"], found["unexpected"]) == (0, 0, 0, 0)
        assert found["events"] >= 100 * 5  # accepted, queued, attempted, delivered, finished
        assert not (memory / "events/hook/ring").exists()


async def test_a_receiver_that_is_away_holds_up_nothing_and_gets_everything_later(memory: Path) -> None:
    """Memory and ring are small, so the ring is used; nothing is dropped while it suffices."""
    async with running(memory, "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 4194304") as run:
        await run.mail(20)
        await run.all_sent()
        await run.hook.stop()
        await run.mail(100)
        await run.mta.drained()
        await until(lambda: run.state().get("ring_pages"), "no ring is used")
        await until(lambda: run.state()["state"] == "down", "it is not known to be down")
        state = run.state()
        assert "cannot be reached" in state["reason"]
        assert state["lag_records"] > 0
        await run.hook.start()
        found = judged(await run.all_sent(), run.hook.arrived)
        assert (found["missing"], found["disorder"], found["unexpected"]) == (0, 0, 0)
        await until(lambda: run.state()["state"] == "ok" and not run.state()["lag_records"], str(run.state()))
        assert run.state()["dropped"] == 0
        assert run.state()["sent"] == found["events"]


async def test_kills_lose_nothing(memory: Path) -> None:
    """SIGKILL and SIGTERM of the feed, and SIGKILL of the queue, at random moments, the receiver there or away."""
    dice = random.Random(11)
    async with running(memory, "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 4194304") as run:
        mailing = asyncio.ensure_future(run.mail(150))
        for blow in range(6):
            await asyncio.sleep(dice.random() * 0.5)
            if blow % 4 == 1:
                await run.hook.stop()
            if blow % 5 == 4:
                run.mta.kill("queue")
            else:
                how = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
                await until(lambda how=how: run.kill_events(how), "no feed is there to be killed")
            if blow % 4 == 3:
                await run.hook.start()
        if run.hook.away:
            await run.hook.start()
        await mailing
        found = judged(await run.all_sent(), run.hook.arrived)
        assert (found["missing"], found["disorder"], found["unexpected"]) == (0, 0, 0)


SMALL = "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 49152\npage_bytes = 12288"
FULL_DISK = "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 8388608"


@pytest.mark.parametrize("full", [False, True])
async def test_what_finds_no_room_is_counted_and_replayed(tmp_path: Path, full: bool) -> None:
    """The ring is small, and the oldest go; or its disk is full, and the newest do. `zonemta events replay` sends the
    span again, with the same ids."""
    if full and (reason := cannot_mount()):
        pytest.skip(reason)
    disk = mounted(tmp_path / "events", "tmpfs", 1) if full else nullcontext()
    with disk:
        async with running(tmp_path, FULL_DISK if full else SMALL) as run:
            await run.hook.stop()
            await run.mail(100)
            await run.mta.drained()
            finished = lambda: expected(tmp_path, lambda event: event.type == "finished")  # noqa: E731
            await until(lambda: len(finished()) == 100, "the ends of the messages are not stable")
            wanted = expected(tmp_path)
            await until(lambda: run.state().get("dropped"), "nothing is dropped")
            await run.hook.start()
            await until(lambda: run.state()["state"] == "ok" and not run.state()["lag_records"], str(run.state()))
            found = judged(wanted, run.hook.arrived)
            assert found["missing"] == run.state()["dropped"] > 0
            assert found["disorder"] == 0
            assert (tmp_path / "events/hook/ring").exists() != full
            command = ["-m", "zonemta_py", "events", "replay", "--config", run.mta.config_file, "--sink", "hook"]
            replay = await asyncio.create_subprocess_exec(
                sys.executable, *command, "--since", "1h", stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await replay.communicate()
            assert (out.decode(), err) == (f"{len(wanted):,} events sent\n", b"")
            assert judged(wanted, run.hook.arrived)["missing"] == 0


async def test_a_clean_end_repeats_nothing(memory: Path) -> None:
    """SIGTERM, with the receiver away and the ring in use: it has its tail index, and what was in memory alone comes
    from the journal."""
    async with running(memory, "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 4194304") as run:
        await run.mail(20)
        await run.all_sent()
        await run.hook.stop()
        await run.mail(80)
        await run.mta.drained()
        await until(lambda: run.state().get("ring_pages"), "no ring is used")
        run.mta.terminate()
        await until(lambda: not run.mta.alive, "it does not end")
        run.mta.end()
        shown = Ring.open(memory / "events/hook/ring", readonly=True)
        assert shown.metadata.clean
        shown.abandon()
        await run.hook.start()
        run.mta.start()
        found = judged(await run.all_sent(), run.hook.arrived)
        assert (found["missing"], found["disorder"], found["unexpected"], found["repeated"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("harm", ["damage", "delete"])
async def test_the_ring_is_damaged_or_the_folder_deleted_between(memory: Path, harm: str) -> None:
    """The journal has everything; a folder that is deleted while the feed runs is made again."""
    async with running(memory, "memory_events = 100\nmemory_bytes = 65536\nring_bytes = 4194304") as run:
        await run.hook.stop()
        await run.mail(100)
        await run.mta.drained()
        ring = memory / "events/hook/ring"
        await until(ring.exists, "no ring")
        if harm == "delete":
            before = run.state()
            shutil.rmtree(memory / "events")
            await run.mail(1)
            await until(lambda: run.state() not in ({}, before), "the state is not written again")
            assert (memory / "events/hook/cursor.json").exists()
        run.kill_events()
        if harm == "damage":
            data = bytearray(ring.read_bytes())
            data[4096 + 2 * 16384 + 100] ^= 1
            ring.write_bytes(data)
        await run.hook.start()
        found = judged(await run.all_sent(), run.hook.arrived)
        assert (found["missing"], found["disorder"], found["unexpected"]) == (0, 0, 0)


async def test_dead_letters_are_kept_and_sent_again(memory: Path) -> None:
    """One event is refused; all others go on."""
    async with running(memory) as run:
        run.hook.refuses = lambda row: row["type"] == "zonemta.delivered"
        await run.mail(3)
        await run.mta.drained()
        await until(lambda: run.state().get("dead") == 3, str(run.state()))
        wanted = expected(memory)
        await until(lambda: judged(wanted, run.hook.arrived)["missing"] == 3, "others are held up")

        async def zonemta(*arguments: str) -> tuple[int | None, str]:
            command = [sys.executable, "-m", "zonemta_py", "events", *arguments, "--config", run.mta.config_file]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            out, _ = await process.communicate()
            return process.returncode, out.decode()

        kept = DeadLetters(memory / "events/hook")
        assert [(one.ready.type, one.reason) for one in kept.read()] == [("delivered", "it answered 422 No")] * 3
        code, out = await zonemta("dead", "hook", "--replay")
        assert (code, out) == (1, "0 events sent, 3 refused\n")
        run.hook.refuses = lambda _: False
        code, out = await zonemta("dead", "hook", "--replay")
        assert (code, out) == (0, "3 events sent\n")
        assert judged(wanted, run.hook.arrived)["missing"] == 0
        assert kept.read() == []
        assert run.state()["dead"] == 3

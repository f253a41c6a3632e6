"""A queue on a real disk whose clock the test moves, and crash images of its folder.

`House` opens the queue, gives mail to it, takes leases; `House.crash` makes a copy of the folder as SIGKILL (or, with
power=True, a power cut, which also loses what was never synced) would leave it at this instant, and goes on from there.
"""

import asyncio
import contextlib
import os
import random
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.queue import declared
from tests.queue.named import Named
from zonemta_py.config import Config
from zonemta_py.journal import segments
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, Outcome, Result
from zonemta_py.queue.fsck import compare as check
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import offline as fsck
from zonemta_py.queue.recovery.start import Opening, begin
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

REPLIES = {
    DELIVERED: Reply(250, "2.0.0", "ok"),
    DEFERRED: Reply(451, "4.2.0", "later"),
    BOUNCED: Reply(550, "5.1.1", "no such user"),
}
BODY = b"Subject: hello\r\n\r\nHi\r\n"
PATIENCE_S = 60


class Hand(Clock):
    """A clock that stands still until the test moves it; the die always shows the middle.

    now_s: the time that passes. set_s: by how much somebody has set the machine's clock. started: which start of the
    machine this is.
    """

    def __init__(self) -> None:
        self.now_s, self.set_s, self.started = 1_700_000_000.0, 0.0, "first"

    def ms(self) -> int:
        return int((self.now_s + self.set_s) * 1000)

    def boot(self) -> str:
        return self.started

    def monotonic(self) -> float:
        return self.now_s - 1_699_000_000.0

    def random(self) -> float:
        return 0.5


class House:
    """One folder, and the queue that has it open."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.base, self.options, self.clock = folder, options, Hand()
        self.generation = 0
        self.damages: list[Exception] = []
        self.hooks: Any = None
        self.resolver: Any = None
        self.folder = folder / "0"
        self.queue: LocalQueue
        self.connections: set[int] = set()
        self._abandoned: LocalQueue | None = None

    @property
    def config(self) -> Config:
        sections = {"server": {"folder": self.folder, "hostname": "mta.test"}, **self.options}
        sections["queue"] = {"reserve_bytes": 0, **self.options.get("queue", {})}
        sections.setdefault("learning", {"initial": 100})  # as many connections as configured, from the start
        sections.setdefault("suppression", {"automatic": False})  # a bounce of one test is not in the way of the next
        return Config.model_validate(sections)

    async def open(self) -> LocalQueue:
        await (await self.begin()).finish()
        return self.queue

    async def begin(self) -> Opening:
        """A queue that takes mail, and has its recovery before it."""
        opening = await begin(self.config, self.hooks, self.clock, self.damages.append, self.resolver)
        self.queue = opening.queue
        self._watch()
        return opening

    def _watch(self) -> None:
        """Notes after each sync what is on stable storage; `dead` drops what the threads have not begun."""
        self.dead, self.synced = False, dict[str, int]()
        store, writer = self.queue.core.disk.store, self.queue.core.disk.journal._writer
        self._wrap(store, lambda arguments: bool(arguments[1]), "store/*.log")
        self._wrap(writer, lambda arguments: bool(arguments[1]), "journal/*")
        self._wrap(self.queue.core.disk.receipts, lambda arguments: False, "receipts/*")
        self._note("store/*.log", "journal/*", "bodies/*")
        self._wrap_bodies()

    def _wrap_bodies(self) -> None:
        bodies = self.queue.core.disk.bodies
        run = bodies.run

        def watched(job: Callable[[], Any]) -> Any:
            if getattr(job, "__name__", "") != "finish":
                return run(job)

            def finish() -> Any:
                done = job()
                self._note(f"bodies/{job.__self__._path.name}")  # type: ignore[attr-defined]
                return done

            return run(finish)

        bodies.run = watched  # type: ignore[method-assign]

    def _wrap(self, owner: Any, syncs: Callable[[Any], bool], pattern: str) -> None:
        write = owner.write

        def watched(*arguments: Any) -> None:
            if self.dead:
                return
            write(*arguments)
            if syncs(arguments):
                self._note(pattern)

        owner.write = watched

    def _note(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                with contextlib.suppress(FileNotFoundError):  # LevelDB has just turned this log into a table
                    self.synced[str(path.relative_to(self.folder))] = path.stat().st_size

    # -- mail

    async def put(self, *addresses: str, sender: str = "ann@src.test", body: bytes = BODY, **more: Any) -> str:
        notify, orcpt = more.pop("notify", 0), more.pop("orcpt", None)
        recipients = [Recipient(address, int(notify), orcpt) for address in addresses]
        envelope = Envelope(sender, recipients, len(body), received_ms=self.clock.ms(), **more)
        return await self.put_envelope(envelope, body)

    async def put_envelope(self, envelope: Envelope, body: bytes = BODY) -> str:
        return (await self.queue.accept(envelope, body)).id

    async def lease(self, most: int = 1) -> list[Delivery]:
        return await asyncio.wait_for(self.queue.lease(most), PATIENCE_S)

    async def leases(self, most: int = 1000) -> list[Delivery]:
        """Whatever may go now."""
        found: list[Delivery] = []
        while True:
            task = asyncio.ensure_future(self.queue.lease(most))
            await self.rest()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                return found
            found += task.result()

    async def idle(self, most: int = 1) -> bool:
        """True if nothing may be leased now; what comes all the same goes back."""
        await self.rest()
        task = asyncio.ensure_future(self.queue.lease(most))
        await self.rest()
        task.cancel()
        await asyncio.wait([task])
        leases = self.queue.leases
        for delivery in [] if task.cancelled() else reversed(task.result()):
            leases.take_back(leases.out[delivery.lease])
        return task.cancelled()

    async def settle(self, delivery: Delivery, verdict: int = DELIVERED, **more: Any) -> None:
        result = self.result(delivery, verdict, **more)
        self.connections.add(result.connection)
        await self.queue.settle(result)

    def hang_up(self) -> None:
        """The sender has closed all connections that results have left open."""
        for connection in self.connections:
            self.queue.closed(connection)
        self.connections.clear()

    @staticmethod
    def result(delivery: Delivery, verdict: int = DELIVERED, down_s: float | None = None, **more: Any) -> Result:
        reply = more.pop("reply", REPLIES.get(verdict, Reply(451, "4.3.0", "not tried")))
        stage = more.pop("stage", "dot")
        took_ms, opened = more.pop("took_ms", 0), more.pop("opened", False)
        kept = more.pop("kept", stage == "dot" and down_s is None and delivery.idle_s != 0)
        outcome = Outcome(verdict, reply, stage, list(range(len(delivery.recipients))), **more)
        result = Result(delivery.lease, [outcome], down_s, remote="mx.test[127.0.0.9]:25", took_ms=took_ms)
        result.opened, result.kept = opened, kept
        if kept and delivery.connection is not None:
            result.connection = delivery.connection or delivery.lease
        return result

    async def move(self, seconds: float) -> None:
        """Time passes."""
        self.clock.now_s += seconds
        self.queue.core.changed()
        await asyncio.sleep(0)

    async def rest(self) -> None:
        """Until both disks have everything, and the scheduler has looked at it."""
        core = self.queue.core
        for _ in range(5):
            await core.disk.lines.stable()
            await core.disk.journal.stable()
        await core.disk.bodies.settled()
        await asyncio.sleep(0)

    async def listed(self, limit: int = 10_000, **where: Any) -> list[dict[str, Any]]:
        """All rows, page by page: one ends when its time is over."""
        rows, after = list[dict[str, Any]](), ""
        while after is not None:
            page = await self.queue.ask("list", limit=limit, after=after, **where)
            rows, after = rows + page["rows"], page["next"]
        return rows

    async def sizes(self) -> dict[str, int]:
        return dict((await self.queue.ask("size"))["total"])

    # -- ends

    def freeze(self) -> Callable[[], None]:
        """Stops both threads between two jobs; what it returns lets them go."""
        arrived, go = threading.Semaphore(0), threading.Event()

        def stop() -> None:
            arrived.release()
            go.wait()

        core = self.queue.core
        for line in (core.disk.lines, core.disk.journal):
            line._worker.run(stop, lambda _: None)
        assert arrived.acquire(timeout=PATIENCE_S)
        assert arrived.acquire(timeout=PATIENCE_S)
        return go.set

    def abandon(self) -> None:
        """The process is gone: its threads do nothing more, its tasks end, its lock is free."""
        queue = self.queue
        if queue is self._abandoned:
            return
        self._abandoned = queue
        core = queue.core
        core.ready, core.stopping = False, True
        core.disk.lines._finish = core.disk.journal._finish = lambda *_: None  # type: ignore[method-assign]
        core.disk.lines._start = core.disk.journal._start = lambda *_: None  # type: ignore[method-assign]
        core.disk.lines._reopen = core.disk.journal._retry = lambda *_: None  # type: ignore[method-assign]
        if queue.leases._timer is not None:
            queue.leases._timer.cancel()
        self.freeze()()
        queue.close()

    def image(self, power: bool = False, die: random.Random | None = None, drop: bool = False) -> Path:
        """A copy of the folder at this instant. drop: what the disks' threads have not begun is not done either."""
        self.dead = drop
        go = self.freeze()
        self.generation += 1
        copy = self.base / str(self.generation)
        while not self._copied(copy):  # LevelDB was compacting meanwhile: that would be no image of one instant
            shutil.rmtree(copy, ignore_errors=True)
        if power:
            self._cut(copy, die or random.Random(0))
        go()
        return copy

    def _copied(self, copy: Path) -> bool:
        def files() -> list[tuple[str, int]]:
            return sorted((path.name, path.stat().st_size) for path in self.folder.glob("store/*"))

        try:
            before = files()
            shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("socket", "LOCK"))
            return files() == before
        except (shutil.Error, FileNotFoundError):
            return False

    def _cut(self, copy: Path, die: random.Random) -> None:
        """What was not synced is there to a random point; of the journal's files all but the last are synced."""
        for path in (*segments.files(copy / "journal")[-1:], *copy.glob("store/*.log"), *copy.glob("receipts/*")):
            size, synced = path.stat().st_size, self.synced.get(str(path.relative_to(copy)), 0)
            if size > synced:
                with path.open("r+b") as file:
                    file.truncate(die.choice((synced, size, die.randint(synced, size))))
        for path in copy.glob("bodies/*"):
            if str(path.relative_to(copy)) not in self.synced:
                if die.random() < 0.3:
                    path.unlink()
                else:
                    os.truncate(path, die.randint(0, path.stat().st_size))

    async def crash(
        self, power: bool = False, die: random.Random | None = None, drop: bool = False, fsck: str = ""
    ) -> LocalQueue:
        """Ends this queue and opens the image. fsck: "look" or "repair" in between, which finds nothing wrong."""
        await (await self.crash_and_begin(power, die, drop, fsck)).finish()
        return self.queue

    async def crash_and_begin(
        self, power: bool = False, die: random.Random | None = None, drop: bool = False, fsck: str = ""
    ) -> Opening:
        """The same, with all of recovery before it."""
        copy = self.image(power, die, drop)
        self.abandon()
        if self.generation > 1:
            shutil.rmtree(self.folder)
        self.folder = copy
        if fsck:
            wrong = [problem for problem in self.check().problems if problem.severity != "harmless"]
            assert wrong == [], "what a crash leaves is no damage"
        if fsck == "repair":
            assert self.check(repair=True).problems == []
        return await self.begin()

    def check(self, repair: bool = False, folder: Path | None = None) -> check.FsckReport:
        """`fsck` of what is there, or of an image; the queue must have been abandoned."""
        server = self.config.server.model_copy(update={"folder": folder or self.folder})
        config = self.config.model_copy(update={"server": server})
        with ThreadPoolExecutor(1) as pool:  # it has a loop of its own, as the command has
            return pool.submit(lambda: asyncio.run(fsck.check(config, repair, clock=self.clock))).result()

    async def sound(self) -> None:
        """Rests, and finds every count equal to what is there, and nothing wrong, in an image of this instant."""
        await self.rest()
        for zone in self.queue.core.schedule.zones.values():
            there, flows = zone.flow_queues, zone.flow_queues.of_flow("", "")
            by_length = [(one, length) for flow in flows for length, part in flow.parts.items() for one in part]
            assert dict(by_length) == {one: len(one.entries) for one in there.by_key.values()}
            assert len(by_length) == len(there.by_key)
            assert set(zone.resting) == {path for path in there.paths.values() if path.failures}
        config = self.config.model_copy(
            update={"server": self.config.server.model_copy(update={"folder": self.image()})}
        )
        problems = (await fsck.check(config, clock=self.clock)).problems
        assert [problem for problem in problems if problem.severity != "harmless"] == []
        shutil.rmtree(config.folder)


@pytest.fixture(autouse=True)
def _as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked here is answered with what its question says."""
    answer = LocalQueue.answer

    async def compared(queue: LocalQueue, question: str, arguments: dict[str, Any]) -> Any:
        found = await answer(queue, question, arguments)
        what = declared.fault(found, declared.said(question, not arguments), str(question))
        assert not what, what
        return found

    monkeypatch.setattr(LocalQueue, "answer", compared)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a question is answered to its end, and does not rest for the sake of mail."""
    monkeypatch.setattr("zonemta_py.schedule.time.pace.OTHERS", 0.0)
    monkeypatch.setattr("zonemta_py.schedule.time.pace.BUSY_PAGE_S", PATIENCE_S * 1.0)
    monkeypatch.setattr("zonemta_py.schedule.time.pace.Pace.__init__.__defaults__", (PATIENCE_S * 1.0,))


@pytest.fixture
def folder(request: pytest.FixtureRequest, memory: Path, tmp_path: Path) -> Path:
    """Where a House stands: in memory, but for tests marked `disk`.

    What a crash leaves is an image that `House` makes itself, of what it saw written and synced, wherever that was.
    """
    return tmp_path if request.node.get_closest_marker("disk") else memory


@pytest.fixture
def house_class() -> type[House]:
    """For tests that make their houses themselves."""
    return House


@pytest.fixture
async def house(folder: Path) -> AsyncIterator[Callable[..., Any]]:
    """house(zones=[…], queue={…}) → an open House."""
    made: list[House] = []

    async def make(hooks: Any = None, resolver: Any = None, **options: Any) -> House:
        one = House(folder / f"house{len(made)}", **options)
        one.hooks, one.resolver = hooks, resolver
        made.append(one)
        await one.open()
        return one

    yield make
    for one in made:
        one.abandon()
        assert [damage for damage in one.damages if "Database is closed" not in str(damage)] == []  # it was abandoned


@pytest.fixture(params=["local", "remote"])
def front(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """front(house) → its queue, in this process or behind the unix socket."""

    async def connect(home: House, name: str = "sender") -> Any:
        if request.param == "local":
            return Named(home.queue, name)
        if not (home.folder / "socket").exists():
            await serve(home.queue, home.folder)
        return await RemoteQueue.connect(home.folder, name)

    return connect

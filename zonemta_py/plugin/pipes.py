"""Bytes pushed to plugins that pull: bounded pipes, one task for each plugin that reads or rewrites.

`Reader` lets one plugin read a stream as it passes; `Rewriting` sends a stream through a chain of plugins. The time
limit runs only while the pushing side waits for a plugin; it applies to the plugin that is not itself waiting.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from zonemta_py.mail.limits import CHUNK_BYTES, MESSAGE_BYTES_MAX
from zonemta_py.plugin import values
from zonemta_py.plugin.arguments import Stream
from zonemta_py.plugin.calls import Call, Misbehaved, Round, limited, watched
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.queue.poison import Subject

BLOCKS_MAX = 4
"""Blocks of CHUNK_BYTES buffered for a plugin that lags."""

WRITTEN_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""Bytes that may replace one node; a plugin that never ends must not fill the disk."""


class Pipe:
    """One block in, one block out. moved: set whenever a block was taken, and by the task that takes them."""

    def __init__(self) -> None:
        self.moved = asyncio.Event()
        self._blocks: deque[bytes] = deque()
        self._came = asyncio.Event()
        self._closed = False

    @property
    def full(self) -> bool:
        return len(self._blocks) >= BLOCKS_MAX

    def put(self, block: bytes) -> None:
        self._blocks.append(block)
        self._came.set()

    def close(self) -> None:
        self._closed = True
        self._came.set()

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> bytes:
        while not self._blocks:
            if self._closed:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        self.moved.set()
        return self._blocks.popleft()


class Meter:
    """The stream that a plugin gets, which can set nothing of it. waited_s: time the plugin spent waiting for it.
    waiting: it does so now."""

    __slots__ = ("_flowing", "_upstream", "_waited_s", "_waiting")

    def __init__(self, upstream: Stream, flowing: bool) -> None:
        self._upstream, self._flowing = upstream, flowing
        self._waiting, self._waited_s = False, 0.0

    @property
    def waiting(self) -> bool:
        return self._waiting

    @property
    def waited_s(self) -> float:
        return self._waited_s

    def flow(self) -> None:
        """It may be read from now on."""
        self._flowing = True

    def __aiter__(self) -> Meter:
        return self

    async def __anext__(self) -> bytes:
        if not self._flowing:
            raise Misbehaved("reads its stream too early; return an async generator that reads it")
        started = perf_counter()
        self._waiting = True
        try:
            return await anext(self._upstream)
        finally:
            self._waiting = False
            self._waited_s += perf_counter() - started


class Reader:
    """One plugin reading one stream, in a task of its own. subject: what that is about."""

    def __init__(self, call: Call, arguments: dict[str, Any], subject: Subject) -> None:
        self._call = call
        self._pipe = Pipe()
        self._meter = Meter(self._pipe, flowing=True)
        self._left = False
        """It was too slow, and mail goes on without it."""
        self._task = asyncio.create_task(self._run(arguments, subject))
        self._task.add_done_callback(lambda _: self._pipe.moved.set())

    async def feed(self, block: bytes) -> None:
        """Waits while the plugin lags. Raises PluginFailed when it does not catch up."""
        for piece in _pieces(block):
            while self._pipe.full and not self._over:
                await self._wait()
            if self._over:
                return
            self._pipe.put(piece)

    def close(self) -> None:
        """There is no more to read."""
        self._pipe.close()

    async def finish(self) -> None:
        """After `close`: raises the plugin's verdict."""
        while not self._over:
            await self._wait()
        verdict = None if self._left else self._task.result()
        if verdict is not None and not (self._call.passes and isinstance(verdict, PluginFailed)):
            raise verdict

    @property
    def _over(self) -> bool:
        return self._left or self._task.done()

    def abort(self) -> None:
        self._task.cancel()

    async def _run(self, arguments: dict[str, Any], subject: Subject) -> BaseException | None:
        """Returns what the plugin raised, for `finish` to raise."""
        started, fields = perf_counter(), values.KnownFields(self._call.checked, arguments)
        try:
            work = self._call.begin({**arguments, "stream": self._meter}, subject)
            if inspect.iscoroutine(work):
                work = watched(work, self._call, subject, leaves=True)
            value = await work
            self._call.expect_nothing(value)
            self._call.expect_values(fields)
        except BaseException as error:
            verdict = self._call.judge(error)
            if verdict is error and not isinstance(error, self._call.hook.verdicts):
                raise
            if isinstance(verdict, PluginFailed):
                fields.put_right()
            return verdict
        finally:
            self._call.measure(perf_counter() - started - self._meter.waited_s)
        return None

    async def _wait(self) -> None:
        if not await _moved(self._pipe, self._call.limit_s):
            self._task.cancel()
            failure = self._call.cut_off()
            if not self._call.passes:
                raise failure
            self._left = True


class Rewriting:
    """One stream through the plugins that claim it. store: receives the result, during `feed` and `finish`."""

    def __init__(self, store: Callable[[bytes], Awaitable[None]]) -> None:
        self._store = store
        self._pipe = Pipe()
        self._last: Stream = self._pipe
        self._chain: list[tuple[Call, Meter]] = []
        self._written: deque[bytes] = deque()
        self._stored_bytes = 0
        self._drained = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, call: Call, arguments: dict[str, Any], round_: Round) -> None:
        """Whether the plugin wants the stream as the plugins before it leave it (round_). Raises verdicts."""
        try:
            await self._ask(call, arguments, round_)
        except PluginFailed:
            if not call.passes:
                raise

    async def _ask(self, call: Call, arguments: dict[str, Any], round_: Round) -> None:
        meter = Meter(self._last, flowing=False)
        started, subject, fields = perf_counter(), round_.subject, round_.fields
        sections = values.sections(arguments) if call.opens else []
        try:
            answer = call.begin({**arguments, "stream": meter}, subject)
            if not inspect.isasyncgen(answer):
                answer = await limited(answer, call, subject)
            if answer is not None and not isinstance(answer, AsyncIterator):
                raise Misbehaved(f"returned {type(answer).__name__}; return None or an async iterator of bytes")
            call.expect_values(fields)
            fields.renew()
        except BaseException as error:
            if not isinstance(error, call.hook.verdicts):
                fields.put_right()
                values.put_sections_back(sections)
            call.fail(error, perf_counter() - started)
        if answer is None:
            call.measure(perf_counter() - started)
            return
        self._chain.append((call, meter))
        self._last = _blamed(call, answer, meter, subject)

    def start(self) -> bool:
        """Lets the stream flow; False if no plugin claimed it."""
        if not self._chain:
            return False
        for _, meter in self._chain:
            meter.flow()
        self._task = asyncio.create_task(self._pump())
        self._task.add_done_callback(self._ended)
        return True

    async def feed(self, block: bytes) -> None:
        """Raises verdicts, and what store raises."""
        for piece in _pieces(block):
            await self._drain()
            while self._pipe.full and not self._done():
                await self._wait()
                await self._drain()
            if not self._done():  # else the plugin has stopped reading
                self._pipe.put(piece)

    async def finish(self) -> None:
        """The stream has ended; stores what is left. Raises as feed does."""
        self._pipe.close()
        await self._drain()
        while not self._done():
            await self._wait()
            await self._drain()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self) -> bool:
        """Whether the plugins have ended. Raises the verdict if they ended with one."""
        assert self._task is not None, "call start() first"
        if not self._task.done() or self._written:
            return False
        self._task.result()
        return True

    async def _pump(self) -> None:
        async for piece in self._last:
            while len(self._written) >= BLOCKS_MAX:
                self._drained.clear()
                await self._drained.wait()
            self._written.append(piece)
            self._pipe.moved.set()

    async def _drain(self) -> None:
        while self._written:
            piece = self._written.popleft()
            self._drained.set()
            self._stored_bytes += len(piece)
            if self._stored_bytes > WRITTEN_BYTES_MAX:
                self.abort()
                raise self._chain[-1][0].blame(Misbehaved(f"wrote more than {WRITTEN_BYTES_MAX} bytes for one node"))
            await self._store(piece)

    async def _wait(self) -> None:
        if self._written or await _moved(self._pipe, self._chain[0][0].limit_s):
            return
        self.abort()
        raise next((call for call, meter in reversed(self._chain) if not meter.waiting), self._chain[0][0]).cut_off()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._pipe.moved.set()
        if not task.cancelled():
            task.exception()  # retrieved: after an abort nothing else does


async def _blamed(call: Call, answer: AsyncIterator[bytes], meter: Meter, subject: Subject) -> AsyncIterator[bytes]:
    """What one plugin writes, checked and measured; its exceptions, translated."""
    spent = 0.0
    try:
        while True:
            started, waited = perf_counter(), meter.waited_s
            try:
                piece = await watched(anext(answer, None), call, subject, leaves=True)
            finally:
                spent += perf_counter() - started - (meter.waited_s - waited)
            if piece is None:
                return
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise Misbehaved(f"yielded {type(piece).__name__}; yield bytes")
            if len(piece):
                yield bytes(piece)
    except BaseException as error:
        verdict = call.judge(error)
        if verdict is error:
            raise
        raise verdict from error
    finally:
        call.measure(spent)


async def _moved(pipe: Pipe, limit_s: float) -> bool:
    """Waits until the other side has done something; False if it has not within the limit."""
    pipe.moved.clear()
    try:
        async with asyncio.timeout(limit_s):
            await pipe.moved.wait()
    except TimeoutError:
        return False
    return True


def readers(calls: Sequence[Call], arguments: dict[str, Any]) -> list[Reader]:
    """One for each of the calls, all of one stream."""
    if not calls:
        return []
    subject = Round(calls[0], arguments).subject
    return [Reader(call, arguments, subject) for call in calls]


async def finish(some: Sequence[Reader]) -> None:
    """There is no more to read: waits for all of them. Raises the verdict of the first that has one."""
    for reader in some:
        reader.close()
    for reader in some:
        await reader.finish()


def _pieces(block: bytes) -> Iterator[bytes]:
    if len(block) <= CHUNK_BYTES:
        if block:
            yield block
        return
    for start in range(0, len(block), CHUNK_BYTES):
        yield block[start : start + CHUNK_BYTES]

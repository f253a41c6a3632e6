"""The life of the plugins of one process: `start` once its event loop runs, background tasks, `stop` at its end.

`start` and `stop` of all plugins run side by side, each for the time limit of a hook at most; a `start` that fails is
logged, counted, and called again after a growing pause. A plugin's tasks begin when its `start` is over. A task that
fails is begun again, after a pause that grows from PAUSE_S to PAUSE_MAX_S; one that returns has done its work. At a
reload tasks are asked to end at once, while the process goes on with its clients; `stop` comes after the last of them.

Everything has ended END_S after it was told to: what swallows its cancellation is not resumed any more, and named in
the log. Only code that blocks the whole process cannot be ended (`watchdog` names it).

Failures: none, all are contained here.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any

from zonemta_py.logs.causes import cause
from zonemta_py.plugin.api import TASKS_MAX, PluginApi, log
from zonemta_py.plugin.arguments import Process
from zonemta_py.plugin.calls import Call, CutOff, Misbehaved, watched
from zonemta_py.plugin.locks import OneProcess
from zonemta_py.plugin.spec import Hook
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.queue.poison import HOOK_DEATHS_MAX, NOTHING, UNDER_WAY

END_S = 5.0
"""After so long nothing of a plugin runs any more in a process that ends, or has another configuration."""
TASKS_S = 3.0
"""Of it for tasks; the rest is for `stop`."""
LAST_S = 0.2
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0
CALM_S = 60.0
"""A task that has run for so long begins again after the shortest pause."""
REPLAY = "replay"
"""The role of a process that is none of the MTA's."""
RUNS, WAITS, ENDED, ABANDONED = "runs", "waits", "ended", "abandoned"


def _task_hook(name: str) -> Hook:
    return Hook(f"task {name}", (), frozenset(), "any", (), "pass", True, False)


_abandoned = list[Generator[Any, Any, Any]]()
"""Kept for good: to be collected a coroutine has to be closed, and one that swallows that would not end, either."""


class _Left:
    """Whether a coroutine is not to be resumed any more."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = False


@types.coroutine
def _until_left(steps: Generator[Any, Any, Any], left: _Left) -> Generator[Any, Any, Any]:
    """Goes on with a plugin's coroutine until that ends, or is left behind: then its own task ends all the same."""
    try:
        waited_for = steps.send(None)
        while True:
            try:
                sent = yield waited_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                if left.now:
                    _abandoned.append(steps)
                    raise
                waited_for = steps.throw(error)
            else:
                waited_for = steps.send(sent)
    except StopIteration as end:
        return end.value


async def _ended(tasks: Iterable[asyncio.Task[None]], seconds: float) -> set[asyncio.Task[None]]:
    """Waits so long for them; those that go on."""
    waiting = {task for task in tasks if not task.done()}
    if waiting:
        _, waiting = await asyncio.wait(waiting, timeout=max(0.0, seconds))
    return waiting


class _Work:
    """Plugin's code in a task of its own, which can be left behind."""

    def __init__(self, call: Call) -> None:
        self.call, self.left = call, _Left()
        self.task: asyncio.Task[None]

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.get_running_loop().create_task(work)

    async def run(self, arguments: dict[str, Any]) -> None:
        """One whole call, without a limit. Raises PluginFailed, which is logged and counted by then."""
        call, begun = self.call, asyncio.get_running_loop().time()
        try:
            coroutine = call.begin(arguments)
            if not asyncio.iscoroutine(coroutine):
                raise Misbehaved(f"returned {type(coroutine).__name__} instead of a coroutine; define it as async def")
            call.expect_nothing(await _until_left(watched(coroutine, call, NOTHING), self.left))
        except BaseException as error:
            self._count(begun)
            verdict = call.judge(error)
            if verdict is error:
                raise
            raise verdict from error
        self._count(begun)

    def _count(self, begun: float) -> None:
        tally, seconds = self.call.tally, asyncio.get_running_loop().time() - begun
        tally.calls += 1
        tally.seconds += seconds
        tally.worst_s = max(tally.worst_s, seconds)


class _TaskCall(Call):
    """Of a task: what blocks too often is ended, and begins again when that is over."""

    __slots__ = ("ends",)

    def __init__(self, plugin: str, file: str, name: str, function: Callable[[], Any], limit_s: float) -> None:
        super().__init__(plugin, file, _task_hook(name), function, limit_s)
        self.ends: Callable[[], object] = lambda: None

    def leave_out(self, why: str) -> None:
        super().leave_out(why)
        self.ends()


class PluginTask(_Work):
    """A background task of a plugin, kept up. once: in one process at a time. state: RUNS, WAITS for its next try (or
    for its turn), ENDED, ABANDONED."""

    def __init__(self, call: _TaskCall, name: str, once: OneProcess | None) -> None:
        super().__init__(call)
        self.name, self._once, self.state, self._struck = name, once, WAITS, False
        call.ends = self._strike
        self.begin(self._keep_up())

    def _strike(self) -> None:
        if not self.task.done():
            self._struck = True
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)

    async def _keep_up(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        while True:
            begun = loop.time()
            try:
                await self._run_once()
            except PluginFailed:
                if loop.time() - begun >= CALM_S:
                    pause_s = PAUSE_S
            except OSError as error:
                log.error("plugin %s, task %s: its lock cannot be taken: %s", self.call.plugin, self.name, cause(error))
            else:
                self.state = ENDED
                return
            self.state = WAITS
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _run_once(self) -> None:
        """Raises PluginFailed, OSError."""
        call = self.call
        if UNDER_WAY.left_out(call.plugin, call.hook.name) and not call.out_until:
            call.leave_out(f"has ended {HOOK_DEATHS_MAX} processes")
        try:
            if self._once is None:
                self.state = RUNS
                await self.run({})
                return
            async with self._once:
                self.state = RUNS
                await self.run({})
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._struck or task is None:
                raise
            self._struck = False
            task.uncancel()
            raise PluginFailed(call.plugin, call.hook.name, f"is skipped because it {call.why_out}") from None


class PluginLife:
    """Of the plugins of one process. folder: the MTA's."""

    def __init__(
        self, starts: Iterable[Call], stops: Iterable[Call], apis: dict[str, PluginApi], limit_s: float
    ) -> None:  # fmt: skip
        self._starts, self._stops = {one.plugin: one for one in starts}, tuple(stops)
        self._apis, self._limit_s = apis, limit_s
        self.process, self._folder = Process("", 0), Path()
        self.tasks: list[PluginTask] = []
        self._again: list[_Work] = []
        self._over: asyncio.Future[None] | None = None
        self._retiring: asyncio.Future[None] | None = None

    async def begin(self, process: Process, folder: Path) -> None:
        """Calls `start`, and returns when each has ended or its time is over. In REPLAY there are no tasks."""
        self.process, self._folder = process, folder
        for api in self._apis.values():
            api.provide(life=self)
        await asyncio.gather(*(self._begin_one(api) for api in self._apis.values()))

    async def _begin_one(self, api: PluginApi) -> None:
        call = self._starts.get(api.name)
        if call is None or await self._started(call, api):
            self._begin_tasks(api)
            return
        work = _Work(call)
        self._again.append(work)
        work.begin(self._start_again(call, api))

    async def _start_again(self, call: Call, api: PluginApi) -> None:
        pause_s = PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            if await self._started(call, api):
                self._begin_tasks(api)
                return
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _started(self, call: Call, api: PluginApi) -> bool:
        api.begins()
        return await self._limited(call, api, call.limit_s)

    def _begin_tasks(self, api: PluginApi) -> None:
        for name, (function, once) in api.begun().items():
            self.add(api, name, function, once)

    def add(self, api: PluginApi, name: str, function: Callable[[], Any], once: bool) -> None:
        """One more task of a plugin that has started. Raises ValueError."""
        if self.is_over or self.process.role == REPLAY:
            return
        mine = [one for one in self.tasks if one.call.plugin == api.name and one.state != ENDED]
        if any(one.name == name for one in mine):
            raise ValueError(f"task {name!r} runs already; give each task its own name")
        if len(mine) >= TASKS_MAX:
            raise ValueError(f"a plugin may have {TASKS_MAX} tasks")
        self.tasks = [one for one in self.tasks if (one.call.plugin, one.name) != (api.name, name)]
        call = _TaskCall(api.name, api.file, name, function, self._limit_s)
        self.tasks.append(PluginTask(call, name, self.one_process(api, name) if once else None))

    @property
    def is_over(self) -> bool:
        """Whether another process follows this one, or it ends."""
        return self._over is not None or self._retiring is not None

    def one_process(self, api: PluginApi, name: str) -> OneProcess:
        """For `api.once`."""
        return OneProcess(self._folder, api.name, name)

    # -- the end

    def retire(self) -> None:
        """Another process follows this one, which goes on with what it has begun: its tasks end."""
        if self._retiring is None:
            self._retiring = asyncio.ensure_future(self._end_tasks())

    async def end(self) -> None:
        """Ends tasks, then calls `stop`. No other hook is called after that."""
        if self._over is None:
            self._over = asyncio.ensure_future(self._end())
        await asyncio.shield(self._over)

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + END_S
        self.retire()
        assert self._retiring is not None
        await asyncio.wait([self._retiring])
        left_s = until - loop.time() - LAST_S
        apis = self._apis
        await asyncio.gather(
            *(self._limited(call, apis[call.plugin], min(call.limit_s, left_s)) for call in self._stops)
        )

    async def _end_tasks(self) -> None:
        works = [*self.tasks, *self._again]
        for one in works:
            one.task.cancel()
        going = await _ended((one.task for one in works), TASKS_S)
        abandoned = [one for one in works if one.task in going]
        for one in abandoned:
            await self._abandon(one, TASKS_S)
            if isinstance(one, PluginTask):
                one.state = ABANDONED

    async def _abandon(self, work: _Work, seconds: float) -> None:
        """It is not resumed any more."""
        work.left.now = True
        work.task.cancel()
        await _ended([work.task], LAST_S)
        call = work.call
        call.tally.overruns += 1
        log.log(
            logging.ERROR, "plugin %s, hook %s, %s: has not ended %g s after it was told to, and is abandoned",
            call.plugin, call.hook.name, call.file, seconds,
        )  # fmt: skip

    async def _limited(self, call: Call, api: PluginApi, seconds: float) -> bool:
        """A whole call of `start` or `stop`; whether it went well."""
        work = _Work(call)
        work.begin(work.run({"api": api, "process": self.process}))
        going = await _ended([work.task], seconds)
        if going:
            work.task.cancel()
            call.tally.overruns += 1
            call.blame(CutOff(f"took longer than {seconds:g} s and was cut off"))
            if await _ended(going, LAST_S):
                await self._abandon(work, seconds)
            return False
        if work.task.cancelled() or (error := work.task.exception()) is None:
            return not work.task.cancelled()
        if not isinstance(error, PluginFailed):
            log.error("plugin %s, hook %s: internal error", call.plugin, call.hook.name, exc_info=error)
        return False

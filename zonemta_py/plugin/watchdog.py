"""A plugin that blocks its process is named while it does, and skipped when it has done so for too long; one that takes
much memory, or begins very many threads, is named.

The process's own loop cannot interrupt a blocking call, and a log line afterwards comes late: so a thread watches, and
logs which plugin it is, in which line, and for how long. It runs only where plugins do.

A call that was over its time limit without awaiting counts one strike for each limit it took; at STRIKES_MAX within
FORGIVEN_S the hook is not called for OUT_S. What that means is what its failing means: hooks that decide about mail
answer 451 meanwhile, so that nothing passes a check that was not made; others are skipped.

Importing a plugin, and its `setup`, have no limit: who takes LOADING_S is named, with the line where it is.

Memory: a step of a call that has made its process GROWN_KB larger than it ever was. Threads: one that begins some where
there are THREADS_MAX, then twice as many, and so on. Both count as calls that took too long, and have no other result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
import threading
from _thread import _count as thread_count
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from zonemta_py.plugin.api import log
from zonemta_py.plugin.spec import Hook
from zonemta_py.queue.poison import UNDER_WAY, Subject

STRIKES_MAX = 3
FORGIVEN_S = 600.0
OUT_S = 300.0
_LOOK_S = 0.5
LOADING_S = 5.0
GROWN_KB = 1 << 20
SLOW_S = 0.02
"""A step that was quicker has not taken that much memory."""
THREADS_MAX = 200
WATCHDOG = "plugin-watchdog"
"""The name of the thread."""
UNFILTERED = {"unfiltered": True}
"""Such a line bypasses `log_entry`: that may be what blocks."""


class Watched:
    """A plugin's function that may block, and its strikes. file: where the plugin lives. passes: mail goes on when it
    fails."""

    __slots__ = ("file", "hook", "limit_s", "out_until", "passes", "plugin", "strikes", "struck", "why_out")

    def __init__(self, plugin: str, file: str, hook: Hook, limit_s: float) -> None:
        self.plugin, self.file, self.hook, self.limit_s = plugin, file, hook, limit_s
        self.passes = hook.failing == "pass"
        self.strikes, self.struck, self.out_until, self.why_out = 0, 0.0, 0.0, ""

    def suppressed_by(self) -> bool:
        """It is not to be called now. Ask only if `out_until` is set: most never are."""
        if monotonic() < self.out_until:
            return True
        self.out_until = 0.0
        return False

    @property
    def is_long(self) -> bool:
        """Calls may take longer than the limit, as they wait for data, or are measured otherwise: a step may not."""
        return self.hook.streams or (self.hook.process == "any" and self.hook.waits)

    def exceeds(self, problem: str, counted: bool = False) -> None:
        """Names it for what it does to its process. counted: the call is one that took too long."""
        raise NotImplementedError

    def leave_out(self, why: str) -> None:
        """It is not called for OUT_S. why: what it has done."""
        self.strikes, self.out_until, self.why_out = 0, monotonic() + OUT_S, why
        meanwhile = "it is skipped" if self.passes else "mail that it would decide about is deferred (451)"
        log.log(
            logging.ERROR, "plugin %s, hook %s, %s: %s and is skipped for %g min; meanwhile %s", self.plugin,
            self.hook.name, self.file, why, OUT_S / 60, meanwhile, extra=UNFILTERED,
        )  # fmt: skip


Step = tuple[Watched, float, bytes, int]


class Watch:
    """Of one process. Only its main thread runs hooks; now: (call, since when, what `UNDER_WAY` said before, how many
    threads there were) while one runs."""

    __slots__ = ("_most_kb", "_thread", "_threads_max", "now")

    def __init__(self) -> None:
        self.now: Step | None = None
        self._thread: threading.Thread | None = None
        self._most_kb, self._threads_max = 0, THREADS_MAX
        os.register_at_fork(after_in_child=self._forget)

    def enter(self, call: Watched, subject: Subject) -> Step | None:
        """A plugin's code begins to run; returns what `leave` needs."""
        noted = UNDER_WAY.begin(call.plugin, call.hook.name, subject) if UNDER_WAY.active else b""
        if self._thread is None:
            self._start()
        before, self.now = self.now, (call, monotonic(), noted, thread_count())
        return before

    def leave(self, before: Step | None) -> None:
        """It waits, or has ended."""
        left, self.now = self.now, before
        if left is None:
            return
        call, since, noted, threads = left
        UNDER_WAY.end(noted)
        seconds = monotonic() - since
        if seconds > SLOW_S:
            self._weigh(call)
            if seconds > call.limit_s:
                strike(call, seconds)
        if (count := thread_count()) > self._threads_max and count > threads:
            self._threads_max = 2 * count
            call.exceeds(f"begins threads, and its process has {count} of them")

    def _weigh(self, call: Watched) -> None:
        most_kb = _most_kb()
        grown_kb, self._most_kb = most_kb - self._most_kb, most_kb
        if grown_kb >= GROWN_KB:
            call.exceeds(f"has made its process grow by {grown_kb / (1 << 20):.1f} GB")
            with contextlib.suppress(OSError):  # so that it is seen when it does so again
                Path("/proc/self/clear_refs").write_text("5")
                self._most_kb = _most_kb()

    def _start(self) -> None:
        self._most_kb = _most_kb()
        self._thread = threading.Thread(target=self._look, args=(threading.get_ident(),), name=WATCHDOG, daemon=True)
        self._thread.start()

    def _forget(self) -> None:
        self._thread, self.now = None, None
        self._threads_max = THREADS_MAX

    def _look(self, watched: int) -> None:
        told: Step | None = None
        next_s = 0.0
        while True:
            now = self.now
            sleep(_LOOK_S if now is None else min(_LOOK_S, now[0].limit_s / 2))
            if now is None and self.now is None:
                self._most_kb = max(self._most_kb, _most_kb())  # the server's own
            if now is None or now is not self.now:
                continue
            call, since, *_ = now
            next_s = call.limit_s if told is not now else next_s
            if (seconds := monotonic() - since) >= next_s:
                told, next_s = now, max(2 * seconds, call.limit_s)
                frames = sys._current_frames()
                mostly = _line(frames.get(watched), call.file)  # a loop in another thread may call plugins too
                line = mostly or max(_line(frame, call.file) for frame in frames.values())
                log.error(
                    "plugin %s, hook %s, %s:%d: has blocked its whole process for %.1f s (the limit is %g s), and "
                    "nothing else runs there; await what takes time",
                    call.plugin, call.hook.name, call.file, line, seconds, call.limit_s, extra=UNFILTERED,
                )  # fmt: skip


@contextlib.contextmanager
def loading(plugin: str, file: str, what: str) -> Iterator[None]:
    """Names a plugin that is imported, or set up, for as long as LOADING_S, and again after twice that, and so on.
    what: is done. Its thread ends with it: processes are forked afterwards."""
    over = threading.Event()
    thread = threading.Thread(
        target=_look_at_loading, args=(over, threading.get_ident(), plugin, file, what), name=WATCHDOG, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look_at_loading(over: threading.Event, watched: int, plugin: str, file: str, what: str) -> None:
    begun, next_s = monotonic(), LOADING_S
    while not over.wait(begun + next_s - monotonic()):
        seconds = monotonic() - begun
        line = _line(sys._current_frames().get(watched), file)
        log.warning(
            "plugin %s, %s%s: %s has taken %.0f s so far, and nothing begins before it ends", plugin, file,
            f":{line}" if line else "", what, seconds, extra=UNFILTERED,
        )  # fmt: skip
        next_s = 2 * seconds


def _most_kb() -> int:
    """How large this process has been."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _line(frame: FrameType | None, file: str) -> int:
    """Where in the plugin's file it is; 0 if nowhere."""
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def strike(call: Watched, seconds: float) -> None:
    """Counts that it blocked the process for so long, and names it."""
    problem = f"took {seconds:.1f} s, the limit is {call.limit_s:g} s; it blocked its process"
    call.exceeds(problem, counted=not call.is_long)
    now = monotonic()
    if now - call.struck > FORGIVEN_S:
        call.strikes = 0
    call.strikes += int(seconds / call.limit_s)
    call.struck = now
    if call.strikes >= STRIKES_MAX:
        call.leave_out(f"blocked its process for {seconds:.1f} s")


WATCH = Watch()


def keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """A plugin cannot stop the loop of its process, and all that runs there with it: that is its failure."""
    if hasattr(loop, "_kept_running"):
        return
    stop = loop.stop

    def stopping() -> None:
        if WATCH.now is not None:
            raise RuntimeError("the event loop is the server's, and a plugin cannot stop it")
        stop()

    loop.stop = stopping  # type: ignore[method-assign]
    loop._kept_running = True  # type: ignore[attr-defined]

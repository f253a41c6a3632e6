"""The supervisor's processes: one for each role, started again when it ends, followed by another when it is replaced.

A child that keeps ending at once is started more and more slowly, every two seconds at the slowest. An occasional one
(the reporter) is there only while it is due, and again after AGAIN_S if it failed. What is replaced is *retired*: it is
told by SIGUSR1 to end what it has begun, and then itself, however long that takes; of those with the same role there
are RETIRED_MAX at most, the oldest is told by SIGTERM to hurry. All children die with the supervisor.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zonemta_py.cluster import REPLACED
from zonemta_py.metrics.connections import SERVICES, TABLES
from zonemta_py.metrics.processes import PROCESSES
from zonemta_py.processes.pipe import ASKED

PAUSE_MAX_S = 2.0
AGAIN_S = 60.0
ASK_S = 3_600.0
"""How often it is asked when an occasional child is due: the clock may be set meanwhile."""
RETIRED_MAX = 4
LOOK_S = 0.01
WAITED_FOR = {signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, ASKED}
"""Signals that the supervisor takes one at a time."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Closable(Protocol):
    """A socket, or an end of a pipe."""

    def close(self) -> None: ...


class _Duty(NamedTuple):
    """What a child does, and which of the open files it keeps.

    due_s: if it ends by itself, in how many seconds it is due. before: called ahead of each start; more files that it
    keeps. after: called when it has started. alone: no other one of its role may run yet.
    """

    work: Callable[[], None]
    files: Sequence[Closable]
    due_s: Callable[[], float] | None
    before: Callable[[], Sequence[Closable]] | None
    after: Callable[[], None] | None
    alone: bool


class Processes:
    """Keeps one process for each role. A child keeps of all files that are open here those of its role."""

    def __init__(self, stop_s: float = 0.0) -> None:
        self.stop_s = stop_s
        self._files: list[Closable] = []
        self._roles: dict[str, _Duty] = {}
        self._running: dict[int, str] = {}
        self._retired: dict[int, str] = {}
        self._aside: set[int] = set()
        """Those of no role."""
        self._replaced: set[int] = set()
        """Running ones whose end was asked for: another of their role follows, without a word."""
        self._leaving: Callable[[str], bool] | None = None
        self._left: set[str] = set()
        """Roles of those that were let go, and ended."""
        self._started: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._stopping = False
        self.is_replaced = False
        """Other nodes of the cluster have taken over what is here."""
        self.broken: dict[str, str] = {}
        """Roles of those that ended otherwise than they were told to while all is to end, and how."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)

    def remember(self, *files: Closable) -> None:
        """They are open here: children close them, unless they are of their role."""
        self._files += [one for one in files if one not in self._files]

    def forget(self, *files: Closable) -> None:
        """Closes them here."""
        for one in files:
            if one in self._files:
                self._files.remove(one)
            one.close()

    def pid(self, role: str) -> int:
        """Of the one that runs; 0: none does."""
        return next((pid for pid, name in self._running.items() if name == role), 0)

    def start(
        self, role: str, work: Callable[[], None], files: Sequence[Closable] = (), *,
        due_s: Callable[[], float] | None = None, before: Callable[[], Sequence[Closable]] | None = None,
        after: Callable[[], None] | None = None, alone: bool = False,
    ) -> None:  # fmt: skip
        """Begins at once, where it is due at once, and keeps it up from then on. One of that role that runs already is
        retired; an occasional one ends by itself, and the queue (`before`) goes on: they begin so the next time."""
        self._roles[role] = _Duty(work, files, due_s, before, after, alone)
        pid = self.pid(role)
        if pid and (due_s is not None or before is not None):
            return
        if pid and alone:
            self._replaced.add(pid)
            os.kill(pid, signal.SIGTERM)
            return
        if pid:
            self._retire(pid)
        self._due[role] = 0.0
        gc.freeze()  # the children share these pages until somebody writes to them
        self.start_due()

    def aside(self, work: Callable[[], None], name: str = "") -> int:
        """A process of no role, which is not started again; its id. name: in `ps`. Raises OSError."""
        pid = fork(work, name)
        self._aside.add(pid)
        return pid

    def put_down(self, pid: int) -> None:
        """Ends a process of no role, if it has not ended."""
        if pid in self._aside:
            self._aside.discard(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def end(self, role: str) -> None:
        """There is none of that role any more."""
        known = self._roles.pop(role, None)
        if known is None:  # it was put away
            return
        self._due.pop(role, None)
        if pid := self.pid(role):
            self._retire(pid, signal.SIGTERM if known.alone or known.due_s else signal.SIGUSR1)

    def put_away(self, roles: Callable[[str], bool], for_s: float, ending: Callable[[], None]) -> None:
        """Ends those of such roles, which nobody has any more; what has not ended in that time is killed.

        ending: asks them to end.
        """
        for role in [role for role in self._roles if roles(role)]:
            del self._roles[role]
            self._due.pop(role, None)
        self._retired |= {pid: role for pid, role in self._running.items() if roles(role)}
        self._running = {pid: role for pid, role in self._running.items() if not roles(role)}
        ending()
        until = time.monotonic() + for_s
        while left := [pid for pid, role in self._retired.items() if roles(role)]:
            if time.monotonic() >= until:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK_S)
            self.reap()

    def let_go(self, roles: Callable[[str], bool]) -> None:
        """The queue may tell those of such roles that nothing is left for them: one that ends well is no failure, and
        is not started again before `let_none_go`, unless by `start`."""
        self._leaving = roles

    def let_none_go(self) -> None:
        """From now on. Roles that nobody has any more are started."""
        self._leaving, left, self._left = None, self._left, set()
        self._due |= {role: time.monotonic() for role in left if role in self._roles and not self.pid(role)}

    def remind(self) -> None:
        """Retired ones of a service hear that the configuration that follows is another one now."""
        for pid, role in self._retired.items():
            if role.partition("-")[0] in SERVICES:
                os.kill(pid, signal.SIGUSR1)

    def _retire(self, pid: int, told: signal.Signals = signal.SIGUSR1) -> None:
        role = self._retired[pid] = self._running.pop(pid)
        os.kill(pid, told)
        for old in [one for one, name in self._retired.items() if name == role][:-RETIRED_MAX]:
            os.kill(old, signal.SIGTERM)

    def start_due(self) -> None:
        now = time.monotonic()
        for role in [role for role, due in self._due.items() if due <= now]:
            if (later_s := self._later_s(role)) > 0:
                self._due[role] = now + later_s
                continue
            self._started[role] = now
            try:
                pid = self._fork(role)
            except OSError as error:  # no more processes or memory: later, perhaps
                _say(f"{role} cannot be started ({error.strerror}); trying again")
                self._due[role] = now + PAUSE_MAX_S
                continue
            del self._due[role]
            self._running[pid] = role
            PROCESSES.started(role, pid)

    def _later_s(self, role: str) -> float:
        """Seconds until an occasional child is due, ASK_S at the most."""
        due_s = self._roles[role].due_s
        return min(ASK_S, due_s()) if due_s is not None else 0.0

    def stop(self) -> None:
        """Nobody is started any more."""
        self._stopping, self.broken = True, {}

    def resume(self) -> None:
        """Who is missing is started again."""
        self._stopping = False

    def wait(self, until: float | None = None) -> signal.struct_siginfo | None:
        """Until a signal comes, which is returned, or it is time to start one, or that time of the monotonic clock;
        those that have ended are noticed."""
        ends = [*self._due.values(), *(() if until is None else (until,))]
        if not ends:
            told: signal.struct_siginfo | None = signal.sigwaitinfo(WAITED_FOR)
        else:
            told = signal.sigtimedwait(WAITED_FOR, max(0.0, min(ends) - time.monotonic()))
        self.reap()
        return told

    def tell(self, told: signal.Signals, roles: Callable[[str], bool]) -> None:
        """Sends a signal to all processes of such roles."""
        for pid, role in [*self._running.items(), *self._retired.items()]:
            if roles(role):
                os.kill(pid, told)

    def pids(self, wanted: Callable[[str], bool]) -> list[int]:
        """All processes of such roles."""
        return [pid for pid, role in (*self._running.items(), *self._retired.items()) if wanted(role)]

    def roles(self, wanted: Callable[[str], bool]) -> set[str]:
        """Such roles that a process has, also one that is retired."""
        return {role for role in (*self._running.values(), *self._retired.values()) if wanted(role)}

    def reap(self) -> None:
        while self._running or self._retired or self._aside:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            for table in TABLES:
                table.gone(pid)
            if pid in self._aside:
                self._aside.discard(pid)
            elif (role := self._retired.pop(pid, None)) is not None:
                if status and os.waitstatus_to_exitcode(status) not in (-signal.SIGUSR1, -signal.SIGTERM):
                    _say(f"{role} (process {pid}), which was to end, did, {_how(status)}")
            elif (role := self._running.pop(pid, None)) is not None:
                self._ended(role, pid, status)

    def _ended(self, role: str, pid: int, status: int) -> None:
        if self._stopping:  # nobody is started any more
            if status:
                _say(f"{role} (process {pid}) ended, {_how(status)}")
                self.broken[role] = _how(status)
            return
        now = time.monotonic()
        self.is_replaced = self.is_replaced or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == REPLACED)
        known = self._roles.get(role)
        if known is None:  # an occasional one, of a role that is no more
            return
        if pid in self._replaced:
            self._replaced.discard(pid)
            self._due[role] = now
            return
        if not status and self._leaving is not None and self._leaving(role):
            self._left.add(role)
            return
        if known.due_s is not None:
            self._due[role] = now + (AGAIN_S if status else 0.0)
            if status:
                _say(f"{role} (process {pid}) ended, {_how(status)}; restarting it in {AGAIN_S:g} s")
            return
        PROCESSES.failed(role)
        if now - self._started[role] > 5:
            self._pause[role] = 0.0
        pause = self._pause.get(role, 0.0)
        self._due[role] = now + pause
        self._pause[role] = min(PAUSE_MAX_S, pause * 2 or 0.05)
        _say(f"{role} (process {pid}) ended, {_how(status)}; restarting it")

    def _fork(self, role: str) -> int:
        known = self._roles[role]
        kept = [*known.files, *(known.before() if known.before is not None else ())]

        def work() -> None:
            for one in self._files:
                if one not in kept:
                    one.close()
            known.work()

        rows = [table.reserve(role) for table in TABLES]
        pid = 0
        try:
            pid = fork(work, role)
        finally:
            for table, row in zip(TABLES, rows, strict=True):
                table.forked(row, pid)
        if known.after is not None:
            known.after()
        return pid


def fork(work: Callable[[], None], role: str = "") -> int:
    """A process that does this, and then ends; it dies with this one. Its id. Raises OSError."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = os.EX_SOFTWARE
    gc.enable()
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the supervisor died in between
            os._exit(0)
        if role:
            _rename(role)
        work()
        status = 0
    except BaseException as error:
        import traceback

        _say(f"{role or 'a process'}: {error!r}")
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(sentence: str) -> None:
    print(f"zonemta: {sentence}", file=sys.stderr, flush=True)


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.WEXITSTATUS(status)}"


def _rename(role: str) -> None:
    """The role in `ps` and `top`: the thread's name. Not by /proc, which is root's where root was given up."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"zonemta {role}"[:15].encode())

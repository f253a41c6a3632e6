"""`zonemta run`: binds the ports, forks queue, receivers, HTTP process, senders and event feed, and restarts them.

There is no shutdown: SIGKILL ends all of them alike (children die with the supervisor), and starting is recovering.
SIGTERM does the same after some seconds, in which nothing new is begun: the queue grants no leases, receivers end their
messages (`server.stop_s`); a second SIGTERM does it at once. The queue is started first and imports its modules itself,
on a core of its own, while the receivers' are imported here: they greet clients while the rest is still being loaded.
What a child needs is imported here in the end, so that a restarted one is back as soon as it is forked. The listening
sockets stay open here, so clients that connect while a receiver starts again only wait; each child has its own
alone. A child that keeps ending at once is started more and more slowly, every two seconds at the slowest. The
reporter is there only while there is something to report: once a day, and after AGAIN_S if it failed.

Failures: a port that is taken or a bad plugin is a `StartError`, one sentence. After the start nothing is fatal, not
even a standard error that cannot be written: `zonemta run` puts one there that raises nothing (`logs.stream`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from zonemta_py import privileges
from zonemta_py.config import Config, Listener, processes
from zonemta_py.metrics.processes import PROCESSES

PAUSE_MAX_S = 2.0
AGAIN_S = 60.0
ASK_S = 3_600.0
"""How often it is asked when an occasional child is due: the clock may be set meanwhile."""
WAITED_FOR = {signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM}
"""Signals that the supervisor takes one at a time."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class StartError(Exception):
    """Why the MTA cannot start: one sentence with the remedy."""


def run(config: Config, clock: Callable[[], float] = time.time, opening: Iterable[str] = ()) -> NoReturn:
    """Never returns. Raises StartError, PluginError, ConfigError before the first process is started. Root is given up
    once the ports are bound (`server.user`).

    clock: UNIX time, by which the reporter's day begins. opening: lines that are printed once all has been checked.
    """
    sockets = [bind(config.listeners) for _ in range(processes(config.server.receivers))]
    services = bind(config.services)
    privileges.drop(config)
    from zonemta_py import children

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, _hung_up)
    host = children.plugins(config)
    children.check_listeners(config, host)
    supervisor = Supervisor([bound for row in [*sockets, services] for _, bound in row], config.server.stop_s)
    children.check_others(config)
    if config.event_sinks:
        children.begin_events(config)
    print("".join(f"{line}\n" for line in opening), end="", file=sys.stderr, flush=True)
    supervisor.start("queue", partial(children.queue, config, host))  # loads itself, while the receiver is loaded here
    children.load_receiver()
    for number, row in enumerate(sockets, 1):
        work = partial(children.receiver, config, host, row, len(sockets))
        supervisor.start(f"receiver-{number}", work, [bound for _, bound in row])
    children.load_sender()
    for number in range(1, processes(config.server.senders) + 1):
        supervisor.start(f"sender-{number}", partial(children.sender, config, host, f"sender-{number}"))
    for service, bound in services:
        work = partial(children.SERVICES[service.name], config, host, bound)
        supervisor.start(service.name, work, [bound])
    if config.event_sinks:
        supervisor.start("events", partial(children.events, config, host))
    if config.tls.reports:
        report = lambda: children.reporter(config, host, clock())  # noqa: E731
        supervisor.start("reporter", report, due_s=lambda: children.report_wait_s(config, clock()))
    children.load_queue()  # the queue that is started has its own; the next one finds it here
    children.load_rules(config)
    supervisor.forever()


def bind(listeners: list[Listener]) -> list[tuple[Listener, socket.socket]]:
    """One listening socket for each listener; every receiver has its own (SO_REUSEPORT). Raises StartError."""
    rows = []
    for listener in listeners:
        family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((listener.address, listener.port))
            bound.listen(1024)
        except OSError as error:
            where = f"{listener.address}:{listener.port}"
            remedy = f"give listener {listener.name!r} another address or port, or stop the program that has it"
            raise StartError(f"cannot listen on {where} ({error.strerror}); {remedy}") from None
        bound.setblocking(False)
        rows.append((listener, bound))
    return rows


class Role(NamedTuple):
    """What a child does, which of the sockets it serves, and, if it ends by itself, in how many seconds it is due."""

    work: Callable[[], None]
    sockets: Sequence[socket.socket]
    due_s: Callable[[], float] | None


class Supervisor:
    """Keeps one process for each role. sockets: all that are open here; a child keeps those of its role."""

    def __init__(self, sockets: Sequence[socket.socket] = (), stop_s: float = 0.0) -> None:
        self._sockets, self._stop_s = sockets, stop_s
        self._roles: dict[str, Role] = {}
        self._running: dict[int, str] = {}
        self._started: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._stopping = False
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)

    def start(
        self,
        role: str,
        work: Callable[[], None],
        sockets: Sequence[socket.socket] = (),
        due_s: Callable[[], float] | None = None,
    ) -> None:
        """Begins at once, where it is due at once, and keeps it up from then on."""
        self._roles[role] = Role(work, sockets, due_s)
        self._due[role] = 0.0
        gc.freeze()  # the children share these pages until somebody writes to them
        self._start_due()

    def forever(self) -> NoReturn:
        gc.enable()
        gc.collect()
        gc.freeze()
        while True:
            self._start_due()
            self._wait()

    def _start_due(self) -> None:
        now = time.monotonic()
        for role in [role for role, due in self._due.items() if due <= now]:
            if (later_s := self._later_s(role)) > 0:
                self._due[role] = now + later_s
                continue
            self._started[role] = now
            try:
                pid = self._fork(role)
            except OSError as error:  # no more processes or memory: later, perhaps
                print(
                    f"zonemta: {role} cannot be started ({error.strerror}); trying again", file=sys.stderr, flush=True
                )
                self._due[role] = now + PAUSE_MAX_S
                continue
            del self._due[role]
            self._running[pid] = role
            PROCESSES.started(role, pid)

    def _later_s(self, role: str) -> float:
        """Seconds until an occasional child is due, ASK_S at the most."""
        due_s = self._roles[role].due_s
        return min(ASK_S, due_s()) if due_s is not None else 0.0

    def _wait(self) -> None:
        """Until children end, or it is time to start one."""
        if not self._due:
            told: signal.struct_siginfo | None = signal.sigwaitinfo(WAITED_FOR)
        else:
            told = signal.sigtimedwait(WAITED_FOR, max(0.0, min(self._due.values()) - time.monotonic()))
        if told is not None and told.si_signo == signal.SIGHUP:
            _hung_up()
        if told is not None and told.si_signo == signal.SIGTERM:
            self._stop()
        self._reap()

    def _stop(self) -> NoReturn:
        """Lets what is under way come to its end for a while; then all die."""
        self._stopping = True
        end = time.monotonic() + self._stop_s
        print(f"zonemta: stopping; work in progress has {self._stop_s:g} s", file=sys.stderr, flush=True)
        for bound in self._sockets:
            bound.close()
        for pid, role in self._running.items():
            if _ends_by_itself(role):
                os.kill(pid, signal.SIGTERM)
        while any(map(_ends_by_itself, self._running.values())) and (left_s := end - time.monotonic()) > 0:
            told = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, left_s)
            if told is not None and told.si_signo == signal.SIGTERM:
                break
            self._reap()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
        os.kill(os.getpid(), signal.SIGTERM)  # as default: the children die with us
        os._exit(os.EX_OK)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            role = self._running.pop(pid, None)
            if role is not None:
                self._ended(role, pid, status)

    def _ended(self, role: str, pid: int, status: int) -> None:
        if self._stopping:  # nobody is started any more
            if status:
                print(f"zonemta: {role} (process {pid}) ended, {_how(status)}", file=sys.stderr, flush=True)
            return
        now = time.monotonic()
        if self._roles[role].due_s is not None:
            self._due[role] = now + (AGAIN_S if status else 0.0)
            if status:
                how = f"{_how(status)}; restarting it in {AGAIN_S:g} s"
                print(f"zonemta: {role} (process {pid}) ended, {how}", file=sys.stderr, flush=True)
            return
        if now - self._started[role] > 5:
            self._pause[role] = 0.0
        pause = self._pause.get(role, 0.0)
        self._due[role] = now + pause
        self._pause[role] = min(PAUSE_MAX_S, pause * 2 or 0.05)
        print(f"zonemta: {role} (process {pid}) ended, {_how(status)}; restarting it", file=sys.stderr, flush=True)

    def _fork(self, role: str) -> int:
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
            _rename(role)
            for bound in self._sockets:
                if bound not in self._roles[role].sockets:
                    bound.close()
            self._roles[role].work()
            status = 0
        except BaseException as error:
            import traceback

            print(f"zonemta: {role}: {error!r}", file=sys.stderr, flush=True)
            traceback.print_exc()
        finally:
            os._exit(status)


def _hung_up(*_: object) -> None:
    """Rotating logs or reloading services may send it; children ignore it. A terminal that is gone (EIO) is an end."""
    try:
        print(
            "zonemta: SIGHUP changes nothing; restart to load a new configuration",
            file=sys.stderr,
            flush=True,
        )
    except OSError:
        os._exit(os.EX_OK)


def _ends_by_itself(role: str) -> bool:
    """Whether a child heeds SIGTERM by ending what it has begun, and then itself."""
    return role in ("queue", "events", "pull") or role.startswith("receiver")


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.WEXITSTATUS(status)}"


def _rename(role: str) -> None:
    """The role in `ps` and `top`: the thread's name. Not by /proc, which is root's where root was given up."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"zonemta {role}"[:15].encode())

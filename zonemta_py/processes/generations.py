"""The configuration that runs, and another one in its place without a restart (`zonemta reload`, SIGHUP).

The whole is read, loaded and checked in a process of its own first (`probe.py`). Then new ports are bound, and the
queue takes it, or says why not: nothing has changed up to here. After that it holds. Each role's process is followed by
another one, which accepts on the same listening sockets, so that no connection that waits there is lost; the one before
accepts no more, ends what it has begun, and then itself. The event feed alone ends before the next one begins, since
both would have the same cursors.

Failures: why nothing has changed is one sentence in the log, and for whoever asked.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.difference import LATER, difference, leaves
from zonemta_py.config.file import SourceFile
from zonemta_py.plugin.host import Host
from zonemta_py.processes import checks, probe, queue_process, roles
from zonemta_py.processes.pipe import Pipe, pair
from zonemta_py.processes.ports import Ports, StartError
from zonemta_py.processes.probe import Again, ConfigurationRefused
from zonemta_py.processes.queue_process import LOAD_S, LOADS_TWICE, Given
from zonemta_py.processes.roles import QUEUE, ROLES, SENDER, Child, Role
from zonemta_py.processes.running import Processes
from zonemta_py.queue.poison import Deaths

LOOK_S = 0.05
TAKE_S = 120.0
"""How long the queue may take over a configuration; recovery may have to end first."""


class Generations:
    """What runs by which configuration. clock: UNIX time, by which the reporter's day begins."""

    def __init__(
        self, config: Config, origin: SourceFile, again: Again, ports: Ports,
        table: Processes, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._given = Given(config, origin, f"user {_name(os.getuid())}, at the start", 1)
        self._host = Host.empty()
        self._again, self._ports, self._processes, self._clock = again, ports, table, clock
        self._pipe: Pipe | None = None
        self._theirs: Pipe | None = None
        self._asked: list[tuple[int, str, dict[str, Any]]] = []
        """Questions of the queue's process that runs."""
        self.drain: Callable[[float, str], None]
        """Ends all, in so many seconds at the latest, unless that is canceled; set by the supervisor."""

    @property
    def config(self) -> Config:
        return self._given.config

    # -- processes

    def start(self, host: Host) -> None:
        """All processes of the first configuration."""
        self._host, config = host, self.config
        Deaths(config.folder).forget()
        self._start_queue()  # loads itself, while the receivers are loaded here
        for role in ROLES[1:]:
            role.load(config)
            self._start(role)
        QUEUE.load(config)  # the queue that is started has its own; the next one finds it here
        checks.load_rules(config)

    def _start_queue(self) -> None:
        child = Child(QUEUE.name, self._given, self._host, [], self._clock)

        def work() -> None:
            assert self._theirs is not None
            roles.queue(child, self._theirs, self._processes.pids(SENDER.has))

        self._processes.start(QUEUE.name, work, before=self._connect, after=self._connected)

    def _connect(self) -> list[Pipe]:
        """A pipe for the queue's next process; what it must keep open."""
        if self._pipe is not None:
            self._processes.forget(self._pipe)
        self._asked.clear()  # nobody waits for answers any more
        self._pipe, self._theirs = pair()
        self._processes.remember(self._pipe, self._theirs)
        return [self._theirs]

    def _connected(self) -> None:
        """The process has its end now: when it ends, so does the pipe."""
        assert self._theirs is not None
        self._processes.forget(self._theirs)

    def _start(self, role: Role, resumed: bool = False) -> None:
        """All of a role. resumed: those that are kept over a drain, and are there, go on."""
        config, names = self.config, role.names(self.config)
        for number, name in enumerate(names):
            if resumed and role.kept and self._processes.pid(name):
                continue
            rows = self._ports.rows(role.listeners(config), number, len(names), role.name)
            child = Child(name, self._given, self._host, rows, self._clock)
            due_s = None if role.due_s is None else partial(self._due_s, role.due_s, config)
            files = [bound for _, bound in rows]
            self._processes.start(name, partial(role.work, child), files, due_s=due_s, alone=role.alone)

    def _due_s(self, due_s: Callable[[Config, float], float], config: Config) -> float:
        return due_s(config, self._clock())

    def resume(self) -> None:
        """A drain was canceled: what has ended, or is to end, is followed by another one; the queue and senders go on,
        if they are there."""
        if self._pipe is not None:
            with suppress(OSError):
                self._pipe.send(("stay", 0, None))
        self._start_queue()
        for role in ROLES[1:]:
            self._start(role, resumed=True)
        _log("the drain was canceled")

    def _names(self) -> set[str]:
        """Of all processes that the configuration wants."""
        return {name for role in ROLES for name in role.names(self.config)}

    # -- what the queue passes on

    def told(self, uid: int) -> None:
        """SIGHUP: the configuration is to be read anew. uid: who says so."""
        self.reload(f"user {_name(uid)}, by SIGHUP")
        self.asked()

    def asked(self) -> None:
        """The queue's process has questions."""
        self._read()
        while self._asked:
            pipe, (number, question, arguments) = self._pipe, self._asked.pop(0)
            self._say(pipe, number, question, arguments)
            self._read()

    def ending(self, canceled: bool) -> float | None:
        """Questions of the queue's process while all is to end: only a drain is heard, which says how many seconds are
        left from now on; below 0: that it is canceled; None: there was none. canceled: whether it may be."""
        self._read()
        left_s = None
        for number, question, arguments in self._asked:
            answer: tuple[str, int, Any] = ("wrong", number, "the MTA is to end; give this order after its next start")
            if question == "drain" and not arguments["cancel"]:
                left_s = arguments["for_s"]
                answer = _drains(number, left_s)
            elif question == "drain" and canceled:
                left_s = -1.0
                answer = ("answer", number, {"canceled": True})
            with suppress(OSError):
                assert self._pipe is not None
                self._pipe.send(answer)
        self._asked.clear()
        return left_s

    def _read(self) -> None:
        """Takes in questions."""
        with suppress(EOFError, OSError):
            while self._pipe is not None and self._pipe.poll(0):
                self._sort(self._pipe.recv())

    def _sort(self, message: tuple[Any, ...]) -> list[str] | None:
        """A question waits for its turn; what became of a configuration is returned."""
        if message[0] == "ask":
            self._asked.append(message[1:])
            return None
        refused: list[str] = message[2]
        return refused

    def _say(self, pipe: Pipe | None, number: int, question: str, arguments: dict[str, Any]) -> None:
        drains = question == "drain" and not arguments["cancel"]
        if question == "reload":
            answer: tuple[str, int, Any] = ("answer", number, self.reload(**arguments))
        elif drains:
            answer = _drains(number, arguments["for_s"])
        elif question == "drain":
            answer = ("wrong", number, "no drain is under way; `zonemta drain` begins one")
        else:
            answer = ("wrong", number, f"the supervisor does not know {question!r}")
        if pipe is not None and pipe is self._pipe:  # else another process is there, which has not asked
            with suppress(OSError):
                pipe.send(answer)
        if drains:
            self.drain(arguments["for_s"], arguments["by"])

    # -- another configuration

    def reload(self, by: str = "", check: bool = False) -> dict[str, Any]:
        """changes: [key, old, new]; refused: why nothing has changed; later: keys that hold from the next start on;
        generation: of the configuration that runs. check: only says so."""
        changes: list[Any] = []
        by = "" if check else by or "somebody"
        try:
            found = probe.load(self._again, self._processes, self._patiently)
            changes = [list(change) for change in difference(leaves(self.config), leaves(found.config))]
            if found.fault:
                raise ConfigurationRefused(found.fault.splitlines())
            given = Given(found.config, found.origin, by, self._given.generation + 1)
            host = self._change(given, check)
        except (ConfigError, StartError) as error:
            return self._told(changes, str(error).splitlines(), by)
        except ConfigurationRefused as error:
            return self._told(changes, error.sentences, by)
        except Exception as error:  # such as no more open files: what runs goes on
            traceback.print_exc()
            return self._told(changes, [f"it cannot be taken ({type(error).__name__}: {error}); see the log"], by)
        else:
            if not check:
                self._hold(given, host)
            return self._told(changes, [], by)
        finally:
            self._processes.let_none_go()

    def _told(self, changes: list[Any], refused: list[str], by: str) -> dict[str, Any]:
        """by: who is to be named in the log; "": it only was a question."""
        for sentence in refused if by else ():
            _log(f"the configuration is unchanged: {sentence}")
        if by and not refused:
            names = ", ".join(key for key, _, _ in changes[:10]) + (" …" if len(changes) > 10 else "")
            _log(f"another configuration holds, given by {by}; changed: {names or 'nothing'}")
        later = [key for key, _, _ in changes if key in LATER]
        return {"changes": changes, "refused": refused, "later": later, "generation": self._given.generation}

    def _patiently(self, pipe: Pipe, seconds: float) -> bool:
        """Whether there is a message, or the end, within that time; processes are kept up meanwhile.

        Raises ConfigurationRefused if there is to be an end of all.
        """
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            if pipe.poll(min(left_s, LOOK_S)):
                return True
            self._keep_up()
            if pipe.closed:  # the queue's process is another one now
                return True
        return False

    def _keep_up(self) -> None:
        """What has ended is started again. Raises ConfigurationRefused if there is to be an end of all."""
        if signal.SIGTERM in signal.sigpending():
            raise ConfigurationRefused(["the MTA is to end"])
        self._processes.reap()
        self._processes.start_due()

    def _change(self, given: Given, check: bool) -> Host:
        """Its plugins. Raises ConfigurationRefused, ConfigError, StartError: nothing has changed."""
        added = self._ports.bind(given.config)
        self._processes.remember(*self._ports.all)  # a process that is started again meanwhile must not keep them
        try:
            self._offer(given, check=True)  # before anything is loaded for it
            if not check:
                host = _plugins(given.config)
                for role in ROLES:  # so that those that follow are there at once
                    role.load(given.config)
                self._ports.listen(added)
                self._offer(given, check=False)
                return host
        except BaseException:
            self._processes.forget(*self._ports.drop(added))
            raise
        self._processes.forget(*self._ports.drop(added))
        return self._host

    def _offer(self, given: Given, check: bool) -> None:
        """Raises ConfigurationRefused with why the queue does not take it. One whose process ends meanwhile is offered
        it again: it may end because of what this one takes out."""
        until = time.monotonic() + TAKE_S
        while True:
            refused = self._offered(given, check, until)
            if refused is None and time.monotonic() >= until:
                refused = ["the queue's process ends again and again; the log says why"]
            if refused:
                raise ConfigurationRefused(refused)
            if refused is not None:
                return
            self._keep_up()
            time.sleep(LOOK_S)

    def _offered(self, given: Given, check: bool, until: float) -> list[str] | None:
        """None: there is no process of the queue any more, or not yet."""
        pipe = self._pipe
        if pipe is None or not self._processes.pid(QUEUE.name):
            return None
        if not check:  # once it has taken it, it has nothing more for the senders that run, which then end
            self._processes.let_go(SENDER.has)
        try:
            pipe.send(("take", 0, (given, check)))
            while self._patiently(pipe, until - time.monotonic()):
                if pipe.closed:
                    return None
                refused = self._sort(pipe.recv())
                if refused is not None:
                    return refused
        except (EOFError, OSError):
            return None
        os.kill(self._processes.pid(QUEUE.name), signal.SIGKILL)  # what it has taken is unknown: its next process knows
        return ["the queue's process did not answer; it is restarted with the configuration as it was"]

    def _hold(self, given: Given, host: Host) -> None:
        """It is the one that runs from now on."""
        before = self._names()
        self._processes.remind()
        self._given, self._host = given, host
        Deaths(given.config.folder).forget()
        self._processes.stop_s = given.config.server.stop_s
        roles.begin(given.config, int(self._clock() * 1000))
        with suppress(ConfigError):
            checks.load_rules(given.config)
        self._start_queue()
        for role in ROLES[1:]:
            self._start(role)
        for name in before - self._names():
            self._processes.end(name)
        for bound in self._ports.close_unused(given.config):
            self._processes.forget(bound)


def _drains(number: int, for_s: float) -> tuple[str, int, Any]:
    """pid: of what writes, in the end, what was cut off (`last_end.py`)."""
    return "answer", number, {"for_s": for_s, "pid": os.getpid()}


def _plugins(config: Config) -> Host:
    """In the supervisor, whose other work waits meanwhile: not for long. Raises ConfigError, ConfigurationRefused."""

    def late(*_: object) -> None:
        raise ConfigurationRefused([f"loading its plugins a second time took more than {LOAD_S:g} s; {LOADS_TWICE}"])

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LOAD_S)
    try:
        return queue_process.plugins(config)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _log(sentence: str) -> None:
    print(f"zonemta: {sentence}", file=sys.stderr, flush=True)

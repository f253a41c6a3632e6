"""The configuration that runs, and another one in its place without a restart (`zonemta reload`, SIGHUP).

The whole is read, loaded and checked in a process of its own first (`probe.py`). Then new ports are bound, and the
queue takes it, or says why not: nothing has changed up to here. After that it holds. Each role's process is followed by
another one, which accepts on the same listening sockets, so that no connection that waits there is lost; the one before
accepts no more, ends what it has begun, and then itself. The event feed alone ends before the next one begins, since
both would have the same cursors.

Failures: why nothing has changed is one sentence in the log, and for whoever asked.
"""

from __future__ import annotations

import gc
import os
import pwd
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from zonemta_py.config import Config, ConfigError, queue_count
from zonemta_py.config.difference import LATER, difference, leaves
from zonemta_py.config.file import SourceFile
from zonemta_py.journal import folders
from zonemta_py.logs.causes import cause
from zonemta_py.plugin.host import Host
from zonemta_py.processes import probe, queue_process, roles
from zonemta_py.processes.pipe import Pipe, pair
from zonemta_py.processes.ports import Ports, StartError
from zonemta_py.processes.probe import Again, ConfigurationRefused
from zonemta_py.processes.queue_process import LOAD_S, LOADS_TWICE, Given
from zonemta_py.processes.rearrange import declare, is_due, join, rearrange
from zonemta_py.processes.roles import AUTHORITY, QUEUE, ROLES, SENDER, Child, Role
from zonemta_py.processes.running import Processes
from zonemta_py.queue.poison import Deaths
from zonemta_py.queues import layout

LOOK_S = 0.05
PASSED_ON_S = 0.1
TAKE_S = 120.0
"""How long the queue may take over a configuration; recovery may have to end first."""


class QueuePipe:
    """The supervisor's end of the pipe to one queue's process, and the other one's while that is being started."""

    def __init__(self, name: str, processes: Processes) -> None:
        self.name, self._processes = name, processes
        self.mine: Pipe | None = None
        self.theirs: Pipe | None = None
        self.asked: list[tuple[int, str, dict[str, Any]]] = []
        """Questions of the process that runs."""

    def connect(self) -> list[Pipe]:
        """A pipe for its next process; what that must keep open."""
        if self.mine is not None:
            self._processes.forget(self.mine)
        self.asked.clear()  # nobody waits for answers any more
        self.mine, self.theirs = pair()
        self._processes.remember(self.mine, self.theirs)
        return [self.theirs]

    def connected(self) -> None:
        """The process has its end now: when it ends, so does the pipe."""
        assert self.theirs is not None
        self._processes.forget(self.theirs)

    def end(self) -> None:
        """There is to be no such queue any more."""
        if self.mine is not None:
            self._processes.forget(self.mine)
            self.mine = None
        self.asked.clear()

    def read(self) -> None:
        """Takes in questions."""
        with suppress(EOFError, OSError):
            while self.mine is not None and self.mine.poll(0):
                self.sort(self.mine.recv())

    def sort(self, message: tuple[Any, ...]) -> list[str] | None:
        """A question waits for its turn; what became of a configuration is returned."""
        if message[0] == "ask":
            self.asked.append(message[1:])
            return None
        refused: list[str] = message[2]
        return refused


class Generations:
    """What runs by which configuration. clock: UNIX time, by which the reporter's day begins."""

    def __init__(
        self, config: Config, origin: SourceFile, again: Again, ports: Ports,
        table: Processes, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._given = Given(config, origin, f"user {_name(os.getuid())}, at the start", 1)
        self._host = Host.empty()
        self._file = config
        """As its file says; on a node of a cluster stricter limits of the others may hold."""
        self._again, self._ports, self._processes, self._clock = again, ports, table, clock
        self._pipes: dict[str, QueuePipe] = {}
        """By the name of the queue's process."""
        self._later: tuple[Given, Host] | None = None
        """A configuration that was taken, for which the queues must end first."""
        self._behind: list[str] = []
        """Queues that have not taken a configuration which others have."""
        self.drain: Callable[[float, str, bool], None]
        """Ends all, in so many seconds at the latest, unless that is canceled; whether its mail then goes to other
        nodes; set by the supervisor."""

    @property
    def config(self) -> Config:
        return self._given.config

    # -- processes

    def start(self, host: Host) -> None:
        """All processes of the first configuration."""
        self._host, config = host, self.config
        _forget_deaths(config.folder)
        if config.cluster.enabled:
            join(config, self._processes)
            config = self._with_queues(config)
            self._given = self._given._replace(config=config)
        elif is_due(config):
            rearrange(config, self._processes)
        self._start_queues()  # they load themselves, while the receivers are loaded here
        for role in ROLES[1:]:
            role.load(config)
            self._start(role)

    def load_queue(self) -> None:
        """So that its next process is there as soon as it is forked: the one that runs has loaded itself."""
        QUEUE.load(self.config)
        gc.collect()
        gc.freeze()

    def _start_queues(self) -> None:
        for name in QUEUE.names(self.config):
            self._start_queue(name)

    def _start_queue(self, name: str) -> None:
        pipe = self._pipes.setdefault(name, QueuePipe(name, self._processes))
        child = Child(name, self._for_queue(self._given, name), self._host, [], self._clock)

        def work() -> None:
            assert pipe.theirs is not None
            roles.queue(child, pipe.theirs, self._processes.pids(partial(self._sends_for, name)))

        self._processes.start(name, work, before=pipe.connect, after=pipe.connected)

    @staticmethod
    def _for_queue(given: Given, name: str) -> Given:
        return given._replace(config=layout.config_of(given.config, roles.queue_number(name, given.config)))

    def _sends_for(self, queue: str, name: str) -> bool:
        """Whether that process is a sender, also one that is retired, which may have been that queue's."""
        if queue_count(self.config) == 1 or not SENDER.has(name):
            return SENDER.has(name)
        return roles.queue_of(name, self.config) == roles.queue_number(queue, self.config)

    def _start(self, role: Role, resumed: bool = False) -> None:
        """All of a role. resumed: those that are kept over a drain, and are there, go on."""
        config, names = self.config, role.names(self.config)
        for number, name in enumerate(names):
            if (role.stays or (resumed and role.kept)) and self._processes.pid(name):
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
        for pipe in self._pipes.values():
            with suppress(OSError):
                if pipe.mine is not None:
                    pipe.mine.send(("stay", 0, None))
        self._start_queues()
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
        self._resize()
        self.asked()

    @staticmethod
    def _with_queues(config: Config) -> Config:
        """With those that this node of a cluster has, and the limits that hold. Raises StartError."""
        from zonemta_py.cluster.agreed import applied

        try:
            numbers = layout.numbers(config.folder)
        except (ValueError, OSError) as error:
            raise StartError(cause(error)) from None
        return applied(config).with_queues(layout.home_of(config.folder), numbers)

    def _renumber(self) -> None:
        """What has come to this node is served, and what is to go to another is not any more; limits of a newer version
        of the cluster's configuration hold."""
        try:
            config = self._with_queues(self._file)
        except StartError as error:
            _log(str(error))
            return
        if config == self.config:
            return
        gone = set(self.config.queues_given) - set(config.queues_given)
        if gone:
            self._let_go(gone)
        more = [str(one) for one in config.queues_given if one not in self.config.queues_given]
        given = self._given._replace(config=config, generation=self._given.generation + 1)
        for role in ROLES:
            role.load(config)
        try:
            self._offer(given, check=False)
        except ConfigurationRefused as refused:  # such as queues that are dying: asked again
            _log(f"there are other queues or limits here, which do not hold yet: {refused.sentences[0]}")
            return
        if more:
            _log(f"queue {' and '.join(more)} of another node is served here from now on")
        self._hold(given, self._host)

    def _let_go(self, numbers: set[int]) -> None:
        """Queues that go to another node: what they have leased ends first."""
        names = {f"{QUEUE.name}-{number}" for number in numbers}

        def ask() -> None:
            for name in names & self._pipes.keys():
                with suppress(OSError):
                    if (mine := self._pipes[name].mine) is not None:
                        mine.send(("leave", 0, None))

        self._processes.put_away(lambda name: name in names, self.config.server.stop_s, ask)
        for name in names & self._pipes.keys():
            self._pipes.pop(name).end()
        for number in numbers:
            layout.set_aside(self.config.folder, number)
        left = [one for one in self.config.queues_given if one not in numbers]
        self._given = self._given._replace(config=self.config.with_queues(left[0], left))
        _log(f"queue {' and '.join(map(str, sorted(numbers)))} goes to another node")

    def asked(self) -> None:
        """A queue's process has questions, or a queue has come from another node."""
        if self.config.cluster.enabled:
            self._renumber()
        for pipe in list(self._pipes.values()):
            pipe.read()
            while pipe.asked:
                mine, (number, question, arguments) = pipe.mine, pipe.asked.pop(0)
                self._say(pipe, mine, number, question, arguments)
                pipe.read()

    def ending(self, canceled: bool) -> float | None:
        """Questions of the queue's process while all is to end: only a drain is heard, which says how many seconds are
        left from now on; below 0: that it is canceled; None: there was none. canceled: whether it may be."""
        left_s = None
        for pipe in self._pipes.values():
            pipe.read()
            for number, question, arguments in pipe.asked:
                answer: tuple[str, int, Any] = (
                    "wrong",
                    number,
                    "the MTA is to end; give this order after its next start",
                )
                if question == "drain" and not arguments["cancel"]:
                    left_s = arguments["for_s"]
                    answer = _drains(number, left_s)
                elif question == "drain" and canceled:
                    left_s = -1.0
                    answer = ("answer", number, {"canceled": True})
                with suppress(OSError):
                    assert pipe.mine is not None
                    pipe.mine.send(answer)
            pipe.asked.clear()
        return left_s

    def _say(
        self, pipe: QueuePipe, mine: Pipe | None, number: int, question: str, arguments: dict[str, Any]
    ) -> None:  # fmt: skip
        drains = question == "drain" and not arguments["cancel"]
        if question == "reload":
            answer: tuple[str, int, Any] = ("answer", number, self.reload(**arguments))
        elif drains:
            answer = _drains(number, arguments["for_s"])
        elif question == "drain":
            answer = ("wrong", number, "no drain is under way; `zonemta drain` begins one")
        else:
            answer = ("wrong", number, f"the supervisor does not know {question!r}")
        if mine is not None and mine is pipe.mine:  # else another process is there, which has not asked
            with suppress(OSError):
                mine.send(answer)
        if drains:
            self.drain(arguments["for_s"], arguments["by"], arguments.get("to_cluster", False))
        self._resize()

    # -- another configuration

    def reload(self, by: str = "", check: bool = False) -> dict[str, Any]:
        """changes: [key, old, new]; refused: why nothing has changed; later: keys that hold from the next start on;
        plugins: files that are others than those that were loaded; generation: of the configuration that runs. check:
        only says so."""
        changes: list[Any] = []
        files: list[str] = []
        by = "" if check else by or "somebody"
        try:
            found = probe.load(self._again, self._processes, self._patiently)
            changes = [list(change) for change in difference(leaves(self.config), leaves(found.config))]
            files = [file for file, is_now in found.files.items() if self._host.files.get(file, is_now) != is_now]
            if found.fault:
                raise ConfigurationRefused(found.fault.splitlines())
            given = Given(found.config, found.origin, by, self._given.generation + 1)
            if given.config.cluster.enabled:
                declare(found.config, by, True, self._processes)
                given = given._replace(config=self._with_queues(given.config))
            host = self._change(given, check)
        except (ConfigError, StartError) as error:
            return self._told(changes, files, str(error).splitlines(), by)
        except ConfigurationRefused as error:
            return self._told(changes, files, error.sentences, by)
        except Exception as error:  # such as no more open files: what runs goes on
            traceback.print_exc()
            return self._told(
                changes, files, [f"it cannot be taken ({type(error).__name__}: {error}); see the log"], by
            )
        else:
            if not check and is_due(given.config):
                self._later = (given, host)  # who has asked is answered before its queue ends
            elif not check:
                self._hold(given, host)
            if not check:
                self._file = found.config
                self._declare_held(by)
            return self._told(changes, files, [], by)
        finally:
            self._processes.let_none_go()

    def _declare_held(self, by: str) -> None:
        """Others are told of what holds now. If that fails, this node is behind, and named so."""
        if not self._file.cluster.enabled:
            return
        try:
            declare(self._file, by, False, self._processes)
            self._renumber()  # nothing of others may be stricter any more
        except StartError as error:
            _log(str(error))

    def _told(self, changes: list[Any], files: list[str], refused: list[str], by: str) -> dict[str, Any]:
        """by: who is to be named in the log; "": it only was a question."""
        for sentence in refused if by else ():
            _log(f"the configuration is unchanged: {sentence}")
        if by and not refused:
            keys = [*(key for key, _, _ in changes), *files]
            names = ", ".join(keys[:10]) + (" …" if len(keys) > 10 else "")
            _log(f"another configuration holds, given by {by}; changed: {names or 'nothing'}")
        later = [key for key, _, _ in changes if key in LATER]
        given = self._given if self._later is None else self._later[0]
        return {
            "changes": changes, "refused": refused, "later": later, "plugins": files, "generation": given.generation,
        }  # fmt: skip

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
                if not is_due(given.config):
                    self._offer(given, check=False)
                return host
        except BaseException:
            self._processes.forget(*self._ports.drop(added))
            raise
        self._processes.forget(*self._ports.drop(added))
        return self._host

    def _offer(self, given: Given, check: bool) -> None:
        """To all queues, one after another. Raises ConfigurationRefused with why one does not take it: where another
        has taken it, this one takes it at its next start, which is now.

        One whose process ends meanwhile is offered it again: it may end because of what this one takes out.
        """
        taken = False
        for pipe in [self._pipes[name] for name in QUEUE.names(self.config)]:
            try:
                self._offer_one(pipe, self._for_queue(given, pipe.name), check)
            except ConfigurationRefused as refused:
                if not taken:
                    raise
                self._behind.append(pipe.name)
                _log(f"{pipe.name} is restarted with the other configuration: {refused.sentences[0]}")
            taken = not check

    def _offer_one(self, pipe: QueuePipe, given: Given, check: bool) -> None:
        until = time.monotonic() + TAKE_S
        while True:
            refused = self._offered(pipe, given, check, until)
            if refused is None and time.monotonic() >= until:
                refused = ["the queue's process ends again and again; the log says why"]
            if refused:
                raise ConfigurationRefused(refused)
            if refused is not None:
                return
            self._keep_up()
            time.sleep(LOOK_S)

    def _offered(self, pipe: QueuePipe, given: Given, check: bool, until: float) -> list[str] | None:
        """None: there is no process of the queue any more, or not yet."""
        mine = pipe.mine
        if mine is None or not self._processes.pid(pipe.name):
            return None
        if not check:  # once it has taken it, it has nothing more for the senders that run, which then end
            self._processes.let_go(SENDER.has)
        try:
            mine.send(("take", 0, (given, check)))
            while self._patiently(mine, until - time.monotonic()):
                if mine.closed:
                    return None
                refused = pipe.sort(mine.recv())
                if refused is not None:
                    return refused
        except (EOFError, OSError):
            return None
        os.kill(self._processes.pid(pipe.name), signal.SIGKILL)  # what it has taken is unknown: its next process knows
        return ["the queue's process did not answer; it is restarted with the configuration as it was"]

    def _resize(self) -> None:
        """Other queues, if a configuration that was taken says so: those that run end what they have leased, what
        belongs elsewhere is moved, and all begin anew, while receivers stay and wait for them."""
        if self._later is None:
            return
        (given, host), self._later = self._later, None
        self._processes.put_away(_of_queues, given.config.server.stop_s, self._ask_to_leave)
        self._processes.put_away(AUTHORITY.has, PASSED_ON_S, lambda: None)  # it has passed on all answers
        for pipe in self._pipes.values():
            pipe.end()
        before = self.config
        try:
            rearrange(given.config, self._processes)
        except StartError as error:
            _log(f"the configuration is unchanged: {error}")
            rearrange(before, self._processes)
            given, host = self._given, self._host
        self._hold(given, host)

    def _ask_to_leave(self) -> None:
        for pipe in self._pipes.values():
            with suppress(OSError):
                if pipe.mine is not None:
                    pipe.mine.send(("leave", 0, None))

    def _hold(self, given: Given, host: Host) -> None:
        """It is the one that runs from now on."""
        before = self._names()
        self._processes.remind()
        same = given.config == self.config and host.files == self._host.files
        self._given, self._host = given, host
        if not same:  # asked again, since what had been asked has died of it: that is known
            _forget_deaths(given.config.folder)
        self._processes.stop_s = given.config.server.stop_s
        roles.begin(given.config, int(self._clock() * 1000))
        self._start_queues()
        for name in self._behind:
            if pid := self._processes.pid(name):
                os.kill(pid, signal.SIGKILL)
        self._behind.clear()
        for role in ROLES[1:]:
            self._start(role)
        for name in before - self._names():
            self._processes.end(name)
        for bound in self._ports.close_unused(given.config):
            self._processes.forget(bound)


def _of_queues(name: str) -> bool:
    """Whether a process ends with the queues."""
    return QUEUE.has(name) or SENDER.has(name)


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


def _forget_deaths(folder: Path) -> None:
    """What processes have died of counts no more: in the MTA's folder, and in those of its queues."""
    for place in folders.every(folder).values():
        Deaths(place).forget()

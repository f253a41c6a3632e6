"""`zonemta run`: binds the ports, forks queue, receivers, HTTP process, senders and event feed, and restarts them.

SIGKILL ends all of them alike (children die with the supervisor), and starting is recovering. SIGTERM does the same
after some seconds, in which nothing new is begun: the queue grants no leases, receivers end their messages
(`server.stop_s`); a second SIGTERM does it at once. `zonemta drain` does it with a time of its own; if it is canceled,
what has ended is started again. SIGHUP puts another configuration in the place of the one that runs (`generations.py`).

The queue is started first and imports its modules itself, on a core of its own, while the receivers' are imported here:
they greet clients while the rest is still being loaded. Once mail flows, what the queue needs is imported here too, so
that a restarted one is back as soon as it is forked. The listening sockets stay open here (`ports.py`), so that clients
which connect while a receiver starts again only wait.

Failures: a port that is taken or a bad plugin is a `StartError`, one sentence. After the start nothing is fatal, not
even a standard error that cannot be written: `zonemta run` puts one there that raises nothing (`logs.stream`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from zonemta_py.config import Config
from zonemta_py.config.file import SourceFile
from zonemta_py.processes import privileges
from zonemta_py.processes.pipe import ASKED
from zonemta_py.processes.ports import Ports
from zonemta_py.processes.ports import StartError as StartError
from zonemta_py.processes.running import WAITED_FOR, Processes
from zonemta_py.queue.reload import last_end

if TYPE_CHECKING:
    from zonemta_py.processes.generations import Generations

LOAD_AFTER_S = 30.0
"""After the start, when mail flows and its first rush is over, what the queue's next process needs is loaded here."""
LOOK_S_REAPING = 0.01
LOOK_S = 60.0
"""How long the supervisor sleeps at most while it is to end: a time may be too long for the kernel."""
Again = Callable[[], tuple[Config, SourceFile]]


def run(
    config: Config, clock: Callable[[], float] = time.time, opening: Iterable[str] = (), again: Again | None = None,
    origin: SourceFile | None = None,
) -> NoReturn:  # fmt: skip
    """Never returns. Raises StartError, PluginError, ConfigError before the first process is started. Root is given up
    once the ports are bound (`server.user`).

    clock: UNIX time, by which the reporter's day begins. opening: lines that are printed once all has been checked.
    again: reads the configuration anew, from where it came (`origin`); raises ConfigError.
    """
    ports = Ports()
    ports.bind(config)
    ports.listen()
    privileges.drop(config)
    from zonemta_py.processes import checks, queue_process, roles

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, _too_early)
    host = queue_process.plugins(config)
    checks.check_listeners(config, host)
    processes = Processes(config.server.stop_s)
    processes.remember(*ports.all)
    checks.check_others(config)
    roles.begin(config, int(clock() * 1000))
    print("".join(f"{line}\n" for line in opening), end="", file=sys.stderr, flush=True)
    from zonemta_py.processes.generations import Generations

    generations = Generations(
        config, origin or SourceFile(), again or (lambda: (config, SourceFile())), ports, processes, clock
    )
    stop = partial(_stop, processes, ports, generations.ending)
    generations.drain = partial(_drain, stop, generations, processes)
    generations.start(host)
    gc.enable()
    gc.collect()
    gc.freeze()
    load_at: float | None = time.monotonic() + LOAD_AFTER_S
    while True:
        processes.start_due()
        told = processes.wait(load_at)
        if processes.is_replaced:
            _begin_anew(processes)
        if load_at is not None and time.monotonic() >= load_at:
            generations.load_queue()
            load_at = None
        if told is not None and told.si_signo == ASKED:
            generations.asked()
        if told is not None and told.si_signo == signal.SIGHUP:
            _still_there()
            generations.told(told.si_uid)
        if told is not None and told.si_signo == signal.SIGTERM:
            stop(processes.stop_s)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
            os.kill(os.getpid(), signal.SIGTERM)  # as default: the children die with us
            os._exit(os.EX_OK)


def _begin_anew(processes: Processes) -> NoReturn:
    """This node of a cluster was taken for dead, and others have its mail: the same command begins with no mail. It
    ends where that cannot be, and whoever started it starts it again."""
    print("zonemta: other nodes have taken over the mail of this one, which begins anew", file=sys.stderr, flush=True)
    processes.stop()
    processes.tell(signal.SIGKILL, lambda _: True)
    while processes.roles(lambda _: True):
        time.sleep(LOOK_S_REAPING)
        processes.reap()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError:
        os._exit(os.EX_TEMPFAIL)


def _drain(
    stop: Callable[[float, bool], dict[str, str] | None], generations: Generations, processes: Processes,
    for_s: float, by: str, to_cluster: bool,
) -> None:  # fmt: skip
    """As `zonemta drain` asks for: exit status 0 says that nothing was cut off. Returns if it was canceled. to_cluster:
    other nodes take the mail over at once."""
    folder = generations.config.folder
    last_end.forget(folder)
    print(f"zonemta: draining, ordered by {by}", file=sys.stderr, flush=True)
    cut_off = stop(for_s, True)
    if cut_off is None:
        generations.resume()
        return
    if to_cluster:
        from zonemta_py.processes.rearrange import leave

        processes.tell(signal.SIGKILL, lambda _: True)
        try:
            leave(generations.config, processes)
        except StartError as error:
            cut_off = cut_off | {"cluster": str(error)}
    last_end.write(folder, os.getpid(), cut_off)
    os._exit(os.EX_TEMPFAIL if cut_off else os.EX_OK)


def _stop(
    processes: Processes, ports: Ports, ending: Callable[[bool], float | None], for_s: float, canceled: bool = False
) -> dict[str, str] | None:
    """Lets what is under way come to its end for a while. The roles of those that have not, and why; None: canceled
    meanwhile.

    ending: hears who orders a drain meanwhile, with how many seconds it leaves from then on; below 0: it is canceled.
    canceled: whether it may be.
    """
    from zonemta_py.processes.roles import heeds_sigterm

    processes.stop()
    end = time.monotonic() + for_s
    print(f"zonemta: stopping; work in progress has {for_s:g} s", file=sys.stderr, flush=True)
    processes.tell(signal.SIGTERM, heeds_sigterm)
    ports.refuse()
    while left := processes.roles(heeds_sigterm):
        left_s = end - time.monotonic()
        told = signal.sigtimedwait(WAITED_FOR, min(LOOK_S, left_s)) if left_s > 0 else None
        if left_s <= 0 or (told is not None and told.si_signo == signal.SIGTERM):
            print(f"zonemta: cut off: {', '.join(sorted(left))}", file=sys.stderr, flush=True)
            return processes.broken | dict.fromkeys(sorted(left), "its time was over")
        another_s = ending(canceled)
        if another_s is not None and another_s < 0:
            ports.listen()
            processes.resume()
            return None
        if another_s is not None:
            end = time.monotonic() + another_s
            print(f"zonemta: work in progress has {another_s:g} s from now on", file=sys.stderr, flush=True)
        processes.reap()
    return processes.broken


def _too_early(*_: object) -> None:
    """SIGHUP while nothing runs yet."""
    _still_there()


def _still_there() -> None:
    """A terminal that is gone sends SIGHUP too, and cannot be written to (EIO): that is an end."""
    try:
        print("zonemta: SIGHUP: reloading the configuration", file=sys.stderr, flush=True)
    except OSError:
        os._exit(os.EX_OK)

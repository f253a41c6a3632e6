"""More queues, or fewer: what belongs elsewhere then is moved by a process of its own, while no queue runs.

A death in the middle costs nothing: `queues/layout` says what was to be, the next start goes on with it, and each
message is in one queue or the other. Failures: StartError with one sentence; the queues are as they were, or are moved
on at the next start."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial

from zonemta_py.config import Config, queue_count
from zonemta_py.logs.causes import cause
from zonemta_py.processes.pipe import Pipe, pair
from zonemta_py.processes.ports import StartError
from zonemta_py.processes.running import Processes
from zonemta_py.queues import layout

TELL_S = 5.0


def is_due(config: Config) -> bool:
    """Whether other queues are there than there are to be. Raises StartError."""
    if config.cluster.enabled:
        return False
    if queue_count(config) == 1 and not (config.folder / layout.FOLDER).exists():
        return False
    try:
        return layout.known(config.folder) != list(range(queue_count(config))) or not layout.settled(config.folder)
    except (ValueError, OSError) as error:
        raise StartError(cause(error)) from None


def rearrange(config: Config, processes: Processes) -> None:
    """No queue may run. Raises StartError."""
    died = "the process that moves mail between queues died; see the log, and start again: it goes on where it was"
    _aside(processes, partial(_move, config), "moving", died)


def join(config: Config, processes: Processes) -> None:
    """A node learns which queues of the cluster are its own; `layout` says so then. Raises StartError."""
    _aside(processes, partial(_join, config), "joining", "the process that joins the cluster died; see the log")


def declare(config: Config, by: str, check: bool, processes: Processes) -> None:
    """A node is to have that configuration while it runs, and has taken it (not check). Raises StartError: why not."""
    from zonemta_py.cluster import agreed

    before = agreed.noted(config.folder)
    if before.had == before.number and before.own == agreed.values_of(config):
        return
    died = "the process that compares configurations died; see the log"
    _aside(processes, partial(_declare, config, by, check), "comparing", died)


def _declare(config: Config, by: str, check: bool, pipe: Pipe) -> None:
    """In a process of its own."""
    from zonemta_py.cluster.join import declare as declare_in_cluster

    try:
        asyncio.run(declare_in_cluster(config, by, check))
    except (ValueError, OSError) as error:
        pipe.send(cause(error))
        return
    pipe.send("")


def leave(config: Config, processes: Processes) -> None:
    """A node that ends gives its queues away: other nodes take them over at once. Raises StartError."""
    _aside(processes, partial(_leave, config), "leaving", "the process that leaves the cluster died; see the log")


def _leave(config: Config, pipe: Pipe) -> None:
    """In a process of its own."""
    from zonemta_py.cluster.join import leave as leave_cluster

    try:
        asyncio.run(leave_cluster(config))
    except (ValueError, OSError) as error:
        pipe.send(cause(error))
        return
    pipe.send("")


def _aside(processes: Processes, work: Callable[[Pipe], None], name: str, died: str) -> None:
    """Waits for a process of its own, which says what is wrong; "": nothing. Raises StartError."""
    ours, theirs = pair()
    processes.remember(ours)
    pid = 0
    try:
        try:
            pid = processes.aside(partial(work, theirs), name)
        finally:
            theirs.close()
        fault: str = ours.recv()
    except EOFError:
        fault = died
    finally:
        processes.forget(ours)
        processes.put_down(pid)
    if fault:
        raise StartError(fault)


def _join(config: Config, pipe: Pipe) -> None:
    """In a process of its own."""
    from zonemta_py.cluster.join import join as join_cluster

    try:
        asyncio.run(join_cluster(config))
    except (ValueError, OSError) as error:
        pipe.send(cause(error))
        return
    pipe.send("")


def _move(config: Config, pipe: Pipe) -> None:
    """In a process of its own."""
    folder, wanted = config.folder, list(range(queue_count(config)))
    try:
        if not (folder / "store").exists() and not (folder / "journal").exists():  # a new MTA
            layout.write(folder, wanted)
            pipe.send("")
            return
        from zonemta_py.queues.moving import rebalance

        there = layout.known(folder)
        layout.write(folder, layout.numbers(folder), sorted({*there, *wanted}))
        print(f"zonemta: server.queues: from {len(there)} to {len(wanted)}; mail is moved", file=sys.stderr, flush=True)
        asyncio.run(rebalance(config, there, wanted, _Teller()))
        layout.write(folder, wanted)
    except (ValueError, OSError) as error:
        pipe.send(f"mail cannot be moved between queues: {cause(error)}")
        return
    pipe.send("")


class _Teller:
    """Says every few seconds how far it is."""

    def __init__(self) -> None:
        self._next = time.monotonic() + TELL_S

    def __call__(self, done: int, of: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_S
            print(f"zonemta: {done:,} of {of:,} messages are looked at", file=sys.stderr, flush=True)

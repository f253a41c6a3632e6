"""An MTA's authority and its queues, each in a process of its own, by the functions with which `zonemta run` starts
them; without the supervisor, receivers and senders. Queues are filled before, each with the mail that it would take.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from survival.filling import fill_within

from zonemta_py.config import Config, queue_count
from zonemta_py.config.file import SourceFile
from zonemta_py.mail.envelope import Envelope
from zonemta_py.plugin.host import Host
from zonemta_py.processes import queue_process, roles
from zonemta_py.processes.pipe import pair
from zonemta_py.processes.queue_process import Given
from zonemta_py.processes.roles import Child
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.queues import layout, placement
from zonemta_py.wire.blocking_client import QueueGone, ask

THERE_S = 300.0
End = Callable[[Any], Awaitable[None]]
_CLOCK_OF = 2
"""Of a process: all its threads' processor time."""


def worked_s(process: int) -> float:
    """Processor time of that process since its start."""
    return time.clock_gettime(~process << 3 | _CLOCK_OF)


def _child(config: Config, name: str) -> Child:
    return Child(name, Given(config, SourceFile(), "the trial", 1), Host.empty(), [], time.time)


def authority_process(config: Config) -> None:
    roles.AUTHORITY.work(_child(config, "authority"))


def queue_of_several(
    config: Config, number: int, watch: Callable[[Connection], Awaitable[None]], it: Connection
) -> None:
    """watch: what is done besides, in its event loop; gets `it`."""
    run, (ours, theirs) = queue_process.run, pair()

    async def watched(*arguments: Any) -> None:
        await asyncio.gather(run(*arguments), watch(it))

    queue_process.run, queue_process.resolver_of = watched, lambda _: None  # no domain is looked up
    name = roles.QUEUE.names(config)[number]
    roles.queue(_child(layout.config_of(config, number), name), theirs)
    ours.close()


async def fill(config: Config, number: int, letters: Iterator[Envelope], body: bytes, end: End) -> None:
    """Of the letters, that queue gets its own. end: what is done with it then."""
    place, queue = placement.of(config), await open_queue(layout.config_of(config, number))
    queue.start()
    await fill_within(queue, (one for one in letters if place.order(one)[0] == number), body)
    await end(queue)
    await queue.position()
    queue.close()


class SeveralQueues:
    """Used as a context: it ends its processes. pipes: to each queue's `watch`."""

    def __init__(
        self, config: Config, fill: Callable[[Config, int], None], watch: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self.config, self.numbers = config, range(queue_count(config))
        self.folders = [layout.folder_of(config.folder, number) for number in self.numbers]
        self._context = multiprocessing.get_context("spawn")
        layout.write(config.folder, self.numbers)
        begun = time.monotonic()
        filling = [self._start(fill, config, number) for number in self.numbers]
        for process in filling:
            process.join()
            assert process.exitcode == 0, "a queue could not be filled"
        self.filled_s = time.monotonic() - begun
        self.pipes = list[Connection]()
        self._queues = list[BaseProcess]()
        for number in self.numbers:
            ours, theirs = self._context.Pipe()
            self._queues.append(self._start(queue_of_several, config, number, watch, theirs))
            theirs.close()
            self.pipes.append(ours)
        self._authority = self._start(authority_process, config)

    def _start(self, work: Callable[..., None], *arguments: Any) -> BaseProcess:
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def wait(self) -> None:
        """Until they answer as one, and send mail."""
        until = time.monotonic() + THERE_S
        while True:
            with suppress(QueueGone, ValueError, OSError):
                if not ask(self.config.folder, "ready") and not ask(self.config.folder, "lanes", limit=1)["whole"]:
                    return
            assert time.monotonic() < until, "the queues do not answer"
            time.sleep(0.1)

    def worked_s(self) -> tuple[float, float]:
        """Processor time of the queues, and of the authority."""
        return sum(worked_s(one.pid or 0) for one in self._queues), worked_s(self._authority.pid or 0)

    def end(self) -> None:
        for process in (*self._queues, self._authority):
            process.kill()
            process.join()

"""`zonemta fsck`: compares journal, store and counters, and repairs what can be. The MTA must be stopped."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.run.folder import wait_until_unlocked
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, readable
from zonemta_py.cli.terminal.output import print_json, print_table
from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.processes import privileges
from zonemta_py.queues import layout

if TYPE_CHECKING:
    from zonemta_py.queue.fsck.compare import Problem


@readable
def fsck(
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired; nothing damaged is deleted.")
    ] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Check that the queue's journal, store and counters agree. Exit status 1: problems remain."""
    chosen = configuration(config, folder)
    _needs_a_queue(chosen)
    privileges.drop(chosen)  # what is written must belong to the MTA's user
    from zonemta_py.disk.leveldb.store import StoreError
    from zonemta_py.queue.recovery.offline import check

    queues = _queues(chosen)
    try:
        reports = [asyncio.run(check(queue, repair, lambda text: print(text, file=sys.stderr))) for queue in queues]
    except StoreError as error:
        raise CommandError(Exit.DISK, str(error)) from None
    problems = [_named(problem, queue, len(queues)) for queue, one in zip(queues, reports, strict=True)
                for problem in one.problems]  # fmt: skip
    counts = Counter[str]()
    for one in reports:
        counts.update(one.counts)
    if json:
        print_json({"problems": [problem._asdict() for problem in problems], "counts": counts})
    else:
        _print(counts, problems, any(one.repaired for one in reports))
    if any(_stays(problem, repair) for problem in problems):
        raise CommandError(Exit.PROBLEMS)


def _queues(config: Config) -> list[Config]:
    """The configuration of each queue. Raises CommandError."""
    try:
        return layout.each(config)
    except (ValueError, OSError) as error:
        raise CommandError(Exit.DATA, cause(error)) from None


def _named(problem: Problem, queue: Config, of: int) -> Problem:
    """With the queue that it is in, where there are several."""
    return problem if of == 1 else problem._replace(id=f"queue {queue.queue_number}: {problem.id}")


def _print(counts: dict[str, int], problems: list[Problem], repaired: bool) -> None:
    print_table("Counted", ("what", "how many "), counts.items())
    if problems:
        title = "Problems, repaired" if repaired else "Problems"
        rows = [(p.severity, p.id, p.what, p.remedy) for p in problems]
        print_table(title, ("severity", "where", "what", "remedy"), rows)


def _stays(problem: Problem, repair: bool) -> bool:
    """Damage has cost mail, which no repair brings back; what is harmless is never an error."""
    return problem.severity == "damage" or (problem.severity == "repairable" and not repair)


def _needs_a_queue(config: Config) -> None:
    """Raises CommandError if there is none here, or another process has it open."""
    from zonemta_py.queue.recovery.restore import was_here

    if not ((config.folder / "store").is_dir() or was_here(config.folder)):
        raise CommandError(
            Exit.NO_INPUT, f"{config.folder}: contains no queue; name the MTA's folder with --folder or --config"
        )
    for queue in _queues(config):
        wait_until_unlocked(queue.folder)

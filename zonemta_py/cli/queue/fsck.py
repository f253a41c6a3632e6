"""`zonemta fsck`: compares journal, store and counters, and repairs what can be. The MTA must be stopped."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.run.folder import wait_until_unlocked
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, readable
from zonemta_py.cli.terminal.output import print_json, print_table
from zonemta_py.config import Config
from zonemta_py.processes import privileges

if TYPE_CHECKING:
    from zonemta_py.queue.fsck.compare import FsckReport, Problem


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

    try:
        report = asyncio.run(check(chosen, repair, lambda text: print(text, file=sys.stderr)))
    except StoreError as error:
        raise CommandError(Exit.DISK, str(error)) from None
    if json:
        print_json({"problems": [problem._asdict() for problem in report.problems], "counts": report.counts})
    else:
        _print(report)
    if any(_stays(problem, repair) for problem in report.problems):
        raise CommandError(Exit.PROBLEMS)


def _print(report: FsckReport) -> None:
    print_table("Counted", ("what", "how many "), report.counts.items())
    if report.problems:
        title = "Problems, repaired" if report.repaired else "Problems"
        rows = [(p.severity, p.id, p.what, p.remedy) for p in report.problems]
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
    wait_until_unlocked(config.folder)

"""Records of the journal, and those that come, whether the MTA runs or not; as long as somebody reads what is printed
of them."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.disk.frame import Record
from zonemta_py.journal.tail import JournalTail, last_seq
from zonemta_py.queue import questions
from zonemta_py.wire.blocking_client import QueueGone, ask

RECORDS_AT_ONCE = 1000
WAIT_S = 3.0
"""Longer than the queue waits until it asks for a sync."""
LOOK_S = 0.05
ALONE_S = 0.5
"""How often the files are looked at while no queue answers."""


def checked(folder: Path) -> Path:
    """A queue's folder. Raises CommandError: it has no journal."""
    if not (folder / "journal").is_dir():
        raise CommandError(
            Exit.NO_INPUT, f"{folder}: contains no journal; name the MTA's folder with --folder or --config"
        )
    return folder


def records(folder: Path, first_seq: int, until: int, follow: bool) -> Iterator[Record]:
    """From that number to `until`; then, if `follow`, those that come. Says what the archive no longer has."""
    journal, told = JournalTail(folder, first_seq), 0
    while True:
        while found := journal.read(until, RECORDS_AT_ONCE):
            yield from found
        if journal.missed > told:
            lost = f"{journal.missed - told:,}"
            print(f"zonemta: the archive no longer has {lost} earlier records", file=sys.stderr)
            told = journal.missed
        if not follow:
            return
        _check_reader()
        time.sleep(LOOK_S)
        until = max(until, stable(folder, until, WAIT_S))


def _check_reader() -> None:
    """Raises BrokenPipeError if the reader of our output has gone (`| head`): a write would tell, but there may be
    nothing to write for a long time."""
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):  # no file, in a test
        return
    poll = select.poll()
    poll.register(place, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


def stable(folder: Path, after: int, wait_s: float, **more: bool) -> int:
    """The last record that may be read. Without a queue nothing is written, and all that is there may be. more:
    written=True: all that has been written until now is among them."""
    try:
        return int(ask(folder, questions.stable, after=after, wait_s=wait_s, **more))
    except QueueGone:
        time.sleep(ALONE_S if wait_s else 0)
        return last_seq(folder)
    except ValueError as error:
        raise CommandError(Exit.UNAVAILABLE, f"{error}; restart the MTA, which is of an older version") from None

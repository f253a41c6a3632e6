"""Records of the journals of all queues, and those that come, whether the MTA runs or not; as long as somebody reads
what is printed of them. Those of several queues come by time as far as they are there, then as they are written."""

from __future__ import annotations

import heapq
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.disk.frame import Record
from zonemta_py.journal import folders
from zonemta_py.journal.tail import JournalTail, last_seq
from zonemta_py.queue import questions
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import QueueGone, ask_at

RECORDS_AT_ONCE = 1000
WAIT_S = 3.0
"""Longer than the queue waits until it asks for a sync."""
LOOK_S = 0.05
ALONE_S = 0.5
"""How often the files are looked at while no queue answers."""

Journals = dict[int, Path]
"""Folders of queues that have a journal, by source (`journal.folders`)."""


def journals(folder: Path) -> Journals:
    """Of all queues of the MTA whose folder it is. Raises CommandError: none has a journal."""
    found = {number: place for number, place in folders.every(folder).items() if (place / "journal").is_dir()}
    if not found:
        raise CommandError(
            Exit.NO_INPUT, f"{folder}: contains no journal; name the MTA's folder with --folder or --config"
        )
    return found


class _Tail:
    """Of one journal. until: the last record that may be read."""

    def __init__(self, folder: Path, first_seq: int, until: int) -> None:
        self._journal, self._told, self.until = JournalTail(folder, first_seq), 0, until

    def read(self) -> Iterator[Record]:
        """Those that are new. Says what the archive no longer has."""
        while found := self._journal.read(self.until, RECORDS_AT_ONCE):
            yield from found
        if self._journal.missed > self._told:
            lost = f"{self._journal.missed - self._told:,}"
            print(f"zonemta: the archive no longer has {lost} earlier records", file=sys.stderr)
            self._told = self._journal.missed


def records(
    places: Journals, firsts: Mapping[int, int], untils: Mapping[int, int], follow: bool
) -> Iterator[tuple[int, Record]]:
    """With their sources: from these numbers to `untils`; then, if `follow`, those that come."""
    tails = {number: _Tail(place, firsts[number], untils[number]) for number, place in places.items()}
    yield from in_time({number: tail.read() for number, tail in tails.items()})
    if not follow:
        return
    for number, until in _grown(places, untils):
        tails[number].until = until
        for record in tails[number].read():
            yield number, record


def in_time(several: Mapping[int, Iterator[Record]]) -> Iterator[tuple[int, Record]]:
    """Of several journals: by time, those of each in their order."""
    rows = [zip(repeat(number), its, strict=False) for number, its in several.items()]
    return heapq.merge(*rows, key=lambda row: row[1].ms) if len(rows) > 1 else rows[0]


def last(places: Journals, untils: Mapping[int, int], count: int) -> dict[int, int]:
    """Of each journal the first of the last `count` records of all."""
    if len(places) == 1:
        return {number: max(1, until - count + 1) for number, until in untils.items()}
    newest = list[tuple[int, int, int]]()
    for number, place in places.items():
        journal = JournalTail(place, max(1, untils[number] - count + 1))
        newest += [(record.ms, record.seq, number) for record in journal.read(untils[number], count)]
        journal.close()
    firsts = {number: until + 1 for number, until in untils.items()}
    for _, seq, number in heapq.nlargest(count, newest):
        firsts[number] = min(firsts[number], seq)
    return firsts


def _grown(places: Journals, untils: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The number of a queue, and the last record of its journal that may be read, whenever there may be new ones."""
    if len(places) == 1:
        [(number, place)] = places.items()
        until = untils[number]
        while True:
            _check_reader()
            time.sleep(LOOK_S)
            until = max(until, stable(place, until, WAIT_S))
            yield number, until
    news = SimpleQueue[tuple[int, int | CommandError]]()
    for number, place in places.items():
        Thread(target=_watch, args=(number, place, untils[number], news), daemon=True).start()
    while True:
        _check_reader()
        with suppress(Empty):
            number, found = news.get(timeout=WAIT_S)
            if isinstance(found, CommandError):
                raise found
            yield number, found


def _watch(number: int, place: Path, until: int, news: SimpleQueue[tuple[int, int | CommandError]]) -> None:
    while True:
        try:
            until = max(until, stable(place, until, WAIT_S))
        except CommandError as error:
            news.put((number, error))
            return
        news.put((number, until))
        time.sleep(LOOK_S)


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


def all_stable(places: Journals, **more: bool) -> dict[int, int]:
    """`stable` of each, now."""
    return {number: stable(place, 0, 0, **more) for number, place in places.items()}


def stable(folder: Path, after: int, wait_s: float, **more: bool) -> int:
    """The last record of a queue's journal that may be read. Without the queue nothing is written, and all that is
    there may be. more: written=True: all that has been written until now is among them."""
    try:
        return int(ask_at(folder / SOCKET, questions.stable, after=after, wait_s=wait_s, **more))
    except QueueGone:
        time.sleep(ALONE_S if wait_s else 0)
        return last_seq(folder)
    except ValueError as error:
        raise CommandError(Exit.UNAVAILABLE, f"{error}; restart the MTA, which is of an older version") from None

"""The summaries of an archive: which segments have one that holds, and making those that are missing.

Promise: each record is counted once, in the first segment file that has it, as the lake does; a summary is made again
when its segment, or one that it knows messages from, has changed since, or when a segment has come that may have the
ENVELOPE of a message that it missed. A file is replaced as a whole, so a maker may be killed, and several may work at
once. Where no file can be written, the numbers are counted for this time. Failures: OSError for segments that cannot be
read; damage in a segment is counted (`SummaryHeader.damages`).
"""

from __future__ import annotations

import bisect
import contextlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import changed
from zonemta_py.journal import folders
from zonemta_py.journal.segments import SUMMARY, first_seq, span, summary_of
from zonemta_py.summary import file
from zonemta_py.summary.file import MessageOwners, SegmentSummary, SummaryHeader, SummaryUnreadable
from zonemta_py.summary.views import HOUR_MS, SegmentCounts, Whose, born_ms, count

SLACK_MS = HOUR_MS
"""Clocks may be set back, and an ENVELOPE may come later than its message: so far apart at most."""
_BEFORE_MS = 10_000
"""So much younger than its ENVELOPE record a message may seem to be."""
_REPEATED = 3
"""Files before one that may have the same records, as a write that failed was repeated."""
_KEPT = 512
"""Segments of which it is kept in memory whose messages they have."""
_MISSED_MAX = 10_000


class SegmentPlace(NamedTuple):
    """A segment. source: of its journal; number: its place among that journal's segments."""

    path: Path
    source: int
    number: int

    @property
    def key(self) -> str:
        """Its name, as no other segment of the MTA has it."""
        return f"{self.source:x}/{self.path.name}"


class RecordSpan(NamedTuple):
    """Numbers and times of a segment's first and last record; `last` 0: it has none that can be read."""

    first: int
    last: int
    first_ms: int
    last_ms: int


Told = Callable[[int, int], object]


class SummaryShelf:
    """Of one or more archives, with those of the MTA's other queues."""

    def __init__(self, archives: Iterable[Path]) -> None:
        found = dict[int, dict[str, Path]]()
        for archive in archives:
            for source, folder in folders.beside(archive).items():
                for path in folders.files(folder):
                    found.setdefault(source, {}).setdefault(path.name, path)
        self._sources = {
            source: [SegmentPlace(path, source, number) for number, path in enumerate(_in_order(paths.values()))]
            for source, paths in sorted(found.items())
        }
        self._spans: dict[Path, RecordSpan] = {}
        self._firsts: dict[int, list[int]] = {}
        self._changed: dict[Path, tuple[int, ...]] = {}
        self._places = {place.key: place for places in self._sources.values() for place in places}
        self._messages: OrderedDict[Path, MessageOwners] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    # -- which there are

    def places(self) -> list[SegmentPlace]:
        """All segments, one queue after the other, each in its order."""
        return [place for places in self._sources.values() for place in places]

    def within(self, since_ms: int, until_ms: int) -> list[SegmentPlace]:
        """Segments that may have records of that time, in the order of their times."""
        found = []
        for places in self._sources.values():
            for place in places:
                with contextlib.suppress(FileNotFoundError):
                    if place.path.stat().st_mtime * 1000 + SLACK_MS < since_ms:  # written last before
                        continue
                    one = self._span(place)
                    if one.last and one.last_ms + SLACK_MS >= since_ms and one.first_ms - SLACK_MS < until_ms:
                        found.append((one.first_ms, place))
        return [place for _, place in sorted(found)]

    def first_ms(self) -> int:
        """When the oldest record was written; 0: there is none."""
        firsts = [self._span(places[0]).first_ms for places in self._sources.values() if places]
        return min((one for one in firsts if one), default=0)

    def holds(self, place: SegmentPlace) -> SegmentSummary | None:
        """Its summary, if it may be used."""
        try:
            summary = SegmentSummary(place.path)
        except (OSError, SummaryUnreadable):
            return None
        header = summary.header
        if list(header.segment) != list(self._change(place.path)) or header.from_seq != self._from_seq(place):
            return None
        for key, was in header.taken.items():
            other = self._places.get(key)
            if other is not None and list(self._change(other.path)) != was:
                return None
        asked = set(header.asked)
        if any(one.key not in asked for number in header.missed for one in self._may_have(number, place)):
            return None
        return summary

    def lacking(self, places: Iterable[SegmentPlace]) -> list[SegmentPlace]:
        """Those without a summary that holds."""
        return [place for place in places if self.holds(place) is None]

    # -- making them

    def make(self, places: Iterable[SegmentPlace], told: Told = lambda done, total: None) -> dict[Path, SegmentCounts]:
        """Makes the summaries of these segments, in this order. Those that cannot be written come back."""
        wanted, unwritten = list(places), dict[Path, SegmentCounts]()
        for done, place in enumerate(wanted):
            told(done, len(wanted))
            with contextlib.suppress(FileNotFoundError):  # the archive keeps it no longer
                header, counted = self._count(place)
                try:
                    file.write(place.path, header, counted)
                except OSError:
                    unwritten[place.path] = counted
        told(len(wanted), len(wanted))
        return unwritten

    def _count(self, place: SegmentPlace) -> tuple[SummaryHeader, SegmentCounts]:
        was = changed(place.path)
        taken, asked = dict[str, list[int]](), set[str]()

        def find(number: int) -> Whose | None:
            for other in self._may_have(number, place):
                asked.add(other.key)
                whose = self._look(other, number)
                if whose is not None:
                    taken[other.key] = list(self._change(other.path))
                    return whose
            return None

        def known(number: int) -> bool:
            earlier = (one for one in self._may_have(number, place) if one.source == place.source)
            return any(self._look(one, number) is not None for one in earlier if one.number < place.number)

        from_seq = self._from_seq(place)
        counted = count(place.path.read_bytes(), from_seq, find, known)
        missed = sorted(counted.missed)[-_MISSED_MAX:]
        header = SummaryHeader(
            was, from_seq, counted.first, counted.last, counted.first_ms, counted.last_ms, counted.damages, taken,
            missed, sorted(asked) if missed else [], {},
        )  # fmt: skip
        return header, counted

    def _from_seq(self, place: SegmentPlace) -> int:
        """Where its own records begin: 0: with its first one."""
        before = self._sources[place.source][max(0, place.number - _REPEATED) : place.number]
        expected = max((self._span(one).last + 1 for one in before), default=0)
        return expected if expected > self._span(place).first else 0

    # -- whose a message is

    def _may_have(self, number: int, place: SegmentPlace) -> Iterator[SegmentPlace]:
        """Other segments that may have the ENVELOPE of that message, the likeliest first."""
        born = born_ms(number)
        for source, places in self._sources.items():
            firsts = self._firsts.get(source)
            if firsts is None:
                firsts = self._firsts[source] = [self._span(one).first_ms for one in places]
            at = max(0, bisect.bisect_right(firsts, born - _BEFORE_MS) - 1)
            for back in range(at - 1, max(0, at - _REPEATED) - 1, -1):  # a repeated write begins within another file
                at = back if self._span(places[back]).last_ms >= born - _BEFORE_MS else at
            while at < len(places) and firsts[at] <= born + SLACK_MS:
                if places[at].path != place.path:
                    yield places[at]
                at += 1

    def _look(self, place: SegmentPlace, number: int) -> Whose | None:
        messages = self._messages_of(place)
        at = bisect.bisect_left(messages.numbers, number)
        if at < len(messages.numbers) and messages.numbers[at] == number:
            return messages.owners[messages.whose[at]]
        return None

    def _messages_of(self, place: SegmentPlace) -> MessageOwners:
        there = self._messages.get(place.path)
        if there is not None:
            self._messages.move_to_end(place.path)
            return there
        try:
            summary = SegmentSummary(place.path)
            if list(summary.header.segment) != list(self._change(place.path)):
                raise SummaryUnreadable("the segment has changed")
            there = summary.messages()
        except (OSError, SummaryUnreadable):
            there = _counted_messages(place.path)
        self._messages[place.path] = there
        if len(self._messages) > _KEPT:
            self._messages.popitem(last=False)
        return there

    # -- files

    def _span(self, place: SegmentPlace) -> RecordSpan:
        """By its summary if that is of this very file, else by its first and last record."""
        known = self._spans.get(place.path)
        if known is not None:
            return known
        try:
            header = SegmentSummary(place.path).header
            if list(header.segment) != list(self._change(place.path)) or header.from_seq:
                raise SummaryUnreadable("the segment has changed")
            known = RecordSpan(header.first, header.last, header.first_ms, header.last_ms)
        except (OSError, SummaryUnreadable):
            try:
                ends = span(place.path)
            except FileNotFoundError:
                ends = None
            known = RecordSpan(ends[0].seq, ends[1].seq, ends[0].ms, ends[1].ms) if ends else RecordSpan(0, 0, 0, 0)
        self._spans[place.path] = known
        return known

    def _change(self, path: Path) -> tuple[int, ...]:
        known = self._changed.get(path)
        if known is None:
            known = self._changed[path] = changed(path)
        return known


def _counted_messages(path: Path) -> MessageOwners:
    """Of a segment that has no summary yet."""
    try:
        counted = count(path.read_bytes(), 0, lambda number: None)
    except FileNotFoundError:
        return MessageOwners(array("Q"), array("I"), [])
    owners: dict[Whose, int] = {}
    rows = sorted(counted.messages.items())
    places = [owners.setdefault(whose, len(owners)) for _, whose in rows]
    return MessageOwners(array("Q", [number for number, _ in rows]), array("I", places), list(owners))


def _in_order(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (first_seq(path), len(path.name)))


def discard(archives: Iterable[Path]) -> int:
    """Removes summaries that no longer hold, since their segment or one that they know messages from has changed or is
    gone, and what killed makers have left. Returns how many. Raises OSError."""
    shelf, removed = SummaryShelf(archives), 0
    holding = set[Path]()
    for place in shelf.places():
        if shelf.holds(place) is not None:
            holding.add(summary_of(place.path))
    for folder in {place.path.parent for place in shelf.places()}:
        for left in folder.glob(f"*{SUMMARY}.*{file.LEFT}"):
            left.unlink(missing_ok=True)
        for path in set(folder.glob(f"*{SUMMARY}")) - holding:
            path.unlink(missing_ok=True)
            removed += 1
    return removed

"""Which journal segments still concern living mail, and their way into the archive.

A closed segment never changes, so it is archived at once: its file gets a second name in the archive (a hard link). The
first name stays in the journal for as long as a restart may need it. A message belongs to the segment that was open
when its id was given out; each segment counts its living messages. An envelope record that comes after its segment was
closed (a large message takes its time) is counted as `late` by the segment that holds it. A closed segment without
living messages, entirely before the restart position, leaves the journal.
"""

from __future__ import annotations

import bisect
import os
from pathlib import Path
from typing import Any

from zonemta_py.journal import segments


class Segment:
    """first: sequence number of its first record. floor: ids from here on belong to it."""

    __slots__ = ("first", "floor", "late", "live")

    def __init__(self, first: int, floor: str, live: int = 0, late: list[str] | None = None) -> None:
        self.first, self.floor, self.live, self.late = first, floor, live, set(late or ())

    def row(self) -> list[Any]:
        return [self.first, self.floor, self.live, sorted(self.late)]


class Segments:
    """The segments that are not archived, oldest first; the last one is being written."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self._all = [Segment(*row) for row in rows]

    def begin(self, first: int, floor: str) -> None:
        self._all.append(Segment(first, floor))

    @property
    def newest(self) -> int:
        """The first record of the last one; 0: there is none."""
        return self._all[-1].first if self._all else 0

    def _home(self, message_id: str) -> Segment | None:
        if self._all and message_id >= self._all[-1].floor:
            return self._all[-1]
        index = bisect.bisect_right(self._all, message_id, key=lambda segment: segment.floor) - 1
        return self._all[max(0, index)] if self._all else None

    def born(self, message_id: str) -> None:
        """Its envelope record goes into the open segment."""
        home = self._home(message_id)
        if home is not None:
            home.live += 1
            if home is not self._all[-1]:
                self._all[-1].late.add(message_id)

    def ended(self, message_id: str) -> None:
        home = self._home(message_id)
        if home is not None:
            home.live -= 1
            if home is not self._all[-1]:
                for segment in self._all:
                    segment.late.discard(message_id)

    def count_again(self, living: list[str]) -> None:
        """After damage, which may have lost the records that count them. living: the messages in the store."""
        alive = set(living)
        for segment in self._all:
            segment.live, segment.late = 0, segment.late & alive
        for message_id in living:
            home = self._home(message_id)
            if home is not None:
                home.live += 1

    def rows(self) -> list[list[Any]]:
        """For the position record."""
        return [segment.row() for segment in self._all]

    def finished(self, before_seq: int) -> list[tuple[int, int]]:
        """Closed segments that may go, as (first record, first record of the next); they are dropped here."""
        gone = [
            (segment.first, following.first)
            for segment, following in zip(self._all, self._all[1:], strict=False)
            if segment.live <= 0 and not segment.late and following.first <= before_seq
        ]
        firsts = {first for first, _ in gone}
        # The next segment takes over its floor: its ids are all dead, but ids are looked up by floor.
        self._all = [segment for segment in self._all if segment.first not in firsts]
        return gone


def publish(folder: Path, target: Path) -> list[Path]:
    """Links every closed file into the archive that is not there yet; returns the new ones. Can be repeated.

    A link lost in a power cut is made again by the next call, so no sync is needed. Raises OSError.
    """
    target.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in segments.files(target)}
    made = []
    for path in segments.files(folder)[:-1]:  # the last one is being written
        if path.name not in there:
            os.link(path, target / path.name)
            made.append(target / path.name)
    return made


def retire(folder: Path, target: Path, spans: list[tuple[int, int]]) -> list[Path]:
    """Removes the files of those segments from the journal; returns where they are now.

    A file that is already in the archive stays as it is there: a person may have been erased from it.
    """
    gone: list[Path] = []
    if not spans:
        return gone
    target.mkdir(parents=True, exist_ok=True)
    for path in segments.files(folder):
        seq = segments.first_seq(path)
        if any(first <= seq < following for first, following in spans):
            kept = target / path.name
            path.unlink() if kept.exists() else path.rename(kept)
            gone.append(kept)
    return gone


def oldest(folder: Path) -> int:
    """The number of the first record in the journal's oldest file; 0 if it has none."""
    return min((segments.first_seq(path) for path in segments.files(folder)), default=0)


def outdated(folder: Path, now_ms: int, days: float, bytes_max: int, before_seq: int) -> list[Path]:
    """Archived segments past their time, and the oldest ones beyond the size; 0 means no limit. Always a range from the
    oldest on: a record that revokes another must not be deleted before it.

    before_seq: where the journal's oldest segment begins; segments archived from there on may hold the ends of its
    mail, and stay.
    """
    rows = [(path, path.stat()) for path in segments.files(folder) if segments.first_seq(path) < before_seq]
    total = sum(stat.st_size for _, stat in rows)
    gone = []
    for path, stat in rows:
        old = days and stat.st_mtime * 1000 < now_ms - days * 86_400_000
        if not (old or (bytes_max and total > bytes_max)):
            break
        total -= stat.st_size
        gone.append(path)
    return gone

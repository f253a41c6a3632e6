"""Keeps the summaries of a running MTA's archive: makes them as segments close, and what is missing at its start.

A process of its own at low priority does nothing else, may be killed at any time, and goes on where it was. Failures:
a disk error is logged once, and the work is tried again at the next look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from zonemta_py.disk.files import changed
from zonemta_py.summary.shelf import SegmentPlace, SummaryShelf

log = logging.getLogger(__name__)

LOOK_S = 10.0
EVER_MS = 1 << 62


class SummaryKeeper:
    """Of the MTA in that folder."""

    def __init__(self, folder: Path) -> None:
        self._archive = folder / "archive"
        self._seen: dict[Path, tuple[int, ...]] = {}
        """Segments that have been looked at, as they were then."""
        self._trouble = ""

    def look(self) -> int:
        """Makes the summaries that are missing of segments that are new or have changed; how many."""
        shelf = SummaryShelf([self._archive])
        fresh = [place for place in shelf.places() if self._seen.get(place.path) != changed(place.path)]
        unwritten = {place.path for place in fresh if not self._make(shelf, place)} if fresh else set()
        self._seen = {place.path: changed(place.path) for place in shelf.places() if place.path not in unwritten}
        return len(fresh) - len(unwritten)

    def _make(self, shelf: SummaryShelf, place: SegmentPlace) -> bool:
        try:
            unwritten = shelf.make(shelf.lacking([place]))
        except OSError as error:
            self._say(f"{error.filename or place.path}: {error.strerror}")
            return False
        if unwritten:
            self._say(f"{place.path.parent}: summaries cannot be written there")
        return not unwritten

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("summaries of the archive: %s; it is tried again", trouble)
        self._trouble = trouble

    def run(self, sleep: Callable[[float], object] = time.sleep) -> None:
        """Until the process is ended."""
        while True:
            self.look()
            sleep(LOOK_S)

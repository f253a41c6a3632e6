"""How far a sink has come: the last journal record all of whose events are delivered, dropped or dead letters.

It is written now and then; an older one only means that events are sent again. A file with something else in it counts
as none. A sink that has run before, and has no cursor or one that is ahead of the journal, goes on where its state
(`state.json`, written each second) says, or at its last success; that is said, and what it lacks for good is counted.
Failures: OSError of the disk.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import replace_file
from zonemta_py.journal.tail import last_seq, seq_at

log = logging.getLogger(__name__)

FOLDER = "events"
"""In the queue's folder; has one for each sink."""
NAME = "cursor.json"
STATE = "state.json"


class GoesOn(NamedTuple):
    """Where a sink goes on: after which record; None: it is new. missed: records that it will not get."""

    seq: int | None
    missed: int = 0


def read(folder: Path) -> int | None:
    """folder: the sink's. None: it is new. Raises OSError."""
    path = folder / NAME
    try:
        return max(0, int(json.loads(path.read_bytes())["seq"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError):
        log.warning("%s is damaged, and counts as missing", path)
        return None


def found(queue: Path, folder: Path, position: int) -> GoesOn:
    """queue: the queue's folder; folder: the sink's. position: the last stable record. Raises OSError."""
    seq = read(folder)
    if seq is not None and seq <= position:
        return GoesOn(seq)
    what = "is missing" if seq is None else f"is ahead of the journal ({seq:,} of {position:,})"
    try:
        state = json.loads((folder / STATE).read_bytes())
        known, success_ms = state.get("cursor"), int(state.get("last_success_ms") or state.get("since_ms") or 0)
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        if seq is None:
            if (folder / NAME).exists():
                remedy = f"`zonemta events replay --sink {folder.name} --since …` sends what it lacks"
                log.warning("event sink %r begins with what comes next; %s", folder.name, remedy)
            return GoesOn(None)
        known, success_ms = seq, 0
    if isinstance(known, int) and 0 <= known <= position:
        log.warning(
            "event sink %r: its cursor %s; it continues after record %d, as its state says", folder.name, what, known
        )
        return GoesOn(known)
    if isinstance(known, int):
        remedy = f"`zonemta events replay --sink {folder.name} --since …` sends what it lacks"
        log.error(
            "event sink %r: its cursor %s, which another journal has replaced: up to %d records are missed; it begins "
            "with what comes next, and %s", folder.name, what, known - position, remedy,
        )  # fmt: skip
        return GoesOn(position, known - position)
    again = min(position, seq_at(queue, success_ms) - 1)
    log.warning(
        "event sink %r: its cursor %s; it continues after record %d, before its last success, so events may come twice",
        folder.name, what, again,
    )  # fmt: skip
    return GoesOn(again)


def write(folder: Path, seq: int) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / NAME, json.dumps({"seq": seq}).encode() + b"\n", 0o640)


def begin(folder: Path, names: Iterable[str]) -> None:
    """New sinks get what happens from now on, also while the feed's process has yet to be there. For a queue that does
    not run. folder: the queue's. Raises OSError."""
    places = [folder / FOLDER / name for name in names]
    new = [place for place in places if not ((place / NAME).exists() or (place / STATE).exists())]
    if new:
        seq = last_seq(folder)
        for place in new:
            write(place, seq)

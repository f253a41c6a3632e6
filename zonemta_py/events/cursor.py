"""How far a sink has come: the last journal record all of whose events are delivered, dropped or dead letters.

It is written now and then; an older one only means that events are sent again. A file with something else in it counts
as none, and that is said: the sink then begins with what comes next. Failures: OSError of the disk.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from zonemta_py.disk.files import replace_file
from zonemta_py.events.tail import last_seq

log = logging.getLogger(__name__)

FOLDER = "events"
"""In the queue's folder; has one for each sink."""
NAME = "cursor.json"


def read(folder: Path) -> int | None:
    """folder: the sink's. None: it is new. Raises OSError."""
    path = folder / NAME
    try:
        return max(0, int(json.loads(path.read_bytes())["seq"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError):
        remedy = f"`zonemta events replay --sink {folder.name} --since …` sends what it lacks"
        log.warning("%s is damaged; the sink begins with what comes next, and %s", path, remedy)
        return None


def write(folder: Path, seq: int) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / NAME, json.dumps({"seq": seq}).encode() + b"\n", 0o640)


def begin(folder: Path, names: Iterable[str]) -> None:
    """New sinks get what happens from now on, also while the feed's process has yet to be there. For a queue that does
    not run. folder: the queue's. Raises OSError."""
    new = [place for name in names if not ((place := folder / FOLDER / name) / NAME).exists()]
    if new:
        seq = last_seq(folder)
        for place in new:
            write(place, seq)

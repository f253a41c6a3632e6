"""What is stored although its client may not have heard so: the file `owed` in the queue's folder.

A receiver whose queue died asks the next process, by the message's token (`wire.client`). What was accepted since the
last position record is known from the journal; but a process that dies once more, or that moves mail between queues,
has written a position before it is asked. So each keeps here what its forerunner may have owed, for as long as anybody
asks. A file that cannot be read counts as none. Failures: OSError.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zonemta_py.disk import packing
from zonemta_py.disk.files import replace_file

NAME = "owed"
KEPT_MS = 900_000
"""More than `wire.client.ASK_S`, and what starts take meanwhile."""
ROWS_MAX = 100_000
OwedReceipts = dict[str, tuple[str, int, int]]
"""By token: id, recipients accepted, recipients left out."""


def keep(folder: Path, fresh: Mapping[str, tuple[str, int, int]], now_ms: int) -> OwedReceipts:
    """Adds what is fresh; all that is kept. Nothing is written where nothing is fresh. Raises OSError."""
    path = folder / NAME
    rows = {row[1]: row for row in _read(path) if abs(now_ms - row[0]) < KEPT_MS}
    new = {token: (now_ms, token, *receipt) for token, receipt in fresh.items() if token not in rows}
    rows |= new
    if new:
        latest = sorted(rows.values())[-ROWS_MAX:]
        replace_file(path, packing.pack(latest), 0o600)
    return {token: (id, accepted, suppressed) for token, (_, _, id, accepted, suppressed) in rows.items()}


def _read(path: Path) -> list[tuple[int, str, str, int, int]]:
    try:
        return [
            (int(ms), str(token), str(id), int(accepted), int(suppressed))
            for ms, token, id, accepted, suppressed in packing.unpack(path.read_bytes())
        ]
    except (FileNotFoundError, ValueError, TypeError):
        return []

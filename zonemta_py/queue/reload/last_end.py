"""What a drain has cut off: a file in the queue's folder, for whoever has ordered it and sees that the MTA has ended.

Failures: what cannot be written is left out; then nobody knows.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from zonemta_py.disk.files import replace_file

NAME = "last-end"


def write(folder: Path, pid: int, cut_off: dict[str, str]) -> None:
    """pid: of the supervisor. cut_off: why, by the roles of processes that did not end what they had begun."""
    with suppress(OSError):
        replace_file(folder / NAME, f"{json.dumps({'pid': pid, 'cut_off': cut_off})}\n".encode(), 0o600)


def forget(folder: Path) -> None:
    """Of the drain before."""
    with suppress(OSError):
        (folder / NAME).unlink()


def read(folder: Path, pid: int) -> dict[str, str] | None:
    """What the drain of that supervisor has cut off; None: that is not known."""
    try:
        said = json.loads((folder / NAME).read_bytes())
        return {str(role): str(why) for role, why in said["cut_off"].items()} if said["pid"] == pid else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

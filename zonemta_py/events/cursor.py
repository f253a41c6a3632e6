"""How far a sink has come: the last journal record all of whose events are delivered, dropped or dead letters.

It is written now and then; an older one only means that events are sent again. A file that cannot be read counts as
none: the sink then begins with what comes next.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from zonemta_py.disk.files import replace_file

NAME = "cursor.json"


def read(folder: Path) -> int | None:
    """folder: the sink's."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return max(0, int(json.loads((folder / NAME).read_bytes())["seq"]))
    return None


def write(folder: Path, seq: int) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / NAME, json.dumps({"seq": seq}).encode() + b"\n", 0o640)

"""Opens the store: damaged parts go to quarantine/ with a note of the mail they named, then the store is repaired.

Failures: StoreLocked, StoreFailed, OSError: nothing has been repaired then, and the next start finds the same.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk.leveldb import remains
from zonemta_py.disk.leveldb.store import Cut, Store, StoreDamaged
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import receipts

REPAIR_MARK = "repair-needed"
"""A file in the queue's folder: the previous process found the store damaged."""
_REMEDY = "none needed for what could be read: it was kept; send what is listed here and was not delivered again"


def open_store(config: Config, quarantine: Quarantine) -> tuple[Store, bool]:
    """The store, and whether it had to be repaired."""
    folder, mark, buffer = config.folder / "store", config.folder / REPAIR_MARK, config.queue.write_buffer_bytes
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not mark.exists():
        try:
            return Store(folder, buffer, receipts.last(config.folder), keep(quarantine)), False
        except StoreDamaged as error:
            mark.write_text(str(error))
    reason = mark.read_text()
    say(f"the store is damaged ({reason}); a copy goes to {quarantine.folder}, then it is repaired")
    folder.mkdir(exist_ok=True)
    lost = Store.lost_from_logs(folder)
    for name, row in lost.items():
        say(f"damaged in the store's log: message {name} from <{row.get('sender', '')}> to {len(row['recipients'])}")
    note = {"error": reason, "messages": _rows(lost), "remedy": _REMEDY}
    quarantine.copy("store", note, [folder])
    Store.repair(folder)
    store = Store(folder, buffer)
    mark.unlink()
    return store, True


def keep(quarantine: Quarantine) -> Cut:
    """Returns the handler for writes torn by a power cut. They were never acknowledged; if they name mail, the bytes
    are kept."""

    def cut(path: Path, end: int, data: bytes) -> None:
        found = remains.messages(data)
        if not found:
            return
        note = {
            "error": f"a power cut has torn {path.name} at byte {end}",
            "messages": _rows(found),
            "remedy": "none needed: none of these was acknowledged",
        }
        quarantine.case("torn", note, {path.name: data})

    return cut


def _rows(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"message": name, **row} for name, row in found.items()]


def say(line: str) -> None:
    print(f"zonemta: {line}", file=sys.stderr, flush=True)


def stop_to_recover(folder: Path) -> Callable[[Exception], None]:
    """Returns the handler for errors that stop a running queue: the process ends, and the next start completes the
    work.

    If the store is damaged, it leaves a marker, so that the next start repairs the store first. Anything else is a bug.
    """

    def stop(error: Exception) -> None:
        if isinstance(error, StoreDamaged):
            say(f"{error}; starting again to repair it")
            (folder / REPAIR_MARK).write_text(str(error))
            os._exit(os.EX_IOERR)
        say("what a record of the journal says could not be applied; starting again to apply it. Please report this:")
        traceback.print_exception(error)
        os._exit(os.EX_SOFTWARE)

    return stop

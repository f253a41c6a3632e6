"""Body files without a message in the store, found at a start.

Those that a crash may leave are deleted: of messages that were never accepted, or that had ended. Any other belongs to
a message whose keys are lost, and is set aside, with a note, in one case for all of them.
"""

from __future__ import annotations

import logging
from pathlib import Path

from zonemta_py.disk import body_file, keys
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.queue.core.core import Core

log = logging.getLogger(__name__)


def clear(core: Core, floor: str, known: set[str]) -> None:
    """known: ids below `floor` that may have been on their way in, or ending. Raises StoreError, OSError."""
    folder, exists = core.disk.bodies.folder, core.disk.store.get
    found = [one for one in core.disk.bodies.found if one not in core.arriving]
    strays = [one for one in found if exists(keys.existence(one)) is None]
    lost = [one for one in strays if one < floor and one not in known]
    if lost:
        set_aside(core.disk.quarantine, folder, lost)
    for one in strays:
        body_file.remove(folder, one)


def set_aside(quarantine: Quarantine, folder: Path, lost: list[str]) -> None:
    """Moves them to one case of the quarantine. Raises OSError."""
    note = {
        "error": "these are bodies of messages that the store does not know (any more)",
        "messages": lost,
        "remedy": "send what they hold again from its source",
    }
    place = quarantine.case("bodies", note)
    for one in lost:
        body_file.keep(folder, one, place, one)
    log.error("%d bodies of messages that the store does not know were set aside: %s", len(lost), place)

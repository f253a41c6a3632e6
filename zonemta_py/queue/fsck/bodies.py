"""Checks the files of large bodies: each message's is complete, and each belongs to a message."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from zonemta_py.disk import body_file, keys
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.logs.causes import cause
from zonemta_py.queue.core.core import Core

log = logging.getLogger(__name__)


def missing_chunks(metadata: dict[str, Any], parts: dict[str, bytes | int]) -> list[int]:
    """Chunks that should be in the store, and are not. Raises KeyError, TypeError for invalid metadata."""
    numbers = range(1, 0 if "file" in metadata else metadata["chunks"] + 1)
    return [number for number in numbers if f"{number:06d}" not in parts]


def fault(folder: Path, message_id: str, metadata: dict[str, Any]) -> str:
    """What is wrong with the body's file; "" if nothing is, or it has none. folder: the queue's."""
    if "file" not in metadata:
        return ""
    try:
        return body_file.fault(folder / body_file.FOLDER, message_id, metadata["chunks"])
    except OSError as error:
        return f"the file of its body cannot be read ({cause(error)})"


def clear(folder: Path, quarantine: Quarantine, strange: list[str], ended: set[str], lossy: bool) -> None:
    """Files without a message: deleted if their messages are known to have ended, or if nothing was lost."""
    bodies = folder / body_file.FOLDER
    lost = [one for one in strange if one not in ended] if lossy else []
    if lost:
        _set_aside(quarantine, bodies, lost)
    for one in strange:
        body_file.remove(bodies, one)


def clear_strays(core: Core, floor: str, known: set[str]) -> None:
    """At a start. Deleted is what a crash may leave: of messages that were never accepted, or that had ended. Any other
    belongs to a message whose keys are lost, and is set aside, with a note, in one case for all of them.

    known: ids below `floor` that may have been on their way in, or ending. Raises StoreError, OSError."""
    folder, exists = core.disk.bodies.folder, core.disk.store.get
    found = [one for one in core.disk.bodies.found if one not in core.arriving]
    strays = [one for one in found if exists(keys.existence(one)) is None]
    lost = [one for one in strays if one < floor and one not in known]
    if lost:
        _set_aside(core.disk.quarantine, folder, lost)
    for one in strays:
        body_file.remove(folder, one)


def _set_aside(quarantine: Quarantine, folder: Path, lost: list[str]) -> None:
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

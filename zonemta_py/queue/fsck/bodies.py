"""Checks the files of large bodies: each message's is complete, and each belongs to a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zonemta_py.disk import body_file
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.logs.causes import cause
from zonemta_py.queue.fsck import stray_bodies


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
        stray_bodies.set_aside(quarantine, bodies, lost)
    for one in strange:
        body_file.remove(bodies, one)

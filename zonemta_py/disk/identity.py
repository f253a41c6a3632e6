"""Which queue a folder is, and where it lives, so that a copy started elsewhere is recognised as a copy.

The file `identity` holds the queue's id, how often it was moved on purpose (`incarnation`), the machine's id, in
which folder it ran last, so that a copy finds its original, and the number of its own inode: moving the folder with
`mv` keeps that, and any copy gets another. A machine without an id (/etc/machine-id, which containers often lack) is
recognised by the inode alone. Not recognised is a copy of the whole disk on a machine with the same id. A folder
without the file gets one. Failures: OSError.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.disk.files import fresh_file

NAME = "identity"
_UNREADABLE = -1
_MACHINE = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


class Identity(NamedTuple):
    """machine: "" where it has no id. inode: of the file itself. folder: "" if nothing says where it ran."""

    queue: str
    incarnation: int
    machine: str
    inode: int
    folder: str = ""


def copied(folder: Path, machine: str) -> str:
    """One sentence with the remedy if the folder is a copy of a queue; "": it is the queue itself."""
    path = folder / NAME
    if not path.exists():
        _write(path, uuid.uuid4().hex, 1, machine)
        return ""
    found = _read(path)
    elsewhere = bool(found.machine and machine and found.machine != machine)
    if not elsewhere and found.inode == path.stat().st_ino:
        if found.folder != str(folder.resolve()):  # it was moved, or is of a version that did not say
            _write(path, found.queue, found.incarnation, found.machine)
        return ""
    what = "this queue was used on another machine" if elsewhere else "this folder is a copy of a queue"
    if found.inode == _UNREADABLE:
        what = f"its file {NAME!r} cannot be read, so this folder may be a copy of a queue"
    return (
        f"{folder}: {what}, and what the original has sent since would be sent again, so mail is accepted but none"
        " is sent; if the original will never run again, run `zonemta queue adopt`"
    )


def name_of(folder: Path) -> str:
    """What sets this queue's record numbers apart from all others': its id, and how often it was adopted, if ever (a
    copy that was adopted goes on with numbers that the original may have used too). Raises ValueError, one sentence."""
    path = folder / NAME
    found = _read(path)
    if found.inode == _UNREADABLE:
        remedy = "run `zonemta queue adopt`" if path.exists() else "name the folder of a queue that was started once"
        raise ValueError(f"{path}: cannot be read, so the queue has no name; {remedy}")
    return f"{found.queue}.{found.incarnation}" if found.incarnation > 1 else found.queue


def adopt(folder: Path, machine: str) -> Identity:
    """From now on the queue lives here."""
    path = folder / NAME
    before = _read(path)
    if path.is_dir():
        path.rename(path.with_name(f"{NAME}.damaged-{time.time_ns()}"))
    _write(path, before.queue, before.incarnation + 1, machine)
    return _read(path)


def known(folder: Path) -> list[Any]:
    """Which queue it is, and its incarnation; [] if nothing says so."""
    found = _read(folder / NAME)
    return [] if found.inode == _UNREADABLE else [found.queue, found.incarnation]


def take_over(folder: Path, queue: str, incarnation: int, machine: str) -> None:
    """Its files were made again here, of what other machines had of that queue."""
    _write(folder / NAME, queue, incarnation + 1, machine)


def original(folder: Path) -> Path | None:
    """Where the queue is of which this folder is a copy; None if that is not there, or not known."""
    found = _read(folder / NAME)
    place = Path(found.folder or folder)
    if place.resolve() == folder.resolve() or _read(place / NAME).queue != found.queue:
        return None
    return place


def this_machine() -> str:
    """Its id; "" if it has none."""
    for path in _MACHINE:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if len(text) == 32:
            return text
    return ""


def _read(path: Path) -> Identity:
    """A file that cannot be read belongs to no queue: its folder counts as a copy."""
    try:
        row: dict[str, Any] = json.loads(path.read_text())
        where = str(row.get("folder", ""))
        return Identity(str(row["queue"]), int(row["incarnation"]), str(row["machine"]), int(row["inode"]), where)
    except (OSError, ValueError, KeyError, TypeError):
        return Identity(uuid.uuid4().hex, 0, "", _UNREADABLE)


def _write(path: Path, queue: str, incarnation: int, machine: str) -> None:
    with fresh_file(path) as file:
        inode = os.fstat(file.fileno()).st_ino
        row = Identity(queue, incarnation, machine, inode, str(path.parent.resolve()))._asdict()
        file.write(json.dumps(row).encode() + b"\n")

"""The MTA's folder as commands see it: can it be written, and does another process have its store open?"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.processes import privileges

_PATIENCE_S = 2.0
_PAUSE_S = 0.02


def until(check: Callable[[], object]) -> None:
    """Repeats `check` until it does not raise CommandError, for two seconds at most; then raises its last one."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            check()
            return
        except CommandError:
            if time.monotonic() >= end:
                raise
        time.sleep(_PAUSE_S)


_MAIL = ("store", "journal", "archive", "quarantine", "bodies", "receipts")
"""Where there is mail, or what became of it."""


def ensure_writable(folder: Path, who: privileges.Identity | None = None) -> None:
    """Makes the folder if it is missing (for its owner only). Raises CommandError if it cannot be made or written.

    who: root will become that user before the folder is used.
    """
    try:
        _make(folder, who)
    except FileExistsError:
        raise CommandError(
            Exit.CANT_CREATE, f"{folder}: is not a folder; name another in server.folder or --folder"
        ) from None
    except OSError as error:
        raise from_os(error) from None
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise CommandError(
            Exit.PERMISSION, f"{folder}: is not writable; change its owner, or name another with --folder"
        )


def _make(folder: Path, who: privileges.Identity | None) -> None:
    if who and not folder.exists():
        for parent in [each for each in reversed(folder.parents) if not each.exists()]:
            parent.mkdir()
            parent.chmod(0o755)  # or that user could not enter it
        folder.mkdir(mode=0o700)
        os.chown(folder, who.uid, who.gid)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if who and (sentence := privileges.stranger(folder, who)):
        raise CommandError(Exit.PERMISSION, sentence)


def kept_to_oneself(folder: Path) -> Iterator[str]:
    """Removes others' permissions on the folders of mail, which earlier versions left; yields where.

    Raises CommandError if everybody may put others in their places.
    """
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise CommandError(Exit.PERMISSION, f"{folder}: is world-writable; `chmod o-w {folder}`, or name another")
    for name in _MAIL:
        place = folder / name
        if place.is_dir() and place.stat().st_mode & 0o077:
            try:
                place.chmod(0o700)
            except OSError as error:
                raise from_os(error) from None
            yield f"{place}: was readable by others; now only its owner can read it (mode 0700)"


def wait_until_unlocked(folder: Path) -> None:
    """Raises CommandError if a process keeps the store locked."""
    until(lambda: check_unlocked(folder))


def check_unlocked(folder: Path) -> None:
    """Tries the lock that LevelDB takes on its LOCK file; a folder without a store is free."""
    try:
        lock = os.open(folder / "store" / "LOCK", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os(error) from None
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CommandError(
            Exit.UNAVAILABLE, f"{folder}: another process has this queue open; end it, or name another --folder"
        ) from None
    finally:
        os.close(lock)

"""`api.once`: of all processes of an MTA on this machine, one at a time does something, whoever dies.

A lock of the kernel (`fcntl`) on a file in the MTA's folder: it belongs to one process, no fork inherits it, and it is
free when its holder ends, however that is. It knows nothing of other machines: each node of a cluster has its own.

Failures: OSError if the file cannot be made.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

FOLDER = "plugins"
"""In the MTA's folder."""
LOOK_S = 0.5
"""How often a process that waits looks: it holds the lock so soon after another one has ended."""
_held: set[Path] = set()
"""In this process: the kernel would grant the same lock to it twice."""


class OneProcess:
    """`async with`: waits until no other process is inside, and is let out by the end of this one, too."""

    def __init__(self, folder: Path, plugin: str, name: str) -> None:
        self._path = folder / FOLDER / f"{quote(plugin, safe='')}~{quote(name, safe='')}.lock"
        self._file = -1

    async def __aenter__(self) -> None:
        while not self.take():  # noqa: ASYNC110 (nobody tells when another process ends)
            await asyncio.sleep(LOOK_S)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def take(self) -> bool:
        """Whether this process has it now. Raises OSError."""
        if self._path in _held:
            return False
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        self._file = file
        _held.add(self._path)
        return True

    def leave(self) -> None:
        """Harmless twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            _held.discard(self._path)


os.register_at_fork(after_in_child=_held.clear)

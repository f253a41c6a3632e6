"""Records which message a sender is rendering, so that the queue can see it if the sender dies.

Rendering a merged message is the one step in which a sender runs a third party's program. A file of 12 bytes for each
sender, mapped into memory on both sides, says whose message it is: writing it costs next to nothing, and it outlives
the sender, however it ends. The queue holds a recipient whose message has killed its sender `DEATHS_MAX` times, instead
of giving it to the next one for ever.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
from collections import OrderedDict
from pathlib import Path
from struct import Struct
from zlib import crc32

log = logging.getLogger(__name__)

DEATHS_MAX = 2
_KNOWN_MAX = 10_000
_ROW = Struct("<QL")
_NOTHING = bytes(_ROW.size)


def path(folder: Path, sender: str) -> Path:
    """sender: its name, such as "sender-1"."""
    return folder / f"{sender}.making"


class Making:
    """The sender's side."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @classmethod
    def open(cls, folder: Path, sender: str) -> Making | None:
        """None on a disk that has no room for it: mail is sent all the same."""
        try:
            path(folder, sender).unlink(missing_ok=True)  # one of its name may still end what it has begun
            with open(path(folder, sender), "w+b") as file:
                file.write(_NOTHING)
                file.flush()
                return cls(mmap.mmap(file.fileno(), _ROW.size))
        except OSError as error:
            log.warning(
                "%s cannot be written (%s): a message that kills its sender process will not be identified",
                sender,
                error,
            )
            return None

    def begin(self, lease: int, address: str) -> None:
        _ROW.pack_into(self._memory, 0, lease, checksum(address))

    def end(self) -> None:
        self._memory[:] = _NOTHING


class PoisonMessages:
    """The queue's side: how often a recipient's message was being rendered when its sender died."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: OrderedDict[tuple[str, str], int] = OrderedDict()

    def of(self, worker: str) -> tuple[int, int]:
        """What a dead sender was rendering: lease (0: nothing) and the recipient's checksum."""
        with contextlib.suppress(OSError):
            content = path(self._folder, worker.rpartition("-")[0]).read_bytes()
            if len(content) == _ROW.size:
                lease, checksum = _ROW.unpack(content)
                return int(lease), int(checksum)
        return 0, 0

    def count(self, message_id: str, address: str) -> bool:
        """Counts a death; True: the recipient is to be held."""
        key = (message_id, address)
        times = self._known[key] = self._known.pop(key, 0) + 1
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        what = "it is held; correct the template, then release it" if times >= DEATHS_MAX else "it is tried again"
        log.error("message %s to %s was being rendered when its sender died; %s", message_id, address, what)
        return times >= DEATHS_MAX


def checksum(address: str) -> int:
    return crc32(address.encode("utf-8", "surrogatepass"))

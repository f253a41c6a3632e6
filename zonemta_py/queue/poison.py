"""What each process is about, so that it is known what it died of: a message that is being rendered, a plugin's call.

Templates and plugins are the programs of third parties that run in our processes. A file for each process, mapped into
memory, says which of them runs now, and about what (`UnderWay`): writing it costs next to nothing, where no plugin is
called nothing at all, and it outlives the process, however that ends. Who finds what a dead process has left counts it
in `deaths.jsonl` (`Deaths`): the queue for a sender, whose lease names the message; the next process of the same name
for all others.

What a process was about when it died DEATHS_MAX times is not tried again. The queue holds such a recipient; elsewhere
the plugin's call fails, as if it had raised something: mail that is only being handed in is answered 451, what is only
told to plugins is not told. A hook that has ended HOOK_DEATHS_MAX processes within HOOK_S is left out for a while,
whatever they were about. Another configuration, or another start, begins to count anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import time
from collections import Counter
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

log = logging.getLogger(__name__)

DEATHS_MAX = 2
HOOK_DEATHS_MAX = 6
HOOK_S = 600.0
RENDERING = "rendering"
"""Stands for the hook where a template is the program."""
_LINES_MAX = 10_000
_ABOUT_BYTES_MAX = 400
_HEAD = Struct("<BQLLH")
"""Whether anything is under way, lease, checksum of the recipient (0: all of the lease), process id, and the length of
the text: plugin, hook and what it is about, with a NUL between."""
_SIZE = _HEAD.size + _ABOUT_BYTES_MAX


def path(folder: Path, name: str) -> Path:
    """name: of the process, such as "sender-1"."""
    return folder / f"{name}.making"


class Subject(NamedTuple):
    """What a call is about. lease, address: of a sender's delivery; address "": all of its recipients."""

    about: str = ""
    lease: int = 0
    address: str = ""


NOTHING = Subject()


class Remains(NamedTuple):
    """What a dead process was about."""

    lease: int
    checksum: int
    pid: int
    plugin: str
    hook: str
    about: str


class UnderWay:
    """The process's own side. `open` is called once, in a fresh process; before that, nothing is noted."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._deaths: Deaths | None = None
        self.name = ""
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._memory, self._deaths, self.name = None, None, ""

    @property
    def active(self) -> bool:
        return self._memory is not None

    def open(self, folder: Path, name: str, counted: bool = True) -> None:
        """Counts what the process before had left, unless somebody else does (counted). On a disk that has no room,
        mail goes on all the same."""
        try:
            self._deaths, self.name = Deaths(folder), name
            if counted and (left := read(folder, name)) is not None and not _alive(left.pid):
                self._deaths.add(name, left.plugin, left.hook, left.about)
            path(folder, name).unlink(missing_ok=True)  # one of its name may still end what it has begun
            with open(path(folder, name), "w+b") as file:
                file.write(bytes(_SIZE))
                file.flush()
                self._memory = mmap.mmap(file.fileno(), _SIZE)
        except OSError as error:
            log.warning(
                "%s cannot be written (%s): what ends its process will not be identified", path(folder, name), error
            )

    def begin(self, plugin: str, hook: str, subject: Subject) -> bytes:
        """Returns what `end` puts back."""
        memory = self._memory
        if memory is None:
            return b""
        before = memory[:_SIZE] if memory[0] else b""
        text = f"{plugin}\0{hook}\0{subject.about}".encode("utf-8", "replace")[:_ABOUT_BYTES_MAX]
        found = checksum(subject.address) if subject.address else 0
        memory[: _HEAD.size + len(text)] = _HEAD.pack(1, subject.lease, found, os.getpid(), len(text)) + text
        return before

    def end(self, before: bytes) -> None:
        if self._memory is None:
            return
        if before:
            self._memory[:] = before
        else:
            self._memory[0] = 0

    def look(self) -> None:
        """Other processes' deaths are known to `deadly` then."""
        if self._deaths is not None:
            self._deaths.look()

    def deadly(self, plugin: str, hook: str, about: str) -> bool:
        """Whether processes have died of it too often, as far as `look` has seen."""
        return self._deaths is not None and self._deaths.seen(plugin, hook, about) >= DEATHS_MAX

    def left_out(self, plugin: str, hook: str) -> bool:
        """Whether the hook has ended too many processes, whatever they were about."""
        return self._deaths is not None and self._deaths.of_hook(plugin, hook) >= HOOK_DEATHS_MAX


UNDER_WAY = UnderWay()


class Deaths:
    """The list of deaths, which all processes share: a line of JSON for each, written at once, read when it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "deaths.jsonl"
        self._version = (0, 0)
        self._rows: list[dict[str, Any]] = []
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(
        self, process: str, plugin: str, hook: str, about: str, people: tuple[str, ...] = (), settled: bool = False
    ) -> None:  # fmt: skip
        """people: the recipients it was about, if a message has several. settled: it is not tried again anyway. Says so
        in the log."""
        row = {"at_ms": int(time.time() * 1000), "process": process, "plugin": plugin, "hook": hook, "about": about}
        row["people"] = list(people)
        with contextlib.suppress(OSError), open(self._path, "ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
        times = min(self.count(plugin, hook, _name(about, one)) for one in (people or ("",)))
        what = f" about {about}{' to ' + ', '.join(people[:3]) if people else ''}" if about else ""
        then = (
            ""
            if settled or not about
            else "; it is not tried again"
            if times >= DEATHS_MAX
            else "; it is tried once more"
        )
        log.error("process %s ended in %s%s%s", process, _who(plugin, hook), what, then)

    def count(self, plugin: str, hook: str, about: str) -> int:
        self.look()
        return self._counts[plugin, hook, about]

    def seen(self, plugin: str, hook: str, about: str) -> int:
        """The same, as far as `look` has read."""
        return self._counts[plugin, hook, about] if self._counts else 0

    def of_hook(self, plugin: str, hook: str) -> int:
        """How many there were lately."""
        self.look()
        since_ms = (time.time() - HOOK_S) * 1000
        return sum((row["plugin"], row["hook"]) == (plugin, hook) and row["at_ms"] >= since_ms for row in self._rows)

    def lately(self, seconds: float) -> list[tuple[str, int]]:
        """Plugins, and how many processes each has ended in that time."""
        self.look()
        since_ms = (time.time() - seconds) * 1000
        found = Counter(row["plugin"] for row in self._rows if row["plugin"] and row["at_ms"] >= since_ms)
        return list(found.items())

    def rows(self) -> list[dict[str, Any]]:
        """All of them, oldest first."""
        self.look()
        return self._rows

    def forget(self) -> None:
        """Another configuration holds: its plugins may be other ones."""
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)

    def look(self) -> None:
        """Reads what others have written since."""
        try:
            found = os.stat(self._path)
            version = (found.st_size, found.st_mtime_ns)
        except OSError:
            version = (0, 0)
        if version == self._version:
            return
        self._version = version
        self._rows, self._counts = [], Counter()
        with contextlib.suppress(OSError):
            for line in self._path.read_bytes().splitlines()[-_LINES_MAX:]:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    row = json.loads(line)
                    for one in row["people"] or ("",):
                        self._counts[row["plugin"], row["hook"], _name(row["about"], one)] += 1
                    self._rows.append(row)


class PoisonMessages:
    """The queue's side: which recipient's message a sender was about when it died, and how often that has happened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.deaths = Deaths(folder)

    def of(self, worker: str) -> Remains | None:
        """What a dead sender was about. worker: its name and number."""
        return read(self._folder, worker.rpartition("-")[0])

    def note(self, worker: str, left: Remains) -> None:
        """Counts a death after which nobody is to be held: the message has its result, or it was about none."""
        self.deaths.add(worker.rpartition("-")[0], left.plugin, left.hook, left.about, settled=True)

    def count(self, worker: str, left: Remains, message_id: str, people: list[str]) -> dict[str, str]:
        """Counts a death; why each recipient is to be held, if it is."""
        process = worker.rpartition("-")[0]
        about = f"message {message_id}"
        self.deaths.add(process, left.plugin, left.hook, about, tuple(people))
        remedy = "correct the template" if left.hook == RENDERING else "correct the plugin, or take it out"
        why = f"process {process} has ended twice in {_who(left.plugin, left.hook)} at it; {remedy}, then release it"
        return {
            one: why for one in people if self.deaths.count(left.plugin, left.hook, _name(about, one)) >= DEATHS_MAX
        }


def _name(about: str, address: str) -> str:
    return f"{about} to {address}" if address else about


def _who(plugin: str, hook: str) -> str:
    return f"plugin {plugin}, hook {hook}" if plugin else "the rendering of a template"


def read(folder: Path, name: str) -> Remains | None:
    """What the process of that name is, or was, about; None: nothing."""
    try:
        content = path(folder, name).read_bytes()
    except OSError:
        return None
    if len(content) != _SIZE:
        return None
    there, lease, found, pid, length = _HEAD.unpack_from(content)
    if not there:
        return None
    plugin, hook, about = (content[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace") + "\0\0").split("\0")[
        :3
    ]
    return Remains(lease, found, pid, plugin, hook, about)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def checksum(address: str) -> int:
    return crc32(address.encode("utf-8", "surrogatepass"))

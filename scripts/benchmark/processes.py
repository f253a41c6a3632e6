"""Every process of a program under test, counted together: a cgroup where one can be made, else the process tree.

CPU includes children that ended; bytes written are those of living processes and of the children they waited for
(/proc/PID/io); memory is PSS, which shares common pages out fairly, and the peak resident set of each process.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ROLES = ("supervisor", "queue", "receiver", "sender", "authority")
SYNC_CALLS = ("fsync", "fdatasync", "sync_file_range", "syncfs", "msync")


class Group:
    """Starts programs in sessions, and a cgroup if possible, of their own; kills nothing but them."""

    def __init__(self) -> None:
        self.folder, self.version = _make_cgroup()
        self._roots = list[subprocess.Popen[bytes]]()

    @property
    def method(self) -> str:
        return f"cgroup v{self.version} cpuacct" if self.folder else "sum over the process tree"

    def start(self, command: Sequence[str], output: Path, cwd: Path) -> subprocess.Popen[bytes]:
        """Runs `command` in the foreground, its output added to a file. Its modules are compiled once, as an installed
        program's are."""
        compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with output.open("ab") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=cwd, preexec_fn=self._enter,
                env=compiled,
            )  # fmt: skip
        self._roots.append(process)
        return process

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """One that runs already, and has no children."""
        self._roots.append(process)
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(process.pid))

    def _enter(self) -> None:
        os.setsid()
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        if self.folder:
            return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]
        return [pid for root in self._roots for pid in _tree(root.pid)]

    def cpu_s(self) -> float:
        """Seconds of CPU used so far, user and system."""
        if self.folder and self.version == 1:
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        if self.folder:
            stat = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
            return int(stat["usage_usec"]) / 1e6
        return sum(map(cpu_of, self.pids()))

    def written_bytes(self) -> int:
        return sum(int(_field(pid, "io", "write_bytes")) for pid in self.pids())

    def pss_bytes(self) -> int:
        return sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in self.pids())

    def forget_peaks(self) -> dict[int, int]:
        """Starts the peak of every process afresh; returns the resident set of each now."""
        now = {}
        for pid in self.pids():
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:  # the process has just ended
                continue
            now[pid] = _kilobytes(pid, "status", "VmRSS")
        return now

    def peaks(self) -> dict[int, int]:
        """Bytes of the largest resident set of each living process since `forget_peaks`."""
        return {pid: _kilobytes(pid, "status", "VmHWM") for pid in self.pids()}

    def holder_of(self, name: str) -> int | None:
        """The process that has a file of this name open."""
        for pid in self.pids():
            try:
                for entry in Path(f"/proc/{pid}/fd").iterdir():
                    if os.path.basename(os.readlink(entry)) == name:
                        return pid
            except OSError:  # ended meanwhile
                continue
        return None

    def roles(self, port: int) -> dict[int, str]:
        """What each process is: its name, where that says one. Versions before 0.2 have none: there what was started is
        the supervisor, the queue has the store open, and a receiver has connections to `port` just now."""
        queue, taken, found = self.holder_of("LOCK"), _inodes_of(port), dict[int, str]()
        for pid in self.pids():
            name = _name(pid)
            if any(pid == root.pid for root in self._roots):
                found[pid] = "supervisor"
            elif name.startswith(_NAMED):
                cut = name.removeprefix(_NAMED).rstrip("-0123456789")  # of fifteen characters
                found[pid] = next((role for role in ROLES if role.startswith(cut)), cut)
            else:
                found[pid] = "queue" if pid == queue else "receiver" if taken & _sockets(pid) else "sender"
        return found

    def on_cpu_s(self) -> dict[int, float]:
        """Seconds of CPU of each process so far, with all its living threads, to the nanosecond."""
        return {pid: _on_cpu_s(pid) for pid in self.pids()}

    def kill(self) -> None:
        """SIGKILL to all of it, at once."""
        for _ in range(500):
            pids = self.pids()
            for pid in pids:
                _kill(pid)
            if self._roots and all(root.poll() is not None for root in self._roots) and not pids:
                break
            time.sleep(0.01)
        for root in self._roots:
            root.wait()

    def stop(self, patience_s: float = 3) -> None:
        """SIGTERM to what was started, SIGKILL to whatever is left."""
        for root in self._roots:
            if root.poll() is None:
                root.terminate()
        end = time.monotonic() + patience_s
        while any(root.poll() is None for root in self._roots) and time.monotonic() < end:
            time.sleep(0.02)
        self.kill()

    def close(self) -> None:
        if self._roots:
            self.stop()
        for _ in range(100):
            if not self.folder or not self.folder.exists():
                return
            try:
                self.folder.rmdir()
            except OSError:  # its last process is still on its way out
                time.sleep(0.02)


def _make_cgroup() -> tuple[Path | None, int]:
    for base, version in ((Path("/sys/fs/cgroup/cpuacct"), 1), (Path("/sys/fs/cgroup"), 2)):
        if version == 2 and not (base / "cgroup.controllers").exists():
            continue
        folder = base / f"zonemta-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
        except OSError:  # no such hierarchy, or not root: the process tree must do
            continue
        return folder, version
    return None, 0


def _tree(root: int) -> list[int]:
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children[int(stat[1])].append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if _stat(pid):
            found.append(pid)
        todo += children[pid]
    return found


def _stat(pid: int) -> list[str]:
    """Fields from the state on; empty for a process that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def cpu_of(pid: int) -> float:
    """Seconds of CPU of one process and the children it waited for."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / TICKS_PER_S if fields else 0.0


def busy_s() -> float:
    """Seconds of CPU that the whole machine has used since it started."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:8]
    user, nice, system, _, _, irq, softirq = map(int, fields)
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def own_s() -> float:
    """Seconds of CPU of this process and the children it waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


_NAMED = "zonemta "
_ESTABLISHED = "01"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # ended meanwhile
        return ""


def _on_cpu_s(pid: int) -> float:
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except OSError:  # the thread has just ended
            continue
    return total / 1e9


def _inodes_of(port: int) -> set[str]:
    """Of the sockets that are connections to a port of this machine, at its end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _ESTABLISHED and row[1].endswith(f":{port:04X}")}


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            found.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    except OSError:  # ended meanwhile
        pass
    return found


def _field(pid: int, file: str, name: str) -> str:
    try:
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    except OSError:  # ended meanwhile
        return "0"
    return found[1] if found else "0"


def _kilobytes(pid: int, file: str, name: str) -> int:
    return int(_field(pid, file, name)) * 1024


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def count_syncs(log: Path) -> int:
    """Sync calls in a log of strace; a call that was interrupted in the log is counted once."""
    return len(re.findall(rf"\b(?:{'|'.join(SYNC_CALLS)})\(", log.read_text(errors="replace")))

"""This MTA with several queues, as many receivers and as many senders, and what more cores would bring.

`queues=N` runs on the machine as it is. `queues=N@SHARE` gives each of its processes that share of one core at most, by
a control group's CPU quota, and the load generator and the sink all they want: as long as the machine itself is not
full, the ratio of two such figures is what a machine with more cores would give."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.contenders import BenchError, Zonemta
from benchmark.processes import Group

DOMAINS = 500
"""Of the recipients: each queue has its share of them."""
PERIOD_US = 10_000
_BASE = Path("/sys/fs/cgroup/cpu")
_NAME = re.compile(r"queues=(\d+)(?:@([0-9.]+))?")
READY_S = 7.0


def is_one(name: str) -> bool:
    """Whether it names such a contender."""
    return _NAME.fullmatch(name) is not None


class Queues(Zonemta):
    """name: as above."""

    domains = DOMAINS

    def __init__(self, name: str, folder: Path, sink_port: int) -> None:
        found = _NAME.fullmatch(name)
        assert found is not None
        self.name, count = name, int(found[1])
        self._share = float(found[2]) if found[2] else 0.0
        self._groups: list[Path] = []
        super().__init__(folder, sink_port, server={"queues": count, "receivers": count, "senders": count})

    def start(self, group: Group, prefix: Sequence[str] = ()) -> float:
        begun = super().start(group, prefix)
        time.sleep(READY_S)  # all processes are there, and what they load after a start is loaded
        if self._share:
            self._confine(group.pids())
        return begun

    def _confine(self, pids: list[int]) -> None:
        """Raises BenchError where there are no quotas."""
        self._free()
        for pid in pids:
            folder = _BASE / f"zonemta-quota-{os.getpid()}-{pid}"
            try:
                folder.mkdir()
                self._groups.append(folder)
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(round(PERIOD_US * self._share)))
                (folder / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise BenchError(
                    f"{_BASE} gives no quotas ({error.strerror}); run it as root, with the cpu controller of version 1"
                ) from None

    def held_back(self) -> dict[str, int]:
        """Periods in which a process had no CPU any more, by the process's id."""
        found = {}
        for folder in self._groups:
            stat = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            found[folder.name.rpartition("-")[2]] = int(stat["nr_throttled"])
        return found

    def ended(self) -> None:
        self._free()

    def _free(self) -> None:
        """The groups of processes that have ended go."""
        for folder in self._groups:
            try:
                folder.rmdir()
            except OSError:  # its process is still on its way out
                continue
        self._groups = [folder for folder in self._groups if folder.exists()]

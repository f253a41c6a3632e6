"""Contenders that take turns, each run in a process of its own, timed and watched for memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]


class Run(NamedTuple):
    """seconds: as the work itself says ("seconds 1.5" on stdout), else of the whole process. peak_mb: of the process
    with its children, their resident memory added up.
    """

    seconds: float
    peak_mb: float


def contest(commands: Mapping[str, list[str]], runs: int, before: Callable[[str], None] = lambda _: None) -> None:
    """Runs all in turn, `runs` times, and prints the medians; the first is the one that is compared with the others."""
    told: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(runs):
        for name, command in commands.items():
            before(name)
            run = measured(command)
            told[name].append(run)
            print(f"run {turn + 1} {name}: {run.seconds:.1f} s, {run.peak_mb:,.0f} MB", flush=True)
    medians = {name: statistics.median(run.seconds for run in rows) for name, rows in told.items()}
    first = next(iter(medians))
    for name, median in medians.items():
        peak = max(run.peak_mb for run in told[name])
        print(f"{name}: median {median:.1f} s, at most {peak:,.0f} MB, {first} takes {medians[first] / median:.1f} ×")


def measured(command: list[str]) -> Run:
    """Raises CalledProcessError if it fails."""
    begun = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peaks: list[float] = [0.0]
    watch = threading.Thread(target=_watch, args=(process, peaks), daemon=True)
    watch.start()
    output, errors = process.communicate()
    if process.returncode:
        print(errors[-4000:], file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    watch.join()
    said = [float(line.split()[1]) for line in output.splitlines() if line.startswith("seconds ")]
    return Run(said[-1] if said else time.monotonic() - begun, max(peaks))


def _watch(process: subprocess.Popen[str], peaks: list[float]) -> None:
    while process.poll() is None:
        peaks.append(sum(map(_resident_mb, _family(process.pid))))
        time.sleep(0.2)


def _family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in _family(int(child)))]


def _resident_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return 0.0

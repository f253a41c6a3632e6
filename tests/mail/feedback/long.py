"""scripts/feedback: measures the reader of what comes back, by a corpus with labels or by mutated reports.

`fuzz` reads each mutated report with a limit of 16 MB on what the process may add to its address space, and times the
CPU; the least of three counts where the first is over the limit, since other processes take the caches.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

from tests.mail.feedback import measure
from tests.mail.feedback.mutations import mutated
from tests.mail.feedback.written import ALL
from zonemta_py.mail.feedback.read import read

CPU_S_MAX = 0.05
BYTES_MAX = 16_000_000
_PAGE_BYTES = resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/feedback", description=__doc__)
    orders = parser.add_subparsers(dest="order", required=True)
    measuring = orders.add_parser("measure", help="how much of a corpus is read as its labels say")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("labels", type=Path, help=f"JSON lines: {measure.__doc__}")
    measuring.add_argument("--show", action="store_true", help="every miss")
    fuzzing = orders.add_parser("fuzz", help="CPU time and memory of mutated reports")
    fuzzing.add_argument("--number", type=int, default=100_000, help="%(default)s")
    fuzzing.add_argument("--seed", type=int, default=0, help="the first one (%(default)s)")
    fuzzing.add_argument("--folder", type=Path, help="mutates its *.eml files too")
    options = parser.parse_args()
    return _measure(options) if options.order == "measure" else _fuzz(options)


def _measure(options: argparse.Namespace) -> int:
    compared = list(measure.labelled(options.folder, options.labels))
    for one in compared:
        if options.show and not (one.whom and all(one.why)):
            print(one.name, "recipient" if not one.whom else "reason", one.said)
    print(measure.figures(compared))
    return 0


def _fuzz(options: argparse.Namespace) -> int:
    messages = [one.message for one in ALL]
    messages += [path.read_bytes() for path in sorted(options.folder.rglob("*.eml"))] if options.folder else []
    broken, times = list[str](), list[float]()
    for message in messages:
        read(message)
    for seed in range(options.seed, options.seed + options.number):
        message = mutated(seed, messages)
        try:
            times.append(_limited(message))
        except Exception as error:
            broken.append(f"seed {seed}: {error!r}")
        else:
            if times[-1] > CPU_S_MAX:
                broken.append(f"seed {seed}: {times[-1] * 1000:.0f} ms")
    times.sort()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{options.number} reports: {len(broken)} broke a rule; CPU mean {sum(times) / len(times) * 1000:.2f} ms, "
        f"99th percentile {times[len(times) * 99 // 100] * 1000:.1f} ms, most {times[-1] * 1000:.1f} ms; "
        f"none added {BYTES_MAX // 1_000_000} MB; most memory of the process {most} MB"
    )
    print("\n".join(broken[:100]))
    return bool(broken)


def _limited(message: bytes) -> float:
    """CPU seconds. Raises what `read` raises, MemoryError if it needs more than BYTES_MAX."""
    times = list[float]()
    while not times or (min(times) > CPU_S_MAX and len(times) < 3):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * _PAGE_BYTES + BYTES_MAX, resource.RLIM_INFINITY))
        try:
            start = time.process_time()
            read(message)
            times.append(time.process_time() - start)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return min(times)


if __name__ == "__main__":
    sys.exit(main())

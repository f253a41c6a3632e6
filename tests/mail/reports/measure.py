"""Measures what bombs and large reports take: processor time, and memory beyond the file itself.

Fails if one of the bombs is not refused, or takes more than 50 ms or 16 MB.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

from tests.mail.reports.makers import DMARC, TLS, gzipped, is_ours, mixed, report, row, zipped
from tests.mail.reports.test_bombs import BOMBS, HEAD, ROW, repeated
from zonemta_py.mail.reports.letters import read_report, read_reports
from zonemta_py.mail.reports.unpacking import ReportRefused

MS_MAX, MB_MAX = 50.0, 16.0
_MB = 1 << 20


def taken(work: Callable[[], object], times: int = 3) -> tuple[float, float, str]:
    """Milliseconds (the least of several), MB, and what became of it."""
    best, said = float("inf"), ""
    for _ in range(times):
        begun = time.process_time()
        said = _ended(work)
        best = min(best, (time.process_time() - begun) * 1000)
    tracemalloc.start()
    _ended(work)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return best, peak / 1e6, said


def _ended(work: Callable[[], object]) -> str:
    try:
        return "read" if work() is not None else "no report"
    except ReportRefused as error:
        return f"refused: {error}"


def large(gigabytes: int) -> Iterator[tuple[str, bytes]]:
    """Bombs of full size: packed, they are a thousandth of that."""
    yield f"gzip of {gigabytes} GB of zeros", repeated(bytes(_MB), gigabytes * 1024)
    yield "zip of 1 GB of zeros", zipped("report.xml", bytes(1 << 30))
    rows = repeated(ROW * 1_000, 1_000)  # gzip of several streams is one
    yield "1,000,000 rows", gzipped(HEAD) + rows
    yield "1,000,000 rows in zip", zipped("report.xml", HEAD + ROW * 1_000_000)


def reports() -> Iterator[tuple[str, bytes]]:
    """Good ones: they may be large."""
    for number in (1, 100, 1_000, 9_999):
        rows = [row(f"198.51.{at // 250}.{at % 250}", at + 1) for at in range(number)]
        yield f"{number:,} rows", gzipped(report("Provider", "1", *rows))


def main() -> int:
    """Exit status 1: a bomb is too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=int, default=10, help="size of the largest bomb, unpacked")
    wanted, wrong = parser.parse_args(), 0
    bombs = [*((name, content) for name, (content, _) in BOMBS.items()), *large(wanted.gigabytes)]
    for name, content in bombs:
        ms, mb, said = taken(lambda content=content: read_report(content, is_ours))  # type: ignore[misc]
        bad = ms > MS_MAX or mb > MB_MAX or not said.startswith("refused")
        wrong += bad
        print(f"{'WRONG' if bad else 'bomb':6}{name:28}{len(content):>12,} B{ms:9.2f} ms{mb:7.2f} MB  {said}")
    for name, content in reports():
        mail = mixed("a@b.example", "Report", "application/gzip", content)
        ms, mb, said = taken(lambda mail=mail: read_reports(mail, is_ours)[0] or None)  # type: ignore[misc]
        print(f"{'':6}{name:28}{len(content):>12,} B{ms:9.2f} ms{mb:7.2f} MB  {said}")
    ms, mb, said = taken(lambda: [read_reports(message, is_ours) for _, message, _ in [*DMARC, *TLS]])
    count = len(DMARC) + len(TLS)
    print(f"{'':6}{f'{count} makers, each':28}{'':>14}{ms / count:9.2f} ms{mb:7.2f} MB")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Yesterday's numbers: archives of a busy day, their summaries, and how long questions take.

    scripts/trials/summary                           5,000,000 attempts of two queues; 4 GB in a temporary folder
    scripts/trials/summary --attempts 50000 --lake   compares every answer with the lake's, too (Spark)

The archives are written through the journal's own writer (`scripts/pipeline/synthetic.py`), with 40 tenants, 300 users,
10,000 sender domains, 20,000 recipient domains, 16 sources, 11 providers and the replies that these send. Each question
is a whole process, from the shell to its end, the best of three. The exit status is 1 if an answer to one of the first
four took longer than --most seconds, or one differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import model
import synthetic

from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import WAITED

ROOT = Path(__file__).resolve().parents[2]
DAY = datetime.fromtimestamp(synthetic.START_MS / 1000, UTC).date().isoformat()
QUEUES = 2
ATTEMPTS_A_MESSAGE = 1.6
SEGMENT_RECORDS = 75_000
"""About 16 MB."""
_SENDERS, _DOMAINS, _USERS, _TENANTS = 10_000, 20_000, 300, 40
_MINUTE_MS = 60_000
_LIMITS = ("google", "microsoft-source", "yahoo", "tenant-hour", "everything")
_MORE = (
    ("web.de", 0.05, ("web.de", "gmx.net", "gmx.de")), ("comcast", 0.02, ("comcast.net",)),
    ("orange", 0.02, ("orange.fr", "wanadoo.fr")), ("proofpoint", 0.03, ("bank.example", "insurer.example")),
    ("mimecast", 0.02, ("law.example",)), ("mail.ru", 0.02, ("mail.ru",)), ("qq", 0.01, ("qq.com",)),
)  # fmt: skip

QUESTIONS = {
    "how many to each provider by source": ("mail", "--by", "provider,source"),
    "what bounced and why": ("replies", "--verdict", "bounced"),
    "who sent most": ("mail", "--by", "user,sender"),
    "which limit held how long": ("limits",),
}
"""These are held to --most."""
OTHERS = {
    "which domains got how much": ("mail", "--by", "domain"),
    "how much in which hour": ("mail", "--by", "hour"),
    "why was it deferred": ("replies", "--verdict", "deferred"),
}


class Busy(synthetic.Factory):
    """A queue of a larger sender."""

    def __init__(self, folder: Path, messages: int, days: float, seed: int, segment_records: int, queue: int) -> None:
        super().__init__(folder, messages, days, seed, segment_records)
        self.counter = itertools.count(queue, QUEUES)
        rest = self.providers[-1]
        domains = tuple(f"company{number:05d}.example" for number in range(_DOMAINS))
        more = [
            model.Provider(name, share, names, (f"mx.{names[0]}",), rest.deferred, rest.bounced, 500, 1.0, rest.answers)
            for name, share, names in _MORE
        ]
        other = model.Provider(
            "", rest.share, domains, tuple(f"mx.{one}" for one in domains), rest.deferred, rest.bounced, 310, 0.82,
            rest.answers,
        )  # fmt: skip
        self.providers = [*self.providers[:-1], *more, other]
        self.shares = list(itertools.accumulate(provider.share for provider in self.providers))
        self.minute = 0

    def _metadata(self, mail: synthetic.Mail, ms: int) -> dict[str, Any]:
        at = min(_SENDERS - 1, int(self.die.paretovariate(0.5)))
        named = {"sender": f"bounce+{mail.id}@sender{at:05d}.example", "user": f"user{at % _USERS:03d}"}
        return super()._metadata(mail, ms) | named

    def _turn(self, ms: int) -> None:
        if ms // _MINUTE_MS > self.minute:
            self.minute = ms // _MINUTE_MS
            for at, name in enumerate(_LIMITS):
                if self.die.random() < 0.5 / (at + 1):
                    held = {"ms": self.die.randrange(1, _MINUTE_MS), "times": self.die.randrange(1, 1000)}
                    self._record(Type.STANDING, ms, [WAITED, ["limit", name], held, ""])
        super()._turn(ms)


def make(folder: Path, attempts: int, segment_records: int = SEGMENT_RECORDS) -> int:
    """The archives of two queues; how many attempts are in them."""
    places = [folder / "archive", folder / "queues" / "1" / "archive"]
    messages = int(attempts / ATTEMPTS_A_MESSAGE / QUEUES) + 1
    jobs = [(place, messages, segment_records, queue) for queue, place in enumerate(places)]
    with multiprocessing.get_context("fork").Pool(QUEUES) as pool:
        return sum(pool.starmap(_make, jobs))


def _make(place: Path, messages: int, segment_records: int, queue: int) -> int:
    place.mkdir(parents=True)
    model.TENANTS = tuple(f"tenant{number:02d}" for number in range(_TENANTS))
    model.ZONES = {  # more sources
        name: (share, tuple(f"192.0.2.{30 * at + number + 1}" for number in range(2 if at == 0 else 7)))
        for at, (name, (share, _)) in enumerate(model.ZONES.items())
    }
    factory = Busy(place, messages, 0.8, 7 + queue, segment_records, queue)
    factory.run()
    return factory.attempts


def ask(folder: Path, *question: str) -> Any:
    """The answer to a question, by the command itself."""
    command = [sys.executable, "-m", "zonemta_py", "summary", *question, "--json", "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return json.loads(done.stdout)


def timed(folder: Path, *question: str) -> float:
    """Seconds of the whole process, as in a terminal."""
    command = [sys.executable, "-m", "zonemta_py", "summary", *question, "--folder", str(folder)]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, help="keep the archives here, and use those that are here")
    parser.add_argument("--most", type=float, default=2.0, help="seconds that a question may take (default: 2)")
    parser.add_argument("--lake", action="store_true", help="compare with the lake (Spark, Java)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="summary-") as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "archive").exists():
            began = time.perf_counter()
            print(
                f"{make(folder, given.attempts):,} attempts written in {time.perf_counter() - began:.0f} s", flush=True
            )
        sys.exit(trial(folder, given.most, given.lake))


def trial(folder: Path, most_s: float, lake: bool) -> int:
    places = [folder / "archive", folder / "queues" / "1" / "archive"]
    files = [path for place in places for path in segments.files(place)]
    size = sum(path.stat().st_size for path in files)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "zonemta_py", "summary", "make", "--folder", str(folder)], check=True, cwd=ROOT
    )
    took = time.perf_counter() - began
    small = sum(path.stat().st_size for place in places for path in place.glob(f"*{segments.SUMMARY}"))
    print(f"{len(files)} segments, {size / 1e6:,.0f} MB: summaries made in {took:.0f} s, {size / 1e6 / took:.0f} MB/s; "
          f"they have {small / 1e6:.1f} MB", flush=True)  # fmt: skip
    span = ("--since", f"{DAY}T00:00Z", "--until", "2026-03-05T00:00Z")
    total = sum(row["attempts"] for row in ask(folder, "mail", "--by", "provider", *span)["rows"])
    print(f"{total:,} attempts in the span that is asked for")
    slow = False
    for what, question in (QUESTIONS | OTHERS).items():
        best = min(timed(folder, *question, *span) for _ in range(3))
        late = what in QUESTIONS and best > most_s
        slow |= late
        print(
            f"{best:6.2f} s   {what}: zonemta summary {' '.join(question)}{'   TOO SLOW' if late else ''}",
            flush=True,
        )
    if lake:
        import summary_lake

        differences = summary_lake.compare(folder)
        print("\n".join(differences) or "every answer is the lake's")
        slow |= bool(differences)
    return int(slow)


if __name__ == "__main__":
    main()

"""Facts made by hand for the pure parts, and a small lake whose tables were made by their own jobs."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from zonemta_py.pipeline.report.rows import (
    AttemptCounts,
    Bin,
    Cause,
    Cell,
    Domain,
    Facts,
    Left,
    Moment,
    Pair,
    Said,
    Totals,
    Tried,
    WarmDay,
)  # fmt: skip
from zonemta_py.pipeline.report.scope import DAY_S, Kind, ReportScope, of_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime(2026, 5, 4, tzinfo=UTC)
MIDNIGHT = int(DAY.timestamp())
HOSTILE = (
    "550 5.1.1 =cmd() </script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
)


_TRIED = ((1, "delivered", 1_700), (2, "delivered", 200), (3, "bounced", 60), (2, "waiting", 40))


@pytest.fixture(scope="session")
def day() -> ReportScope:
    return of_day(DAY.date())


@pytest.fixture(scope="session")
def campaign() -> ReportScope:
    return ReportScope(Kind.CAMPAIGN, "spring </script><b>sale", MIDNIGHT + 9 * 3600, MIDNIGHT + 14 * 3600, "winter")


@pytest.fixture(scope="session")
def facts() -> Facts:
    """Every part of a page has something to show; one reply and one provider are hostile."""
    providers = ["google", "microsoft", "yahoo", "<img src=x onerror=\"document.title='owned'\">"]
    hours = range(MIDNIGHT, MIDNIGHT + DAY_S, 3600)
    tallies = [AttemptCounts(900 - 7 * n, 40 + n, 10, 3 * (n > 20)) for n in range(24)]
    return Facts(
        now=Totals(2_000, 1_900, 60, 40, AttemptCounts(1_900, 150, 60, 12), 2.5, 340.0, 2_900.0),
        before=Totals(1_000, 990, 10, 0, AttemptCounts(990, 20, 10, 0), 2.0, 400.0, 2_900.0),
        moments=[Moment(MIDNIGHT + 300 * n, AttemptCounts(100 + n % 9, n % 7, n % 3, 0)) for n in range(288)],
        cells=[Cell(name, at, attempts) for name in providers for at, attempts in zip(hours, tallies, strict=True)],
        pairs=[Pair(ip, name, tallies[7], 850) for ip in ("192.0.2.1", "192.0.2.2") for name in providers],
        domains=[Domain("gmail.com", 1_500, 1_450, 40, 10), Domain(providers[-1], 500, 450, 20, 30)],
        causes=[Cause("greylisting", "deferred", 90), Cause("user-unknown", "bounced", 60), Cause("x", "blocked", 12)],
        said=[Said("user-unknown", "bounced", "#", 60, HOSTILE), Said("rate", "deferred", "# slow", 9, "421 slow")],
        latency=[Bin(10 ** (n / 100), 10 ** ((n + 1) / 100), 1 + (n * 7) % 13) for n in range(-50, 350)],
        tried=[Tried(*row) for row in _TRIED],
        warm=[WarmDay("192.0.2.1", "google", MIDNIGHT - n * DAY_S, 900 - 90 * n, 1_000 - 90 * n) for n in range(9)],
        left=[Left(MIDNIGHT + 9 * 3600 + 60 * n, 2_000, 19 * n, 2_000 - 20 * n) for n in range(60)],
        ends=MIDNIGHT + 11 * 3600,
    )  # fmt: skip


class Journal:
    """Rows of the journal, as its reader gives them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._seq = count(1)

    def add(self, type_: str, at: datetime, **columns: Any) -> None:
        self.rows.append({"seq": next(self._seq), "part": 0, "at": at, "type": type_, "day": at.date(), **columns})

    def accept(self, at: datetime, recipient: str, campaign: str = "", zone: str = "default") -> dict[str, Any]:
        """A message with one recipient; what `tried` wants to know of it."""
        id_ = f"{int(at.timestamp() * 1000):011x}{next(self._seq):05x}"
        who = {"id": id_, "zone": zone, "recipient": recipient}
        self.add(
            "ENVELOPE", at, **who, sender="a@example.org", size=1_000, received_at=at, campaign=campaign, tenant=""
        )
        return who

    def tried(self, who: dict[str, Any], at: datetime, verdict: str = "delivered", **columns: Any) -> None:
        usual = {
            "source": "192.0.2.1", "provider": "google", "site": "mx.example", "started_at": at, "took_ms": 100,
            "tls": "TLSv1.3", "code": 250, "enhanced": "2.0.0", "reply": "ok", "stage": "dot", "class": "", "rule": "",
            "remote": "mx.example", "relayed": False, "verdict": verdict,
        }  # fmt: skip
        self.add("DELIVERY", at, **who, **(usual | columns))


def _fill(journal: Journal) -> None:
    """Two days: 40 and 60 recipients, of which some are deferred, bounced, blocked, or wait."""
    greylisted = {"code": 450, "enhanced": "4.2.0", "reply": "greylisted for 300 s", "class": "greylisting"}
    unknown = {"code": 550, "enhanced": "5.1.1", "class": "user-unknown"}
    blocked = {"code": 554, "enhanced": "5.7.1", "reply": "192.0.2.2 is listed", "class": "blocked-ip"}
    for day, size, name in ((DAY - timedelta(days=1), 40, "winter"), (DAY, 60, "spring")):
        for n in range(size):
            at = day + timedelta(hours=9, minutes=2 * n)
            who = journal.accept(at, f"u{n}@{'www.' * (n % 4 == 3)}example.com", name)
            place = {"provider": ("google", "microsoft", "")[n % 3], "source": f"192.0.2.{1 + n % 2}"}
            if n % 10 == 0:
                journal.tried(who, at + timedelta(seconds=1), "deferred", **place, **greylisted, tls="")
                journal.tried(who, at + timedelta(seconds=301), **place)
            elif n % 10 == 1:
                reply = f"<u{n}@example.com>: {HOSTILE}"
                journal.tried(who, at + timedelta(seconds=2), "bounced", **place, **unknown, reply=reply)
            elif n % 10 == 2:
                journal.tried(who, at + timedelta(seconds=2), "deferred", **place, **blocked)
            else:
                journal.tried(who, at + timedelta(seconds=2), **place, tls="" if n % 10 == 3 else "TLSv1.3")
    for days, cap in ((3, 50), (1, 100), (0, 200)):
        at = DAY - timedelta(days=days)
        was = f"{(at - timedelta(days=1)).date()} was good; now {cap} a day"
        journal.add("STANDING", at, what="warmup", kind="192.0.2.1", name="google", reason=was, value=json.dumps(None))


@pytest.fixture(scope="session")
def lake(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of mail in all three tables, and the journal's rows as bronze."""
    from zonemta_py.pipeline.journal.schema import NAMES, ROWS
    from zonemta_py.pipeline.lake import bronze, update

    folder = tmp_path_factory.mktemp("lake")
    journal = Journal()
    _fill(journal)
    files = bronze.Files(folder / "bronze", "0000000000000001")
    rows = pa.Table.from_pylist([{name: row.get(name) for name in NAMES} for row in journal.rows], ROWS)
    for kind in rows["type"].unique():
        for batch in rows.filter(pc.equal(rows["type"], kind)).combine_chunks().to_batches():
            files.add(batch)
    files.finish()
    update.update(spark, folder)
    return folder


@pytest.fixture
def scope_of() -> Callable[[Kind, str], ReportScope]:
    """Both days of what has that name."""
    return lambda kind, name: ReportScope(kind, name, MIDNIGHT - DAY_S, MIDNIGHT + DAY_S)

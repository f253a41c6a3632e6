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

from zonemta_py.pipeline.report.feedback.rows import (
    Arrival,
    Cohort,
    Delivered,
    KindCount,
    LaterBounce,
    RatedGroup,
    ReturnCounts,
    Returned,
)
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
        domains=[Domain("gmail.com", 1_500, 1_450, 40, 0, 10), Domain(providers[-1], 500, 450, 20, 0, 30)],
        causes=[Cause("greylisting", "deferred", 90), Cause("user-unknown", "bounced", 60), Cause("x", "blocked", 12)],
        said=[Said("user-unknown", "bounced", "#", 60, HOSTILE), Said("rate", "deferred", "# slow", 9, "421 slow")],
        latency=[Bin(10 ** (n / 100), 10 ** ((n + 1) / 100), 1 + (n * 7) % 13) for n in range(-50, 350)],
        tried=[Tried(*row) for row in _TRIED],
        warm=[WarmDay("192.0.2.1", "google", MIDNIGHT - n * DAY_S, 900 - 90 * n, 1_000 - 90 * n) for n in range(9)],
        left=[Left(MIDNIGHT + 9 * 3600 + 60 * n, 2_000, 19 * n, 2_000 - 20 * n) for n in range(60)],
        ends=MIDNIGHT + 11 * 3600, returned=_returned(providers, hours),
    )  # fmt: skip


def _returned(providers: list[str], hours: range) -> Returned:
    """What came back of two days, hour by hour; a campaign and a class are hostile."""
    delivered, came = Delivered(1_900, 1_000, 500), ReturnCounts(6, 30, 9, 20, 300, 40)
    shares = [
        RatedGroup(name, Delivered(470 - 100 * n, 200, 100), ReturnCounts(n, 7, 2, 5, 70, 10))
        for n, name in enumerate(providers)
    ]
    return Returned(
        True, came, ReturnCounts(1, 5, 4, 9), delivered, at_once=12, providers=shares,
        kinds=[
            KindCount("complaint", 6, 2), KindCount("bounce", 30, 1), KindCount("unsubscribe", 9, 0),
            KindCount("auto-reply", 20, 0), KindCount("open", 300, 0), KindCount("click", 40, 0),
            KindCount("other", 0, 5),
        ],
        campaigns=[
            RatedGroup(HOSTILE, Delivered(1_000, 1_000, 500), came),
            RatedGroup("no campaign", Delivered(900), ReturnCounts()),
        ],
        cohorts=[
            Cohort(at, Delivered(200 - n, 150, 80), ReturnCounts(n % 2, 2, n % 3, 1, 9, 2))
            for n, at in enumerate(hours)
        ],
        arrivals=[Arrival(at + 7200 * n, ReturnCounts(n % 2, 3, 1, 2, 30 - n, 3)) for n, at in enumerate(hours)],
        bounces=[LaterBounce("mailbox-full", "google", "spring", 20), LaterBounce(HOSTILE, "yahoo", "spring", 10)],
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

    def feedback(
        self, who: dict[str, Any], at: datetime, kind: str, genuine: str | None = "token", **columns: Any
    ) -> None:
        told = {"form": "", "tied": "token", "scope": "", "message_id": "", "agreed": False, "again": False}
        usual = {"what": "smtp", "name": genuine, "kind": kind, "value": json.dumps(told)}
        self.add("FEEDBACK", at, **who, **(usual | columns))


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
                _returns(journal, who, at + timedelta(seconds=2), n, name)
    for days, cap in ((3, 50), (1, 100), (0, 200)):
        at = DAY - timedelta(days=days)
        was = f"{(at - timedelta(days=1)).date()} was good; now {cap} a day"
        journal.add("STANDING", at, what="warmup", kind="192.0.2.1", name="google", reason=was, value=json.dumps(None))


def _returns(journal: Journal, who: dict[str, Any], at: datetime, n: int, name: str) -> None:
    """What comes back of a delivery, each of a person of its own; of winter a complaint in time, and one too late."""
    of, later = {"campaign": name, **who}, [at + timedelta(hours=hours) for hours in range(121)]
    if name == "winter":
        if n in (3, 4):
            journal.feedback(of, later[120 if n == 4 else 1], "complaint")
        return
    match n:
        case 3:  # three days later, and again by another report; one more says less than who it was of
            journal.feedback(of, later[72], "complaint")
            journal.feedback(of, later[73], "complaint", "key")
            stranger = {"id": "0" * 15 + "7", "zone": "default", "recipient": "x@example.com", "campaign": name}
            journal.feedback(stranger, later[24], "complaint", "dkim")
            journal.feedback(stranger | {"campaign": None, "id": None}, later[20], "other", None)
        case 4:
            journal.feedback(of, later[1], "complaint", None)
        case 5 | 6:
            journal.feedback(of, later[30], "bounce", **{"class": "mailbox-full" if n == 5 else "user-unknown"})
        case 7:
            journal.feedback(of, later[0] + timedelta(minutes=5), "unsubscribe")
            journal.feedback(of, later[0], "auto-reply")
        case 8 | 9 | 13:  # of eight a proxy, at once
            journal.feedback(of, later[2] if n != 8 else at + timedelta(seconds=5), "open")
        case 14:
            journal.feedback(of, later[2], "click")
            journal.feedback(of, later[3], "click")


@pytest.fixture(scope="session")
def lake(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of mail in all tables, with what came back of it, and the journal's rows as bronze."""
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


@pytest.fixture(scope="session")
def found(spark: "SparkSession", lake: Path) -> Facts:
    """Of the second day."""
    from zonemta_py.pipeline.report import facts

    return facts.gather(spark, lake, of_day(DAY.date()))


@pytest.fixture(scope="session")
def campaigns(spark: "SparkSession", lake: Path) -> dict[str, tuple[ReportScope, Facts]]:
    """Scope and facts of each campaign of the lake, the older first."""
    from zonemta_py.pipeline.report import facts

    spans = facts.spans(spark, lake)
    scopes = [facts.of_campaign(spans, span.name) for span in spans]
    return {scope.name: (scope, facts.gather(spark, lake, scope)) for scope in scopes if scope}


@pytest.fixture
def scope_of() -> Callable[[Kind, str], ReportScope]:
    """Both days of what has that name."""
    return lambda kind, name: ReportScope(kind, name, MIDNIGHT - DAY_S, MIDNIGHT + DAY_S)

"""Which days are reported on, once each, whatever crashes in between."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from zonemta_py.config import Config
from zonemta_py.delivery.tls import daily_reports
from zonemta_py.delivery.tls.daily_reports import SPREAD_S, Ledger, missing, run, through, wait_s
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Writer
from zonemta_py.mail.envelope import Envelope, Notify
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal, Receipt

DAY_S = 86_400
DAY = 20_000
TODAY = datetime.date(1970, 1, 1) + datetime.timedelta(days=DAY)
NOON = DAY * DAY_S + DAY_S / 2
YESTERDAY = TODAY - datetime.timedelta(days=1)


class Names:
    """Every domain wants its reports by mail."""

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        return False, [f"v=TLSRPTv1; rua=mailto:tls@{name.removeprefix('_smtp._tls.')}"]


class Intake:
    """A queue that takes so many messages, then answers with `refusal`."""

    def __init__(self, most: int = 100, refusal: Reply | None = None) -> None:
        self.most, self.refusal = most, refusal or Reply(451, "4.3.0", "gone")
        self.taken: list[tuple[Envelope, bytes]] = []

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        if len(self.taken) >= self.most:
            raise QueueRefusal(self.refusal)
        self.taken.append((envelope, body))
        return Receipt("id", 1, 0)

    @property
    def recipients(self) -> list[str]:
        return [envelope.recipients[0].address for envelope, _ in self.taken]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(server={"folder": tmp_path, "hostname": "mta.test"}, tls={"reports": True})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def seen(tmp_path: Path) -> None:
    """Yesterday three domains were met."""
    rows = [[f"{name}.test", "no-policy-found", ""] for name in "abc"]
    body = [0, "m", "z", "d", [], ["", "", "", 0, 0, "", "", "", rows]]
    Writer(tmp_path / "journal").write(_segment(pack(body)), sync=True)


def _segment(body: bytes) -> list[Record]:
    ms = int((NOON - DAY_S) * 1000)
    head = pack({"version": 1, "first": 1, "floor": 1})
    return [Record(1, ms, Type.SEGMENT, head), Record(2, ms, Type.DELIVERY, body)]


async def test_each_report_once(config: Config, seen: None, ledger: Ledger) -> None:
    """Handed in with NOTIFY=NEVER by the address that policies leave alone; and the day is done."""
    intake = Intake()
    await run(config, Names(), intake, NOON)
    assert intake.recipients == ["tls@a.test", "tls@b.test", "tls@c.test"]
    envelope, message = intake.taken[0]
    assert (envelope.sender, envelope.recipients[0].notify) == ("postmaster@mta.test", Notify.NEVER)
    assert envelope.size == len(message)
    assert ledger.read() == (YESTERDAY, {"a.test", "b.test", "c.test", "."}, True)
    await run(config, Names(), intake, NOON)
    assert len(intake.taken) == 3


async def test_goes_on_after_a_crash(config: Config, seen: None, ledger: Ledger) -> None:
    """What had left before the queue went is not sent again; what had not is."""
    with pytest.raises(QueueRefusal):
        await run(config, Names(), first := Intake(most=2), NOON)
    assert wait_s(config, NOON) == 0
    await run(config, Names(), second := Intake(), NOON)
    assert (first.recipients, second.recipients) == (["tls@a.test", "tls@b.test"], ["tls@c.test"])
    assert wait_s(config, NOON) > 0


async def test_refused_for_good(config: Config, seen: None, ledger: Ledger) -> None:
    """A report that the queue will never take does not hold up the others, nor the next day."""
    await run(config, Names(), Intake(most=1, refusal=Reply(552, "5.3.4", "too large")), NOON)
    assert ledger.read()[2]


async def test_large_reports() -> None:
    """One of several chunks arrives whole."""
    intake = Intake()
    for size in (1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES):
        await through(intake, NOON)("s@mta.test", ["r@d.test"], b"x" * size)
        assert len(intake.taken[-1][1]) == size


def _days(ledger: Ledger) -> list[int]:
    return [(TODAY - day).days for day in missing(ledger, NOON)]


def test_days_that_were_missed(ledger: Ledger) -> None:
    """At first yesterday; after a pause all days since, a week at most; a day that was only begun again."""
    assert _days(ledger) == [1]
    ledger.begin(TODAY - datetime.timedelta(days=3))
    assert _days(ledger) == [3, 2, 1]
    ledger.note("a.test")
    ledger.end()
    assert _days(ledger) == [2, 1]
    ledger.begin(TODAY - datetime.timedelta(days=30))
    assert _days(ledger) == [7, 6, 5, 4, 3, 2, 1]
    ledger.begin(TODAY + datetime.timedelta(days=2))
    assert _days(ledger) == []


@pytest.mark.parametrize("text", ["", "x", "2026-13-01\n", "\xff"])
def test_a_file_that_makes_no_sense(text: str, ledger: Ledger, tmp_path: Path) -> None:
    """Is as good as none."""
    ledger.begin(YESTERDAY)
    (tmp_path / "tls" / "reported").write_bytes(text.encode("latin-1"))
    assert _days(ledger) == [1]


def test_a_line_that_was_cut_short(ledger: Ledger, tmp_path: Path) -> None:
    """Counts for nothing."""
    ledger.begin(YESTERDAY)
    ledger.note("a.test")
    file = tmp_path / "tls" / "reported"
    file.write_text(file.read_text() + "b.te")
    assert ledger.read() == (YESTERDAY, {"a.test"}, False)


def test_when(config: Config, ledger: Ledger) -> None:
    """Each sender at a moment of its own in the first four hours of the day; then not before the next day's."""
    midnight = float(DAY * DAY_S)
    first_s = wait_s(config, midnight)
    assert 0 <= first_s < SPREAD_S
    assert wait_s(config, midnight + SPREAD_S) == 0
    ledger.begin(YESTERDAY)
    assert wait_s(config, midnight + SPREAD_S) == 0
    ledger.end()
    assert wait_s(config, midnight + SPREAD_S) == DAY_S - SPREAD_S + first_s
    other = config.model_copy(update={"server": config.server.model_copy(update={"hostname": "mta2.test"})})
    assert wait_s(other, midnight) != first_s


def test_the_file_that_begins_a_day_cannot_be_written(config: Config, tmp_path: Path) -> None:
    """An error for whoever called, not a day that is lost."""
    (tmp_path / "tls").write_text("a file where the folder is to be")
    with pytest.raises(OSError, match="tls"):
        daily_reports.Ledger(tmp_path).begin(YESTERDAY)
    assert wait_s(config, NOON) == 0

"""A small archive with a world in it: a provider that bears so much a second, one that greylists, one that is down."""

from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.journal.segments import Writer

START_MS = 1_700_006_400_000  # 2023-11-15 00:00 UTC
Outcome = tuple[int, int, int, str, str, str, str]
"""(ms, verdict, code, enhanced, text, stage, class)."""


class Archive:
    """Writes segments as a queue would have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer, self._rows = Writer(folder), list[tuple[int, int, bytes]]()
        self._count = 0

    def mail(
        self, ms: int, address: str, outcomes: list[Outcome], *, site: str, provider: str, source: str = ""
    ) -> str:
        self._count += 1
        message_id = f"{(START_MS + ms) << 20 | self._count:016x}"
        metadata = {"sender": "news@example.com", "size": 5000, "received_ms": START_MS + ms, "chunks": 1}
        body = pack([message_id, metadata, [["default", address, 0, None]]])
        self._rows.append((START_MS + ms, Type.ENVELOPE, body))
        for at, verdict, code, enhanced, text, stage, kind in outcomes:
            trace = ["mx", "", "", START_MS + at - 20, 20, source, site, provider, []]
            outcome = [verdict, code, enhanced, text, stage, [address], False, kind, "a-rule" if kind else ""]
            delivery = pack([1, message_id, "default", site, [outcome], trace])
            self._rows.append((START_MS + at, Type.DELIVERY, delivery))
        return message_id

    def removed(self, ms: int, message_id: str, address: str) -> None:
        body = pack([message_id, "default", [address], "campaign spring was canceled"])
        self._rows.append((START_MS + ms, Type.REMOVED, body))

    def envelope_again(self, ms: int, message_id: str) -> None:
        """As a start may write it, with those who are left."""
        body = next(body for _, kind, body in self._rows if kind == Type.ENVELOPE and message_id.encode() in body)
        self._rows.append((START_MS + ms, Type.ENVELOPE, body))

    def close(self) -> Path:
        records = [Record(1, START_MS, Type.SEGMENT, pack({"version": 1, "first": 1, "floor": "0" * 16}))]
        for ms, kind, body in sorted(self._rows):
            records.append(Record(len(records) + 1, ms, kind, body))
        records.append(Record(len(records) + 1, records[-1].ms, Type.END, pack(None)))
        self._writer.write(records, sync=True)
        return self.folder


OK = (DELIVERED, 250, "2.0.0", "ok", "dot", "")
SLOWLY = (DEFERRED, 421, "4.7.0", "slow down", "mail", "rate")
GREY = (DEFERRED, 451, "4.7.1", "greylisted", "rcpt", "greylisting")
NOBODY = (BOUNCED, 550, "5.1.1", "no such user", "rcpt", "user-unknown")
GONE = (DEFERRED, 451, "4.4.1", "connection refused", "connect", "network")


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[], Archive]:
    return lambda: Archive(tmp_path / "archive")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages in ten minutes to a provider that took one a second and put off the rest; some to others."""
    made = Archive(tmp_path_factory.mktemp("day") / "archive")
    for number in range(600):
        ms = number * 500
        tries = [(ms + 50, *OK)] if number % 2 else [(ms + 50, *SLOWLY), (ms + 600_000, *OK)]
        made.mail(ms, f"u{number}@big.test", tries, site="mx.big.test", provider="big", source="192.0.2.10")
    for number in range(20):
        made.mail(number, f"g{number}@grey.test", [(number + 50, *GREY), (300_050 + number, *OK)],
                  site="mx.grey.test", provider="", source="192.0.2.10")  # fmt: skip
    made.mail(0, "nobody@grey.test", [(50, *NOBODY)], site="mx.grey.test", provider="", source="192.0.2.10")
    made.mail(0, "a@down.test", [(50, *GONE), (1_800_000, *GONE), (3_600_000, *OK)], site="mx.down.test", provider="",
              source="192.0.2.10")  # fmt: skip
    return made.close()

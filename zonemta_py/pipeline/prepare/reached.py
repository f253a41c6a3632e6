"""Who has got a campaign's mail, or still may; and who has got it and has not opened it, or clicked: from the journal
and the archive of the MTA that sends it.

The first are those whose mail was delivered, waits, or is in doubt; not those who bounced, or whose mail was removed
before it went. The second are those of them whose mail was delivered. Failures: NobodyReached for a campaign of which
there is no mail; OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.disk import packing
from zonemta_py.journal import folders, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DELIVERED, DeliveryRecord, EnvelopeRecord, RemovedRecord, Who
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.pipeline.findings.engagement import PROXY_S
from zonemta_py.pipeline.prepare.settings import PlanRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NobodyReached(PlanRefused):
    """There is no mail of the campaign; one sentence."""


ENGAGED: dict[str, tuple[str, ...]] = {"opened": ("open", "click"), "clicked": ("click",)}
"""What may be asked of somebody's mail → the kinds of feedback that say so. Who has clicked has opened it. An open
within PROXY_S of the delivery is the provider's own, as in reports."""


class _Mail:
    """Of some campaigns: what the journal says of each recipient."""

    def __init__(self, campaigns: Collection[str]) -> None:
        self._campaigns = campaigns
        self.left: dict[str, dict[str, str]] = {}
        """Message → address as it was handed in → campaign, without those it did not reach."""
        self.delivered: dict[tuple[str, str], int] = {}
        """(message, address) → UNIX ms."""
        self.feedback: set[tuple[str, str, str]] = set()
        """(message, address in lower case, kind)"""
        self.seen: set[str] = set()

    def read(self, folder: Path) -> None:
        """Raises NobodyReached, OSError."""
        places = folders.every(folder).values()
        for record in folders.in_time(
            segments.read_files(segments.every_file(place / "journal", place / "archive")) for place in places
        ):
            if (take := _TAKEN.get(record.type)) is not None:
                take(self, packing.unpack(record.body), record.ms)
        if missing := sorted({*self._campaigns} - self.seen):
            what = f"{folder}: no mail of the campaign {missing[0]!r} is in its journal or archive"
            raise NobodyReached(f"{what}; write its name as `zonemta campaign list` does, on the machine that sent it")

    def _accepted(self, body: Any, ms: int) -> None:
        envelope = EnvelopeRecord.of(body)
        if (name := envelope.metadata.get("campaign", "")) in self._campaigns:
            self.seen.add(name)
            self.left[envelope.id] = {row[1]: name for row in envelope.recipients}

    def _removed(self, body: Any, ms: int) -> None:
        removed = RemovedRecord.of(body)
        for address in removed.recipients if removed.envelope is None else ():
            self.left.get(removed.id, {}).pop(address, None)

    def _tried(self, body: Any, ms: int) -> None:
        delivery = DeliveryRecord.of(body)
        for outcome in delivery.outcomes if delivery.id in self.left else ():
            for who in outcome.recipients:
                address = Who.of(who).address
                if outcome.verdict == BOUNCED:
                    self.left[delivery.id].pop(address, None)
                elif outcome.verdict == DELIVERED:
                    self.delivered[delivery.id, address] = ms

    def _came_back(self, body: Any, ms: int) -> None:
        told = FeedbackRecord.of(body)
        if told.message in self.left and told.kind in ("open", "click"):
            place = (told.message, told.recipient.lower())
            taken_ms = self.delivered.get((told.message, told.recipient), 0)
            if told.kind == "click" or ms - taken_ms > PROXY_S * 1000:
                self.feedback.add((*place, told.kind))


_TAKEN: dict[int, Callable[[_Mail, Any, int], None]] = {
    Type.ENVELOPE: _Mail._accepted, Type.REMOVED: _Mail._removed, Type.DELIVERY: _Mail._tried,
    Type.FEEDBACK: _Mail._came_back,
}  # fmt: skip


def reached(folder: Path, campaigns: Collection[str]) -> dict[str, str]:
    """Address as it was handed in → the campaign. folder: of the MTA (server.folder)."""
    mail = _Mail(campaigns)
    mail.read(folder)
    return {address: name for people in mail.left.values() for address, name in people.items()}


def silent(folder: Path, campaigns: Collection[str], what: str) -> dict[str, str]:
    """Who has got one of these campaigns, and has of none done `what` (of ENGAGED): as of `reached`."""
    mail = _Mail(campaigns)
    mail.read(folder)
    moved = {address for id, address, kind in mail.feedback if kind in ENGAGED[what]}
    return {
        address: mail.left[id][address]
        for id, address in mail.delivered
        if address in mail.left[id] and address.lower() not in moved
    }


def as_suppressed(spark: SparkSession, people: dict[str, str], folder: Path, name: str = "reached") -> DataFrame:
    """As `suppressed.COLUMNS`, by way of a file in `folder`. name: the file's, and their kind."""
    import pyarrow as pa
    import pyarrow.parquet

    from zonemta_py.pipeline.prepare.suppressed import COLUMNS

    file, kinds = folder / f"{name}.parquet", [name] * len(people)
    none = pa.nulls(len(people), pa.int64())
    table = {
        "address": [*people],
        "kind": kinds,
        "since_ms": none,
        "by": [f"campaign {one}" for one in people.values()],
    }
    pa.parquet.write_table(pa.table(table), file)
    return spark.read.schema(COLUMNS).parquet(str(file))

"""Who has got a campaign's mail, or still may: from the journal and the archive of the MTA that sends it.

Those whose mail was delivered, waits, or is in doubt; not those who bounced, or whose mail was removed before it went.
Failures: NobodyReached for a campaign of which there is no mail; OSError.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.disk import packing
from zonemta_py.journal import folders, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DeliveryRecord, EnvelopeRecord, RemovedRecord, Who
from zonemta_py.pipeline.prepare.settings import PlanRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NobodyReached(PlanRefused):
    """There is no mail of the campaign; one sentence."""


def reached(folder: Path, campaigns: Collection[str]) -> dict[str, str]:
    """Address as it was handed in → the campaign. folder: of the MTA (server.folder)."""
    places = folders.every(folder).values()
    left, seen = dict[str, dict[str, str]](), set[str]()
    for record in folders.in_time(
        segments.read_files(segments.every_file(place / "journal", place / "archive")) for place in places
    ):
        if record.type == Type.ENVELOPE:
            envelope = EnvelopeRecord.of(packing.unpack(record.body))
            if (name := envelope.metadata.get("campaign", "")) in campaigns:
                seen.add(name)
                left[envelope.id] = {row[1]: name for row in envelope.recipients}
        elif record.type == Type.REMOVED:
            removed = RemovedRecord.of(packing.unpack(record.body))
            for address in removed.recipients if removed.envelope is None else ():
                left.get(removed.id, {}).pop(address, None)
        elif record.type == Type.DELIVERY:
            delivery = DeliveryRecord.of(packing.unpack(record.body))
            for outcome in delivery.outcomes if delivery.id in left else ():
                for who in outcome.recipients if outcome.verdict == BOUNCED else ():
                    left[delivery.id].pop(Who.of(who).address, None)
    if missing := sorted({*campaigns} - seen):
        what = f"{folder}: no mail of the campaign {missing[0]!r} is in its journal or archive"
        raise NobodyReached(f"{what}; write its name as `zonemta campaign list` does, on the machine that sent it")
    return {address: name for people in left.values() for address, name in people.items()}


def as_suppressed(spark: SparkSession, people: dict[str, str], folder: Path) -> DataFrame:
    """As `suppressed.COLUMNS`, by way of a file in `folder`."""
    import pyarrow as pa
    import pyarrow.parquet

    from zonemta_py.pipeline.prepare.suppressed import COLUMNS

    file, kinds = folder / "reached.parquet", ["reached"] * len(people)
    none = pa.nulls(len(people), pa.int64())
    table = {
        "address": [*people],
        "kind": kinds,
        "since_ms": none,
        "by": [f"campaign {one}" for one in people.values()],
    }
    pa.parquet.write_table(pa.table(table), file)
    return spark.read.schema(COLUMNS).parquet(str(file))

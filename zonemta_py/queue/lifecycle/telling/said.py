"""What a settlement says of its recipients, for the policy that suppresses people: evidence, and what clears it."""

from __future__ import annotations

from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.records import DELIVERED
from zonemta_py.queue.lifecycle.settlement import Settlement
from zonemta_py.queue.suppression.evidence import COUNTED, OF_CLASS
from zonemta_py.queue.suppression.guard import Pair
from zonemta_py.queue.suppression.policy import Statement, SuppressionPolicy


def said(policy: SuppressionPolicy, settlement: Settlement, apart_ms: int) -> list[Operation]:
    """To be written in the batch that applies it. apart_ms: how far steady time is ahead of the clock."""
    operations: list[Operation] = []
    taken, clears, message = 0, policy.store.any, settlement.message
    for row in settlement.rows:
        if row.verdict == DELIVERED:
            taken += 1
            if clears:
                operations += policy.took(row.address, message.id, settlement.ms + apart_ms)
        elif row.kind and row.verdict in COUNTED.get(OF_CLASS.get(row.kind, ""), ()):
            get = message.metadata.get
            heard = Statement(
                row.address, row.kind, message.id, settlement.ms + apart_ms, row.agreed, get("tenant") or "",
                get("campaign") or "", pair_of(settlement), str(row.reply), row.stage,
            )  # fmt: skip
            operations += policy.heard(heard)
    if taken and settlement.lease is not None:
        policy.guard.took(pair_of(settlement), taken)
    return operations


def pair_of(settlement: Settlement) -> Pair:
    """Our source, and the provider or site that has answered."""
    if settlement.lease is None:
        return settlement.pair
    path = settlement.lease.batch.path
    return path.source, path.provider or path.site

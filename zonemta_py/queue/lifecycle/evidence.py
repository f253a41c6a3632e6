"""What a settlement says of its recipients, for the policy that suppresses people: evidence, and what clears it."""

from __future__ import annotations

from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records.mail import DELIVERED
from zonemta_py.queue.lifecycle.settlement import Row, Settlement
from zonemta_py.queue.suppression.evidence import COUNTED, OF_CLASS
from zonemta_py.queue.suppression.guard import Pair
from zonemta_py.queue.suppression.policy import Statement, SuppressionPolicy


def said(policy: SuppressionPolicy, settlement: Settlement, apart_ms: int) -> list[Operation]:
    """To be written in the batch that applies it. apart_ms: how far steady time is ahead of the clock."""
    operations: list[Operation] = []
    taken, clears, ms = 0, policy.store.any, settlement.ms + apart_ms
    for row in settlement.rows:
        if row.verdict == DELIVERED:
            taken += 1
            if clears:
                operations += policy.took(row.address, settlement.message.id, ms)
        elif row.kind and row.verdict in COUNTED.get(OF_CLASS.get(row.kind, ""), ()):
            operations += policy.heard(_statement(policy, settlement, row, ms))
    if taken and settlement.lease is not None:
        _count(policy, settlement, taken)
    return operations


def _statement(policy: SuppressionPolicy, settlement: Settlement, row: Row, ms: int) -> Statement:
    message = settlement.message
    tenant, campaign = message.metadata.get("tenant") or "", message.metadata.get("campaign") or ""
    pair = _pair(settlement, row.address if policy.relays(settlement.zone) else "")
    return Statement(
        row.address, row.kind, message.id, ms, row.agreed, tenant, campaign, pair, str(row.reply), row.stage
    )


def _count(policy: SuppressionPolicy, settlement: Settlement, taken: int) -> None:
    if not policy.relays(settlement.zone):
        policy.guard.took(_pair(settlement, ""), taken)
        return
    for row in settlement.rows:
        if row.verdict == DELIVERED:
            policy.guard.took(_pair(settlement, row.address), 1)


def _pair(settlement: Settlement, address: str) -> Pair:
    """Our source, and who has answered: the provider or site; behind a smart host the address's domain."""
    source, place = settlement.pair
    if settlement.lease is not None:
        path = settlement.lease.batch.path
        source, place = path.source, path.provider or path.site
    return source, address.rpartition("@")[2].lower() or place

"""Table `outcomes`: one row per recipient of a message: how it ended, or its present state.

State: "delivered" or "bounced" once an attempt has ended it, else "removed" once a REMOVED record has, or "suppressed"
where that left it out at acceptance (it is none of the envelope's, and was never accepted), else "deleted" while a task
that deleted it can be undone, else "held" if a plugin, a task or a loss of its sender was the last to speak, else
"waiting". What a task did and undid is as if it had not been. Its day is the one in the message's id (44
bits of UNIX ms), so a row never moves from day to day, however late its records come; ids of another shape are of
1970-01-01.

Nearly all recipients end, and an attempt that is `final` says all there is. Only of the others, those whose REMOVED
record says it (suppressed as the message came, they may be none of the envelope's) and those that wait, are the records
looked at one by one. Recipients whose envelope has not come yet have `received_at` and the times from it null.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.pipeline.journal.ids import born
from zonemta_py.pipeline.journal.schema import ROWS
from zonemta_py.pipeline.lake.deliveries import among, apart, domains, named, pairs, with_columns, with_message
from zonemta_py.pipeline.lake.scan import Scan

COLUMNS = (
    "id", "recipient", "state", "attempts", "received_at", "first_attempt_at", "ended_at", "to_first_s",
    "to_delivery_s", "code", "enhanced", "reply", "class", "reason", "zone", "source", "provider", "domain",
    "sender", "campaign", "tenant", "node", "day",
)  # fmt: skip
"""code, enhanced, reply, class, source and provider are the last attempt's; reason is that of REMOVED or IN_DOUBT.
ended_at: of who is deleted, when that was. node: that of the last attempt, or where the message came in."""

_TIME = ROWS.field("at").type
_MADE = {
    "state": pa.string(), "attempts": pa.int32(), "first_attempt_at": _TIME, "ended_at": _TIME,
    "to_first_s": pa.float64(), "to_delivery_s": pa.float64(), "domain": pa.string(), "day": pa.date32(),
}  # fmt: skip
SCHEMA = pa.schema([(name, _MADE.get(name) or ROWS.field(name).type) for name in COLUMNS])

_WHO = ("seq", "part", "at", "type", "id", "recipient", "zone", "node")
_ANSWER = ("code", "enhanced", "reply", "class", "source", "provider")
_MESSAGE = ("sender", "received_at", "campaign", "tenant")
_LAST = ("at", "attempt", "first_at", *_ANSWER)
_DONE = ("what", "kind", "name")
_SAID = (*_WHO, "verdict", "reason", *_DONE)
SUPPRESSED = "suppressed"
"""How the reason of a REMOVED record begins that is the suppression list's."""
_EVENTS = ("REMOVED", "MOVED", "IN_DOUBT", "TASK")

SCANS = {
    "results": Scan(("DELIVERY",), (*_WHO, "verdict", "started_at", "due_at", *_ANSWER)),
    "envelopes": Scan(("ENVELOPE",), (*_WHO, *_MESSAGE)),
    "events": Scan(_EVENTS, (*_WHO, "reason", *_DONE)),
}
"""What `outcomes` is made of."""

ARRIVED = {"new": Scan(("DELIVERY", "ENVELOPE", *_EVENTS), ("id",))}
"""What `touched` looks at."""


def outcomes(
    tried: pa.Table,
    results: pa.Table,
    envelopes: pa.Table,
    events: pa.Table,
    days: Collection[date] | None = None,
) -> pa.Table:
    """The table's rows (SCHEMA; texts may be dictionaries) for all recipients, or for those of messages of these days.

    tried: `numbered` results. All others are rows of the journal, of SCANS, and all there are of their messages.
    """
    tables = (tried, results, envelopes, events)
    if days is not None:
        tables = tuple(_of(rows, days) for rows in tables)
    tried, _, envelopes, _ = tables
    standing = _standing(*_unfinished(*tables))
    ended = tried.filter(tried["final"])
    reasons = pa.nulls(len(ended), standing.schema.field("reason").type)
    ended = with_columns(ended, {"state": ended["verdict"], "ended_at": ended["at"], "reason": reasons})
    rows = pa.concat_tables([ended.select(standing.column_names), standing]).unify_dictionaries()
    return _finished(with_message(rows, envelopes.filter(pc.equal(envelopes["part"], 0)), _MESSAGE))


def _of(rows: pa.Table, days: Collection[date]) -> pa.Table:
    return rows.filter(pc.is_in(born(rows["id"]), pa.array(sorted(days), pa.date32())))


def _unfinished(tried: pa.Table, results: pa.Table, envelopes: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of messages that may have a recipient without an end: their attempts, and all their `_records`."""
    tables = tried, results, envelopes, events
    ids = pa.chunked_array([one for table in tables for one in table["id"].chunks], pa.string())
    every = ids.combine_chunks().dictionary_encode()
    numbers = np.split(every.indices.to_numpy(), np.cumsum([len(table) for table in tables])[:-1])
    total, removed = np.zeros((2, len(every.dictionary)), dtype=np.int64)
    np.maximum.at(total, numbers[2], envelopes["part"].to_numpy() + 1)
    removed[numbers[3][among(events["type"], "REMOVED")]] = 1
    ended = np.bincount(numbers[0][tried["final"].to_numpy()], minlength=len(total))
    told = np.bincount(numbers[1], minlength=len(total)) + np.bincount(numbers[3], minlength=len(total))
    wanted = (ended < np.where(total > 0, total, told)) | (removed > 0)
    kept = [table.filter(pa.array(wanted[number])) for table, number in zip(tables, numbers, strict=True)]
    return kept[0], _records(kept[1:])


def _records(tables: Sequence[pa.Table]) -> pa.Table:
    """All that was said of recipients, in the journal's order, but envelopes first.

    A start may write an envelope again, late: that says nothing of how its recipients stand.
    """
    kept = [table.select([name for name in table.column_names if name in _SAID]) for table in tables]
    said = pa.concat_tables(kept, promote_options="default").unify_dictionaries()
    said = _standing_tasks(said.filter(said["recipient"].is_valid()))
    opening = among(said["type"], "ENVELOPE")
    return said.take(pa.array(np.lexsort((said["seq"].to_numpy(), apart(said), ~opening))))


def _standing_tasks(said: pa.Table) -> pa.Table:
    """Without what tasks did and undid."""
    done = np.flatnonzero(among(said["type"], "TASK"))
    undid = among(said["what"].take(pa.array(done)), "undid")
    if not undid.any():
        return said
    of_task = said.take(pa.array(done))
    number = np.unique(
        pc.fill_null(of_task["name"], "").to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )
    both = np.stack([pairs(of_task), number[1]], axis=1)
    _, which = np.unique(both, axis=0, return_inverse=True)
    kept = np.ones(len(said), dtype=bool)
    kept[done[np.isin(which.ravel(), which.ravel()[undid])]] = False
    return said.filter(pa.array(kept))


def _standing(tried: pa.Table, records: pa.Table) -> pa.Table:
    """Rows of the recipients that no attempt has ended: from the last of their records and of their attempts."""
    who = ["id", "recipient"]
    pair = pairs(pa.concat_tables([records.select(who), tried.select(who)]))
    pair, of_tried = pair[: len(records)], pair[len(records) :]
    left = np.flatnonzero(~np.isin(pair, of_tried[tried["final"].to_numpy()]))
    records = records.take(pa.array(left))
    open_, group = np.unique(pair[left], return_inverse=True)
    latest = np.flatnonzero(np.isin(of_tried, open_))
    of_group = np.searchsorted(open_, of_tried[latest])

    def found(rows: Sequence[int] | np.ndarray, groups: np.ndarray = group) -> pa.Array:
        """The last of these rows in each group, null where there is none."""
        place = np.full(len(open_), -1)
        place[groups[rows]] = rows
        return pa.array(place, mask=place < 0)

    removed = np.flatnonzero(among(records["type"], "REMOVED"))
    removed = removed[np.argsort(records["at"].to_numpy()[removed], kind="stable")][::-1]
    doubt = np.flatnonzero(among(records["type"], "IN_DOUBT"))
    first = records.take(found(np.lexsort((records["seq"].to_numpy(), apart(records)))[::-1]))
    last = tried.take(pa.array(latest)).take(found(np.arange(len(latest)), of_group))
    end, stand = records.take(found(removed)), records.take(found(np.arange(len(records))))
    held = among(stand["verdict"], "held") | (among(stand["type"], "IN_DOUBT") & among(stand["reason"], "hold"))
    by_task = among(stand["type"], "TASK")
    held |= by_task & among(stand["kind"], "hold")
    deleted = by_task & among(stand["kind"], "delete", "purge")
    listed = np.zeros(len(open_), dtype=bool)
    listed[group[among(records["type"], "ENVELOPE")]] = True
    left_out = pc.fill_null(pc.starts_with(pc.cast(end["reason"], pa.string()), SUPPRESSED), False).to_numpy()
    left_out = left_out & ~listed & ~last["at"].is_valid().to_numpy()
    ends = np.where(left_out, "suppressed", "removed")
    standing = np.where(deleted, "deleted", np.where(held, "held", "waiting"))
    state = np.where(end["at"].is_valid().to_numpy(), ends, standing)
    made = {
        "state": pa.array(state.tolist(), pa.string()).dictionary_encode(),
        "ended_at": pc.coalesce(end["at"], pc.if_else(pa.array(deleted), stand["at"], None)),
        "reason": _either(end["reason"], records["reason"].take(found(doubt))),
        "zone": _either(last["zone"], first["zone"]),
        "node": _either(last["node"], first["node"]),
    }
    return with_columns(first.select(who), made | {name: last[name] for name in _LAST})


def _finished(rows: pa.Table) -> pa.Table:
    """Under the table's names, with the times from acceptance to then, in seconds with milliseconds."""
    rows = rows.set_column(rows.column_names.index("node"), "node", named(rows["node"]))
    to_delivery = pc.if_else(pa.array(among(rows["state"], "delivered")), _seconds(rows, "at"), None)
    made = {
        "attempts": pc.fill_null(rows["attempt"], 0),
        "first_attempt_at": rows["first_at"],
        "to_first_s": _seconds(rows, "first_at"),
        "to_delivery_s": to_delivery,
        "domain": domains(rows["recipient"]),
        "day": born(rows["id"]),
    }
    return with_columns(rows, made).select(COLUMNS)


def _seconds(rows: pa.Table, name: str) -> pa.ChunkedArray:
    milliseconds = (pc.cast(rows[one], pa.timestamp("ms", "UTC"), safe=False) for one in (name, "received_at"))
    took = pc.subtract(*(pc.cast(one, pa.int64()) for one in milliseconds))
    return pc.divide(pc.cast(took, pa.float64()), 1000.0)


def _either(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.coalesce(pc.cast(one, pa.string()), pc.cast(other, pa.string())).dictionary_encode()


def touched(new: pa.Table) -> set[date]:
    """Days whose rows change when these rows of the journal (of ARRIVED) come in."""
    return set(pc.unique(born(new["id"])).to_pylist())

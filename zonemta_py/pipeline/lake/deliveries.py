"""Table `deliveries`: one row per attempt and recipient, with the fields of its envelope.

An attempt is a result that counts as one in the queue: delivered, deferred, bounced or held by a plugin (the queue's
own bounce of what has become too old among them). "requeued" and "postponed" were not tried, and are no rows here.
Attempts of a recipient of a message are numbered in the order of the journal (`seq`), over all days; those of a message
that one queue has taken over from another, by time.

What an envelope says of the message (sender, size, campaign …) is the same for all its recipients; so the join is by
id with one row per id, the first recipient's, and a campaign's batch of 500 recipients costs one row. An envelope
that has not reached the archive yet leaves these columns null; when it comes, `touched` names the days to be made
again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.journal import folders
from zonemta_py.pipeline.journal.schema import ROWS
from zonemta_py.pipeline.lake.scan import Scan

ATTEMPTS = ("delivered", "deferred", "bounced", "held")
"""Verdicts that count as an attempt."""

ENDS = ("delivered", "bounced")
"""Verdicts after which there is no further attempt."""

_KEY = ("seq", "part", "at", "id", "recipient", "verdict", "started_at", "due_at")
_RESULT = (
    "zone", "source", "site", "provider", "took_ms", "code", "enhanced", "reply", "stage", "class", "rule", "tls",
    "remote", "node", "metadata", "headers",
)  # fmt: skip
MESSAGE = ("sender", "size", "received_at", "campaign", "tenant")

COLUMNS = (
    "id", "recipient", "domain", "zone", "sender", "campaign", "tenant", "source", "site", "provider",
    "started_at", "at", "took_ms", "attempt", "verdict", "code", "enhanced", "reply", "stage", "class", "rule",
    "tls", "remote", "size", "received_at", "first_at", "final", "seq", "part", "node", "metadata",
    "headers", "day",
)  # fmt: skip
"""first_at: when the recipient's first attempt began. final: this attempt ended the recipient; a bounce
that was kept has not, if a task has queued it again and it was tried again. seq, part: journal's. node: whose
journal that is; "" where nobody said. metadata, headers: JSON, null if there are none."""

_MADE = {"domain": pa.string(), "attempt": pa.int32(), "first_at": ROWS.field("at").type, "final": pa.bool_()}
SCHEMA = pa.schema([(name, (_MADE | {"day": pa.date32()}).get(name) or ROWS.field(name).type) for name in COLUMNS])

RESULTS = Scan(("DELIVERY",), (*_KEY, *_RESULT))
SCANS = {"results": RESULTS, "envelopes": Scan(("ENVELOPE",), ("id", "seq", "part", *MESSAGE), first=True)}
"""What `deliveries` is made of."""

_NAMED = Scan(("DELIVERY",), ("id", "seq", "at", "verdict", "due_at"))
ARRIVED = {"new": _NAMED, "envelopes": Scan(("ENVELOPE",), ("id",), first=True)}
KNOWN = {"known": _NAMED}
"""What `touched` looks at."""


def deliveries(tried: pa.Table, envelopes: pa.Table, days: Collection[date] | None = None) -> pa.Table:
    """The table's rows (SCHEMA; texts may be dictionaries) for all attempts, or for those on these days.

    tried: `numbered` results; these and the envelopes are rows of the journal, of SCANS, all there are of each message.
    """
    rows = tried.append_column("day", pc.cast(tried["at"], pa.date32()))
    if days is not None:
        rows = rows.filter(pc.is_in(rows["day"], pa.array(sorted(days), pa.date32())))
    rows = with_message(rows, envelopes.filter(pc.equal(envelopes["part"], 0)), MESSAGE)
    rows = rows.set_column(rows.column_names.index("node"), "node", named(rows["node"]))
    return rows.append_column("domain", domains(rows["recipient"])).select(COLUMNS)


def numbered(results: pa.Table) -> pa.Table:
    """The attempts among results in the journal's order, with `attempt` (from 1), `first_at` and `final`."""
    kept = _attempts(results)
    columns = (_numbers(results["part"]), _numbers(results["seq"]), apart(results))
    order = kept[np.lexsort([column[kept] for column in columns])]
    rows = results.take(pa.array(order))
    ends = among(rows["verdict"], *ENDS)
    attempt, first, final = _counted(pairs(rows), ends, _kept(rows), rows["started_at"].is_valid().to_numpy())
    made = pa.array(attempt, pa.int32()), rows["started_at"].take(first), pa.array(final)
    return with_columns(rows, dict(zip(("attempt", "first_at", "final"), made, strict=True)))


def apart(rows: pa.Table) -> np.ndarray:
    """By which rows of a message are in order before their numbers: the time of those of which some are in one queue's
    journal and some in another's, as it has taken the message over; else 0."""
    queues = _numbers(rows["seq"]) >> folders.SHIFT
    if not len(queues) or not queues.any():
        return np.zeros(len(queues), dtype=np.int64)
    message = _numbers(rows["id"].combine_chunks().dictionary_encode("encode").indices)
    least, most = np.full(message.max() + 1, queues.max()), np.zeros(message.max() + 1, dtype=np.int64)
    np.minimum.at(least, message, queues)
    np.maximum.at(most, message, queues)
    times = _numbers(pc.cast(pc.cast(rows["at"], pa.timestamp("ms", "UTC")), pa.int64()))
    return np.where((least < most)[message], times, 0)


def _kept(rows: pa.Table) -> np.ndarray:
    """Bounces of what was kept, so that a task could queue it again."""
    kept: np.ndarray = among(rows["verdict"], "bounced") & rows["due_at"].is_valid().to_numpy()
    return kept


def _counted(
    pair: np.ndarray, ends: np.ndarray, kept: np.ndarray, timed: np.ndarray
) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Of each row, in order: its number among its pair's, the first timed one so far, whether it is the first end (one
    of what was kept, only if nothing follows)."""
    rows = np.arange(len(pair))
    order = np.argsort(pair, kind="stable")
    start = np.maximum.accumulate(np.where(np.diff(pair[order], prepend=-1) != 0, rows, 0))
    goes_on = np.diff(start, append=len(pair)) == 0
    ended = ends[order] & ~(kept[order] & goes_on)
    before = np.cumsum(ended) - ended
    following = np.minimum.accumulate(np.where(timed[order], rows, len(rows))[::-1])[::-1]
    first = following[start] if len(rows) else rows
    back = np.empty_like(order)
    back[order] = rows
    known = np.append(order, 0)[first]
    return (
        (rows - start + 1)[back],
        pa.array(known[back], mask=(first > rows)[back]),
        (ended & (before == before[start]))[back],
    )


def pairs(rows: pa.Table) -> np.ndarray:
    """A number for each message and recipient (columns id and recipient), the same for the same."""
    message, recipient = (rows[name].combine_chunks().dictionary_encode("encode") for name in ("id", "recipient"))
    numbers: np.ndarray = _numbers(message.indices).astype(np.int64) * len(recipient.dictionary)
    numbers += _numbers(recipient.indices)
    return numbers


def with_message(rows: pa.Table, envelopes: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Adds what the envelope says; a start that writes one again changes nothing."""
    envelopes = envelopes.take(pa.array(np.argsort(_numbers(envelopes["seq"]), kind="stable")))
    known = envelopes["id"].combine_chunks().dictionary_encode()
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(_numbers(known.indices)), prepend=-1))
    place = pc.index_in(rows["id"], known.dictionary)
    told = envelopes.select(names).take(pa.array(firsts)).take(place)
    return with_columns(rows, dict(zip(names, told.columns, strict=True)))


def domains(recipients: pa.ChunkedArray) -> pa.ChunkedArray:
    """What follows the last @, in lower case; of an address without one, all of it."""
    parts = pc.split_pattern(pc.fill_null(recipients, ""), "@", max_splits=1, reverse=True)
    last = [one.values.take(pa.array(_numbers(one.offsets)[1:] - 1)) for one in parts.chunks]
    return pc.if_else(recipients.is_valid(), pc.utf8_lower(pa.chunked_array(last, pa.string())), None)


def named(nodes: pa.ChunkedArray) -> pa.ChunkedArray:
    """With "" in bronze of a version that did not know of nodes."""
    return pc.fill_null(pc.cast(nodes, pa.string()), "").dictionary_encode()


def with_columns(rows: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def _attempts(results: pa.Table) -> np.ndarray:
    """Which rows are attempts."""
    return np.flatnonzero(among(results["verdict"], *ATTEMPTS))


def among(column: pa.ChunkedArray, *values: str) -> np.ndarray:
    """Which texts, or texts of a dictionary, are one of these; null is none."""
    return np.asarray(pc.is_in(pc.cast(column, pa.string()), pa.array(values)))


def _numbers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column)


def touched(known: pa.Table, new: pa.Table, envelopes: pa.Table) -> set[date]:
    """Days whose rows change when `new` and new envelopes join the results in `known` (which has `new` already).

    These are the days of the new attempts, of later attempts of the same messages (their numbers change), of their
    bounces that were kept (which may not be the end), and of all attempts of messages whose envelope is new.
    """
    known, new = (rows.take(pa.array(_attempts(rows))) for rows in (known, new))
    always = pa.array(np.full(len(envelopes), -1))
    changed = pa.concat_tables([new.select(["id", "seq"]), envelopes.append_column("seq", always)])
    since = changed.group_by("id").aggregate([("seq", "min")])
    place = pc.index_in(known["id"], since["id"].combine_chunks())
    first = since["seq_min"].take(place)
    elsewhere = pc.not_equal(pc.shift_right(known["seq"], folders.SHIFT), pc.shift_right(first, folders.SHIFT))
    later = pc.or_(pc.greater_equal(known["seq"], first), elsewhere)
    again = known.filter(pc.or_(later, pc.and_(pa.array(_kept(known)), pc.is_valid(place))))
    return {day for rows in (again, new) for day in pc.unique(pc.cast(rows["at"], pa.date32())).to_pylist()}

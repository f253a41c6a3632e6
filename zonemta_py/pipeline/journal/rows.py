"""From journal records to Arrow record batches of the schema: by type, by the column, without a dict per row.

Records of one type are unpacked together and become one batch; so the rows of a window come grouped by type, which also
packs better. A body that does not have its type's form becomes a row without more, and is reported.
Which column is filled from what: SCHEMA.md; the bodies' grammar: `disk/FORMAT.md`.
"""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import msgpack
import pyarrow as pa

from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import VERDICTS
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.journal.records.taken import FAMILIES, MESSAGE
from zonemta_py.pipeline.journal.schema import ROWS

Head: TypeAlias = tuple[int, int]
"""Sequence number and time of a record, ms."""
_File: TypeAlias = dict[str, str]
"""What all rows of a file have in common, by column."""
EVER = (1 << 63) - 1
_HEAD = struct.Struct("<QQB")
_ARRAY = struct.Struct(">BI")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_MILLISECONDS_MAX = 253_402_300_799_999  # the year 9999: later ones are no times, and Spark could not show them
_PAD = [None] * 9


class Misfit(NamedTuple):
    """A record whose bytes are whole but whose body does not fit its type."""

    seq: int
    what: str


class _Form(NamedTuple):
    """columns: of the schema, behind seq, part and at. expand: rows of all records of the type."""

    columns: tuple[str, ...]
    expand: Callable[[list[Head], list[Any]], list[tuple[Any, ...]]]


def batches(
    payloads: list[bytes], from_seq: int, segment: str, misfits: list[Misfit], base: int = 0, node: str = "",
    to_seq: int = EVER,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """One batch per record type. payloads: records as `frame` joins them (seq ms type body).

    from_seq, to_seq: records before and after are left out, for other files have them. base: is added to all numbers.
    node: whose journal it is. Appends to `misfits` what had no form.
    """
    file = {"segment": segment, "node": node}
    groups: dict[int, tuple[list[Head], list[bytes]]] = {}
    for payload in payloads:
        seq, ms, kind = _HEAD.unpack_from(payload)
        if from_seq <= seq + base <= to_seq:
            group = groups.get(kind) or groups.setdefault(kind, ([], []))
            group[0].append((seq + base, ms))
            group[1].append(payload[17:])
    for kind, (heads, bodies) in sorted(groups.items()):
        yield _batch(kind, heads, bodies, file, misfits)


def _batch(kind: int, heads: list[Head], bodies: list[bytes], file: _File, misfits: list[Misfit]) -> pa.RecordBatch:
    form = _FORMS.get(kind, _PLAIN)
    with _no_garbage():
        try:
            rows = form.expand(heads, unpacked(bodies) if form is not _PLAIN else bodies)
            return _arrow(kind, form.columns, rows, file)
        except _WRONG:
            return _one_by_one(kind, form, heads, bodies, file, misfits)


_WRONG = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    msgpack.UnpackException,
    pa.ArrowException,
)


def _one_by_one(
    kind: int, form: _Form, heads: list[Head], bodies: list[bytes], file: _File, misfits: list[Misfit]
) -> pa.RecordBatch:
    """When the whole group fails: finds the faulty records."""
    good: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        head = seq, min(ms, _MILLISECONDS_MAX)
        try:
            rows = form.expand([head], unpacked([body]))
            _arrow(kind, form.columns, rows, file)
        except _WRONG as error:
            misfits.append(Misfit(seq, f"its body does not fit the type {type_name(kind)}: {error}"))
            rows = [(*head[:1], 0, *head[1:], *_nothing(len(form.columns)))]
        good += rows
    return _arrow(kind, form.columns, good, file)


def _nothing(count: int) -> tuple[None, ...]:
    return (None,) * count


@contextmanager
def _no_garbage() -> Iterator[None]:
    """A hundred thousand young lists make the collector walk them again and again, and none of them is a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def unpacked(bodies: list[bytes]) -> list[Any]:
    """All of them in one call, as one msgpack array. Raises ValueError or a msgpack error if one of them is none."""
    data = _ARRAY.pack(0xDD, len(bodies)) + b"".join(bodies)
    values: list[Any] = msgpack.unpackb(data, raw=False, strict_map_key=False)
    return values


def type_name(kind: int) -> str:
    """As in the column `type`."""
    return _NAMES.get(kind) or f"TYPE {kind}"


_NAMES = {int(kind): kind.name for kind in Type}


def _arrow(kind: int, columns: tuple[str, ...], rows: list[tuple[Any, ...]], file: _File) -> pa.RecordBatch:
    count = len(rows)
    made: dict[str, Any] = {"type": type_name(kind), **file}
    if rows:
        made |= zip(("seq", "part", "at", *columns), zip(*rows, strict=True), strict=True)
    return pa.RecordBatch.from_arrays([_column(field, made.get(field.name), count) for field in ROWS], schema=ROWS)


def _column(field: pa.Field, values: Any, count: int) -> pa.Array:
    if values is None or not count:
        return pa.nulls(count, field.type)
    if isinstance(values, str):
        return pa.repeat(values, count)
    if field.type.id == pa.types.lib.Type_TIMESTAMP:
        return pa.array(values, _MILLISECONDS).cast(field.type)
    return pa.array(values, field.type)


# -- the forms: each makes the rows of its type; the first three values of a row are seq, part and at


def _envelope(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    add = rows.append
    for (seq, ms), body in zip(heads, bodies, strict=True):
        message, metadata, known = body[0], body[1], _known(body[1])
        told = "meta" in metadata
        for part, recipient in enumerate(body[2] or [(None, None)]):
            about = _UNTOLD
            if told:
                own = recipient[4] if len(recipient) > 4 else None
                about = _said(metadata["meta"], metadata.get("chosen"), own)
            add((seq, part, ms, message, recipient[0], recipient[1], *known, *about))
    return rows


_TOLD = ("metadata", "headers")
_UNTOLD: tuple[Any, Any] = (None, None)
"""Columns, and what is in them of records without."""


def _about(of: Any, address: Any) -> tuple[Any, Any]:
    """The columns _TOLD. of: as a record has it last (`mail.metadata`), or nothing."""
    return _said(of[0], of[1], of[2].get(address)) if of else _UNTOLD


def _said(own: Any, chosen: Any, theirs: Any) -> tuple[Any, Any]:
    whole = {**(own or {}), **(theirs or {})}
    return _json(whole) if whole else None, _json(chosen) if chosen else None


_ENVELOPE = ("sender", "size", "received_at", "campaign", "tenant", "origin", "user", "protocol", "subject")


def _known(metadata: dict[str, Any]) -> tuple[Any, ...]:
    """The columns _ENVELOPE."""
    get = metadata.get
    return (
        get("sender"), get("size"), get("received_ms") or None, get("campaign"), get("tenant"), get("origin"),
        get("user"), get("protocol"), (get("headers") or {}).get("subject"),
    )  # fmt: skip


def _start(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    add = rows.append
    for (seq, ms), body in zip(heads, bodies, strict=True):
        lease, message, zone, destination, recipients, since_ms, provider, size, of = (*body, None, None, None)[:9]
        for part, who in enumerate(recipients):
            address = who if who.__class__ is str else who[0]
            about = _UNTOLD if of is None else _about(of, address)
            add((seq, part, ms, message, zone, address, size, lease, destination, since_ms or None, provider, *about))
    return rows


def _delivery(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    add = rows.append
    for (seq, ms), body in zip(heads, bodies, strict=True):
        lease, message, zone, destination, outcomes, trace = body[:6]
        of = body[7] if len(body) > 7 else None
        if len(trace) < 8:
            trace = trace + _PAD
        remote, local, tls, started_ms, took_ms, source, site, provider = trace[:8]
        known = (remote, local, tls, started_ms or None, took_ms, source, site, provider)
        part = 0
        for outcome in outcomes:
            if len(outcome) < 9:
                outcome = outcome + _PAD
            verdict, code, enhanced, text, stage, recipients, relayed, kind, rule = outcome[:9]
            name = VERDICTS.get(verdict) or f"verdict {verdict}"
            said = (name, code, enhanced, text, stage, kind or None, rule or None, relayed)
            for who in recipients:
                address, due_ms = (who, None) if who.__class__ is str else (who[0], who[2] or None)
                about = _UNTOLD if of is None else _about(of, address)
                add((seq, part, ms, lease, message, zone, address, destination, *said, due_ms, *known, *about))
                part += 1
    return rows


def _message(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    return [(seq, 0, ms, body[0]) for (seq, ms), body in zip(heads, bodies, strict=True)]


def _in_doubt(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        found = body[1] or [_nothing(5)]
        rows += [
            (seq, n, ms, *row[:3], row[3] or None, row[4], *_about(row[7] if len(row) > 7 else None, row[2]))
            for n, row in enumerate(found)
        ]
    return rows


def _removed(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        more = (body[4] if len(body) > 4 else None) or {}
        if more.get("kept"):  # it had bounced, and was kept for a while
            continue
        known = (body[3], more.get("destination"), *_known(more.get("envelope") or {}))
        rows += [
            (seq, part, ms, body[0], body[1], who, *known, *_about(more.get("about"), who))
            for part, who in enumerate(body[2] or [None])
        ]
    return rows


def _moved(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            seq,
            part,
            ms,
            body[0],
            body[1],
            address,
            body[3] or None,
            *_about(body[5] if len(body) > 5 else None, address),
        )
        for (seq, ms), body in zip(heads, bodies, strict=True)
        for part, address in enumerate(body[2] or [None])
    ]


def _standing(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (seq, 0, ms, body[0], body[1][0], str(body[1][1]), _json(body[2]), body[3])
        for (seq, ms), body in zip(heads, bodies, strict=True)
        if not _told_by_another(body, 4)
    ]


def _told_by_another(body: list[Any], place: int) -> bool:
    """Whether another of several queues has the same, and its record stands for both."""
    return len(body) > place and bool(body[place])


def _suppress(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        for part, row in enumerate(body or [[None]]):
            address, kind, since_ms, reason, evidence, by, campaign, scope = (*row, *_PAD)[:8]
            known = {"since_ms": since_ms, "evidence": evidence} | ({"scope": scope} if scope else {})
            value = _json(known | ({"again": True} if _told_by_another(row, 9) else {}))
            rows.append((seq, part, ms, address, kind, reason, by, campaign or None, value))
    return rows


def _unsuppress(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        if _told_by_another(body, 3):
            continue
        scopes = (body[2] if len(body) > 2 else None) or [None] * len(body[0])
        found = zip(body[0], scopes, strict=True) if body[0] else [(None, None)]
        for part, (address, scope) in enumerate(found):
            rows.append((seq, part, ms, address, body[1], _json({"scope": scope}) if scope else None))
    return rows


def _task(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        what, number, value = body[:3]
        if what in ("did", "undid"):
            zone, found, _, verb = value[:4]
            known: tuple[Any, ...] = (what, verb, str(number), None, None)
            rows += [
                (seq, part, ms, row[0], zone, row[1], *known, *_about(row[6] if len(row) > 6 else None, row[1]))
                for part, row in enumerate(found or [(None, None)])
            ]
        else:
            known = what, value.get("verb"), str(number or seq), _json(value), value.get("cause")
            rows.append((seq, 0, ms, None, None, None, *known, *_UNTOLD))
    return rows


def _taken(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), (what, queue, value, *_) in zip(heads, bodies, strict=True):
        known = what, str(queue)
        if what != MESSAGE:
            rows.append((seq, 0, ms, *known, None, None, None, None))
            continue
        for part, row in enumerate(value[2] or [(None, None, 0, None, 0)]):
            family = FAMILIES[row[4] if len(row) > 4 else 0]
            rows.append((seq, part, ms, *known, value[0], row[0], row[1], family))
    return rows


def _feedback(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for (seq, ms), body in zip(heads, bodies, strict=True):
        one = FeedbackRecord.of(body)
        told = {"form": one.form, "tied": one.tied, "scope": one.scope, "message_id": one.message_id}
        known = one.message, one.zone, one.recipient, one.campaign, one.tenant, one.code, one.enhanced, one.text
        said = one.reply_class, one.rule, one.reporter, one.via, one.kind, one.genuine
        report = {"report": one.report} if one.report else {}
        value = _json(told | {"agreed": one.agreed, "again": one.again} | report)
        about = _about(one.about, one.recipient)
        rows.append((seq, 0, ms, *(part or None for part in (*known, *said)), value, *about))
    return rows


def _value(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    return [(seq, 0, ms, _json(body)) for (seq, ms), body in zip(heads, bodies, strict=True)]


def _bare(heads: list[Head], bodies: list[Any]) -> list[tuple[Any, ...]]:
    return [(seq, 0, ms) for seq, ms in heads]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


_PLAIN = _Form((), _bare)
_FORMS: dict[int, _Form] = {
    Type.SEGMENT: _Form(("value",), _value),
    Type.ENVELOPE: _Form(("id", "zone", "recipient", *_ENVELOPE, *_TOLD), _envelope),
    Type.OPEN: _Form(("id",), _message),
    Type.START: _Form(
        ("id", "zone", "recipient", "size", "lease", "destination", "started_at", "provider", *_TOLD), _start
    ),
    Type.DELIVERY: _Form(
        (
            "lease", "id", "zone", "recipient", "destination", "verdict", "code", "enhanced", "reply", "stage", "class",
            "rule", "relayed", "due_at", "remote", "local", "tls", "started_at", "took_ms", "source", "site",
            "provider", *_TOLD,
        ),
        _delivery,
    ),
    Type.FINISH: _Form(("id",), _message),
    Type.IN_DOUBT: _Form(("id", "zone", "recipient", "started_at", "reason", *_TOLD), _in_doubt),
    Type.REMOVED: _Form(("id", "zone", "recipient", "reason", "destination", *_ENVELOPE, *_TOLD), _removed),
    Type.MOVED: _Form(("id", "zone", "recipient", "due_at", *_TOLD), _moved),
    Type.LOST: _Form(("value",), _value),
    Type.STANDING: _Form(("what", "kind", "name", "value", "reason"), _standing),
    Type.SUPPRESS: _Form(("recipient", "kind", "reason", "name", "campaign", "value"), _suppress),
    Type.UNSUPPRESS: _Form(("recipient", "name", "value"), _unsuppress),
    Type.FEEDBACK: _Form(
        (
            "id", "zone", "recipient", "campaign", "tenant", "code", "enhanced", "reply", "class", "rule", "remote",
            "what", "kind", "name", "value", *_TOLD,
        ),
        _feedback,
    ),
    Type.TASK: _Form(("id", "zone", "recipient", "what", "kind", "name", "value", "reason", *_TOLD), _task),
    Type.TAKEN: _Form(("what", "name", "id", "zone", "recipient", "kind"), _taken),
}  # fmt: skip

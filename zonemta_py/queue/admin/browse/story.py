"""The story of a message, or of all mail to a recipient: acceptance, each attempt with its reply, what was done to it,
its end; read from the journal and the archive.

A thread searches their files, the newest first (`search.py`), and rests as long as it works, so that mail is sent
meanwhile. It looks for LOOK_S at most: `next` is the file before which the question goes on (`before`), `back_to_ms`
how far it has looked. A message's files from before its acceptance are not looked at.

Rows, oldest first: seq, ms, id, what (accepted, attempt, delivered, deferred, bounced, held, not tried, postponed, in
doubt, removed, released, task, ended; suppressed, no longer suppressed), recipients (RECIPIENTS_MAX at most; `count` of
them there were), zone, and what the record says.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from zonemta_py.disk import journal, keys, records
from zonemta_py.disk.frame import Record
from zonemta_py.disk.records import (
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    MovedRecord,
    RemovedRecord,
    StartRecord,
    TaskRecord,
    Type,
    address_of,
)
from zonemta_py.queue.admin.browse import search
from zonemta_py.queue.lifecycle.context import QueueContext

LOOK_S = 1.0
ROWS_MAX, RECIPIENTS_MAX = 1_000, 100
MARGIN_MS = 3_600_000
"""By how much the clock may have been set since a message came in."""
_VERDICTS = {1: "delivered", 2: "deferred", 3: "bounced", 4: "held", 5: "not tried", 6: "postponed"}
_ID = re.compile(r"[0-9a-f]{16}")
_TOLD = ("sender", "user", "size", "protocol", "origin", "helo", "campaign", "tenant", "hold_until_ms", "deadline_ms")
_thread = ThreadPoolExecutor(1, "trace")
"""One story at a time."""

Row = dict[str, Any]


async def trace(queue: QueueContext, what: str, before: str = "") -> dict[str, Any]:
    """what: a message's id, or an address. Raises ValueError for anything else."""
    what = what.strip()
    kind = "message" if _ID.fullmatch(what) else "recipient"
    if kind == "recipient":
        local, at, domain = what.rpartition("@")
        if not (at and local and domain):
            raise ValueError(f"{what!r} is neither a message's id nor an address")
        what = f"{local}@{domain.lower()}"
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_thread, _look, queue.core.config.folder, what, kind, before)
    return {"about": what, "kind": kind} | found


def _look(folder: Path, what: str, kind: str, before: str) -> dict[str, Any]:
    until, since_ms = time.monotonic() + LOOK_S, keys.id_ms(what) - MARGIN_MS if kind == "message" else 0
    files = journal.every_file(folder / "journal", folder / "archive")
    names = [path.name for path in files]
    if before in names:
        files = files[: names.index(before)]
    rows, looked, back_to_ms = list[Row](), 0, 0
    while files:
        if looked and (time.monotonic() > until or len(rows) >= ROWS_MAX):
            break
        path = files.pop()
        try:
            here = [row for one in search.records_with(path, what.encode(), _rest) for row in _rows(one, what)]
            first = search.first_of(path)
        except OSError:  # it has just gone to the archive, or from there
            continue
        rows, looked = here + rows, looked + 1
        before, back_to_ms = path.name, first.ms if first is not None else back_to_ms
        if back_to_ms and back_to_ms < since_ms:
            files = []
    rows = rows[-ROWS_MAX:]
    ids = list(dict.fromkeys(row["id"] for row in rows if row["id"]))
    return {"rows": rows, "ids": ids, "next": before if files else None, "back_to_ms": back_to_ms, "files": looked}


def _rest() -> None:
    """Others have the interpreter as long as this thread had it, about."""
    time.sleep(0.001)


def _rows(record: Record, what: str) -> Iterator[Row]:
    made = _MADE.get(record.type)
    if made is None:
        return
    for row in made(records.unpack(record.body)):
        people = row.pop("people", [])
        if what in people or row.get("id") == what:
            mine = [what] if what in people and row.get("id") != what else people
            said = {"recipients": mine[:RECIPIENTS_MAX], "count": len(people)}
            yield {"seq": record.seq, "ms": record.ms, **row, **said}


def _accepted(body: list[Any]) -> Iterator[Row]:
    one = EnvelopeRecord.of(body)
    told = {name: one.metadata[name] for name in _TOLD if one.metadata.get(name)}
    told |= {"subject": (one.metadata.get("headers") or {}).get("subject", "")}
    people = [row[1] for row in one.recipients]
    zones = sorted({row[0] for row in one.recipients})
    yield {"id": one.id, "what": "accepted", "zone": ", ".join(zones), "people": people, **told}


def _attempt(body: list[Any]) -> Iterator[Row]:
    one = StartRecord.of(body)
    people = [address_of(who) for who in one.recipients]
    yield {"id": one.id, "what": "attempt", "zone": one.zone, "lease": one.lease, "destination": one.destination,
           "provider": one.provider, "people": people}  # fmt: skip


def _answered(body: list[Any]) -> Iterator[Row]:
    one = DeliveryRecord.of(body)
    trace = {name: value for name, value in one.trace._asdict().items() if value not in ("", None)}
    for outcome in one.outcomes:
        reply = f"{outcome.code} {outcome.enhanced} {outcome.text}".replace("  ", " ").strip()
        due_ms = max((who[2] for who in outcome.recipients if isinstance(who, list) and len(who) > 2), default=0)
        yield {"id": one.id, "what": _VERDICTS.get(outcome.verdict, str(outcome.verdict)), "zone": one.zone,
               "lease": one.lease, "reply": reply, "stage": outcome.stage, "class": outcome.kind, "rule": outcome.rule,
               "due_ms": due_ms, **trace, "people": outcome.addresses()}  # fmt: skip


def _in_doubt(body: list[Any]) -> Iterator[Row]:
    for row in InDoubtRecord.of(body).recipients:
        yield {"id": row.id, "what": "in doubt", "zone": row.zone, "action": row.action, "people": [row.address]}


def _removed(body: list[Any]) -> Iterator[Row]:
    one = RemovedRecord.of(body)
    yield {"id": one.id, "what": "removed", "zone": one.zone, "reason": one.reason, "people": list(one.recipients)}


def _released(body: list[Any]) -> Iterator[Row]:
    one = MovedRecord.of(body)
    row = {"id": one.id, "what": "released", "zone": one.zone, "due_ms": one.due_ms}
    yield row | {"people": list(one.recipients)}


def _ended(body: list[Any]) -> Iterator[Row]:
    yield {"id": FinishRecord.of(body).id, "what": "ended", "people": []}


def _task(body: list[Any]) -> Iterator[Row]:
    one = TaskRecord.of(body)
    if one.what not in ("did", "undid"):
        return
    zone, people, _, verb = one.value[:4]
    for row in people:
        said = {"id": row[0], "what": "task", "zone": zone, "task": one.number, "verb": verb}
        yield said | {"undone": one.what == "undid", "people": [row[1]]}


def _suppressed(body: list[Any]) -> Iterator[Row]:
    for row in body:
        yield {"id": "", "what": "suppressed", "kind": row[1], "reason": row[3], "people": [row[0]]}


def _unsuppressed(body: list[Any]) -> Iterator[Row]:
    yield {"id": "", "what": "no longer suppressed", "by": body[1], "people": list(body[0])}


_MADE: dict[int, Callable[[list[Any]], Iterator[Row]]] = {
    Type.ENVELOPE: _accepted, Type.START: _attempt, Type.DELIVERY: _answered, Type.IN_DOUBT: _in_doubt,
    Type.REMOVED: _removed, Type.MOVED: _released, Type.FINISH: _ended, Type.TASK: _task, Type.SUPPRESS: _suppressed,
    Type.UNSUPPRESS: _unsuppressed,
}  # fmt: skip

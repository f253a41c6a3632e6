"""Reads stories from the journal's files, in a process of its own: it needs nothing of the queue but its files, and so
it takes no time from mail. It lowers its priority, and ends when nobody asks any more.

    python -m zonemta_py.queue.admin.browse.reading      questions on its standard input, answers on its output

Both are msgpack, with their length before them. Searching ends after as long as the question allows, at the end of a
file.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.journal import search, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    MovedRecord,
    RemovedRecord,
    StartRecord,
    address_of,
)
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.mail.addresses.person import person

ROWS_MAX, RECIPIENTS_MAX = 1_000, 100
MARGIN_MS = 3_600_000
"""By how much the clock may have been set since a message came in."""
_VERDICTS = {1: "delivered", 2: "deferred", 3: "bounced", 4: "held", 5: "not tried", 6: "postponed"}
_TOLD = ("sender", "user", "size", "protocol", "origin", "helo", "campaign", "tenant", "hold_until_ms", "deadline_ms")
_LENGTH = struct.Struct(">I")
_LOWEST = 19
UNPROVEN = "no"
_ID = re.compile(r"[0-9a-f]{16}")

Row = dict[str, Any]


def main() -> None:
    os.nice(_LOWEST)
    while (question := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, look(*question))


def send(pipe: IO[bytes], what: Any) -> None:
    """Raises OSError."""
    body = packing.pack(what)
    pipe.write(_LENGTH.pack(len(body)) + body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """None: there is nothing more. Raises OSError."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(head)[0]
    body = pipe.read(length)
    return packing.unpack(body) if len(body) == length else None


def subject(what: str) -> tuple[str, str]:
    """(what is asked about, kind): a message's id, also with the mark that mailq has behind it, or an address, also in
    angle brackets. Raises ValueError for anything else."""
    what = what.strip().rstrip("*!").removeprefix("<").removesuffix(">")
    if _ID.fullmatch(what):
        return what, "message"
    local, at, domain = what.rpartition("@")
    if not (at and local and domain):
        raise ValueError(f"{what!r} is neither a message's id nor an address")
    return f"{local}@{domain.lower()}", "recipient"


def look(folder: str, what: str, kind: str, before: str, look_s: float) -> dict[str, Any]:
    """As `story.trace`: what the files say about a message or recipient."""
    until, since_ms = time.monotonic() + look_s, keys.id_ms(what) - MARGIN_MS if kind == "message" else 0
    files = segments.every_file(Path(folder) / "journal", Path(folder) / "archive")
    names = [path.name for path in files]
    if before in names:
        files = files[: names.index(before)]
    rows, looked, back_to_ms = list[Row](), 0, 0
    while files:
        if looked and (time.monotonic() > until or len(rows) >= ROWS_MAX):
            break
        path = files.pop()
        try:
            here = [row for one in search.records_with(path, what.encode()) for row in _rows(one, what)]
            first = search.first_of(path)
        except OSError:  # it has just gone to the archive, or from there
            continue
        rows, looked = here + rows, looked + 1
        before, back_to_ms = path.name, first.ms if first is not None else back_to_ms
        if back_to_ms and back_to_ms < since_ms:
            files = []
    rows = [_shown(row, what) for row in _told_of_it(rows)[-ROWS_MAX:]]
    ids = list(dict.fromkeys(row["id"] for row in rows if row["id"]))
    return {"rows": rows, "ids": ids, "next": before if files else None, "back_to_ms": back_to_ms, "files": looked}


def _rows(record: Record, what: str) -> Iterator[Row]:
    made = _MADE.get(record.type)
    if made is None:
        return
    for row in made(packing.unpack(record.body)):
        if what in row["people"] or row["id"] == what:
            yield {"seq": record.seq, "ms": record.ms, **row}


def _shown(row: Row, what: str) -> Row:
    people = row.pop("people")
    mine = [what] if what in people and row["id"] != what else people
    return row | {"recipients": mine[:RECIPIENTS_MAX], "count": len(people)}


def _told_of_it(rows: list[Row]) -> list[Row]:
    """Without reports that nothing proves, on a message to others than they name: anybody can write down a Message-ID.
    They are among what came back."""
    if not any(row.get("genuine") == UNPROVEN for row in rows):
        return rows
    people = {(row["id"], person(one)) for row in rows if "genuine" not in row for one in row["people"]}
    return [
        row for row in rows
        if row.get("genuine") != UNPROVEN or not row["id"]
        or any((row["id"], person(one)) in people for one in row["people"])
    ]  # fmt: skip


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
        until = "kept_until_ms" if outcome.verdict == BOUNCED else "due_ms"
        yield {"id": one.id, "what": _VERDICTS.get(outcome.verdict, str(outcome.verdict)), "zone": one.zone,
               "lease": one.lease, "reply": reply, "stage": outcome.stage, "class": outcome.kind, "rule": outcome.rule,
               until: due_ms, **trace, "people": outcome.addresses()}  # fmt: skip


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


def _came_back(body: list[Any]) -> Iterator[Row]:
    one = FeedbackRecord.of(body)
    reply = " ".join(part for part in (str(one.code or ""), one.enhanced, one.text) if part)
    said = {"class": one.reply_class, "rule": one.rule, "reporter": one.reporter, "via": one.via, "scope": one.scope}
    row = {"id": one.message, "what": f"came back: {one.kind}", "zone": one.zone, "reply": reply, **said}
    yield row | {"genuine": one.genuine or UNPROVEN, "people": [one.recipient] if one.recipient else []}


_MADE: dict[int, Callable[[list[Any]], Iterator[Row]]] = {
    Type.ENVELOPE: _accepted, Type.START: _attempt, Type.DELIVERY: _answered, Type.IN_DOUBT: _in_doubt,
    Type.REMOVED: _removed, Type.MOVED: _released, Type.FINISH: _ended, Type.TASK: _task, Type.SUPPRESS: _suppressed,
    Type.UNSUPPRESS: _unsuppressed, Type.FEEDBACK: _came_back,
}  # fmt: skip

if __name__ == "__main__":
    main()

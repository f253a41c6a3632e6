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
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.journal import search, segments
from zonemta_py.journal.facts import (
    Accepted,
    Answered,
    Attempted,
    CameBack,
    Doubted,
    Ended,
    Fact,
    Moved,
    Removed,
    Suppressed,
    TakenOver,
    TaskDid,
    Unsuppressed,
    facts_of,
)
from zonemta_py.journal.records.mail import BOUNCED
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.metadata import told
from zonemta_py.queue.questions.question import Refused

ROWS_MAX, RECIPIENTS_MAX = 1_000, 100
MARGIN_MS = 3_600_000
"""By how much the clock may have been set since a message came in."""
_TOLD = ("sender", "user", "size", "protocol", "origin", "helo", "campaign", "tenant", "hold_until_ms", "deadline_ms")
_LENGTH = struct.Struct(">I")
_NICE = 5
"""Behind mail, and not starved by it: somebody waits for the answer."""
UNPROVEN = "no"
_ID = re.compile(r"[0-9a-f]{16}")

Row = dict[str, Any]


def main() -> None:
    os.nice(_NICE)
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
        raise Refused(f"{what!r} is neither a message's id nor an address")
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
    for fact in facts_of(record):
        row = _row(fact)
        if row is not None and (about := getattr(fact, "about", None)):
            row["about"] = about
        if row is not None and (what in row["people"] or row["id"] == what):
            yield {"seq": record.seq, "ms": record.ms, **row}


def _shown(row: Row, what: str) -> Row:
    people = row.pop("people")
    mine = [what] if what in people and row["id"] != what else people
    about = told(row.pop("about", None), mine[0] if len(mine) == 1 else "")
    return row | about | {"recipients": mine[:RECIPIENTS_MAX], "count": len(people)}


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


def _row(fact: Fact) -> Row | None:
    """None: it is no part of a story."""
    match fact:
        case Accepted(id=id, metadata=metadata):
            known = {name: metadata[name] for name in _TOLD if metadata.get(name)}
            known |= {"subject": (metadata.get("headers") or {}).get("subject", "")}
            return {"id": id, "what": "accepted", "zone": ", ".join(sorted(fact.zones)), "people": fact.people, **known}
        case Attempted():
            way = {"lease": fact.lease, "destination": fact.destination, "provider": fact.provider}
            return _said(fact, "attempt", fact.people) | way
        case Answered(trace=trace):
            until = "kept_until_ms" if fact.number == BOUNCED else "due_ms"
            return _said(fact, fact.verdict, fact.people) | {
                "lease": fact.lease, "reply": _reply(fact), "stage": fact.stage, "class": fact.kind, "rule": fact.rule,
                until: max((who.due_ms for who in fact.who), default=0),
                **{name: value for name, value in trace._asdict().items() if value not in ("", None)},
                **(dict(zip(("plugin", "hook", "server_reply"), fact.by, strict=True)) if fact.by else {}),
            }  # fmt: skip
        case Doubted():
            return _said(fact, "in doubt", [fact.address]) | {"action": fact.action}
        case Removed():
            return _said(fact, "removed", fact.recipients) | {"reason": fact.reason}
        case Moved():
            return _said(fact, "released", fact.recipients) | {"due_ms": fact.due_ms}
        case Ended(id=id):
            if fact.moved:
                return {"id": id, "what": "moved", "queue": fact.moved[0], "people": []}
            return {"id": id, "what": "ended", "people": []}
        case TakenOver(id=id):
            zones = ", ".join(sorted({row[0] for row in fact.recipients}))
            return {"id": id, "what": "taken over", "zone": zones, "queue": fact.queue, "people": fact.people}
        case TaskDid():
            return _said(fact, "task", [fact.recipient]) | {"task": fact.task, "verb": fact.verb, "undone": fact.undone}
        case Suppressed(again=False):  # else it repeats an entry, as the whole list is written again now and then
            why = {"kind": fact.kind, "reason": fact.reason}
            return {"id": "", "what": "suppressed", "people": [fact.address], **why}
        case Unsuppressed(again=False):
            return {"id": "", "what": "no longer suppressed", "by": fact.by, "people": [fact.recipient]}
        case CameBack():
            return {
                "id": fact.message, "what": f"came back: {fact.kind}", "zone": fact.zone, "reply": _reply(fact),
                "class": fact.reply_class, "rule": fact.rule, "reporter": fact.reporter, "via": fact.via,
                "scope": fact.scope, "genuine": fact.genuine or UNPROVEN,
                "people": [fact.recipient] if fact.recipient else [],
            }  # fmt: skip
    return None


def _said(fact: Attempted | Answered | Doubted | Removed | Moved | TaskDid, what: str, people: list[str]) -> Row:
    return {"id": fact.id, "what": what, "zone": fact.zone, "people": people}


def _reply(fact: Answered | CameBack) -> str:
    return " ".join(part for part in (str(fact.code or ""), fact.enhanced, fact.text) if part)


if __name__ == "__main__":
    main()

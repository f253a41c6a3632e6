"""The end of the journal after a crash: a torn record is no loss, but damage is copied to quarantine and reported.

A crash leaves an incomplete record at the end of the file, or zeros. A record of full length with a wrong checksum was
written completely: it may have been acknowledged although the store had not noted that yet. It is cut off all the same,
since it cannot be read.

Failures: OSError.
"""

from __future__ import annotations

from pathlib import Path

from zonemta_py.disk.frame import BLOCK_BYTES, Damage, Record, fragments, record_at
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.disk.resync import holed
from zonemta_py.journal import segments
from zonemta_py.journal.facts import (
    MISFITS,
    Accepted,
    Answered,
    Attempted,
    CameBack,
    Ended,
    Moved,
    Opened,
    Removed,
    Stood,
    Suppressed,
    TakenOver,
    TaskDid,
    TaskOrdered,
    Unsuppressed,
    facts_of,
)
from zonemta_py.journal.records import Type
from zonemta_py.queue.recovery.open_store import say

_REMEDY = (
    "look whether an order among these holds, and give it again if not; recipients whose results are among them are in"
    " doubt"
)
_UNREADABLE = "a record that cannot be read"


def keep(path: Path, quarantine: Quarantine) -> bool:
    """Examines the file that a crash left open, before its torn end is cut off; whether more is lost than one record
    that says what it was."""
    start, data, whole = segments.tail(path)
    end = whole - start
    damages: list[Damage] = []
    for _ in fragments(data, damages, end // BLOCK_BYTES * BLOCK_BYTES):
        pass
    found = [damage.offset for damage in damages if damage.offset >= end and damage.what != "cut off"]
    if not found or not any(data[end:]) or holed(data, end):
        return False
    named = [_named(data, at) for at in found]
    say(f"damage at the journal's end, {path} at byte {start + found[0]}; lost is {'; '.join(named)}")
    note = {"error": f"{path.name} is damaged from byte {start + found[0]} on", "lost": named, "remedy": _REMEDY}
    quarantine.case("journal", note, {path.name: data[end:]})
    return len(found) > 1 or named[0] == _UNREADABLE


def _named(data: bytes, at: int) -> str:
    """What the damaged record still says about itself, for people to read."""
    record = record_at(data, at)
    if record is None or record.type not in list(Type):
        return _UNREADABLE
    return f"record {record.seq}, {Type(record.type).name}{_about(record)}"


def _about(record: Record) -> str:
    try:
        facts = facts_of(record)
    except MISFITS:
        return ""
    people = [fact.address if isinstance(fact, Suppressed) else fact.recipient for fact in facts
              if isinstance(fact, Suppressed | Unsuppressed)]  # fmt: skip
    if people:
        return f" of {people[:20]}"
    match facts[:1]:
        case [Stood(what=what, kind=kind, name=name)]:
            return f" ({what} {kind} {name})"
        case [CameBack(kind=kind, recipient=recipient, message=message)]:
            return f" ({kind} of {recipient or 'nobody'}, message {message or 'unknown'})"
        case [TaskOrdered(what=what, task=task)]:
            return f" ({what} of task {task})"
        case [TaskDid(task=task, undone=undone)]:
            return f" ({'undid' if undone else 'did'} of task {task})"
        case [(Accepted() | Opened() | Attempted() | Answered() | Ended() | Removed() | Moved() | TakenOver()) as fact]:
            return f" of message {fact.id}"
    return ""

"""Erasure of one person from segment files: records that name the address are rewritten with the stand-in.

Promise: sequence numbers, times, types and the order of records stay; the new file is on stable storage and has been
read back before it atomically replaces the old one, so a crash leaves the old or the new one. What belongs to
the person alone goes too: merge values, ORCPT, metadata, and, in a record that names nobody else, the message's
metadata and the header fields that are kept or come back.
A damaged segment is reported. It is rewritten if it names the person, or may do so in the damaged bytes: then all
records that can be read are kept, and LOST records stand for the rest, as after a repair (`journal.segments.repair`).
Failures: OSError of the disk; then nothing has changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import fresh_file
from zonemta_py.disk.frame import Damage, Record, frame, parse
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import EnvelopeRecord, RecipientRow, address_of
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.journal.records.taken import FEEDBACK, MESSAGE
from zonemta_py.journal.segments import files, lost_record, summary_of
from zonemta_py.pipeline.erasure.person import DataSubject

_SUFFIX = ".erasing"


@dataclass
class FileProof:
    """One file of the proof. entries: records or rows that named the person, replaced: how often in them. Hashes are
    SHA-256 in hexadecimal; after: "" if the file was left as it was. damage: one sentence each."""

    place: str
    file: str
    entries: int = 0
    replaced: int = 0
    before: str = ""
    after: str = ""
    damage: list[str] = field(default_factory=list)


def erase_archive(folder: Path, person: DataSubject) -> Iterator[FileProof]:
    """All segments of a folder, one after the other; a FileProof for each that named the person or is damaged."""
    for left in folder.glob(f"*{_SUFFIX}"):
        left.unlink()
    for path in files(folder):
        place = erase_segment(path, person)
        if place.entries or place.damage:
            yield place


def erase_segment(path: Path, person: DataSubject) -> FileProof:
    data = path.read_bytes()
    damages: list[Damage] = []
    place = FileProof("archive", str(path), before=hashlib.sha256(data).hexdigest())
    kept: list[Record] = []
    for record in parse(data, damages):
        fresh, count = _erased(record, person)
        place.entries += bool(count)
        place.replaced += count
        kept.append(fresh)
    place.damage = [f"at byte {damage.offset}: {damage.what}" for damage in damages]
    if place.entries or (damages and person.maybe(data)):
        fresh_data = frame(list(_with_lost(kept)) if damages else kept, 0)
        summary_of(path).unlink(missing_ok=True)  # it may quote a reply that names the person
        _replace(path, fresh_data, person)
        place.after = hashlib.sha256(fresh_data).hexdigest()
    return place


def search(path: Path, person: DataSubject) -> int:
    """How many records of a segment name the person; its raw bytes count as one more."""
    data = path.read_bytes()
    return sum(_names(record, person) for record in parse(data, [])) + person.found(data)


def _names(record: Record, person: DataSubject) -> bool:
    """In packed form the byte before an address says how long it is, and may look like a letter: so it is unpacked."""
    return person.maybe(record.body) and person.found(unpack(record.body))


def _erased(record: Record, person: DataSubject) -> tuple[Record, int]:
    if not _names(record, person):
        return record, 0
    body = unpack(record.body)
    alone = _own_rows(body, person) if record.type == Type.ENVELOPE else _own_metadata(record.type, body, person)
    if record.type == Type.TAKEN and body[0] == MESSAGE:
        alone = _own_rows(body[2], person)
    elif record.type == Type.TAKEN and body[0] == FEEDBACK:
        alone = _own_about(body[2][1][23:24], [body[2][1][1]], person)
        body[2][1] = FeedbackRecord.of(body[2][1])._replace(names=[]).row()
    if record.type == Type.FEEDBACK:  # by a hash of the address it would be known when it came again
        body = FeedbackRecord.of(body)._replace(names=[]).row()
    body, count = person.erased(body)
    return record._replace(body=pack(body)), count + alone


def _own_rows(body: list[Any], person: DataSubject) -> int:
    """Empties, in an ENVELOPE, what belongs to the person alone; returns how many values that were."""
    envelope = EnvelopeRecord.of(body)
    mine = [row for row in envelope.recipients if person.is_(RecipientRow.of(row).address)]
    emptied = 0
    for row in mine:
        for index, value in enumerate(row[2:], 2):
            if isinstance(value, str) and value:
                row[index] = None  # ORCPT: without an address, since none is valid and anonymous
                emptied += 1
            elif isinstance(value, list):
                row[index] = [""] * len(value)
                emptied += len(value)
            elif isinstance(value, dict):
                row[index] = {}
                emptied += len(value)
    if len(mine) == len(envelope.recipients):
        emptied += _empty_envelope(envelope.metadata)
    return emptied


def _empty_envelope(metadata: dict[str, Any]) -> int:
    emptied = 0
    for name in ("headers", "chosen"):
        if fields := metadata.get(name):
            metadata[name] = dict.fromkeys(fields, "")
            emptied += len(fields)
    if meta := metadata.get("meta"):
        metadata["meta"] = {}
        emptied += len(meta)
    return emptied


def _own_metadata(kind: int, body: list[Any], person: DataSubject) -> int:
    """Empties, in a record about recipients, what it says as `about` of the person alone; how many values that were."""
    match kind:
        case Type.START:
            return _own_about(body[8:9], [address_of(who) for who in body[4]], person)
        case Type.DELIVERY:
            return _own_about(body[7:8], [address_of(who) for row in body[4] for who in row[5]], person)
        case Type.IN_DOUBT:
            return sum(_own_about(row[7:8], [row[2]], person) for row in body[1])
        case Type.MOVED:
            return _own_about(body[5:6], body[2], person)
        case Type.TASK if body[0] in ("did", "undid"):
            return sum(_own_about(row[6:7], [row[1]], person) for row in body[2][1])
        case Type.FEEDBACK:
            return _own_about(body[23:24], [body[1]], person)
        case Type.REMOVED if len(body) > 4 and body[4]:
            of = body[4].get("envelope")
            emptied = _empty_envelope(of) if of and all(map(person.is_, body[2])) else 0
            return emptied + _own_about([body[4].get("about")], body[2], person)
    return 0


def _own_about(of: list[Any], people: list[str], person: DataSubject) -> int:
    """of: what the record has there, if it has that. people: whom it is about."""
    if not of or not of[0]:
        return 0
    own, chosen, theirs = of[0][:3]
    emptied = 0
    for address in [one for one in theirs if person.is_(one)]:
        emptied += len(theirs.pop(address))
    if all(map(person.is_, people)):
        emptied += len(own) + len(chosen)
        own.clear()
        chosen.clear()
    return emptied


def _with_lost(kept: list[Record]) -> Iterator[Record]:
    """LOST records where numbers are missing; the number of each is the last one it stands for."""
    expected = kept[0].seq if kept else 0
    for record in kept:
        if record.seq > expected:
            yield lost_record(expected, record.seq - 1, record.ms)
        yield record
        expected = record.seq + 1


def _replace(path: Path, data: bytes, person: DataSubject) -> None:
    """Keeps the file's times, so that it does not look new."""
    damages: list[Damage] = []
    if any(_names(record, person) for record in parse(data, damages)) or damages:
        raise AssertionError(f"{path}: the rewritten segment does not read back as it should; the old one is unchanged")
    was = path.stat()
    with fresh_file(path, suffix=_SUFFIX) as file:
        os.fchmod(file.fileno(), was.st_mode & 0o7777)
        file.write(data)
        file.flush()
        os.utime(file.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))

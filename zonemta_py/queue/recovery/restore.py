"""Before recovery reads the journal: restores missing journal files, and acknowledged mail that is only in the
receipts.

A closed segment that is missing from the journal is restored from the archive, where it has a second name. A segment
that is in neither is lost: this is reported once, with the gap's record numbers, and a LOST record takes its place. A
message that was acknowledged but is in neither store nor journal gets the ENVELOPE record from its receipt: after that
the check finds it lost, like any other, and reports it.

A folder without store and journal is a new queue only if nothing else in it shows that there was one. Otherwise mail,
suppressions and orders known to the archive are restored, and the report says that more may be lost than it lists.

Failures: OSError; all of it can be repeated.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk import body_file, identity, keys, packing
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import receipts, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import SegmentRecord
from zonemta_py.journal.records.mail import EnvelopeRecord
from zonemta_py.queue.fsck.compare import state_of
from zonemta_py.queue.recovery.open_store import say
from zonemta_py.queue.recovery.suffix import Suffix

GONE = [
    "what the audit log said of that time",
    "results that had not reached the store yet: whoever may have had their mail is listed: zonemta queue in-doubt",
    "stops, warm-up days, learned rates and limits since then: repeat such orders",
]
GONE_TOO = [
    "mail that was waiting, unless it is listed here",
    "the suppression list, campaigns and keys of requests, except for what the archive knows of them; templates of"
    " campaigns",
]
_NAMELESS = (
    "mail that came since the archive's last segment is lost and cannot be named, and so are suppressions and orders of"
    " that time"
)
_REMEDY = "put journal/ back from where it went, if you know, before the MTA starts; otherwise repeat the orders"


def restore(config: Config, store: Store, stable: int, suffix: Suffix, quarantine: Quarantine, repaired: bool) -> bool:
    """True: files were added to the journal, which has to be read again.

    stable: the store saw the journal on stable storage up to this record. suffix: what the journal itself says.
    repaired: the store was repaired, and may have lost something too.
    """
    folder, archive = config.folder / "journal", config.folder / "archive"
    folder.mkdir(parents=True, exist_ok=True)
    if not segments.files(folder):
        return (bool(stable) or was_here(config.folder)) and _all_gone(config, store, stable, quarantine)
    here, archived = _by_first(folder), _by_first(archive)
    if min(here) > 1 and not suffix.position_seq and not _is_told(here[min(here)]):
        return _beginning_gone(config, min(here), quarantine, repaired)
    changed = False
    for (first, _, living, elsewhere), following in pairwise(suffix.segments.rows()):
        if first in here or not (living > 0 or elsewhere):
            continue
        if first in archived:
            say(f"the journal's segment {archived[first].name} was missing; it is restored from the archive")
            _link(archived[first], folder)
        else:
            _name_lost(folder, first, following[0] - 1, living, quarantine)
        changed = True
    return changed


def was_here(folder: Path) -> bool:
    """Whether anything besides the store shows that the folder held a queue. Raises OSError."""
    there = segments.files(folder / "journal") or segments.files(folder / "archive")
    traces = (folder / identity.NAME).exists() or there or receipts.last(folder)
    return bool(traces or body_file.ids(folder / body_file.FOLDER))


def missing(config: Config, known: list[list[Any]]) -> list[tuple[int, int]]:
    """The gaps that `restore` would report as lost, as (first record, last record)."""
    there = _by_first(config.folder / "journal").keys() | _by_first(config.folder / "archive").keys()
    return [
        (first, following[0] - 1)
        for (first, _, living, elsewhere), following in pairwise(known)
        if first not in there and (living > 0 or elsewhere)
    ]


def _all_gone(config: Config, store: Store, stable: int, quarantine: Quarantine) -> bool:
    folder, archived = config.folder / "journal", segments.files(config.folder / "archive")
    back = _needed(store, archived) if stable else archived
    last = 0
    for path in back:
        for record in segments.read_file(path, []):
            last = record.seq
    note = {
        "error": "the journal is gone" if stable else "the store and the journal are gone",
        "segments restored from the archive": [path.name for path in back],
        "records lost": [last + 1, stable or "?"],
        "lost": GONE if stable else GONE_TOO + GONE,
        "messages": _only_in_receipts(config, store),
        "remedy": _REMEDY,
    }
    if not stable:
        say(
            f"damage: the store is gone, and this is not a new queue; {_NAMELESS}; if the folder is the "
            "wrong one, or its"
            " disk is not mounted, stop the MTA and correct that"
        )
    say(
        f"damage: the journal is missing, and is created again; {len(back)} of its segments are restored "
        "from the archive; what was written since is lost: the audit log, results that had not reached the store, "
        "stops and other orders"
    )
    quarantine.case("journal", note)
    for path in back:
        _link(path, folder)
    return bool(back)


def _beginning_gone(config: Config, first: int, quarantine: Quarantine, repaired: bool) -> bool:
    """A journal begins with record 1, or with a record of where a restart begins. One that begins with neither was
    deleted while the MTA was running. It is unknown which archived segments it still needs, so all are restored."""
    folder = config.folder / "journal"
    back = [path for path in segments.files(config.folder / "archive") if segments.first_seq(path) < first]
    last = max((record.seq for path in back[-1:] for record in segments.read_file(path, [])), default=0)
    error = f"the journal's beginning is gone, up to record {first - 1}"
    names = [path.name for path in back]
    lost = [last + 1, first - 1] if last + 1 < first else []
    what = [*(GONE_TOO if repaired else ()), *GONE] if lost else []
    note = {"error": error, "segments restored from the archive": names, "records lost": lost, "lost": what}
    if lost:
        error += f"; what records {lost[0]} to {lost[1]} said is lost"
    if lost and repaired:
        error += f"; {_NAMELESS}"
    say(f"damage: {error}; {len(back)} of the journal's segments are restored from the archive")
    quarantine.case("journal", note | {"remedy": _REMEDY})
    for path in back:
        _link(path, folder)
    if lost:
        _write(folder, lost[0], [segments.lost_record(*lost)])
    return True


def _is_told(path: Path) -> bool:
    """Whether a file begins with a LOST record about what came before it."""
    first = next(segments.read_file(path, []), None)
    return first is not None and first.type == Type.LOST


def _needed(store: Store, paths: list[Path]) -> list[Path]:
    """The segments from the oldest message's on; only the last one if there are no messages."""
    key = store.first(keys.MESSAGES, keys.end(keys.MESSAGES))
    oldest = key.split(b" ")[1].decode() if key else "g"
    older = [index for index, path in enumerate(paths) if _floor(path) <= oldest]
    return paths[older[-1] :] if older else paths


def _floor(path: Path) -> str:
    """The lowest id that belongs to a segment. If a file does not say, above all ids, as for the one before it."""
    first = next(segments.read_file(path, []), None)
    if first is None or first.type != Type.SEGMENT:
        return "h"
    segment: SegmentRecord = packing.unpack(first.body)
    return segment["floor"]


def _by_first(folder: Path) -> dict[int, Path]:
    return {segments.first_seq(path): path for path in segments.files(folder)}


def _link(path: Path, folder: Path) -> None:
    if not (folder / path.name).exists():
        os.link(path, folder / path.name)


def _name_lost(folder: Path, first: int, last: int, living: int, quarantine: Quarantine) -> None:
    say(f"damage: a segment of the journal is missing: records {first} to {last}; mail in the store is still sent")
    lost = [f"the audit log of {living} messages that are still waiting", *GONE[1:]]
    note = {"error": f"the journal's records {first} to {last} are gone", "lost": lost, "remedy": _REMEDY}
    quarantine.case("journal", note)
    _write(folder, first, [segments.lost_record(first, last)])


def _only_in_receipts(config: Config, store: Store) -> list[dict[str, Any]]:
    """Without a journal it is unknown whether these were delivered before they left the store; what came to it with one
    of its batches was."""
    batches = state_of(store).batches
    return [
        {"message": one.id, "sender": one.metadata.get("sender", ""), "recipients": [row.address for row in one.rows()],
         "error": "it is not in the store: delivered, or lost"}
        for _, envelopes in receipts.read(config.folder, after=batches) for one in envelopes
        if store.get(keys.existence(one.id)) is None
    ]  # fmt: skip


def unknown(
    config: Config, store: Store, batches: int, floor: str, arriving: set[str], known: set[str]
) -> list[EnvelopeRecord]:
    """Messages that were acknowledged, and that only the receipts have.

    batches: the store is complete up to this batch number; 0: unknown. floor, arriving: from the last position. known:
    messages that have their record.
    """
    return [
        one
        for _, envelopes in receipts.read(config.folder, after=batches)
        for one in envelopes
        if one.id not in known and (one.id >= floor or one.id in arriving) and store.get(keys.existence(one.id)) is None
    ]


def tell(folder: Path, seq: int, envelopes: list[EnvelopeRecord], now_ms: int) -> int:
    """Writes these records into a file of their own, from number `seq` on; returns the number that follows."""
    rows = [Record(seq + index, now_ms, Type.ENVELOPE, one.pack()) for index, one in enumerate(envelopes)]
    rows.append(segments.end_record(seq + len(rows), now_ms))
    _write(folder, seq, rows)
    say(f"damage: {len(envelopes)} messages that were acknowledged last are not in the store; they are listed below")
    return rows[-1].seq + 1


def _write(folder: Path, first: int, rows: list[Record]) -> None:
    replace_file(folder / f"{first:016d}{segments.SUFFIX}", frame(rows, 0))

"""Erases one person from archive and lake, then searches everything again, and records what was found and done.

The proof is JSON: {version, state, began, ended, stand_in, subaddresses, queue, places: [Place …], search: {files,
bytes, found: [[file, entries] …]}, waiting: [[file, entries] …]}. It holds neither the address nor a hash of it, which
would lead back to the person. `search` has looked at every byte of archive and lake, in Parquet at the decompressed
values too, and at every record of the segments. `waiting`: segments that the MTA still writes to or keeps for recovery,
its receipts (the queue empties them if it is asked) and its quarantine: they are not ours to change; once they have
come to the archive, the same has to be done again.
The proof is written when the work begins, so a run that was killed is continued, under the same stand-in, by giving
the same proof file. Failures: OSError; table.Busy; ValueError for what is not an address, or not an unfinished proof.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file
from zonemta_py.journal import folders
from zonemta_py.journal.receipts import FOLDER as RECEIPTS
from zonemta_py.journal.segments import SUFFIX, SUMMARY
from zonemta_py.pipeline.erasure.archive import FileProof, erase_archive, search
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
from zonemta_py.pipeline.lake import table
from zonemta_py.summary import shelf
from zonemta_py.summary.file import SegmentSummary, SummaryUnreadable

VERSION = 1
BEGUN, DONE, LEFT = "begun", "done", "incomplete"
"""States of a proof. LEFT: the person is still named somewhere, or something could not be read."""


def forget(
    address: str,
    proof: Path,
    archive: Path | None = None,
    lake: Path | None = None,
    node: Path | None = None,
    subaddresses: bool = False,
    queue: dict[str, Any] | None = None,
    moved: Callable[[int, int], object] = lambda done, total: None,
) -> dict[str, Any]:
    """The proof, which also stands in the file. node: the MTA's folder, looked at for what waits. queue: what the MTA
    says it has taken out. moved: told of files done, and of how many. Raises as above."""
    told = begun(proof, subaddresses)
    person = DataSubject(address, told["stand_in"], subaddresses)
    told["queue"] = queue if queue is not None else told.get("queue")
    _write(proof, told)
    with _locked(lake):
        for place in _erased(archive, lake, person):
            told["places"].append(asdict(place))
            _write(proof, told)
        told["search"] = _searched(archive, lake, person, moved)
    told["waiting"] = _waiting(node, archive, person)
    left = told["search"]["found"] or told["waiting"] or any(place["damage"] for place in told["places"])
    told |= {"state": LEFT if left else DONE, "ended": _now()}
    _write(proof, told)
    return told


def _erased(archive: Path | None, lake: Path | None, person: DataSubject) -> Iterator[FileProof]:
    for place in _places(archive):
        yield from erase_archive(place, person)
    if archive is not None:
        shelf.discard([archive])  # others may know the sender of a message from a segment that has changed
    if lake is not None:
        from zonemta_py.pipeline.erasure.lake import erase_lake

        yield from erase_lake(lake, person)


def _searched(
    archive: Path | None, lake: Path | None, person: DataSubject, moved: Callable[[int, int], object]
) -> dict[str, Any]:
    jobs: list[tuple[Path, Callable[[Path, DataSubject], tuple[int, int]]]] = []
    jobs += [(path, _in_archive) for place in _places(archive) for path in sorted(place.rglob("*")) if path.is_file()]
    if lake is not None:
        from zonemta_py.pipeline.erasure import lake as erasure_lake

        jobs += [(path, erasure_lake.search) for path in erasure_lake.files_of(lake)]
    size, found = 0, []
    for done, (path, look) in enumerate(jobs, 1):
        entries, length = look(path, person)
        size += length
        found += [[str(path), entries]] if entries else []
        moved(done, len(jobs))
    return {"files": len(jobs), "bytes": size, "found": found}


def _places(archive: Path | None) -> list[Path]:
    """That archive, and those of the MTA's other queues; of queues that there are no more, the journals too."""
    found = folders.beside(archive).values() if archive is not None else ()
    gone = [place.parent / "journal" for place in found if folders.is_gone(place.parent)]
    return [place for place in (*found, *gone) if place.is_dir()]


def _in_archive(path: Path, person: DataSubject) -> tuple[int, int]:
    if path.suffix == SUFFIX or path.parent.name == RECEIPTS:
        return search(path, person), path.stat().st_size
    data = _summary(path) if path.suffix == SUMMARY else path.read_bytes()
    return int(person.found(data)), len(data)


def _summary(path: Path) -> bytes:
    """What a summary holds, without its compression."""
    try:
        return SegmentSummary(path).content()
    except SummaryUnreadable:
        return path.read_bytes()


def _waiting(node: Path | None, archive: Path | None, person: DataSubject) -> list[list[Any]]:
    if node is None:
        return []
    names = ("journal", "quarantine", RECEIPTS, *(["archive"] if archive is None else []))
    places = [place / name for place in folders.every(node).values() for name in names]
    erased = {place.resolve() for place in _places(archive)}
    places = [place for place in places if place.resolve() not in erased]
    paths = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    rows = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # it has gone to the archive meanwhile
            entries = _in_archive(path, person)[0]
            rows += [[str(path), entries]] if entries else []
    return rows


@contextlib.contextmanager
def _locked(lake: Path | None) -> Iterator[None]:
    if lake is None:
        yield
        return
    from zonemta_py.pipeline.lake import bronze

    with table.locked(lake), bronze.locked(lake):
        yield


def begun(proof: Path, subaddresses: bool) -> dict[str, Any]:
    """A new one, or that of a run that was killed, or had to wait for segments. Raises ValueError."""
    try:
        told: dict[str, Any] = json.loads(proof.read_bytes())
        if told["version"] != VERSION or told["state"] == DONE:
            raise ValueError(f"{proof}: is the proof of a completed erasure; name another file")
    except FileNotFoundError:
        return {
            "version": VERSION, "state": BEGUN, "began": _now(), "ended": "", "stand_in": pseudonym(),
            "subaddresses": subaddresses, "queue": None, "places": [], "search": {}, "waiting": [],
        }  # fmt: skip
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise ValueError(f"{proof}: is not the proof of an erasure; name another file") from None
    return told | {"state": BEGUN, "subaddresses": subaddresses}


def _write(proof: Path, told: dict[str, Any]) -> None:
    replace_file(proof, (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode(), 0o600)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

"""The parts of `zonemta forget` that are about files: archive and lake, with a proof; plans of campaigns; what event
sinks keep on this machine; reports on campaigns which the MTA has made by itself.

A plan (`NAME.plan`) is not changed: its requests are known to the nodes byte for byte, and a changed one could not be
resumed. So plans that name the person are reported, or, on request, deleted whole. What a killed planning left behind
(`NAME.plan.new`, `NAME.plan.copy`) is useless, and searched likewise. So are the files of bad rows that `campaign
check` left beside them (`LIST.rejects.csv`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.lake.close_segment import up_to_now
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling, bar
from zonemta_py.cli.terminal.rejects import SUFFIX
from zonemta_py.config import Config
from zonemta_py.events import erasure
from zonemta_py.events.cursor import FOLDER
from zonemta_py.journal import folders
from zonemta_py.mail.addresses.person import person
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
from zonemta_py.queue import questions
from zonemta_py.reports.folder import ReportShelf, in_pages

Archive = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Also erase from these closed journal segments (the MTA's archive/).")
]
InLake = Annotated[Path | None, typer.Option("--lake", metavar="DIR", help="Also erase from this lake.")]
Proof = Annotated[
    Path, typer.Option(metavar="FILE", help="With --archive or --lake: file that records what was found and done.")
]
Subaddresses = Annotated[
    bool, typer.Option("--subaddresses", help="In files: treat local+anything@domain as the same person.")
]
FilesOnly = Annotated[bool, typer.Option("--files-only", help="Skip the queue; the MTA need not be running.")]


def ready(proof: Path, archive: Path | None, lake: Path | None) -> None:
    """Before anything is erased. Raises CommandError for folders that are not there, and a proof that is another's."""
    for folder in (archive, lake):
        if folder is not None and not (folder.is_dir() or (folder is archive and folders.beside(folder))):
            raise CommandError(Exit.NO_INPUT, f"{folder}: there is no such folder; name the MTA's archive/, or a lake")
    try:
        from zonemta_py.pipeline.erasure.proof import begun
    except ImportError as error:
        sentence = f"{error.name}: not installed; `pip install 'zonemta-py[pipeline]'` installs it"
        raise CommandError(Exit.UNAVAILABLE, sentence) from None
    try:
        begun(proof, False)
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None


def in_files(
    address: str, proof: Path, archive: Path | None, lake: Path | None, node: Path, subaddresses: bool,
    queue: questions.Forgotten | None, tell: Telling,
) -> None:  # fmt: skip
    """node: the MTA's folder. queue: what it said. Raises CommandError, also if something remains to be done."""
    ready(proof, archive, lake)
    from zonemta_py.pipeline.erasure import proof as erasure_proof
    from zonemta_py.pipeline.lake.table import Busy

    if archive is not None and queue is not None:
        up_to_now(archive)
    try:
        with bar("files searched") as moved:
            told = erasure_proof.forget(
                address, proof, archive, lake, node, subaddresses, {**queue} if queue else None, moved
            )
    except Busy as error:
        raise CommandError(Exit.TEMPORARY, str(error)) from None
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    _say(told, proof, tell)


def _say(told: dict[str, Any], proof: Path, tell: Telling) -> None:
    entries = sum(place["entries"] for place in told["places"])
    files = len(told["places"])
    tell(f"{entries:,} records and rows of {files:,} files rewritten; proof: {proof}", entries=entries, files=files)
    search = told["search"]
    tell(
        f"archive and lake searched again: {search['files']:,} files, {search['bytes']:,} bytes",
        proof=proof,
        searched=search,
    )
    damaged = [place for place in told["places"] if place["damage"]]
    for place in damaged:
        tell(f"{place['file']}: {place['damage'][0]}")
    tell(damaged=[place["file"] for place in damaged], waiting=[one[0] for one in told["waiting"]])
    if search["found"]:
        raise CommandError(Exit.PROBLEMS, f"{search['found'][0][0]}: still names the person; see {proof}")
    if damaged:
        raise CommandError(
            Exit.PROBLEMS, f"{len(damaged)} files are damaged; what cannot be read cannot be searched: {proof}"
        )
    if told["waiting"]:
        names = f"{len(told['waiting'])} files that the MTA still needs name the person ({told['waiting'][0][0]})"
        raise CommandError(Exit.TEMPORARY, f"{names}; run this again with --proof {proof} once they are in the archive")


Plans = Annotated[
    list[Path] | None,
    typer.Option("--plans", metavar="DIR", help="Folder with campaign plans; default: the current one. Repeatable."),
]
DeletePlans = Annotated[
    bool,
    typer.Option(
        "--delete-plans",
        help="Delete plans and reject files that name the person; what such a plan has not sent yet is never sent.",
    ),
]
_SUFFIXES = (".plan", ".plan.new", ".plan.copy")


def in_plans(address: str, places: Iterable[Path], subaddresses: bool, delete: bool, tell: Telling) -> None:
    """Raises CommandError where plans that name the person are left."""
    left, gone = list[str](), list[str]()
    for plan in sorted(plan for place in there(places) for plan in _plans(place)):
        if not _names(plan, address, subaddresses):
            continue
        if delete:
            shutil.rmtree(plan) if plan.is_dir() else plan.unlink()
            gone.append(str(plan))
            tell(f"{plan}: named the person; deleted")
        else:
            left.append(str(plan))
    tell(plans_deleted=gone, plans_left=left)
    if left:
        sentence = f"{', '.join(left)}: {'names' if len(left) == 1 else 'name'} the person still"
        raise CommandError(
            Exit.PROBLEMS, f"{sentence}; once the campaign is sent, they are no longer needed: give --delete-plans"
        )


def there(places: Iterable[Path]) -> list[Path]:
    """The same. Raises CommandError for what is no folder."""
    for place in (found := list(places)):
        if not place.is_dir():
            raise CommandError(Exit.NO_INPUT, f"{place}: there is no such folder; name the folder with the plans")
    return found


def _plans(place: Path) -> Iterator[Path]:
    """The place may be a plan itself."""
    found = [place, *place.iterdir()]
    yield from (folder for folder in found if folder.name.endswith(_SUFFIXES) and folder.is_dir())
    yield from (file for file in place.glob(f"*{SUFFIX}") if file.is_file())


def _names(plan: Path, address: str, subaddresses: bool) -> bool:
    wanted = person(address)
    local, _, domain = wanted.rpartition("@")
    for file in plan.rglob("*") if plan.is_dir() else [plan]:
        if not file.is_file():
            continue
        if file.suffix == ".parquet" and file.parent.name == "chunks":
            if any(_same(one, wanted, local, domain, subaddresses) for one in _recipients(file)):
                return True
        elif file.suffix != ".crc" and _mentions(file.read_bytes(), local, domain, subaddresses):
            return True
    return False


def _recipients(file: Path) -> Iterator[str]:
    """Raises CommandError."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise CommandError(
            Exit.UNAVAILABLE, f"{file} needs pyarrow; `pip install 'zonemta-py[pipeline]'` installs it"
        ) from None
    for batch in pyarrow.parquet.ParquetFile(file).iter_batches(16, columns=["body"]):
        for body in batch.column(0).to_pylist():
            yield from (row[0] for row in json.loads(body)["recipients"])


def _same(one: str, wanted: str, local: str, domain: str, subaddresses: bool) -> bool:
    found = person(one)
    return found == wanted or (subaddresses and found.startswith(f"{local}+") and found.endswith(f"@{domain}"))


def _mentions(content: bytes, local: str, domain: str, subaddresses: bool) -> bool:
    """In any text around it: lists as they came, reports."""
    text = content.decode("utf-8", "replace").lower()
    if f"{local}@{domain}" in text:
        return True
    return subaddresses and f"{local}+" in text


def in_sinks(config: Config, address: str, subaddresses: bool, tell: Telling) -> None:
    """Raises CommandError."""
    try:
        person = DataSubject(address, pseudonym(), subaddresses)
        letters, rings, lines, files = _erased(config, person)
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; run this again as the MTA's user"
        raise CommandError(Exit.TEMPORARY, f"what event sinks keep is not erased: {why}") from None
    if letters or rings or lines:
        free = f", {rings:,} rings removed; restart the MTA to free them" if rings else ""
        tell(f"event sinks: {lines:,} lines of {files:,} files and {letters:,} dead letters rewritten{free}")
    away = [sink.name for sink in config.event_sinks if sink.kind != "file"]
    tell(sinks={"lines": lines, "files": files, "dead_letters": letters, "rings": rings, "not_changed": away})
    if away:
        names = ", ".join(away)
        tell(f"what the event sinks {names} were sent, or have in memory, is not changed: inform their operators")


def _erased(config: Config, person: DataSubject) -> tuple[int, int, int, int]:
    found = [0, 0, 0, 0]
    kept = [place / FOLDER for place in folders.every(config.folder).values() if (place / FOLDER).is_dir()]
    for place in (one for folder in kept for one in sorted(folder.iterdir())):
        if place.is_dir():
            letters, rings = erasure.in_folder(place, person.erased, person.is_)
            found[0] += letters
            found[1] += rings
    for sink in config.event_sinks:
        if sink.path is not None:
            lines, files = erasure.in_files(sink.path, person.erased, person.is_)
            found[2] += lines
            found[3] += files
    return found[0], found[1], found[2], found[3]


def in_reports(config: Config, address: str, subaddresses: bool, tell: Telling) -> None:
    """Raises CommandError."""
    person = DataSubject(address, pseudonym(), subaddresses)
    try:
        gone = in_pages(ReportShelf(config), lambda text: person.erased(text)[1] > 0)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; run this again as the MTA's user"
        raise CommandError(Exit.TEMPORARY, f"reports on campaigns are not searched: {why}") from None
    if gone:
        again = "`zonemta campaign report NAME` makes one again, without the person once the archive has none"
        tell(f"reports removed, as they named the person: {', '.join(gone)}; {again}")
    tell(reports_removed=gone)

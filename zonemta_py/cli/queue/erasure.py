"""The part of `zonemta forget` that is about files: archive and lake, with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.lake.archive import up_to_now
from zonemta_py.cli.terminal import progress
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.queue import questions

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
        if folder is not None and not folder.is_dir():
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
        with progress.bar("files searched") as moved:
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

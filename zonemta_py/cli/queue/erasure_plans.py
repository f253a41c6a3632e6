"""The part of `zonemta forget` that is about plans of campaigns: folders `NAME.plan`, which list everyone who gets it.

A plan is not changed: its requests are known to the nodes byte for byte, and a changed one could not be resumed.
So plans that name the person are reported, or, on request, deleted whole. What a killed planning left behind
(`NAME.plan.new`, `NAME.plan.copy`) is useless, and searched likewise. So are the files of bad rows that `campaign
check` left beside them (`LIST.rejects.csv`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.cli.terminal.rejects import SUFFIX
from zonemta_py.mail.addresses.person import person

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

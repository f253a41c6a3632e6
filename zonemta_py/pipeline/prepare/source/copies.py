"""A list that Spark cannot read as it is written, in UTF-8, line for line, so that places in it stay what they are.

Only what is in UTF-16 or an encoding that was named, or begins with a line `sep=;`, is copied; only its owner can read
the copy, which is deleted after the planning.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source.dialect import Dialect, dialect_of, files, kind_of, opened

_BLOCK_CHARACTERS = 1 << 20


@contextmanager
def plain(list_: str, folder: Path, encoding: str = "") -> Iterator[str]:
    """A path that Spark can read: list_ itself, or its copy in `folder`, which is emptied first.

    encoding: as of `dialect_of`. Raises PlanRefused, also for what is said of the copy while it is there: then with the
    names of the list.
    """
    shutil.rmtree(folder, ignore_errors=True)
    found = files(list_) if kind_of(list_) == "csv" else []
    if all(dialect_of(file, encoding).plain() for file in found):
        yield list_
        return
    try:
        folder.mkdir(mode=0o700, parents=True)
        for file in found:
            _copy(file, folder / _name(file, list_), dialect_of(file, encoding))
        yield str(folder if Path(list_).is_dir() else folder / _name(found[0], list_))
    except PlanRefused as refused:
        raise PlanRefused(of_list(str(refused), list_, folder)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def of_list(sentence: str, list_: str, folder: Path) -> str:
    """With the list's names in place of the copy's."""
    whole = Path(list_) if Path(list_).is_dir() else Path(list_).parent
    return sentence.replace(str(folder), str(whole))


def _name(file: Path, list_: str) -> Path:
    inner = file.relative_to(list_) if Path(list_).is_dir() else Path(file.name)
    return inner.with_suffix("") if inner.suffix.lower() == ".gz" else inner


def _copy(file: Path, target: Path, form: Dialect) -> None:
    """Two forms that differ in the list differ in the copy, and are refused there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with opened(file, form) as text, target.open("w", encoding="utf-8", newline="") as copy:
            if form.announced:
                copy.write("\n")  # the lines keep their numbers
            while block := text.read(_BLOCK_CHARACTERS):
                copy.write(block)
    except UnicodeError as error:
        raise PlanRefused(f"{file}: it is not {form} throughout ({error}); save it as CSV in UTF-8") from None

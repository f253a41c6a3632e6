"""What every section of the configuration shares: strictness, docstrings, errors, shipped data files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""Looking for plugins of pydantic reads the metadata of every package that is installed, at each start."""
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Port = Annotated[int, Field(ge=1, le=65535)]
Place = tuple[int | str, ...]
"""Where in a file: ("zones", 0, "pool")."""


class ConfigError(Exception):
    """One sentence, or several: file, key, what is wrong, what to do."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))

    @property
    def sentences(self) -> list[str]:
        return str(self).splitlines()


class Faults(ValueError):
    """What is wrong between the tables of a file: where, and a sentence without the place."""

    def __init__(self, found: list[tuple[Place, str]]) -> None:
        super().__init__("; ".join(sentence for _, sentence in found))
        self.found = found


class FileContext(NamedTuple):
    """What a value's check may know of its file. folder: where that is. names: of the tables in it, also of those in
    which something else is wrong: kind → names."""

    folder: Path
    names: dict[str, set[str]]


def every(*checks: Callable[[], object]) -> None:
    """All checks, one after the other. Raises ConfigError with what all of them have found."""
    sentences: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            sentences += error.sentences
    if sentences:
        raise ConfigError(*dict.fromkeys(sentences))


class Section(BaseModel):
    """A table. Unknown keys are refused. The docstrings of its keys are read from the source by `reference`, not by
    pydantic: reading them takes longer than everything else done for the configuration at a start."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def shipped(name: str) -> Path:
    """Where a data file shipped with the program is (rules.toml, providers.toml), as an operator would name it: in the
    checkout's config/, to which this package holds links, or in the installed package, which has copies."""
    return Path(__file__).with_name(name).resolve()

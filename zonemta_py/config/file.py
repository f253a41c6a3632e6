"""Reading a configuration file; every fault in it is one sentence that names file, key and remedy."""

from __future__ import annotations

import difflib
import os
import pwd
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from zonemta_py.config.root import Config
from zonemta_py.config.secret import in_place
from zonemta_py.config.section import ConfigError


class SourceFile(NamedTuple):
    """Where a configuration comes from; "" if there is no file. text: of the file."""

    path: str = ""
    text: str = ""


def read(path: Path) -> Config:
    """Reads and checks a configuration. Raises ConfigError."""
    return of_text(path, text_of(path))


def text_of(path: Path) -> str:
    """Raises ConfigError."""
    try:
        return path.read_text()
    except PermissionError:
        raise ConfigError(f"{path}: user {_me()!r} may not read it; let that user read the file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name an existing file with --config") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def of_text(path: Path, text: str) -> Config:
    """As `read`, of what is in the file. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}; correct that line") from None
    _from_here(path, document.get("plugins"))
    return checked(document, str(path))


def checked(document: dict[str, Any], where: str) -> Config:
    """Raises ConfigError, which begins with the source of the document or of the override."""
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_sentence(where, document, error)) from None


def _from_here(path: Path, plugins: Any) -> None:
    """Plugins beside the configuration file are found from any working folder."""
    if not isinstance(plugins, dict):
        return
    here = path.absolute().parent
    enabled, folder = plugins.get("enabled"), plugins.get("folder")
    if isinstance(enabled, list):
        plugins["enabled"] = [
            str(here / name) if isinstance(name, str) and name.endswith(".py") and (here / name).is_file() else name
            for name in enabled
        ]
    if isinstance(folder, str) and (here / folder).is_dir():
        plugins["folder"] = str(here / folder)


def _sentence(path: str, document: dict[str, Any], error: ValidationError) -> str:
    first = error.errors()[0]
    key = _place(document, first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        near = difflib.get_close_matches(word, _keys_beside(first["loc"]), 1) or difflib.get_close_matches(
            word, [key for key in _keys() if key != word], 1
        )
        remedy = f"did you mean {near[0]!r}?" if near else "remove it; `zonemta config show` lists all keys"
        return f"{path}: unknown key {key}; {remedy}"
    if first["type"] == "missing":
        return f"{path}: {key}: is missing; give it a value, see `zonemta config show`"
    if first["type"] == "value_error":  # from our own checks, which include the remedy
        return f"{path}: {key}: {first['ctx']['error']}"
    message = first["msg"].removeprefix("Input ").removeprefix("Value ")
    given = in_place(first["loc"], first["input"], "options" in first["loc"])
    return f"{path}: {key}: {message}, not {str(given)[:60]!r}; see `zonemta config show`"


def _place(document: Any, parts: tuple[int | str, ...]) -> str:
    """The key for messages: tables of an array by their name, "zones[bulk].port"."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            document = document[part]
            text += f"[{(document.get('name') if isinstance(document, dict) else None) or part}]"
        else:
            document = document.get(part) if isinstance(document, dict) else None
            text += f".{part}"
    return text.removeprefix(".")


def _keys_beside(place: tuple[int | str, ...]) -> list[str]:
    """The keys of the section in which that one stands."""
    section: type[BaseModel] = Config
    for part in place[:-1]:
        field = section.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), section)
    return list(section.model_fields)


def _keys() -> list[str]:
    return sorted({key for section in _sections(Config) for key in section.model_fields})


def _sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The section and all sections in it, tables of an array too."""
    yield section
    for field in section.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _sections(kind)

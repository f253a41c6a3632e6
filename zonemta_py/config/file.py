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

_SHOWN_MAX = 12
"""Keys or sections in one sentence."""


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
    except RecursionError:
        raise ConfigError(f"{path}: has brackets in too many brackets; close them, or remove them") from None
    except ValueError:  # Python reads no more than 4,300 digits
        raise ConfigError(f"{path}: has a number of thousands of digits; write a shorter one") from None
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
        return f"{path}: unknown key {key}; {_instead(first['loc'])}"
    if first["type"] == "missing":
        return f"{path}: {key}: is missing; give it a value, see `zonemta config show`"
    if first["type"] == "value_error":  # from our own checks, which include the remedy
        return f"{path}: {key}: {first['ctx']['error']}"
    if first["type"] == "too_short" and not first["input"]:
        return f"{path}: {key}: is empty; give it a value, or leave it out"
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


def _instead(place: tuple[int | str, ...]) -> str:
    """What to write for an unknown key: one like it beside it, else where a key of that name stands, else what there
    is. A key that is only alike, and stands elsewhere, would mislead."""
    beside, word = _keys_beside(place), str(place[-1])
    near = difflib.get_close_matches(word, beside, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    if word in Config.model_fields:
        return f"{word!r} is a section of its own"
    if elsewhere := [name for name, section in _sections(Config, "") if word in section.model_fields]:
        return f"it belongs in {' or '.join(elsewhere[:_SHOWN_MAX])}"
    shown = ", ".join(beside[:_SHOWN_MAX]) + ", …" * (len(beside) > _SHOWN_MAX)
    return f"there are {shown}; `zonemta config show` lists all keys"


def _sections(section: type[BaseModel], name: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """("[name]", section) of it and all sections in it, tables of an array too."""
    yield name, section
    for key, field in section.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                inner = f"{name.strip('[]')}.{key}".removeprefix(".")
                yield from _sections(kind, f"[[{inner}]]" if kind is not field.annotation else f"[{inner}]")

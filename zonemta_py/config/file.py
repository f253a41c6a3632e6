"""Reading a configuration file: all that is wrong in it is said at once, each fault in one sentence that names file,
key and remedy. Paths in a file go from its folder."""

from __future__ import annotations

import copy
import difflib
import os
import pwd
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from zonemta_py.config.root import Config
from zonemta_py.config.secret import in_place
from zonemta_py.config.section import ConfigError, Faults, FileContext, Place

_SHOWN_MAX = 12
"""Keys or sections in one sentence."""
_TURNS = 6
_NAMED_BY = {"sources": "address", "dkim": "domain", "reporters": "domain"}
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TABLE = re.compile(r"\s*(\[\[?[^\]]+\]\]?)")


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
    """As `read`, of what is in the file. Raises ConfigError with all that is wrong."""
    document, wrong = _document(path, text)
    try:
        config = checked(document, str(path), path.absolute().parent)
    except ConfigError as error:
        raise ConfigError(*wrong, *(() if wrong and not document else error.sentences)) from None
    if wrong:
        raise ConfigError(*wrong)
    return config


_SERVER = re.compile(r"^\[server\][ \t]*(?:#.*)?$.*?(?=^\s*\[|\Z)", re.MULTILINE | re.DOTALL)
"""That table alone, where the file as a whole cannot be read."""


def folder_of(path: Path) -> Path | None:
    """`server.folder` of a file, whatever mistakes are elsewhere in it; None: it does not say."""
    try:
        text = text_of(path)
        document, _ = _document(path, text)
        if not document and (alone := _SERVER.search(text)):
            document, _ = _document(path, alone[0])
        folder = Path(document["server"]["folder"]).expanduser()
    except (ConfigError, KeyError, TypeError, RuntimeError):
        return None
    return path.absolute().parent / folder


def _document(path: Path, text: str) -> tuple[dict[str, Any], list[str]]:
    """What is in a file, and sentences about the lines that are left out because they are not TOML."""
    wrong: list[str] = []
    lines = text.split("\n")
    while True:
        try:
            document = tomllib.loads("\n".join(lines))
            break
        except tomllib.TOMLDecodeError as error:
            number = _line_of(str(error), lines)
            sentence = f"{path}: {_not_toml(str(error), number, lines)}"
            again = sentence in wrong or len(wrong) >= _SHOWN_MAX or number is None
            wrong += [] if sentence in wrong else [sentence]
            if again or number is None or not _KEY.match(lines[number]):
                return {}, wrong
            lines[number] = ""
        except RecursionError:
            return {}, [f"{path}: has brackets in too many brackets; close them, or remove them"]
        except ValueError:  # Python reads no more than 4,300 digits
            return {}, [f"{path}: has a number of thousands of digits; write a shorter one"]
    _from_here(path, document.get("plugins"))
    return document, wrong


def _line_of(error: str, lines: list[str]) -> int | None:
    """The index of the line that a TOML error is about. What is wrong with a line as a whole is said at the start of
    what follows it."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", error)
    if not found:
        return None
    number, column = int(found[1]) - 1, int(found[2])
    while number >= len(lines) or (number > 0 and column == 1 and not lines[number].strip()):
        number, column = number - 1, 2 if number <= len(lines) and number > 0 and lines[number - 1].strip() else 1
    return number


def _not_toml(error: str, number: int | None, lines: list[str]) -> str:
    if number is None:
        return f"is not TOML: {error}; correct that line"
    key = _KEY.match(lines[number]) or _TABLE.match(lines[number])
    if key and ("overwrite" in error or "twice" in error or "Duplicate" in error):
        what = key[1].strip("[]").strip()
        return f"line {number + 1}: {what} is there twice; keep one"
    where = f"; correct {key[1]}" if key else "; correct that line"
    return f"is not TOML: {error}{where}"


def checked(document: dict[str, Any], where: str, folder: Path | None = None) -> Config:
    """folder: from which paths go that do not begin with /; None: they stay. Raises ConfigError, every sentence of
    which begins with the source of the document or of the override."""
    context = FileContext(folder, _names(document)) if folder is not None else None
    try:
        return Config.model_validate(document, context=context)
    except ValidationError as error:
        raise ConfigError(*_sentences(where, document, error, folder)) from None


def _names(document: dict[str, Any]) -> dict[str, set[str]]:
    """Of tables: kind → names."""
    http = document.get("http")
    rows = {**document, "http.keys": http.get("keys") if isinstance(http, dict) else None}
    found: dict[str, set[str]] = {}
    for kind in ("zones", "pools", "warmups", "windows", "http.keys"):
        tables = rows.get(kind)
        names = [one.get("name") for one in tables if isinstance(one, dict)] if isinstance(tables, list) else []
        found[kind] = {name for name in names if isinstance(name, str)}
    found["cluster"] = {"cluster"} & document.keys()
    return found


def _from_here(path: Path, plugins: Any) -> None:
    """Plugins beside the configuration file are found from any working folder."""
    if not isinstance(plugins, dict):
        return
    here = path.absolute().parent
    instances = plugins.get("instances")
    for one in instances if isinstance(instances, list) else ():
        if isinstance(one, dict) and isinstance(name := one.get("plugin"), str) and _is_code(name, here / name):
            one["plugin"] = str(here / name)
    enabled = plugins.get("enabled")
    if isinstance(enabled, list):
        plugins["enabled"] = [
            str(here / name) if isinstance(name, str) and _is_code(name, here / name) else name for name in enabled
        ]


def _is_code(name: str, path: Path) -> bool:
    """Whether a name is the path of a plugin's file, or of a folder that is one."""
    return (name.endswith(".py") and path.is_file()) or ("/" in name and (path / "__init__.py").is_file())


def _sentences(where: str, document: dict[str, Any], error: ValidationError, folder: Path | None) -> list[str]:
    """All that is wrong. What is wrong between tables is known once each of them is right: so what is wrong is left
    out, and the rest looked at, without what may come of that."""
    rest = copy.deepcopy(document)
    context = FileContext(folder, _names(document)) if folder is not None else FileContext(Path(), _names(document))
    found: list[str] = []
    touched: set[str] = set()
    for _ in range(_TURNS):
        errors = [one for each in error.errors() for one in _each(each)]
        tables = [_table(rest, one["loc"]) for one in errors]
        news = [one for one, table in zip(errors, tables, strict=True) if not _follows(one, rest, table, touched)]
        shown = [_sentence(where, rest, one) for one in news]
        found += [one for one in shown if one not in found]
        touched |= {_place(rest, one["loc"]) for one in errors}
        touched |= {*tables, *(_table({}, one["loc"]) for one in errors)}  # by number too: its name may be left out
        if not _without(rest, [one["loc"] for one in errors if one["type"] != "between"]):
            break
        try:
            Config.model_validate(rest, context=context)
            break
        except ValidationError as another:
            error = another
    return found


def _each(error: Any) -> Iterator[dict[str, Any]]:
    """One error of pydantic's; of those between tables each by itself."""
    faults = error.get("ctx", {}).get("error")
    if not isinstance(faults, Faults):
        yield error
        return
    for place, sentence in faults.found:
        yield {"type": "between", "loc": place, "sentence": sentence}


def _follows(error: dict[str, Any], document: dict[str, Any], table: str, touched: set[str]) -> bool:
    """Whether what is wrong there may come of what was left out before: not, if it is another key of that table that
    does not fit another table."""
    place = _place(document, error["loc"])
    if error["type"] == "between" and place != table:
        return place in touched
    return table in touched or any(one.partition("[")[0] == table for one in touched)


def _table(document: dict[str, Any], place: Place) -> str:
    """The table that a key is in: zones[bulk]."""
    return _place(document, place[:2] if len(place) > 1 and isinstance(place[1], int) else place[:1])


def _without(document: dict[str, Any], places: list[Place]) -> bool:
    """Takes out what is wrong, the last ones of a list first; whether something was."""
    gone = False
    for place in sorted(set(places), key=lambda one: [str(part).zfill(9) for part in one], reverse=True):
        rows: Any = document
        for part in place[:-1]:
            rows = rows[part] if _has(rows, part) else None
        if place and _has(rows, place[-1]):
            del rows[place[-1]]
            gone = True
        elif len(place) > 1 and (len(place) != 2 or isinstance(place[1], int)):  # a key that is missing: its table
            gone |= _without(document, [place[:-1]])
    return gone


def _has(rows: Any, part: int | str) -> bool:
    return (
        part in rows
        if isinstance(rows, dict)
        else isinstance(rows, list) and isinstance(part, int) and part < len(rows)
    )


def _sentence(path: str, document: dict[str, Any], first: dict[str, Any]) -> str:
    place = first["loc"]
    if first["type"] in ("between", "value_error") and isinstance(place[-1:][0] if place else "", int):
        place = place[:-1] if not isinstance(_at(document, place), dict) else place  # the sentence names the value
    key = _place(document, place) or "the file"
    if first["type"] == "between":
        return f"{path}: {key}: {first['sentence']}"
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


def _place(document: Any, parts: Place) -> str:
    """The key for messages: tables of an array by their name, "zones[bulk].port"; a value of a list by its key."""
    text, before = "", ""
    for part in parts:
        if isinstance(part, int):
            document = document[part] if _has(document, part) else None
            name = document.get(_NAMED_BY.get(before, "name")) if isinstance(document, dict) else None
            text += f"[{name or part}]"
        elif part != "[key]":
            document = document.get(part) if isinstance(document, dict) else None
            text, before = f"{text}.{part}", part
    return text.removeprefix(".")


def _at(document: Any, place: Place) -> Any:
    for part in place:
        document = document[part] if _has(document, part) else None
    return document


def _keys_beside(place: Place) -> list[str]:
    """The keys of the section in which that one stands."""
    section: type[BaseModel] = Config
    for part in place[:-1]:
        field = section.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), section)
    return list(section.model_fields)


def _instead(place: Place) -> str:
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

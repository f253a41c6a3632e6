"""The configuration as commented TOML, made from the configuration's classes: their docstrings are its comments.

`reference()` is config/zonemta.toml: every key there is, commented out at its default. `effective(config)` is what
`zonemta config show` prints: the same with the values in force, secrets hidden. Other files that are made from code:
the description of the HTTP interface, the JSON Schema of events, the page of what plugins have, the tables of
quantities and of metrics.

    python -m zonemta_py.reference > config/zonemta.toml
    python -m zonemta_py.reference --openapi > config/openapi.json
    python -m zonemta_py.reference --events > config/events.schema.json
    python -m zonemta_py.reference --plugins > docs/PLUGIN_FIELDS.md
    python -m zonemta_py.reference --quantities, --metrics   (between the marks in docs/METRICS.md)
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from zonemta_py.config import Config, Zone, as_toml
from zonemta_py.config.secret import hidden

_WIDTH = 100
_OPENING = """\
Every key of the configuration, commented out at its default. Uncomment what you change.
Check a file with `zonemta config check FILE`, start with it by `zonemta run --config FILE`.
Paths that do not begin with / or ~ go from the folder of the configuration file, wherever a command was started.
Made by `python -m zonemta_py.reference`: change the classes in zonemta_py/config/, not this file."""


def reference() -> str:
    """The whole reference; loading it gives the defaults."""
    return "\n".join(_wrapped(_OPENING.replace("\n", " ")) + list(_document(Config(), live=False))) + "\n"


def effective(config: Config) -> str:
    """The configuration in force: every key with its value; keys without one are commented out."""
    return "\n".join(_document(config, live=True)).lstrip("\n") + "\n"


def _document(config: Config, live: bool) -> Iterator[str]:
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _section(f"[{name}]", name, value, live)
        elif isinstance(value, dict):
            yield from ("", f"[{name}]", *_wrapped(_docstrings(Config).get(name, "")))
            yield from (_line(key, hidden(name, item), live=True) for key, item in value.items())
        else:
            for item in value:
                yield from _section(f"[[{name}]]", name, item, live)
            if not value and not live:
                yield from _outline(name, get_args(field.annotation)[0])


def _section(header: str, name: str, section: BaseModel, live: bool) -> Iterator[str]:
    yield from ("", header, *_wrapped((type(section).__doc__ or "").strip()))
    tables: list[tuple[str, dict[str, Any]]] = []
    inner: list[Iterator[str]] = []
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, dict) and any(isinstance(row, dict) for row in value.values()):
            tables.append((f"{name}.{key}", value))
            continue
        if _is_tables(field):
            inner += [_section(f"[[{name}.{key}]]", f"{name}.{key}", item, live) for item in value]
            if not value and not live:
                inner.append(_outline(f"{name}.{key}", get_args(field.annotation)[0]))
            continue
        yield ""
        yield from _wrapped(_described(type(section), key))
        yield _line(key, hidden(key, value), live=(live or _needed(section, key)) and value is not None)
    for table, rows in tables:
        for key, row in rows.items():
            yield from ("", f"[{table}.{as_toml.key(key)}]", *_options(row, table == "plugins.options"))
    for lines in inner:
        yield from lines


def _outline(name: str, kind: type[BaseModel]) -> Iterator[str]:
    """A table of which there may be any number, and is none: all of it commented out."""
    yield from ("", f"#[[{name}]]", *_wrapped((kind.__doc__ or "").strip()))
    for key, field in kind.model_fields.items():
        if _is_tables(field):
            yield from _outline(f"{name}.{key}", get_args(field.annotation)[0])
            continue
        yield from ("", *_wrapped(_described(kind, key)))
        yield _line(key, None if field.is_required() else field.default, live=False)


def _is_tables(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation)
    return get_origin(field.annotation) is list and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel)


def _needed(section: BaseModel, key: str) -> bool:
    """The one zone that the reference must spell out, since a zone has no default name."""
    return isinstance(section, Zone) and key in ("name", "default")


def _described(section: type[BaseModel], key: str) -> str:
    """The docstring, with the choices and bounds that it does not spell out itself."""
    field, text = section.model_fields[key], _docstrings(section).get(key, "")
    choices = [str(value) for value in get_args(field.annotation)] if get_origin(field.annotation) is Literal else []
    notes = [] if all(choice in text for choice in choices) else [f"one of {', '.join(choices)}"]
    rules = [(rule, name, word) for rule in field.metadata for name, word in _BOUNDS]
    notes += [f"{word} {getattr(rule, name)}" for rule, name, word in rules if hasattr(rule, name)]
    return f"{text} ({', '.join(notes)})" if notes else text


@cache
def _docstrings(section: type[BaseModel]) -> dict[str, str]:
    """What the source says under each key, those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed([base for base in section.__mro__ if issubclass(base, BaseModel) and base is not BaseModel]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for line, after in pairwise(definition.body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(after, ast.Expr):
                found[line.target.id] = inspect.cleandoc(ast.literal_eval(after.value))
    return found


_BOUNDS = (("ge", "at least"), ("gt", "more than"), ("le", "at most"))


def _options(row: dict[str, Any], plugins: bool) -> Iterator[str]:
    return (_line(key, hidden(key, value, plugins), live=True) for key, value in row.items())


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _line(key: str, value: Any, live: bool) -> str:
    if value is None:
        return f"#{as_toml.key(key)} = …"
    return f"{'' if live else '#'}{as_toml.key(key)} = {as_toml.value(value)}"


def openapi() -> str:
    """The description of the HTTP interface, as JSON (OpenAPI 3.1): config/openapi.json."""
    from zonemta_py.web import app

    return json.dumps(app.openapi(app.make()), indent=1, ensure_ascii=False) + "\n"


def events() -> str:
    """The JSON Schema of all events: config/events.schema.json."""
    from zonemta_py.events.schema import json_schema

    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def metrics() -> str:
    """The table of all metrics: in docs/METRICS.md."""
    from zonemta_py.metrics.table import METRICS

    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for one in METRICS.values()
    ]
    return "\n".join(["| metric | kind | labels | what |", "|---|---|---|---|", *rows]) + "\n"


def quantities() -> str:
    """The table of all quantities: in docs/METRICS.md."""
    from zonemta_py.metrics.quantities import QUANTITIES

    rows = [
        f"| {one.name} | {one.unit} | {one.means} | `zonemta_py/{one.source}` |"
        f" {f'`{one.metric}`' if one.metric else ''} |"
        for one in QUANTITIES.values()
    ]
    head = ["| name | unit | what | where it is counted | metric |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def plugins() -> str:
    """Hooks and fields of plugins: docs/PLUGIN_FIELDS.md."""
    from zonemta_py.plugin import fields_page

    return fields_page.page()


if __name__ == "__main__":
    made = {"--openapi": openapi, "--events": events, "--plugins": plugins, "--metrics": metrics}
    made["--quantities"] = quantities
    print(made.get("".join(sys.argv[1:]), reference)(), end="")

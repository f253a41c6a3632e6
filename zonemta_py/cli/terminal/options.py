"""Options that several commands share, and the configuration they mean."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Form, printable, printed_as
from zonemta_py.config import Config, ConfigError, load, usual_file
from zonemta_py.config.file import folder_of, of_text

Option = tuple[Any, Any]
"""(annotation, default)."""


def extended(
    command: Callable[..., Any], run: Callable[..., Any], before: dict[str, Option], after: dict[str, Option],
    without: Collection[str] = (),
) -> Callable[..., Any]:  # fmt: skip
    """`run` with the name, the help and the options of `command`, but for those `without`; and with these around it.

    An option that the command has itself is its own.
    """
    own = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY

    def made(options: dict[str, Option]) -> list[inspect.Parameter]:
        return [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in options.items()
            if name in without or name not in own.parameters
        ]

    kept = [one.replace(kind=keyword) for name, one in own.parameters.items() if name not in without]
    signature = own.replace(parameters=[*made(before), *kept, *made(after)])
    functools.update_wrapper(run, command)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return run


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="ZONEMTA_CONFIG",
        help="Configuration file; default: /etc/zonemta/zonemta.toml if it exists, else the defaults.",
    ),
]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Queue folder; overrides server.folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def configuration(file: Path | None, folder: Path | None = None) -> Config:
    """Raises ConfigError."""
    config = load(file or (None if folder else usual_file()))
    if folder is None:
        return config
    return config.model_copy(update={"server": config.server.model_copy(update={"folder": folder})})


AsPlain = Annotated[bool, typer.Option("--plain", help="Print one record per line, fields separated by tabs.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")]


Columns = Annotated[
    str | None, typer.Option("--columns", metavar="NAME,…", help="Print only these columns, in this order.")
]


def tabled(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, which prints a table, with --plain, --csv and --columns beside its own options."""
    return _with({"plain": AsPlain, "csv": AsCsv, "columns": Columns}, command)


def readable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that prints several tables, which make no CSV: --plain alone."""
    return _with({"plain": AsPlain}, command)


def _with(more: dict[str, Any], command: Callable[..., Any]) -> Callable[..., Any]:
    """An option of one of these names that `more` does not have is the command's own, which gets it."""

    def run(*arguments: Any, **options: Any) -> Any:
        plain, csv, columns = (options.pop(name) if name in more else None for name in ("plain", "csv", "columns"))
        json = any(options.get(name, False) for name in ("json", "as_json"))
        if bool(plain) + bool(csv or options.get("csv") or options.get("as_csv")) + json > 1:
            raise CommandError(Exit.USAGE, "--json, --plain and --csv exclude each other; leave one")
        if columns is not None and json:
            raise CommandError(Exit.USAGE, "--columns is for tables, and JSON has all there is; leave one")
        wanted = [name for name in (columns or "").split(",") if name.strip()]
        with printed_as(Form.CSV if csv else Form.PLAIN if plain else Form.FITTED, wanted):
            return command(*arguments, **options)

    return extended(command, run, {}, {name: (kind, _NOTHING.get(name, False)) for name, kind in more.items()})


_NOTHING: dict[str, Any] = {"columns": None}


def in_force(file: Path | None, folder: Path | None = None) -> Config:
    """As `configuration`; of a file with mistakes that which the MTA in its folder was last given, and stderr says so:
    what runs is looked at, ordered and left all the same. Commands that try, check or show the file itself do not use
    this. Raises ConfigError if there is none."""
    try:
        return configuration(file, folder)
    except ConfigError:
        chosen = file or usual_file()
        there = folder or (folder_of(chosen) if chosen else None)
        config = _last_given(there) if there else None
        if config is None or there is None:
            raise
    sentence = f"{chosen}: has errors, which `zonemta config check` lists; this uses the running configuration"
    print(f"zonemta: {printable(sentence)}", file=sys.stderr)
    return config.model_copy(update={"server": config.server.model_copy(update={"folder": there})})


def _last_given(folder: Path) -> Config | None:
    from zonemta_py.queue.reload import history

    try:
        source = history.newest(folder)
        return of_text(Path(source.path), source.text) if source.path else None
    except (ConfigError, OSError):
        return None

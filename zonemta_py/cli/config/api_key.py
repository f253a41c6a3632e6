"""`zonemta api-key …`: makes keys for the HTTP listener, and lists the configured ones."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration
from zonemta_py.config import NAME, Right
from zonemta_py.reception.http.keys import LOCAL, RIGHTS, TOKEN_FILE, hashed, new_key

app = typer.Typer(help="Keys for the HTTP listener.", no_args_is_help=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: who or what will use it.")],
    right: Annotated[
        list[str] | None, typer.Option(metavar="RIGHT", help=f"Right: {', '.join(RIGHTS)}; repeatable.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Make a key: printed once, on stderr; the lines for the configuration go to stdout."""
    if not re.fullmatch(NAME, name) or name == LOCAL:
        raise CommandError(
            Exit.USAGE,
            f"{name!r} is not a valid name for a key; use lower-case letters, digits, dots and hyphens, "
            f"and not {LOCAL!r}",
        )
    rights: list[Right] = [_right(one) for one in right or ["inject"]]
    settings = configuration(config)
    if any(key.name == name for key in settings.http.keys):
        raise CommandError(
            Exit.USAGE, f"there is already a key named {name!r}; choose another name, or remove that one first"
        )
    key = new_key()
    print(f"The key, shown this once: {key}", file=sys.stderr, flush=True)
    print(f"[[http.keys]]\nname = {json.dumps(name)}\nhash = {json.dumps(hashed(key))}\nrights = {json.dumps(rights)}")


def _right(text: str) -> Right:
    for known in RIGHTS:
        if text == known:
            return known
    raise CommandError(Exit.USAGE, f"--right: {text!r} is not a right; use {', '.join(RIGHTS)}")


@app.command("list")
def list_(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show names and rights of the configured keys. The keys themselves are stored nowhere."""
    settings = configuration(config)
    rows = [{"name": key.name, "rights": [*key.rights], "hash": key.hash} for key in settings.http.keys]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:<24} {', '.join(row['rights'])}")
    state = "open" if settings.http.enabled else "closed: set enabled = true in [http]"
    print(f"{LOCAL:<24} {', '.join(RIGHTS)} (the file {settings.folder / TOKEN_FILE})\nThe HTTP listener is {state}.")

"""`zonemta api-key …`: makes keys for the HTTP listener, and lists the configured ones."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration
from zonemta_py.cli.terminal.output import print_json
from zonemta_py.config import NAME, HttpKey, Right
from zonemta_py.mail.addresses.senders import ANYBODY
from zonemta_py.reception.permission import Permissions
from zonemta_py.reception.scope import names
from zonemta_py.web.keys import LOCAL, RIGHTS, TOKEN_FILE, Holder, hashed, new_key

app = typer.Typer(help="Manage keys for the HTTP listener.", no_args_is_help=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the person or program that will use it.")],
    right: Annotated[
        list[str] | None, typer.Option(metavar="RIGHT", help=f"Right: {', '.join(RIGHTS)}; repeatable.")
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="Role: inject, read, operate or admin.")] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(metavar="TENANT", help="Only mail of this tenant; repeatable.")
    ] = None,
    campaign: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only mail of this campaign; repeatable.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a key: it is printed once, on stderr; its configuration lines go to stdout.

    With --json both are printed as one object on stdout.
    """
    if not re.fullmatch(NAME, name) or name == LOCAL:
        raise CommandError(
            Exit.USAGE,
            f"{name!r} is not a valid name for a key; use lower-case letters, digits, dots and hyphens, "
            f"and not {LOCAL!r}",
        )
    given: list[Right] = [_right(one) for one in right or ([] if role else ["inject"])]
    rows = {"role": role, "rights": given, "tenants": tenant, "campaigns": campaign}
    settings = configuration(config)
    if any(key.name == name for key in settings.http.keys):
        raise CommandError(
            Exit.USAGE, f"there is already a key named {name!r}; choose another name, or remove that one first"
        )
    key = new_key()
    lines = {"name": name, "hash": hashed(key), **{what: value for what, value in rows.items() if value}}
    try:
        HttpKey.model_validate(lines)
    except ValidationError as error:
        first = error.errors()[0]
        what = str(first["loc"][0]).rstrip("s") if first["loc"] else "right"
        said = str(first["msg"]).removeprefix("Value error, ")
        raise CommandError(Exit.USAGE, f"--{what}: {said}{'' if ';' in said else '; correct it'}") from None
    if as_json:
        return print_json({"key": key} | lines)
    print(f"The key, shown this once: {key}", file=sys.stderr, flush=True)
    return print("\n".join(["[[http.keys]]", *(f"{what} = {json.dumps(value)}" for what, value in lines.items())]))


def _right(text: str) -> Right:
    for known in RIGHTS:
        if text == known:
            return known
    raise CommandError(Exit.USAGE, f"--right: {text!r} is not a right; use {', '.join(RIGHTS)}")


@app.command("list")
def list_(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show names, roles, rights and scopes of the configured keys. The keys themselves are not stored."""
    settings = configuration(config)
    permissions = Permissions(settings, settings.http.listener)
    rows: list[dict[str, Any]] = [
        {
            "name": key.name,
            "role": key.role,
            "rights": sorted(Holder.of(key, ANYBODY, permissions.tenants(key)).rights),
            "tenants": permissions.tenants(key),
            "campaigns": key.campaigns,
            "hash": key.hash,
        }
        for key in settings.http.keys
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        only = [f"only {kind} {names(row[kind])}" for kind in ("tenants", "campaigns") if row[kind]]
        print(
            f"{row['name']:<24} {'; '.join([*([row['role']] if row['role'] else []), ', '.join(row['rights']), *only])}"
        )
    state = "open" if settings.http.enabled else "closed: set enabled = true in [http]"
    print(f"{LOCAL:<24} {', '.join(RIGHTS)} (the file {settings.folder / TOKEN_FILE})\nThe HTTP listener is {state}.")

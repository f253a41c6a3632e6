"""Options that say which recipients are meant, the same for `queue list` and for every order about many.

They make the filter of `queue/tasks/where.py`, which checks it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import extended

Where = dict[str, Any]
State = StrEnum("State", ["queued", "leased", "deferred", "held", "deleted", "bounced"])


_ID = re.compile(r"[0-9a-f]{16}")


def message_ids(given: Sequence[str]) -> list[str]:
    """Raises CommandError for one that is no message's, and has no `*`: an order about it would do nothing, unsaid."""
    for one in given:
        if "*" not in one and not _ID.fullmatch(one):
            sentence = f"{one!a} is no message id, and nothing was changed; an id is like 19f3c2d8a0001f3a"
            raise CommandError(Exit.USAGE, sentence)
    return [*given]


def _many(name: str, metavar: str, help: str) -> Any:
    return Annotated[list[str] | None, typer.Option(f"--{name}", metavar=metavar, help=help)]


_OPTIONS: dict[str, Any] = {
    "recipient": _many("recipient", "ADDRESS", "Recipient address; * matches anything, in all of these filters."),
    "domain": _many("domain", "DOMAIN", "To this domain."),
    "sender": _many("sender", "ADDRESS", "From this return path."),
    "zone": _many("zone", "NAME", "In this zone."),
    "state": Annotated[
        list[State] | None,
        typer.Option(
            "--state", metavar="STATE", help="In this state: queued, leased, deferred, held, deleted or bounced."),
    ],
    "site": _many("site", "NAME", "To this site, as `zonemta lanes` names it."),
    "provider": _many("provider", "NAME", "To this provider."),
    "source": _many("source", "ADDRESS", "From this source address."),
    "campaign": _many("campaign", "NAME", "Of this campaign."),
    "tenant": _many("tenant", "NAME", "Of this tenant."),
    "user": _many("user", "LOGIN", "Submitted by this user or key."),
    "subject": _many("subject", "TEXT", "Subject contains this; case is ignored."),
    "class_": _many("class", "CLASS", "With a last reply of this class (`zonemta rules list --columns class`)."),
    "header": _many("header", "'NAME: TEXT'", "This header field contains the text."),
    "priority": Annotated[list[int] | None, typer.Option("--priority", metavar="N", help="Of this priority.")],
    "older": Annotated[
        str | None, typer.Option("--older", metavar="SPAN", help="Accepted longer ago than this: 90s, 2h, 3d.")
    ],
    "younger": Annotated[str | None, typer.Option("--younger", metavar="SPAN", help="Accepted more recently.")],
    "where": Annotated[
        Path | None, typer.Option("--where", metavar="FILE", help="Filter as JSON: {\"domain\": [\"x.org\", …]}.")
    ],
}  # fmt: skip
_AGES = {"older": "older_s", "younger": "younger_s"}


def filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, whose `chosen` is what these options say; an option that it has itself is its own."""
    own = inspect.signature(command).parameters
    added = {name: kind for name, kind in _OPTIONS.items() if name not in own}

    def run(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name, None) for name in added}
        return command(*arguments, chosen=chosen(given), **options)

    return extended(command, run, {name: (kind, None) for name, kind in added.items()}, {}, without=("chosen",))


def chosen(given: dict[str, Any]) -> Where:
    """The filter of these values of the options. Raises CommandError."""
    file = given.get("where")
    where = _read(file) if file is not None else {}
    for name, value in given.items():
        if value is None or name == "where":
            continue
        if name in _AGES:
            where[_AGES[name]] = when.span(value, f"--{name}")
        elif name == "header":
            where[name] = [_header(one) for one in value]
        else:
            where[name.rstrip("_")] = [str(one) if isinstance(one, State) else one for one in value]
    return where


def _header(text: str) -> dict[str, str]:
    name, colon, part = text.partition(":")
    if not colon or not name.strip() or not part.strip():
        raise CommandError(Exit.USAGE, f"--header: {text!a} is not a name and a text; write it like 'List-Id: news'")
    return {name.strip(): part.strip()}


def _read(file: Path) -> Where:
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise from_os(error) from None
    except ValueError as error:
        raise CommandError(
            Exit.DATA, f"{file}: this is not JSON ({error}); write an object of names and values"
        ) from None
    if not isinstance(found, dict):
        raise CommandError(
            Exit.DATA, f'{file}: a filter is an object of names and values, such as {{"domain": "x.org"}}'
        )
    return found

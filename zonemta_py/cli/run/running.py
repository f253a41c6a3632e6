"""`zonemta reload` and `zonemta drain`: orders to an MTA that runs. Both wait until it is done, and say what was."""

from __future__ import annotations

import os
import pwd
import time
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.folder import check_unlocked
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, tabled
from zonemta_py.cli.terminal.output import Telling, print_aside, print_json, print_table, printable
from zonemta_py.cli.terminal.progress import bar
from zonemta_py.config import Config

_LOOK_S = 0.1
_LONGEST_S = 10.0
"""How much longer than asked for a drain may take to end."""


@tabled
def reload(
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Put the configuration file in force as it is now. No connection is dropped, and no delivery is cut off.

    The whole is checked first; what is wrong is said, and changes nothing.
    """
    tell(order(configuration(config, folder), check), check, json)


def order(config: Config, check: bool = False) -> dict[str, Any]:
    """Has the running MTA read its configuration; its answer. Raises CommandError."""
    found: dict[str, Any] = answer(config, "reload", check=check, by=me())
    return found


def tell(found: dict[str, Any], check: bool, json: bool = False) -> None:
    """Raises CommandError with why nothing has changed."""
    if json:
        print_json(found)
    elif found["changes"]:
        rows = [tuple(map(written, change)) for change in found["changes"]]
        print_table("", ["key", "before", "after"], rows)
    if found["refused"]:
        for sentence in found["refused"][:-1]:
            print_aside(sentence)
        raise CommandError(Exit.CONFIG, f"nothing has changed: {found['refused'][-1]}")
    if json:
        return
    for key in found["later"]:
        print_aside(f"{key} holds from the next start on")
    if check:
        print_aside("nothing would change" if not found["changes"] else "nothing is wrong; nothing was changed")
    else:
        print_aside(f"configuration {found['generation']} of this run holds")


def written(value: Any) -> str:
    return printable(", ".join(map(str, value)) if isinstance(value, list) else value)


def me() -> str:
    """Who gives an order, for the log and the history."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    before = os.environ.get("SUDO_USER", "")
    return f"user {name} (sudo by {before})" if before and before != name else f"user {name}"


def drain(
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long deliveries in progress may take (90s, 10m, 2h).")
    ] = "10m",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Take nothing new, end what is under way, then end the MTA: nobody is left in doubt.

    What waits stays in the queue, and goes on with the next start. What takes longer than --for is cut off; then the
    exit status is 75, and `zonemta queue in-doubt` lists who that concerns after the next start.
    """
    chosen, seconds = configuration(config, folder), when.span(for_, "--for")
    answer(chosen, "drain", for_s=seconds, by=me())
    left = _watched(chosen, seconds)
    with Telling(json) as tell:
        tell(cut_off=left)
        if left:
            raise CommandError(Exit.TEMPORARY, f"{left:,} deliveries took longer than {for_} and were cut off")
        tell("drained: nothing was cut off; the next start goes on with what waits")


def _watched(config: Config, seconds: float) -> int:
    """How many deliveries are still out when it has ended. Raises CommandError if it does not end."""
    left, most, end = 0, 1, time.monotonic() + seconds + _LONGEST_S
    with bar("deliveries in progress") as move:
        while time.monotonic() < end:
            try:
                left = answer(config, "draining")["leases"]
            except CommandError:
                if _ended(config):
                    return left if time.monotonic() >= end - _LONGEST_S else 0
            most = max(most, left)
            move(most - left, most)
            time.sleep(_LOOK_S)
    raise CommandError(Exit.TEMPORARY, "the MTA has not ended; its log says why")


def _ended(config: Config) -> bool:
    try:
        check_unlocked(config.folder)
    except CommandError:
        return False
    return True

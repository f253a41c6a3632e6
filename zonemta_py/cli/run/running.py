"""`zonemta reload` and `zonemta drain`: orders to an MTA that runs. Both wait until it is done, and say what was."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.ask_queue import NotRunning
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, in_force, tabled
from zonemta_py.cli.terminal.output import Telling, bar, print_aside, print_json, print_table, printable
from zonemta_py.config import Config
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.queue.reload import last_end

_LOOK_S = 0.1
_ASKED_S = 120.0
_LONGEST_S = 10.0
"""How much longer than asked for a drain may take to end."""


@tabled
def reload(
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Apply the configuration file without a restart. No connection is dropped, and no delivery is interrupted.

    The file is checked first; if it has errors, they are reported and nothing changes.
    """
    chosen = configuration(config, folder)
    check_file(chosen, config)
    tell(order(chosen, check), check, json)


def check_file(config: Config, given: Path | None) -> None:
    """Raises CommandError if the MTA would read another file than the one given."""
    rows = _patiently(config, questions.configurations) if given else []
    runs_with = rows[0]["file"] if rows else ""
    if given is None or (runs_with and given.resolve() == Path(runs_with).resolve()):
        return
    begun = f"with {runs_with}, and reads that" if runs_with else "without a configuration file, and reads none"
    sentence = (
        f"the MTA was started {begun}, not {given}; leave out --config, or drain it and start it with --config {given}"
    )
    raise CommandError(Exit.USAGE, sentence)


def order(config: Config, check: bool = False) -> questions.Reloaded:
    """Has the running MTA read its configuration; its answer. Raises CommandError."""
    return _patiently(config, questions.reload, check=check, by=me())


def _patiently(config: Config, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """The answer of the queue, whose process may die again and again of what the new configuration takes out: then it
    is asked again. Raises CommandError."""
    until = time.monotonic() + _ASKED_S
    while True:
        try:
            return answer(config, question, *_, **arguments)
        except NotRunning:
            raise
        except CommandError as error:
            if error.code != Exit.UNAVAILABLE or time.monotonic() >= until:
                raise
        time.sleep(_LOOK_S)


def tell(found: questions.Reloaded, check: bool, json: bool = False) -> None:
    """Raises CommandError with why nothing has changed."""
    if json:
        print_json(found)
    elif found["changes"]:
        rows = [tuple(map(written, change)) for change in found["changes"]]
        print_table("", ["key", "before", "after"], rows, order=("key", "after"))
    if found["refused"]:
        for sentence in found["refused"][:-1]:
            print_aside(sentence)
        raise CommandError(Exit.CONFIG, f"nothing has changed: {found['refused'][-1]}")
    if json:
        return
    for file in found["plugins"]:
        print_aside(f"{file}: is another plugin file than the one that was loaded")
    for sentence in found.get("remarks", ()):
        print_aside(sentence)
    for key in found["later"]:
        print_aside(f"{key} holds from the next start on")
    if check:
        would = found["changes"] or found["plugins"]
        print_aside("nothing is wrong; nothing was changed" if would else "nothing would change")
    else:
        print_aside(f"{named(found['number'])} holds")


def named(number: int) -> str:
    """A configuration by its number in the history; 0: it has none."""
    return f"configuration {number}" if number else "the configuration (the log says why the history has it not)"


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
        str, typer.Option("--for", metavar="TIME", help="Time allowed for deliveries in progress (90s, 10m, 2h).")
    ] = "10m",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the drain in progress and resume normal operation.")
    ] = False,
    to_cluster: Annotated[
        bool, typer.Option("--to-cluster", help="Then hand all waiting mail to the other nodes of the cluster.")
    ] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Refuse new mail, finish deliveries in progress, then shut down: no recipient is left in doubt.

    Waiting mail stays in the queue until the next start, or with --to-cluster goes to other nodes. Deliveries that take
    longer than --for are interrupted; the exit status is then 75, and after the next start `zonemta queue in-doubt`
    lists the recipients affected.
    """
    chosen, seconds = in_force(config, folder), when.span(for_, "--for")
    with Telling(json) as tell:
        if cancel:
            answer(chosen, questions.drain, by=me(), cancel=True)
            tell("the drain is canceled: mail is taken and sent again", canceled=True)
            return
        said = answer(chosen, questions.drain, for_s=seconds, by=me(), **({"to_cluster": True} if to_cluster else {}))
        pid = (said or {}).get("pid")
        if pid is None:
            sentence = (
                f"the MTA ends within {for_}; it is of an earlier version, and only its log says what was cut off"
            )
            raise CommandError(Exit.TEMPORARY, sentence)
        try:
            left = _watched(chosen, pid, seconds)
        except KeyboardInterrupt:
            sentence = "the drain continues without this command; `zonemta drain --cancel` cancels it"
            raise CommandError(Exit.INTERRUPTED, sentence) from None
        tell(waited_for=left.waited_for)
        _tell_end(tell, left, last_end.read(chosen.folder, pid), to_cluster)


def _tell_end(tell: Telling, left: Left, cut_off: dict[str, str] | None, to_cluster: bool) -> None:
    """left: what was under way at the last look. cut_off: of which processes, and why, as the supervisor says; None: it
    says nothing.

    Raises CommandError.
    """
    if not left.ended:
        tell(canceled=True)
        raise CommandError(Exit.TEMPORARY, "the drain was canceled by another order; the MTA runs on")
    if cut_off is None:
        raise CommandError(Exit.TEMPORARY, "the MTA was ended by something else than the drain; its log may say more")
    tell(canceled=False, processes=sorted(cut_off))
    if cut_off:
        tell(cut_off=left.deliveries, connections=left.connections)
        what = f"{left.deliveries:,} deliveries and {left.connections:,} connections"
        of = ", ".join(f"{role} ({why})" for role, why in sorted(cut_off.items()))
        raise CommandError(Exit.TEMPORARY, f"{what} were cut off, of {of}")
    then = "other nodes go on with waiting mail" if to_cluster else "the next start continues with waiting mail"
    tell(f"drained: nothing was interrupted; {then}", cut_off=0, connections=0)


class Left(NamedTuple):
    """What a drain waits for, at the last look. ended: the MTA has. waited_for: processes, at the first look."""

    deliveries: int
    connections: int
    ended: bool
    waited_for: list[questions.ProcessWork]


def _watched(config: Config, pid: int, seconds: float) -> Left:
    """Until the MTA has ended, or the drain was canceled. pid: of the supervisor. Raises CommandError if it does not
    end."""
    left, waited_for, most = (0, 0), None, 1
    end = time.monotonic() + seconds + _LONGEST_S
    with bar("draining") as move:
        while time.monotonic() < end:
            try:
                found = answer(config, questions.draining)
            except CommandError:
                if last_end.read(config.folder, pid) is not None or not _runs(pid):
                    return Left(*left, True, waited_for or [])
                time.sleep(_LOOK_S)
                continue
            left = found["leases"], found["connections"]
            if waited_for is not None and not found["ending"]:
                return Left(*left, False, waited_for)
            if waited_for is None and found["ending"]:
                waited_for = found["processes"]
            if found["left_s"] is not None:
                end = time.monotonic() + found["left_s"] + _LONGEST_S
            most = max(most, sum(left))
            move(most - sum(left), most, waits_for(found))
            time.sleep(_LOOK_S)
    raise CommandError(Exit.TEMPORARY, "the MTA has not ended; its log says why")


def waits_for(found: questions.DrainState) -> str:
    """What a drain waits for, in words."""
    parts = []
    for one in found["processes"]:
        counts = [f"{one[name]:,} {name}" for name in ("deliveries", "connections") if one[name]]
        parts.append(f"{one['process']}: {', '.join(counts)}")
    return f"waits for {'; '.join(parts)}" if parts else "waits for the processes to end"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False

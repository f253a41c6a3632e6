"""The command tree of `zonemta`, and how errors are reported: one sentence, an exit code (see `errors`).

An unknown name is looked up among the commands of the plugins that the configuration of --config, of ZONEMTA_CONFIG, or
of the service on this machine, enables (`plugin_commands`); `zonemta --help` shows them too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from zonemta_py.cli.terminal import completion
from zonemta_py.cli.terminal.equivalents import meant
from zonemta_py.cli.terminal.errors import CommandError, Exit, guarded
from zonemta_py.cli.terminal.examples import epilog

Commands = dict[str, Any]
"""A function is a command, a Typer a group of them."""


def _campaign() -> Commands:
    from zonemta_py.cli.campaign import commands

    return {"campaign": commands.app}


def _config() -> Commands:
    from zonemta_py.cli.config import commands

    return {"config": commands.app}


def _dkim() -> Commands:
    from zonemta_py.cli.config import dkim

    return {"dkim": dkim.app}


def _rules() -> Commands:
    from zonemta_py.cli.config import rules

    return {"rules": rules.app}


def _plugins() -> Commands:
    from zonemta_py.cli.config import plugins

    return {"plugin": plugins.app}


def _addresses() -> Commands:
    from zonemta_py.cli.config import address

    return {"verp": address.verp, "srs": address.srs, "address": address.address_}


def _access() -> Commands:
    from zonemta_py.cli.config import api_key, route, tls

    return {"tls": tls.app, "api-key": api_key.app, "route": route.route}


def _events() -> Commands:
    from zonemta_py.cli.events import commands, log

    return {"events": commands.app, "log": log.log}


def _summary() -> Commands:
    from zonemta_py.cli.events import summary

    return {"summary": summary.app}


def _files() -> Commands:
    from zonemta_py.cli import ring, sink

    return {"ring": ring.app, "sink": sink.sink}


def _lake() -> Commands:
    from zonemta_py.cli.lake import commands, report, whatif

    return {"lake": commands.app, "report": report.app, "whatif": whatif.whatif}


def _queue() -> Commands:
    from zonemta_py.cli.queue import commands
    from zonemta_py.cli.tasks import orders  # noqa: F401 - commands of the group `queue`

    return {"queue": commands.app}


def _tasks() -> Commands:
    from zonemta_py.cli.tasks import commands

    return {"task": commands.app}


def _suspensions() -> Commands:
    from zonemta_py.cli.queue import suspensions

    return {
        "suspend": suspensions.suspend, "resume": suspensions.resume, "standing": suspensions.standing,
        "stop": suspensions.suspend, "lift": suspensions.resume,
    }  # fmt: skip


def _reroutes() -> Commands:
    from zonemta_py.cli.queue import reroutes

    return {"reroute": reroutes.app}


def _reasons() -> Commands:
    from zonemta_py.cli.queue import commands, explain, warmup

    return {
        "explain": explain.explain, "lanes": explain.lanes, "accounts": commands.accounts, "warmup": warmup.app,
    }  # fmt: skip


def _people() -> Commands:
    from zonemta_py.cli.queue import suppression

    return {"suppression": suppression.app, "forget": suppression.forget}


def _disk() -> Commands:
    from zonemta_py.cli.queue import backup, fsck, journal

    return {"journal": journal.app, "backup": backup.backup, "fsck": fsck.fsck}


def _feedback() -> Commands:
    from zonemta_py.cli.queue import feedback

    return {"feedback": feedback.app}


def _run_commands() -> Commands:
    from zonemta_py.cli.run import running

    return {"reload": running.reload, "drain": running.drain}


def _service() -> Commands:
    from zonemta_py.cli.service import doctor, init

    return {"init": init.init, "doctor": doctor.doctor}


def _domain() -> Commands:
    from zonemta_py.cli.service import domain

    return {"domain": domain.app}


def _send() -> Commands:
    from zonemta_py.cli.send import commands, sendmail

    return {"send": commands.send, "sendmail": sendmail.sendmail}


def _cluster() -> Commands:
    from zonemta_py.cli.queue import cluster

    return {"cluster": cluster.app}


def _postfix() -> Commands:
    from zonemta_py.cli.send import mailq, postfix

    return {"mailq": mailq.mailq, "postqueue": postfix.postqueue, "postsuper": postfix.postsuper}


def _status() -> Commands:
    from zonemta_py.cli.watch import status

    return {"status": status.status}


def _watch() -> Commands:
    from zonemta_py.cli.watch import qshape, top, trace

    return {"top": top.top, "trace": trace.trace, "qshape": qshape.qshape}


def _shell() -> Commands:
    return {"completion": completion.completion}


_LOADS: dict[Callable[[], Commands], tuple[str, ...]] = {
    _send: ("send", "sendmail"),
    _postfix: ("mailq", "postqueue", "postsuper"),
    _status: ("status",),
    _watch: ("top", "trace", "qshape"),
    _shell: ("completion",),
    _queue: ("queue",),
    _suspensions: ("suspend", "resume", "standing", "stop", "lift"),
    _reroutes: ("reroute",),
    _cluster: ("cluster",),
    _reasons: ("explain", "lanes", "accounts", "warmup"),
    _people: ("suppression", "forget"),
    _disk: ("journal", "backup", "fsck"),
    _feedback: ("feedback",),
    _tasks: ("task",),
    _run_commands: ("reload", "drain"),
    _service: ("init", "doctor"),
    _domain: ("domain",),
    _campaign: ("campaign",),
    _events: ("events", "log"),
    _summary: ("summary",),
    _config: ("config",),
    _dkim: ("dkim",),
    _rules: ("rules",),
    _plugins: ("plugin",),
    _addresses: ("verp", "srs", "address"),
    _access: ("tls", "api-key", "route"),
    _files: ("ring", "sink"),
    _lake: ("lake", "report", "whatif"),
}
"""Commands by what imports them: only what is wanted is loaded."""
_STATUSES = """\
Exit status: 0 success; 1 something needs attention; those of sysexits.h: 64 usage, 65 data, 66 no such file, 67
rejected permanently, 69 the MTA is not running, 73 a file cannot be created, 74 disk, 75 try again later, 77
permission, 78 configuration; 130 Ctrl-C. With --json an error is one JSON object on stderr: {"error": message, "exit":
status}."""
_WORDS = {"int": "N", "float": "N", "path": "PATH", "datetime": "WHEN", "%Y-%m-%d": "YYYY-MM-DD"}
"""What help calls the values of an option, by their type; others are called as the option is."""
_OPTION_CHARACTERS = 32
"""An option with longer names and choices has these in its text instead: they would leave little room for it."""
HIDDEN = frozenset(("stop", "lift"))
"""Former names, which still work."""
OWN_ARGUMENTS = frozenset(("sendmail", "postqueue", "postsuper"))
"""Commands that read their arguments themselves."""
NAMES = frozenset(("run", *(name for names in _LOADS.values() for name in names)))


def main(arguments: list[str]) -> int:
    """Runs one command; returns its exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return guarded(lambda: _dispatch(arguments), as_json="--json" in options)


def _dispatch(arguments: list[str]) -> None:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    completed = completion.wanted()
    if completed is not None:
        completion.complete(tree(completed) if completed else _names())
    wanted = arguments[0] if arguments else ""
    command = tree(wanted) if wanted in NAMES else tree(wanted, tuple(arguments))
    gc.enable()
    if arguments[:1] in ([], ["--help"], ["-h"]):
        _show_plugins(command)
    instead = meant(arguments)
    if instead and not _is_there(command, arguments):  # a plugin may have one of that name
        raise CommandError(Exit.USAGE, instead)
    try:
        code: Any = command.main(arguments, prog_name="zonemta", standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer makes 1 of it
            raise BrokenPipeError from None
        raise
    except typer.Abort:
        raise CommandError(Exit.INTERRUPTED) from None
    except Exception as error:
        # typer's own usage errors, wherever it keeps their class: they format themselves.
        raise _usage(error) from None
    if code:
        raise CommandError(Exit(code))


def _is_there(command: Any, arguments: list[str]) -> bool:
    for name in arguments[:2]:
        command = getattr(command, "commands", {}).get(name)
        if command is None or not hasattr(command, "commands"):
            break
    return command is not None


def tree(wanted: str = "", arguments: Sequence[str] = ()) -> Any:
    """The commands as click has them, with their examples: all, or the one that is `wanted`, or its group.

    If it is unknown, those of plugins too. arguments: of the command line, which may name a configuration.
    """
    command = typer.main.get_command(_tree(wanted, arguments))
    for path, one in every(command):
        one.epilog = epilog(path)
        for parameter in one.params:
            _said_plainly(parameter)
        one.short_help = one.short_help or (one.help or "").split("\n\n")[0]  # whole: click cuts off what it derives
    return command


def _said_plainly(parameter: Any) -> None:
    """An argument as manual pages write it: NAME, [NAME], NAME..., and an option with a word for its value, without the
    names of Python's types, whatever this version of typer does."""
    record = parameter.get_help_record
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        many = name + "..." * (parameter.nargs != 1)
        parameter.get_usage_pieces = lambda context: [many if parameter.required else f"[{many}]"]
        parameter.get_help_record = lambda context: (name, (record(context) or ("", ""))[1])
    else:
        parameter.get_help_record = lambda context: _with_word(parameter, record(context))


def _with_word(option: Any, record: tuple[str, str] | None) -> tuple[str, str] | None:
    """An option's line of help; "<a|b>" says what there is to choose, and stays as "a|b" unless that is long."""
    if record is None:
        return None
    names, type_, _ = record[0].partition(" <")
    word = record[0].removeprefix(names + type_).removesuffix(">")
    if not type_:
        return record
    own = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
    if "|" not in word:
        return f"{names} {_WORDS.get(word.removesuffix(' range')) or own}", record[1]
    if len(f"{names} {word}") <= _OPTION_CHARACTERS:
        return f"{names} {word}", record[1]
    said, gap, default = record[1].partition("  [")
    return f"{names} {own}", f"{said} One of: {word.replace('|', ', ')}.{gap}{default}"


def every(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(name with its groups', command), the groups too."""
    for name, one in command.commands.items():
        full = f"{path} {name}".strip()
        yield full, one
        if hasattr(one, "commands"):
            yield from every(one, full)


def _names() -> Any:
    """Commands by name alone, those of plugins too; no plugin is loaded where none is enabled."""
    from zonemta_py.cli.terminal.plugins_enabled import enables_plugins, named_file

    names = NAMES - HIDDEN
    if enables_plugins(file := named_file(())):
        from zonemta_py.cli import plugin_commands

        names = names | {name for name, _ in plugin_commands.summaries(file) if not name.startswith("(")}
    app = typer.Typer(add_completion=False)
    app.callback()(_options)
    for name in sorted(names):
        app.command(name)(lambda: None)
    return typer.main.get_command(app)


def _show_plugins(command: Any) -> None:
    """In its help, in a section of their own; nothing is loaded where no plugin is enabled."""
    from zonemta_py.cli import plugin_commands
    from zonemta_py.cli.terminal.plugins_enabled import named_file

    ours, rows = command.format_commands, plugin_commands.summaries(named_file(()))

    def both(context: Any, formatter: Any) -> None:
        ours(context, formatter)
        with formatter.section(plugin_commands.TITLE):
            formatter.write_dl(rows)

    if rows:
        command.format_commands = both


def _tree(wanted: str, arguments: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="zonemta",
        help="An outbound MTA that loses no mail and keeps sending.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # square brackets are text
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_STATUSES,
    )
    app.callback()(_options)
    pass_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("run", add_help_option=False, context_settings=pass_on)(_run)
    ours = wanted in NAMES  # then no other is needed
    for load in _LOADS:
        if not ours or wanted in _LOADS[load]:
            for name, command in load().items():
                if not ours or name == wanted:
                    _add(app, name, command)
    if wanted and wanted[0] != "-" and not ours:
        from zonemta_py.cli import plugin_commands
        from zonemta_py.cli.terminal.plugins_enabled import named_file

        plugin_commands.add(app, named_file(arguments))
    return app


def _add(app: typer.Typer, name: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        raw = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
        settings = raw if name in OWN_ARGUMENTS else None
        app.command(name, hidden=name in HIDDEN, context_settings=settings)(command)


def _options(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version, and nothing else.")] = False,
) -> None:
    """An outbound MTA that loses no mail and keeps sending."""  # --version is answered before (`__main__`)


def _run(context: typer.Context) -> None:
    """Run the MTA in the foreground (see `zonemta run --help`)."""
    from zonemta_py.cli.run.commands import run

    run(context.args)


_LIBRARY_SAYS = (
    (": Value error, ", ": "),
    (": Input should be", ": it must be"),
    (", unable to parse string as an integer", ""),
    (", unable to parse string as a number", ""),
    (" greater than or equal to ", " at least "),
    (" less than or equal to ", " at most "),
    (" a valid integer", " a whole number"),
    (" a valid number", " a number"),
)


def _usage(error: Exception) -> Exception:
    say = getattr(error, "format_message", None)
    if say is None:
        return error
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(say())
        return CommandError(Exit.USAGE)
    command = context.command_path if context else "zonemta"
    sentence = " ".join(str(say()).split()).rstrip(".").replace(". Choose from:", "; choose from")
    for words, ours in _LIBRARY_SAYS:
        sentence = sentence.replace(words, ours)
    return CommandError(Exit.USAGE, f"{sentence}; see `{command} --help`")

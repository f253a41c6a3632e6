"""Manual pages, made from the commands: what `--help` says, as man(7) has it. One page a command or group of them.

python -m zonemta_py.cli.man FOLDER
python -m zonemta_py.cli.man --table > docs/COMMANDS.md
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from zonemta_py.cli.app import every, tree
from zonemta_py.cli.run.commands import parser as run_parser
from zonemta_py.cli.terminal.errors import CommandError, Exit, guarded
from zonemta_py.cli.terminal.examples import EXAMPLES
from zonemta_py.cli.version import program

_FILES = (
    ("/etc/zonemta/zonemta.toml", "The configuration of the service; every key is explained in config/zonemta.toml."),
    ("/var/lib/zonemta", "The queue: store, journal, archive and bodies."),
)


def pages() -> dict[str, str]:
    """Page by file name: `zonemta.1` and one for each command and group below it."""
    commands = tree()
    found = {"zonemta.1": _page("zonemta", commands.help, _overview(commands), sorted(dict(_shown(commands))))}
    for name, command in _shown(commands):
        if name == "run":
            body = _run()
        elif hasattr(command, "commands"):
            body = _group(name, command)
        else:
            body = _command(name, command)
        found[f"zonemta-{name}.1"] = _page(f"zonemta-{name}", command.short_help, body, [])
    return found


def table() -> str:
    """All commands with what they do, as Markdown."""
    rows = [
        (name, command) for name, command in every(tree()) if not command.hidden and not hasattr(command, "commands")
    ]
    rows += [(name, command) for name, command in _shown(tree()) if getattr(command, "invoke_without_command", False)]
    lines = [
        f"| `zonemta {name}` | {' '.join(command.short_help.split('. ')[0].split()).rstrip('.')}. | {_forms(command)} |"
        for name, command in sorted(rows, key=lambda row: row[0])
    ]
    return "\n".join([_TABLE, *lines, ""])


_TABLE = """\
# Commands

What each command does, and its output formats; `zonemta COMMAND --help` shows options and examples. This page is
generated: `python -m zonemta_py.cli.man --table`. Former names that still work: `stop`, `lift`, `campaign pause`,
`queue drop`.

| command | does | forms |
|---|---|---|"""


def _forms(command: Any) -> str:
    options = {option for parameter in command.params for option in parameter.opts}
    return " ".join(name for name in ("json", "plain", "csv") if f"--{name}" in options)


def _page(title: str, summary: str, body: Iterator[str], others: list[str]) -> str:
    lines = [f'.TH "{title.upper()}" "1" "" "{program()}" "zonemta"', ".nh", ".ad l"]
    lines += [".SH NAME", f"{_escaped(title)} \\- {_escaped(summary.split('. ')[0].rstrip('.'))}", *body]
    also = [f"zonemta-{name}" for name in others] if others else ["zonemta"]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {_escaped(name)} (1)" for name in also).replace(",\n", " ,\n")]
    return "\n".join(lines) + "\n"


def _overview(commands: Any) -> Iterator[str]:
    yield from (".SH SYNOPSIS", ".B zonemta", r".I command \fR[options]", ".SH COMMANDS")
    for name, command in sorted(_shown(commands)):
        yield from _term(f"zonemta {name}", command.short_help)
    yield ".SH FILES"
    for term, text in _FILES:
        yield from _term(term, text)
    yield from (".SH EXIT STATUS", "Those of sysexits.h:")
    for status, text in _statuses():
        yield from _term(str(status.value), text)


def _shown(group: Any) -> list[tuple[str, Any]]:
    return [(name, command) for name, command in group.commands.items() if not command.hidden]


def _group(name: str, group: Any) -> Iterator[str]:
    if group.invoke_without_command or group.params:
        yield from _command(name, group)
    for sub, command in _shown(group):
        yield from (
            _group(f"{name} {sub}", command) if hasattr(command, "commands") else _command(f"{name} {sub}", command)
        )


def _statuses() -> Iterator[tuple[Exit, str]]:
    (definition,) = ast.parse(inspect.getsource(Exit)).body
    assert isinstance(definition, ast.ClassDef)
    for line, after in pairwise([*definition.body, ast.Pass()]):
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            said = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else "Success."
            yield Exit[line.targets[0].id], said


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield f'.SH "{name.upper()}"'
    yield from (f".B zonemta {_escaped(name)}", _escaped(" ".join(command.collect_usage_pieces(context))))
    yield from _paragraphs(command.help or "")
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record and not getattr(parameter, "hidden", False):
            yield from _term(record[0], record[1])
    yield from _examples(name)


def _run() -> Iterator[str]:
    parser = run_parser()
    yield from (".SH SYNOPSIS", _escaped(" ".join(parser.format_usage().removeprefix("usage:").split())))
    yield from (".SH DESCRIPTION", *_paragraphs(parser.description or ""), ".SH OPTIONS")
    formatter = argparse.HelpFormatter(parser.prog)
    for action in parser._actions:
        yield from _term(formatter._format_action_invocation(action), action.help or "")
    yield from (".SH NOTES", *_paragraphs(parser.epilog or "")) if parser.epilog else ()


def _examples(name: str) -> Iterator[str]:
    if name in EXAMPLES:
        yield from (".PP", "Examples:", ".PP", ".nf", ".RS 4", *map(_escaped, EXAMPLES[name]), ".RE", ".fi")


def _term(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(" ".join(text.split())) or "\\&")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.replace("\b\n", "").split("\n\n"):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(one if ord(one) < 128 else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text[:1] in (".", "'") else text


def main(arguments: list[str]) -> int:
    return guarded(lambda: _write(arguments))


def _write(arguments: list[str]) -> None:
    if arguments == ["--table"]:
        print(table(), end="")
        return
    if len(arguments) != 1:
        sentence = "give one folder for the pages: python -m zonemta_py.cli.man ~/.local/share/man/man1"
        raise CommandError(Exit.USAGE, sentence)
    folder = Path(arguments[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in pages().items():
            (folder / name).write_text(page)
    except OSError as error:
        sentence = f"{folder}: cannot be written ({error.strerror}); give a folder that you may write to"
        raise CommandError(Exit.CANT_CREATE, sentence) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

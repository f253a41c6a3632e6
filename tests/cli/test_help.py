"""Help: all of it is shown, with examples that are right; and what whoever types another program's command is told."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.cli.app import HIDDEN, NAMES, every, tree
from zonemta_py.cli.terminal.equivalents import HABITS
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.cli.terminal.examples import EXAMPLES

COMMANDS = dict(every(tree()))


@pytest.fixture(scope="module")
def shown() -> dict[tuple[str, str], str]:
    """What has been printed already, by command and width."""
    return {}


@pytest.fixture
def help_of(
    zonemta: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, shown: dict[tuple[str, str], str]
) -> Callable[..., str]:
    """help_of("queue list", columns="200"): what `zonemta queue list --help` prints; each is printed once."""

    def printed(command: str, columns: str = "200") -> str:
        key = command, columns
        if key not in shown:
            monkeypatch.setenv("COLUMNS", columns)
            shown[key] = zonemta(*command.split(), "--help").out
        return shown[key]

    return printed


@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_is_shown_as_it_is_written(help_of: Callable[..., str], columns: str) -> None:
    """Every word of every command, what stands in square brackets too."""
    for name, command in COMMANDS.items():
        if name == "run":
            continue
        shown = "".join(help_of(name, columns).split())
        texts = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
        for text in texts:
            assert "".join(text.split()) in shown, f"{name}: {text}"
    assert "[[windows]]" in help_of("send", columns)


def test_help_says_what_a_value_is(help_of: Callable[..., str]) -> None:
    """No option is explained by the name of one of Python's types."""
    for name in COMMANDS:
        if name != "run":
            odd = re.findall(r"^  (?:-\w, )?--[\w-]+ <\S+", help_of(name), re.MULTILINE)
            assert not odd, f"{name}: {odd}"
    assert re.search("--priority N .*--at WHEN", help_of("send"), re.DOTALL)
    assert "--by domain|site|provider" in help_of("qshape")


def test_the_summary_of_a_command_is_whole(help_of: Callable[..., str]) -> None:
    """Not cut off in the list of its group."""
    for group in ("", *(name for name, command in COMMANDS.items() if hasattr(command, "commands"))):
        assert "..." not in help_of(group).replace("]...", "").replace("ARGS]...", "")


@pytest.mark.parametrize(("command", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_an_example_is_a_command(help_of: Callable[..., str], command: str, line: str) -> None:
    """It is taken apart without a complaint, and stands below the help of the command that it is about."""
    program, *words = shlex.split(line.partition(" > ")[0].partition(" | ")[0])
    assert (program, words[: len(command.split())]) == ("zonemta", command.split())
    COMMANDS[command].make_context(command, words[len(command.split()) :])
    help_ = help_of(command)
    assert f"  {line}\n" in re.sub(r" \\\n +", " ", help_), "in one line, or folded as a shell takes it"
    assert max(map(len, help_.partition("Example")[2].splitlines())) <= 80


def test_long_choices_are_in_the_text(help_of: Callable[..., str]) -> None:
    """No line is wider than a terminal of 80 columns."""
    for command in ("log", "queue size", "campaign send", "suppression add"):
        help_ = help_of(command, "80")
        assert "One of: " in " ".join(help_.split())
        assert max(map(len, help_.splitlines())) <= 80


def test_every_command_has_examples() -> None:
    """But for `run`, whose help is its own."""
    shown = {name for name, command in COMMANDS.items() if not command.hidden and not hasattr(command, "commands")}
    assert shown - EXAMPLES.keys() == {"run"}


@pytest.mark.parametrize("command", HABITS, ids=" ".join)
def test_what_others_call_it(zonemta: Callable[..., Any], command: tuple[str, ...]) -> None:
    """One sentence that names what there is, which is there; no guess by spelling."""
    assert " ".join(command) not in COMMANDS, "it exists now: take it from the habits"
    ran = zonemta(*command)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err.startswith(f"zonemta: there is no `zonemta {' '.join(command)}`; ")
    assert "did you mean" not in ran.err
    named = [one.removeprefix("zonemta ") for one in ran.err.split("`")[3::2] if one.startswith("zonemta ")]
    assert named
    for one in named:
        words = [word for word in one.split() if word.islower()]
        assert any(" ".join(words[:length]) in COMMANDS for length in (1, 2))


def test_slips_are_still_guessed(zonemta: Callable[..., Any]) -> None:
    """Of names that nobody types on purpose."""
    assert "Did you mean 'standing'" in zonemta("standin").err


def test_one_verb_for_one_thing(zonemta: Callable[..., Any]) -> None:
    """Former names are in no list; each command is loaded by its own name alone."""
    shown = zonemta("--help").out.split()
    assert {"suspend", "resume"} <= {*shown}
    assert not {*HIDDEN} & {*shown}
    assert "pause" not in zonemta("campaign", "--help").out.split()
    assert {name for name in COMMANDS if " " not in name} == NAMES
    for name in NAMES - {"run"}:
        assert [*tree(name).commands] == ["run", name]


WITHOUT_JSON = {
    "run": "the server: it prints its log",
    "sink": "a server: --events prints JSON",
    "sendmail": "silent, as other programs expect it",
    "postqueue": "prints what Postfix's prints; -j is JSON",
    "postsuper": "prints how many, as Postfix's does",
    "send": "silent: the exit status says it",
    "plugin run": "the log of a server, until it is ended",
    "top": "a screen",
    "init": "asks a person, and prints what that person is to publish",
    "completion": "a script for the shell",
    "campaign preview": "a message",
    "config notice": "a message",
    "events schema": "JSON anyway",
    "suppression export": "CSV, as import reads it",
    "config password": "a hash alone",
    "config secret": "a secret alone",
    "lake propose": "a difference, for patch",
}


def test_every_command_has_json() -> None:
    """Or a reason why it has none."""
    without = {
        name
        for name, command in COMMANDS.items()
        if not command.hidden
        and (not hasattr(command, "commands") or (command.invoke_without_command and command.params))
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_JSON.keys()


def test_commands_that_are_named_are_there() -> None:
    """In the help of others; each `zonemta …` there can be typed."""
    for name, command in COMMANDS.items():
        for text in (command.help or "", *(getattr(one, "help", None) or "" for one in command.params)):
            for line in re.findall(r"`zonemta ([a-z][^`]*)`", text):
                words = line.split()
                assert words[0] in COMMANDS, (name, line)
                if hasattr(COMMANDS[words[0]], "commands") and words[1:] and words[1].isalpha():
                    assert " ".join(words[:2]) in COMMANDS, (name, line)


@pytest.mark.parametrize(
    ("command", "usage"),
    [("queue delete", "[OPTIONS] [ID...]"), ("resume", "[OPTIONS] KIND NAME..."), ("config history", "[OPTIONS] [N]")],
)
def test_usage_is_written_as_in_manual_pages(zonemta: Callable[..., Any], command: str, usage: str) -> None:
    """Whatever typer's version makes of brackets and types."""
    help_ = zonemta(*command.split(), "--help").out
    assert help_.splitlines()[0] == f"Usage: zonemta {command} {usage}"
    assert not re.search(r"^  [A-Z]+.* <", help_.partition("Arguments:")[2].partition("Options:")[0], re.MULTILINE)


def test_help_as_a_command(zonemta: Callable[..., Any]) -> None:
    """`zonemta help queue list` is `zonemta queue list --help`."""
    assert zonemta("help", "queue", "list").out == zonemta("queue", "list", "--help").out
    assert zonemta("help").out == zonemta("--help").out

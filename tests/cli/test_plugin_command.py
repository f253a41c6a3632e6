"""A plugin's own command is a command of `zonemta`."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.app import NAMES
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.plugin import testing
from zonemta_py.plugin.api import COMMANDS

PLUGIN = """
def setup(api):
    api.command("greet", greet)


def greet(name: str, loud: bool = False) -> None:
    print(f"Hello {name}{'!' if loud else '.'}")


async def queue_route(envelope, routing):
    pass
"""


@pytest.fixture
def enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zonemta: Callable[..., Any]) -> Callable[..., Any]:
    (tmp_path / "greeter.py").write_text(PLUGIN)
    (tmp_path / "c.toml").write_text(f"[plugins]\nenabled = ['{tmp_path}/greeter.py']")
    monkeypatch.setenv("ZONEMTA_CONFIG", str(tmp_path / "c.toml"))
    return zonemta


def test_its_parameters_are_arguments_and_options(enabled: Callable[..., Any]) -> None:
    """As in typer: without a default an argument, with one an option."""
    assert enabled("greet", "Ann", "--loud") == (Exit.OK, "Hello Ann!\n", "")


def test_its_mistakes_are_reported_like_ours(enabled: Callable[..., Any]) -> None:
    """One sentence, exit status 64."""
    ran = enabled("greet")
    assert ran.code == Exit.USAGE
    assert "Missing argument 'name'; see `zonemta greet --help`" in ran.err
    assert ran.err.count("\n") == 1


def test_other_names_are_still_unknown(enabled: Callable[..., Any]) -> None:
    """Plugins add commands, they do not hide mistakes."""
    assert "No such command 'gret'" in enabled("gret").err


ADMIN = '''
from zonemta_py.plugin import AdminRefused

def setup(api):
    global _api
    _api = api
    api.command("held", _held)
    api.command("breaks", breaks)
    api.command("leaves", leaves)
    api.command("remembers", _remembers)


async def _held(zone: str = "default", release: bool = False) -> None:
    """Show what is held in a zone.

    More of it.
    """
    rows = (await _api.admin.ask("list", state=["held"], zone=zone))["rows"]
    print(*(row["recipient"] for row in rows) if rows else ("nothing",))
    if release:
        task = await _api.admin.ask("task", verb="release", where={"zone": zone, "state": ["held"]})
        print(task["by"])


async def _remembers(value: str = "") -> None:
    """Keep a value."""
    if value:
        await _api.store.set("value", value)
    print(await _api.store.get("value"))


def breaks(how: str) -> object:
    """Break."""
    if how == "admin":
        raise AdminRefused("not so")
    if how == "returns":
        return "x"
    if how == "typer":
        import typer
        raise typer.BadParameter("a bad one")
    raise KeyError("secret")


def leaves(status: int) -> int:
    """Leave."""
    return status
'''


@pytest.fixture
def admin_file(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(ADMIN)
    file = tmp_path / "d.toml"
    file.write_text(f"[server]\nfolder = '{tmp_path}/queue'\n[plugins]\nenabled = ['{tmp_path}/desk.py']")
    return file


def test_help_has_a_section_of_them(enabled: Callable[..., Any]) -> None:
    """With the plugin that each is of; our own are above, and none of theirs among them."""
    for arguments in (("--help",), ("-h",), ("help",)):
        ran = enabled(*arguments)
        assert ran.code == Exit.OK
        ours, _, theirs = ran.out.partition("Commands of plugins:")
        assert re.search(r"^  greet +No description\. \(plugin greeter\)$", theirs, re.M)
        assert "greet" not in ours
        assert "queue" in ours


def test_help_is_shown_with_plugins_that_cannot_be_loaded(enabled: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text("def setup(api):\n    raise KeyError('x')\n")
    ran = enabled("--help")
    assert ran.code == Exit.OK
    assert "They cannot be loaded: plugin greeter" in ran.out
    assert enabled("greet", "Ann").code == Exit.CONFIG
    (tmp_path / "c.toml").write_text("[plugins\n")
    assert "Commands of plugins" not in enabled("--help").out
    assert enabled("greet", "Ann").code == Exit.USAGE


def test_without_plugins_nothing_is_loaded(tmp_path: Path) -> None:
    """Help and completion stay as quick as they are."""
    (tmp_path / "c.toml").write_text("[server]\nhostname = 'a.test'\n")
    code = (
        "import sys; from zonemta_py.cli import plugin_commands; plugin_commands.Host = None\n"
        "from zonemta_py.__main__ import main; sys.argv = ['zonemta', '--help']; code = main()\n"
        "from zonemta_py.cli.terminal.plugins_enabled import enables_plugins, named_file\n"
        "assert enables_plugins(named_file(())) is False; sys.exit(code)"
    )
    environment = os.environ | {"ZONEMTA_CONFIG": str(tmp_path / "c.toml")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "Commands of plugins" not in ran.stdout


@pytest.mark.parametrize(
    "words", [("--config", "{}"), ("--config={}",), ("-c", "{}"), ("-c{}",)], ids=lambda words: words[0][:9]
)
def test_they_take_a_configuration(zonemta: Callable[..., Any], admin_file: Path, words: tuple[str, ...]) -> None:
    """As all others; help says so."""
    given = [word.format(admin_file) for word in words]
    assert zonemta("leaves", "0", *given).code == Exit.OK
    ran = zonemta("held", "--help", *given)
    assert ran.code == Exit.OK
    assert "Show what is held in a zone." in ran.out
    assert "--config" in ran.out
    assert "No such command 'held'" in zonemta("held").err
    assert zonemta("held", "--config", f"{admin_file}x").code == Exit.CONFIG


def test_what_goes_wrong_in_one_is_a_sentence(zonemta: Callable[..., Any], admin_file: Path) -> None:
    """With plugin, file and line; it is no traceback."""
    for how, code, sentence in (
        ("admin", Exit.DATA, "zonemta: not so"),
        ("other", Exit.PROBLEMS, "raised KeyError: 'secret'"),
        ("returns", Exit.PROBLEMS, "returned 'x'; it returns nothing, or an exit status"),
        ("typer", Exit.USAGE, "a bad one"),
    ):
        ran = zonemta("breaks", how, "--config", admin_file)
        assert (ran.code, ran.err.count("\n")) == (code, 1), ran
        assert sentence in ran.err
    assert re.search(
        r"plugin desk, command breaks, .*desk.py:\d+: raised", zonemta("breaks", "x", "-c", admin_file).err
    )
    assert zonemta("leaves", "75", "--config", admin_file).code == Exit.TEMPORARY
    assert zonemta("leaves", "3", "--config", admin_file).code == Exit.PROBLEMS


def test_without_an_mta_there_is_nobody_to_ask(zonemta: Callable[..., Any], admin_file: Path) -> None:
    ran = zonemta("held", "--config", admin_file)
    assert (ran.code, ran.err.count("\n")) == (Exit.UNAVAILABLE, 1)
    assert "start it with `zonemta run`" in ran.err
    ran = zonemta("remembers", "--config", admin_file)
    assert (ran.code, ran.err.count("\n")) == (Exit.UNAVAILABLE, 1)
    assert "no MTA runs in" in ran.err


async def test_they_ask_and_order(tmp_path: Path) -> None:
    """The MTA that runs; the order is the plugin's, for whoever has typed it."""
    (tmp_path / "desk.py").write_text(f"{ADMIN}\n\n{HOLDS}")
    async with testing.running(tmp_path / "desk.py") as mta:
        assert await mta.zonemta("held") == "nothing\n"
        await mta.send("anna@example.com")
        assert await mta.zonemta("held") == "anna@example.com\n"
        first, second = (await mta.zonemta("held", "--release")).splitlines()
        assert first == "anna@example.com"
        assert second.startswith("plugin desk for user ")
        await mta.arrived("anna@example.com")
        assert await mta.zonemta("remembers", "--value", "é5") == "é5\n"
        assert await mta.zonemta("remembers") == "é5\n"


HOLDS = """
from zonemta_py.plugin import Hold

async def queue_route(envelope, routing):
    raise Hold("look at it")
"""


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("'queue', print", "command 'queue' is one of zonemta's own; give it another name"),
        ("'run', print", "is one of zonemta's own"),
        ("'help', print", "is one of zonemta's own"),
        ("'Greet', print", "'Greet' is not a command name"),
        ("5, print", "5 is not a command name"),
        ("'greet', 5", "command 'greet' needs a function, not int"),
        ("'greet', lambda *names: None", "takes 'names' by position"),
        ("'greet', lambda a, /: None", "takes 'a' by position"),
    ],
)
def test_what_is_no_command(zonemta: Callable[..., Any], tmp_path: Path, call: str, sentence: str) -> None:
    """A start refuses it, too."""
    (tmp_path / "bad.py").write_text(f"def setup(api):\n    api.command({call})\n")
    file = tmp_path / "c.toml"
    file.write_text(f"[plugins]\nenabled = ['{tmp_path}/bad.py']")
    for command in (("config", "check", file), ("plugin", "check", "--config", file), ("greet", "--config", file)):
        ran = zonemta(*command)
        assert ran.code in (Exit.CONFIG, Exit.PROBLEMS)
        assert sentence in ran.err + ran.out


def test_parameters_that_no_command_line_has(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def setup(api):\n    api.command('greet', greet)\n\n\ndef greet(who: int | str) -> None: ...\n"
    )
    file = tmp_path / "c.toml"
    file.write_text(f"[plugins]\nenabled = ['{tmp_path}/bad.py']")
    ran = zonemta("greet", "--config", file)
    assert (ran.code, ran.err.count("\n")) == (Exit.CONFIG, 1)
    assert "bad.py:5: the parameters of its command 'greet' are of no use" in ran.err


def test_no_command_of_ours_can_be_taken() -> None:
    """What plugins may not have is what there is."""
    assert {*NAMES, "help"} == COMMANDS

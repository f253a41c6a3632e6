"""`zonemta plugin`: what there is, in which order it is called, what does not load, and a beginning that works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.plugin.spec import HOOKS

BUNDLED = [file.stem for file in (Path(__file__).parents[2] / "plugins").glob("*.py") if file.stem != "__init__"]
FIRST = '"""Refuses who is blocked."""\n\nfrom zonemta_py.plugin import *\n\n\nasync def smtp_rcpt_to(address): ...\n'
SECOND = "async def smtp_rcpt_to(address): ...\n\n\nasync def queue_route(envelope, routing): ...\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "block.py").write_text(FIRST)
    (tmp_path / "also.py").write_text(SECOND)
    (tmp_path / "broken.py").write_text("async def smtp_rcpt_to(\n")
    file = tmp_path / "zonemta.toml"
    file.write_text(
        f'[server]\nfolder = "{tmp_path}/queue"\n[plugins]\nfolder = "."\nenabled = ["also", "block.py", "gone"]\n'
    )
    return file


def test_list_has_those_that_are_enabled_first(zonemta: Callable[..., Any], config: Path) -> None:
    """Nothing of them is run for it: a broken one is named."""
    rows = json.loads(zonemta("plugin", "list", "-c", config, "--json").out)
    assert [(row["name"], row["place"]) for row in rows] == [
        ("also", 1), ("block", 2), ("gone", 3), *((name, 0) for name in sorted(["broken", *BUNDLED])),
    ]  # fmt: skip
    by_name = {row["name"]: row for row in rows}
    assert by_name["block"] | {"file": ""} == {
        "name": "block", "place": 2, "file": "", "says": "Refuses who is blocked.", "hooks": ["smtp_rcpt_to"],
        "fault": "", "listeners": [], "zones": [], "failing": "closed",
    }  # fmt: skip
    assert by_name["gone"]["fault"] == "there is no such plugin"
    assert "is not valid Python" in by_name["broken"]["fault"]
    assert f"Plugins: 3 enabled of {4 + len(BUNDLED)}" in zonemta("plugin", "list", "-c", config).out


def test_order_shows_who_is_called_when(zonemta: Callable[..., Any], config: Path) -> None:
    rows = json.loads(zonemta("plugin", "order", "-c", config, "--json").out)
    assert [row["hook"] for row in rows] == list(HOOKS)
    called = {row["hook"]: row["plugins"] for row in rows if row["plugins"]}
    assert called == {"smtp_rcpt_to": ["also", "block"], "queue_route": ["also"]}
    assert "also > block" in zonemta("plugin", "order", "smtp_rcpt_to", "-c", config).out
    failing = {row["hook"]: row["failing"] for row in rows}
    assert [failing[hook] for hook in ("smtp_rcpt_to", "stop", "event")] == ["451", "passes", "comes again"]
    ran = zonemta("plugin", "order", "smtp_rcpt", "-c", config)
    assert (ran.code, "did you mean 'smtp_rcpt_to'?" in ran.err) == (Exit.USAGE, True)


def test_check_loads_each_for_itself(zonemta: Callable[..., Any], config: Path) -> None:
    ran = zonemta("plugin", "check", "-c", config)
    assert ran.code == Exit.PROBLEMS
    assert "plugin also: good; hooks: smtp_rcpt_to, queue_route" in ran.out
    assert "plugin gone: is not installed" in ran.out
    assert "1 of 3 plugins cannot be loaded" in ran.err
    ran = zonemta("plugin", "check", config.with_name("broken.py"))
    assert (ran.code, f"{config.with_name('broken.py')}:1: is not valid Python" in ran.out) == (Exit.PROBLEMS, True)
    assert zonemta("plugin", "check").code == Exit.USAGE


ENDS = {
    "os._exit(3)": "exit status 3", "os.kill(os.getpid(), 9)": "by SIGKILL", "os._exit(0)": "exit status 0",
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("place", ["import os\n{}\n", "import os\ndef setup(api):\n    {}\n"], ids=["import", "setup"])
def test_check_names_who_ends_its_process(zonemta: Callable[..., Any], tmp_path: Path, place: str, ending: str) -> None:
    """The others are checked all the same."""
    (tmp_path / "ends.py").write_text(place.format(ending))
    (tmp_path / "also.py").write_text(SECOND)
    ran = zonemta("plugin", "check", tmp_path / "ends.py", tmp_path / "also.py")
    assert ran.code == Exit.PROBLEMS
    assert f"plugin ends: has ended its process while it was loaded ({ENDS[ending]})" in ran.out
    assert "plugin also: good; hooks: smtp_rcpt_to, queue_route" in ran.out


NO_HOOKS = {
    "": "it has no hooks; define them at the top of the file, as `async def queue_route(envelope, routing)`",
    "class Plugin:\n    x = 1\n    async def queue_route(self, envelope, routing): ...\n": (
        "none.py:3: queue_route in class Plugin is no hook, so it is never called; define it at the top of the "
        "file, as `async def queue_route(envelope, routing)`"
    ),
    "def _show(): ...\ndef setup(api):\n    api.command('shows', _show)\n": "",
    "class Pool:\n    async def stop(self): ...\nasync def queue_route(): ...\n": "",
}


@pytest.mark.parametrize("source", NO_HOOKS, ids=["empty", "in a class", "a command", "another class"])
def test_check_hints_at_hooks_that_are_not_there(zonemta: Callable[..., Any], tmp_path: Path, source: str) -> None:
    (tmp_path / "none.py").write_text(source)
    ran = zonemta("plugin", "check", tmp_path / "none.py")
    assert ran.code == Exit.OK
    assert NO_HOOKS[source] in ran.out
    assert ran.out.count("plugin none") == (2 if NO_HOOKS[source] else 1)
    hints = json.loads(zonemta("plugin", "check", tmp_path / "none.py", "--json").out)["hints"]
    assert bool(hints) == bool(NO_HOOKS[source])


def test_a_new_one_is_checked_typed_and_tested(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """With all hooks there are."""
    hooks = [word for hook in HOOKS for word in ("--hook", hook)]
    ran = zonemta("plugin", "new", "staging", *hooks, "--folder", tmp_path)
    assert ran.code == Exit.OK, ran.err
    assert zonemta("plugin", "check", tmp_path / "staging.py").code == Exit.OK
    house = Path(__file__).parents[2]
    for command in (
        ("mypy", "--strict", "--no-error-summary", "staging.py"), ("ruff", "check", "--isolated", "."),
        ("pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_staging.py"),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(house)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_mistakes_with_a_new_one(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    assert zonemta("plugin", "new", "staging").code == Exit.OK
    ran = zonemta("plugin", "new", "staging")
    assert (ran.code, "staging.py exists; choose another name or folder" in ran.err) == (Exit.CANT_CREATE, True)
    ran = zonemta("plugin", "new", "Staging")
    assert (ran.code, "is not a name for a plugin" in ran.err) == (Exit.USAGE, True)
    for name in ("json", "async"):  # beside such a file, or by that name, nothing could be imported
        ran = zonemta("plugin", "new", name)
        assert (ran.code, "is a name of Python's own" in ran.err) == (Exit.USAGE, True)
        assert not (tmp_path / f"{name}.py").exists()
    ran = zonemta("plugin", "new", "other", "--hook", "queue_rout")
    assert (ran.code, "did you mean 'queue_route'?" in ran.err) == (Exit.USAGE, True)
    ran = zonemta("plugin", "new", "other", "--folder", tmp_path / "gone")
    assert (ran.code, ran.err.count("\n")) == (Exit.NO_INPUT, 1)

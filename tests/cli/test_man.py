"""Manual pages: every command and option is in one, and groff has no complaint."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zonemta_py.cli import man
from zonemta_py.cli.app import every, tree
from zonemta_py.cli.terminal.errors import Exit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    subprocess.run([sys.executable, "-m", "zonemta_py.cli.man", str(folder)], check=True)
    return folder


def shown(page: Path) -> str:
    """The page as people read it, with single spaces. Raises AssertionError where groff warns."""
    ran = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-c", "-rLL=100n", str(page)],
        capture_output=True, text=True, check=True, env=os.environ | {"GROFF_NO_SGR": "1"},
    )  # fmt: skip
    assert ran.stderr == ""
    return " ".join(re.sub(r".\x08", "", ran.stdout).split())


def test_every_command_and_option_has_its_place(folder: Path) -> None:
    pages = {page.name: shown(page) for page in folder.iterdir()}
    overview = pages["zonemta.1"]
    for name, command in every(tree()):
        if command.hidden:
            continue
        page = pages[f"zonemta-{name.split()[0]}.1"]
        assert f"zonemta {name.split()[0]}" in overview
        assert f"zonemta {name}" in page
        for parameter in [] if name == "run" else command.params:
            for option in parameter.opts if parameter.opts[0].startswith("-") and not parameter.hidden else ():
                assert option in page, (name, option)
    for option in ("--config", "--folder", "--listen", "--relay"):
        assert option in pages["zonemta-run.1"]
    for status in (0, 64, 69, 75):
        assert f" {status} " in overview.partition("EXIT STATUS")[2]


def test_the_table_of_commands_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/COMMANDS.md is what the commands say."""
    assert man.main(["--table"]) == Exit.OK
    assert (Path(__file__).parents[2] / "docs" / "COMMANDS.md").read_text() == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], Exit.USAGE, "give one folder for the pages"),
        (["/proc/none"], Exit.CANT_CREATE, "/proc/none: cannot be written (No such file or directory)"),
        ([__file__], Exit.CANT_CREATE, "cannot be written (File exists); give a folder"),
    ],
)
def test_one_sentence_for_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: Exit, sentence: str
) -> None:
    assert man.main(arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1

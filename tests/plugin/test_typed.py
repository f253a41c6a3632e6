"""The code in the papers about plugins passes mypy --strict, as a plugin's writer runs it: with the package installed,
and none of this repository's settings."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

import zonemta_py.plugin
from zonemta_py.plugin import skeleton
from zonemta_py.plugin.spec import HOOKS

TOP = Path(__file__).parents[2]
PAGES = ("docs/PLUGINS.md", "docs/PLUGINS_FROM.md", "docs/PLUGIN_FIELDS.md", "plugins/README.md")


def blocks() -> dict[str, str]:
    """Names of modules, and their text."""
    found = {}
    for page in PAGES:
        for number, text in enumerate(re.findall(r"```python\n(.*?)```", (TOP / page).read_text(), re.DOTALL)):
            stem = re.sub(r"\W", "_", page.lower())
            found["test_staging" if "def test_" in text else f"{stem}_{number}"] = text
    doc = zonemta_py.plugin.__doc__ or ""
    found["first_page"] = textwrap.dedent("\n".join(re.findall(r"^(?: {4}.*)?$", doc, re.M)))
    found["made"] = skeleton.plugin("made", list(HOOKS))
    found["test_made"] = skeleton.test("made", list(HOOKS))
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment in which the package is installed editable: a path, as setup.py has it; with what it needs."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "zonemta.pth").write_text(f"{TOP}\n{sysconfig.get_path('purelib')}\n")
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plugins")
    for name, text in blocks().items():
        (made / f"{name}.py").write_text(text)
    return made


def test_there_is_something_to_check(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) >= 10


def test_all_of_it_passes(folder: Path, python: Path) -> None:
    """Each file as a module of its own. (A wheel has `py.typed`, too: tests/test_wheel.py.)"""
    files = [path.name for path in sorted(folder.glob("*.py"))]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, *files],
        cwd=folder, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr

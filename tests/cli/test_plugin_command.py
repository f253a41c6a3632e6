"""A plugin's own command is a command of `zonemta`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.terminal.errors import Exit

PLUGIN = """
def setup(api):
    api.command("greet", greet)


def greet(name: str, loud: bool = False) -> None:
    print(f"Hello {name}{'!' if loud else '.'}")


async def queue_route(envelope, routing):
    pass
"""


@pytest.fixture
def enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zonemta: Callable[..., object]) -> Callable[..., object]:
    (tmp_path / "greeter.py").write_text(PLUGIN)
    (tmp_path / "c.toml").write_text(f"[plugins]\nenabled = ['{tmp_path}/greeter.py']")
    monkeypatch.setenv("ZONEMTA_CONFIG", str(tmp_path / "c.toml"))
    return zonemta


def test_its_parameters_are_arguments_and_options(enabled: Callable[..., object]) -> None:
    """As in typer: without a default an argument, with one an option."""
    assert enabled("greet", "Ann", "--loud") == (Exit.OK, "Hello Ann!\n", "")


def test_its_mistakes_are_reported_like_ours(enabled: Callable[..., object]) -> None:
    """One sentence, exit status 64."""
    ran = enabled("greet")
    assert ran.code == Exit.USAGE
    assert "Missing argument 'name'; see `zonemta greet --help`" in ran.err
    assert ran.err.count("\n") == 1


def test_other_names_are_still_unknown(enabled: Callable[..., object]) -> None:
    """Plugins add commands, they do not hide mistakes."""
    assert "No such command 'gret'" in enabled("gret").err

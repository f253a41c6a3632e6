"""Completion with the Tab key, as bash does it: the script is loaded, and its function called."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit

BASH = """
source <(zonemta completion bash)
COMP_WORDS=({line}); COMP_CWORD={number}
$(complete -p zonemta | sed -E 's/.*-F ([^ ]+).*/\\1/') "$(command -v zonemta)"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("line", "number", "expected"),
    [
        ("zonemta sus", 1, ["suspend"]),
        ("zonemta queue sho", 2, ["show"]),
        ("zonemta queue list --reci", 3, ["--recipient"]),
        ("zonemta suspend camp", 2, ["campaign"]),
    ],
)
def test_in_bash(line: str, number: int, expected: list[str]) -> None:
    """Names of commands, of those in a group, options, and words that are one of a few."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = BASH.format(line=line, number=number)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, env=os.environ | {"PATH": path}, check=True)
    assert ran.stdout.decode().split() == expected
    assert ran.stderr == b""


def test_other_shells(zonemta: Callable[..., Any]) -> None:
    """Each has its script; former names are not offered."""
    assert zonemta("completion", "zsh").out.startswith("#compdef zonemta")
    assert zonemta("completion", "fish").out.startswith("complete --command zonemta")
    assert zonemta("completion", "csh").code == Exit.USAGE


def test_it_answers_without_loading_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the name of a command no module of any command is imported."""
    script = "import sys; from zonemta_py.__main__ import main\ntry: main()\nfinally: print(*sys.modules)"
    asked = {"_ZONEMTA_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "zonemta st"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | asked, check=True
    )
    assert '"standing"' in ran.stdout
    assert '"stop"' not in ran.stdout
    assert not [name for name in ran.stdout.split() if name.startswith(("zonemta_py.cli.queue", "zonemta_py.queue"))]

"""Completion with the Tab key, as bash does it: the script is loaded, and its function called."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonemta_py.cli.terminal import completion
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

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
    assert completed(line, number) == expected


def completed(line: str, number: int, **more: str) -> list[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = BASH.format(line=line, number=number)
    environment = os.environ | {"PATH": path} | more
    ran = subprocess.run(["bash", "-c", script], capture_output=True, env=environment, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split()


def test_names_that_there_are(served: Callable[..., Any], tmp_path: Path) -> None:
    """Of zones and sources, as the configuration has them; of campaigns, as the queue knows them."""
    file = tmp_path / "zonemta.toml"
    file.write_text(
        f'[server]\nfolder = "{tmp_path}"\n[[zones]]\nname = "default"\n[[zones]]\nname = "bulk"\n'
        'sources = ["127.0.0.7"]\n'
    )

    async def put(queue: LocalQueue) -> None:
        await queue.accept(Envelope("a@x.test", [Recipient("b@y.test")], 4, campaign="spring"), b"Hi\r\n")

    served().do(put)
    assert completed("zonemta campaign status sp", 3, ZONEMTA_CONFIG=str(file)) == ["spring"]
    for kind, begun, expected in (("zone", "bu", ["bulk"]), ("source", "12", ["127.0.0.7"]), ("campaign", "x", [])):
        for context in ({"config": file}, {"config": file, "kind": kind}):
            said = completion._names(
                "kind" if "kind" in context else kind, SimpleNamespace(params=context), None, begun
            )
            assert said == expected


def test_commands_of_plugins(tmp_path: Path) -> None:
    """Their names beside ours, and their options."""
    (tmp_path / "greeter.py").write_text(
        '"""Greets."""\ndef setup(api, options):\n    api.command("surprise", surprise)\n\n'
        'def surprise(loud: bool = False):\n    """Surprise."""\n'
    )
    (tmp_path / "c.toml").write_text(f'[plugins]\nenabled = ["{tmp_path}/greeter.py"]\n')
    file = str(tmp_path / "c.toml")
    assert completed("zonemta su", 1, ZONEMTA_CONFIG=file) == ["summary", "suppression", "surprise", "suspend"]
    assert completed("zonemta surprise --lo", 2, ZONEMTA_CONFIG=file) == ["--loud"]


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

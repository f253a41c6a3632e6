"""SIGKILL at random moments; scripts/trials/crash strikes 200 times."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("queues", [1, 3])
def test_six_kills_lose_nothing(tmp_path: Path, queues: int) -> None:
    """Whichever process is killed, and whenever: what was acknowledged is delivered, only the in-doubt twice. With
    --json the script prints one JSON object on standard output, and its exit status says whether all is well."""
    short = ["--letters", "600", "--kills", "6", "--seed", "20", "--queues", str(queues)]
    command = ["scripts/trials/crash", *short, "--folder", str(tmp_path / "queue"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["acknowledged"], figures["seed"], figures["broken"]) == (600, 20, [])
    assert sum(figures["kills"].values()) == 6

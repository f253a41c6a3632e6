"""SIGKILL at random moments; scripts/trials/crash strikes 200 times."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from survival import crash

ROOT = Path(__file__).resolve().parents[2]


async def test_six_kills_lose_nothing(tmp_path: Path) -> None:
    """Whichever process is killed, and whenever: what was acknowledged is delivered, only the in-doubt twice."""
    figures = await crash.trial(tmp_path, letters=600, kills=6, seed=20)
    assert figures["broken"] == []
    assert figures["acknowledged"] == 600
    assert sum(figures["kills"].values()) == 6


def test_the_script_gives_figures_as_json(tmp_path: Path) -> None:
    """With --json it prints one JSON object on standard output, and its exit status says whether all is well."""
    short = ["--letters", "60", "--kills", "2", "--seed", "1"]
    command = ["scripts/trials/crash", *short, "--folder", str(tmp_path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["acknowledged"], figures["seed"], figures["broken"]) == (60, 1, [])

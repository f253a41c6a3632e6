"""scripts/trials/ring in short: every contender gives back what it took, and the ring writes each byte about once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.disk
def test_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ringwrites", "--records", "300", "--json", "--folder", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts" / "trials")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ring, *others = json.loads(done.stdout)
    assert ring["contender"] == "ring"
    assert len(others) == 4
    assert ring["amplification_calls"] < 1.3  # the last page, and three writes of metadata, count much of so few
    assert ring["write_calls_per_record"] < 0.1
    if ring["written_bytes"]:  # not in memory; pages that a busy machine has written back meanwhile count again
        assert all(ring["written_bytes"] < 1.1 * other["written_bytes"] for other in others)

"""scripts/cluster: three machines as one MTA, of which one dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nats_servers import program

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("more", [(), ("--server",)])
def test_a_node_dies_and_nothing_is_lost(tmp_path: Path, more: tuple[str, ...]) -> None:
    if not program():
        pytest.skip("nats-server is not installed; run scripts/prepare --dev")
    ran = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "cluster.py"), "--messages", "40", "--folder", str(tmp_path), *more],
        env=os.environ | {"PYTHONPATH": str(TOP)}, cwd=tmp_path, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert re.search(r"node [abc] takes over queue \d+ \(epoch 2\)", said), said
    assert re.search(r"accepted (\d+) \(.*\), delivered \1, lost 0", said), said
    assert "has joined again, and 10 messages went through it" in said
    assert all(server not in ran.stderr for server in ("Traceback", "Error"))

"""config/zonemta.service: systemd's own tools find nothing wrong with it, and a sandbox around it."""

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "config" / "zonemta.service"
EXPOSED_MOST = 30
"""Of 100; units without a sandbox have 96."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Verified with a program that is there in the place of the installed one; and rated by what it may do."""
    unit = tmp_path / "zonemta.service"
    unit.write_text(UNIT.read_text().replace("/opt/zonemta/bin/zonemta", shutil.which("true") or ""))
    for command in (["verify", "--man=no"], ["security", "--offline=true", f"--threshold={EXPOSED_MOST}"]):
        ran = subprocess.run(["systemd-analyze", *command, str(unit)], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "zonemta.service:" not in ran.stderr, ran.stderr

"""scripts/trials/pull: short runs; what is pasted from docs/QUEUES.md works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ports import free_port

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "QUEUES.md").read_text()


def test_the_benchmark_has_all_three_in_one_run() -> None:
    if not (shutil.which("ncat") and shutil.which("redis-server")):
        pytest.skip("ncat or redis-server is not installed (apt-get install ncat redis-server)")
    options = ["--rounds", "1", "--ncat", "1", "--messages", "20", "--clients", "2", "--json"]
    command = ["scripts/trials/pull", "benchmark", *options]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {name.rpartition(": ")[2] for name in figures} == {"zonemta-py", "shell (seed)", "Redis"}
    assert all(figure["median"] > 0 for name, figure in figures.items() if "/s" in name)
    assert figures["ncat, one at a time: lost: zonemta-py"]["median"] == 0


def test_the_first_page_works_when_pasted(tmp_path: Path) -> None:
    """The configuration and the commands of "In a minute", and the loop of a worker, in a shell, line by line."""
    if shutil.which("ncat") is None:
        pytest.skip("ncat is not installed (apt-get install ncat)")
    port, smtp = str(free_port()), str(free_port())
    section = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0] + f"port = {port}\n"
    folder = f'[server]\nfolder = "{tmp_path}/queue"\n[[listeners]]\nport = {smtp}\n'
    (tmp_path / "zonemta.toml").write_text(section + folder)
    minute, asked, worker = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[:3]
    pasted = "\n".join(
        ["set -e", minute.replace("config zonemta.toml &", "config zonemta.toml 2>log & mta=$!"), asked, worker]
    )
    pasted = pasted.replace("1234", port).replace("zonemta run", f"{TOP}/.venv/bin/zonemta run")
    script = f"trap 'kill -9 $mta' EXIT\n{pasted}cat work\n"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (0, []), done.stderr
    first, second = "resize cat.jpg\n", r"[0-9a-f]{16}\nresize cat\.jpg\n"
    assert re.fullmatch(re.escape(first) + second, done.stdout)

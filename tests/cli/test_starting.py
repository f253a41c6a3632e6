"""Commands in the first moments of an MTA, and after its last: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from zonemta_py.cli.run import folder_lock
from zonemta_py.cli.terminal.errors import Exit

Told = Callable[..., Any]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """begun() → `zonemta run` whose supervisor has just announced itself."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "zonemta_py", "run", "--folder", str(tmp_path)]
        listen = ["--listen", f"127.0.0.1:{free_port()}", "--relay", "127.0.0.1:9"]
        with (tmp_path / "log").open("wb") as log:
            running.append(subprocess.Popen([*command, *listen], stderr=log))
        while not folder_lock.there(tmp_path):
            assert running[-1].poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.001)
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_a_command_waits_for_a_queue_that_starts(
    begun: Any, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first moment, and after a kill, when the socket of the process before is there; but for an MTA that has
    ended nobody waits: this test would not end in time."""
    monkeypatch.setattr("zonemta_py.cli.run.ask_queue.START_S", 3600)
    for _ in range(2):
        mta = begun()
        ran = told("queue", "size")
        assert (ran.code, ran.err) == (0, "")
        mta.kill()
        mta.wait()
        assert not folder_lock.there(tmp_path)
        assert told("queue", "size").code == Exit.UNAVAILABLE
    assert (tmp_path / folder_lock.NAME).stat().st_uid == os.getuid()


def test_one_that_does_not_come_is_said(monkeypatch: pytest.MonkeyPatch, told: Told, tmp_path: Path) -> None:
    """After a while, with what to look at."""
    monkeypatch.setattr("zonemta_py.cli.run.ask_queue.START_S", 0.2)
    program = (
        "import sys, pathlib; from zonemta_py.cli.run import folder_lock;"
        "folder_lock.announce(pathlib.Path(sys.argv[1]), None); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    (tmp_path / folder_lock.NAME).touch()
    os.utime(tmp_path / folder_lock.NAME, (1, 1))  # of one that ran before
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert folder_lock.since_s(tmp_path) > 1
        ran = told("status")
        assert ran.code == Exit.UNAVAILABLE
        assert (
            ran.err == f"zonemta: the MTA in {tmp_path} runs, but its queue does not answer yet; its log may say why\n"
        )
        assert other.stdin is not None
        other.stdin.close()

"""Plugins' `start`, tasks and `stop` in the real MTA: with kills, a reload, an end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import kept_port
from survival.rig import Mta

from zonemta_py.queues.client import Queues
from zonemta_py.queues.placement import Placement

PLUGIN = """
import asyncio, os
from pathlib import Path

SAID = Path(__file__).with_name("said")

def _say(what):
    with SAID.open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def setup(api):
    global _api
    _api = api
    api.task("poll", _poll, once=True)
    api.task("stubborn", _stubborn)

async def start(api, process):
    assert await api.store.take("starts", 1, 1000, 3600)
    _say(f"start {process}")

async def stop(api, process):
    _say(f"stop {process}")

async def _poll():
    _say("polls")
    try:
        while True:
            await _api.store.set("polls", os.getpid(), 3600)
            _api.count("polled")
            await asyncio.sleep(0.05)
    finally:
        _say("ends")

async def _stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""
ALL = {"queue", "queue-1", "receiver-1", "receiver-2", "sender-1", "sender-2", "http"}


class Said:
    """What the plugin's processes have said."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self, word: str) -> list[str]:
        text = self._path.read_text() if self._path.exists() else ""
        return [line for line in text.splitlines() if line.startswith(word)]

    def pids(self, word: str) -> list[int]:
        return [int(line.rpartition(" ")[2]) for line in self.lines(word)]

    def names(self, word: str, since: int = 0) -> set[str]:
        return {line.split()[1] for line in self.lines(word)[since:]}


@pytest.fixture
def mta(tmp_path: Path) -> Iterator[Mta]:
    plugin = tmp_path / "lives.py"
    plugin.write_text(PLUGIN)
    port = kept_port()
    http = f'[http]\nenabled = true\nport = {port.getsockname()[1]}\n[plugins]\nenabled = ["{plugin}"]\ntimeout_s = 2\n'
    one = Mta(tmp_path / "queue", 9, home=tmp_path, queues=2, more=http)
    text = one.config_file.read_text()
    one.config_file.write_text(text.replace("[server]\n", "[server]\nstop_s = 60\n"))
    one.start()
    asyncio.run(one.taking())
    yield one
    one.end()
    port.close()


def kept(mta: Mta, what: str, name: str) -> Any:
    """What the plugin has in its store."""

    async def ask() -> Any:
        return await Queues(mta.folder, Placement(range(2)), "test").plugin_store(what, "lives", name, "", [])

    return asyncio.run(ask())


def until(true: Callable[[], object], seconds: float = 60.0) -> float:
    """How long it took."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() < begun + seconds, "it did not happen"
        time.sleep(0.05)
    return time.monotonic() - begun


def test_processes_begin_and_end_with_their_plugins(mta: Mta, tmp_path: Path) -> None:
    """One of all polls, whoever is killed; the successor of what was killed starts anew; at a reload what was there
    ends; at the end of the MTA all do."""
    said = Said(tmp_path / "said")
    until(lambda: said.names("start") == ALL and said.lines("polls"))

    assert kept(mta, "taken", "starts") == len(ALL), "each queue asks the others, and itself, while all begin"
    (polls,) = said.pids("polls")
    until(lambda: kept(mta, "get", "polls") == str(polls).encode())
    os.kill(polls, signal.SIGKILL)
    until(lambda: len(said.pids("polls")) == 2 and len(said.lines("start")) == len(ALL) + 1)
    assert said.lines("ends") == [], "a process that is killed says nothing"
    assert polls not in said.pids("polls")[1:]

    started, polled = len(said.lines("start")), len(said.lines("polls"))
    assert mta.ask("reload")["refused"] == []
    until(lambda: said.names("start", started) == ALL)
    until(lambda: said.names("stop") == ALL)
    until(lambda: len(said.pids("polls")) > polled)  # one of those that are about to end may poll for a moment
    assert "hook task stubborn" in mta.log.read_text()
    assert len(re.findall("has not ended 3 s after it was told to, and is abandoned", mta.log.read_text())) == len(ALL)

    until(lambda: kept(mta, "get", "polls") == str(said.pids("polls")[-1]).encode())
    assert kept(mta, "taken", "starts") == len(said.lines("start"))
    assert "hook start" not in mta.log.read_text()

    stopped = len(said.lines("stop"))
    mta.terminate()
    until(lambda: said.names("stop", stopped) == ALL)
